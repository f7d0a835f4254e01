"""Faults on demand: the next calls of a method fail before or after their effect."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.faults import Answers, Cut, Hangs, Lost, Plans, Slow


@dataclass(frozen=True)
class Fails:
    """`{"ok": false, "error": code}`."""

    code: str


@dataclass(frozen=True)
class TooMany:
    """HTTP 429 with Retry-After, in seconds."""

    retry_after: int = 1


Fault = Fails | Answers | TooMany | Hangs | Cut | Lost | Slow
Faults = Plans[Fault]
"""Faults of the next calls, by method."""

__all__ = ["Answers", "Cut", "Fails", "Fault", "Faults", "Hangs", "Lost", "Slow", "TooMany"]

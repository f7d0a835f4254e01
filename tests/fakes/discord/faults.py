"""Faults on demand: the next calls of a route fail before or after their effect."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.faults import Answers, Cut, Hangs, Lost, Plans, Slow


@dataclass(frozen=True)
class Fails:
    """Discord's refusal with this code; the status is the one that belongs to it unless another is given."""

    code: int
    status: int = 0


@dataclass(frozen=True)
class TooMany:
    """HTTP 429 with `retry_after`, in seconds; `everywhere`: for the whole bot."""

    retry_after: float = 0.1
    everywhere: bool = False


Fault = Fails | Answers | TooMany | Hangs | Cut | Lost | Slow
Faults = Plans[Fault]
"""Faults of the next calls, by route."""

__all__ = ["Answers", "Cut", "Fails", "Fault", "Faults", "Hangs", "Lost", "Slow", "TooMany"]

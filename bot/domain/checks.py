"""Checks of `doctor` and their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """Result of one check."""

    WELL = "ok"
    DOUBTFUL = "warning"
    BROKEN = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, a sentence on it, a remedy, and the duration in seconds (None if unknown)."""

    name: str
    finding: CheckStatus
    detail: str = ""
    fix: str = ""
    seconds: float | None = None

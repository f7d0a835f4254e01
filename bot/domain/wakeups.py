"""What one process calls to the others: hints, which may be lost, that a row has changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkAvailable:
    """There may be a turn to claim or a drawing to make."""


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """Somebody has decided something about this turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants this turn stopped."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """Servers, policies or profiles are others now."""


Wakeup = WorkAvailable | ApprovalDecided | StopRequested | ConfigChanged

"""Notifications between processes: hints that a row has changed. They may be lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkAvailable:
    """A turn to claim or a view to deliver may be available."""


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A decision was made on an approval of this turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop of this turn was requested."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """Servers, policies or profiles have changed."""


Wakeup = WorkAvailable | ApprovalDecided | StopRequested | ConfigChanged

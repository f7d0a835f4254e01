"""Faults on demand that every platform has, and the planned ones of the next calls."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Fault = TypeVar("Fault")


@dataclass(frozen=True)
class Answers:
    """An HTTP status with a body that is not the platform's JSON."""

    status: int = 500
    body: str = "<html>Something went wrong</html>"


@dataclass(frozen=True)
class Hangs:
    """No answer until the platform closes; the call has no effect."""


@dataclass(frozen=True)
class Cut:
    """The connection breaks before the call has an effect."""


@dataclass(frozen=True)
class Lost:
    """The call is done, but the connection breaks before the answer."""


@dataclass(frozen=True)
class Slow:
    """The call is done and answered after this many seconds of real time."""

    seconds: float


@dataclass
class Plans(Generic[Fault]):
    """Faults of the next calls, by the name of the called method: instead of the call, or after it."""

    planned: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))

    def plan(self, called: str, fault: Fault, times: int = 1) -> None:
        """Let the next `times` calls meet this; plans follow one another."""
        self.planned[called] += [fault] * times

    def clear(self, called: str | None = None) -> None:
        """Forget the planned faults of one name or of all."""
        if called is None:
            self.planned.clear()
        else:
            self.planned.pop(called, None)

    def next(self, called: str) -> Fault | None:
        """Return this call's fault, if any."""
        waiting = self.planned.get(called)
        return waiting.pop(0) if waiting else None

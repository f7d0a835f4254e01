"""Trouble on demand: what the next calls of a method meet instead of, or after, being done."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fails:
    """`{"ok": false, "error": code}`."""

    code: str


@dataclass(frozen=True)
class Answers:
    """An HTTP status with a body that is not Slack's JSON."""

    status: int = 500
    body: str = "<html>Something went wrong</html>"


@dataclass(frozen=True)
class TooMany:
    """HTTP 429 with Retry-After, in seconds."""

    retry_after: int = 1


@dataclass(frozen=True)
class Hangs:
    """No answer until the workspace closes; nothing is done."""


@dataclass(frozen=True)
class Cut:
    """The connection breaks before anything is done."""


@dataclass(frozen=True)
class Lost:
    """The call is done, but the connection breaks before the answer."""


@dataclass(frozen=True)
class Slow:
    """The call is done and answered after this many seconds of real time."""

    seconds: float


Fault = Fails | Answers | TooMany | Hangs | Cut | Lost | Slow


@dataclass
class Faults:
    """What is planned for the next calls, by method."""

    planned: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))

    def plan(self, method: str, fault: Fault, times: int = 1) -> None:
        """Let the next `times` calls of a method meet this; plans follow one another."""
        self.planned[method] += [fault] * times

    def clear(self, method: str | None = None) -> None:
        """Forget what was planned, for one method or for all."""
        if method is None:
            self.planned.clear()
        else:
            self.planned.pop(method, None)

    def next(self, method: str) -> Fault | None:
        """What this call meets, if anything."""
        waiting = self.planned.get(method)
        return waiting.pop(0) if waiting else None

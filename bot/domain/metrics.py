"""Measurements at runtime, as a closed set. The measuring code does not know the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

ModelOutcome = Literal["answered", "unavailable", "rejected", "stopped"]
"""Outcome of a model request; `stopped`: cancelled, because the turn was stopped or the process ended."""
ApprovalOutcome = Literal["approved", "denied", "expired", "cancelled", "not shown"]
"""Outcome of an approval; `not shown`: its card could not be posted."""
DeliveryOutcome = Literal["drawn", "delayed", "given up"]
SessionEvent = Literal["created", "closed", "error"]
CacheEvent = Literal["hit", "miss", "refresh"]


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn has ended: `done`, `failed` or `cancelled`, so many seconds after it was asked for."""

    platform: str
    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model was asked, which counts once for each attempt. `first_seconds` is when the first piece came, None if none
    did. Tokens are as the provider counted them.
    """

    model: str
    outcome: ModelOutcome
    seconds: float
    first_seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A tool call has ended: `done`, `failed`, `unknown`, or `denied` by a policy. What people turn down is an
    `ApprovalEnded` and no more. `seconds` is how long it was under way, None if it was not sent or nobody knows.
    """

    server: str
    tool: str
    status: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call waits for a signature."""

    platform: str


@dataclass(frozen=True, slots=True)
class ApprovalEnded:
    """The approval no longer waits; seconds since the request."""

    platform: str
    outcome: ApprovalOutcome
    seconds: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """A turn was to be drawn: it is out, or will be tried again later, or was given up; and how long that took."""

    platform: str
    outcome: DeliveryOutcome
    seconds: float


@dataclass(frozen=True, slots=True)
class PlatformLimited:
    """A platform has asked for a pause of so many seconds, or its limits as we keep them made a call wait that long."""

    platform: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """A session with an MCP server was `created`; or `closed`, as it was meant to be; or an `error` has ended it, or
    kept it from being made.
    """

    server: str
    event: SessionEvent


@dataclass(frozen=True, slots=True)
class CacheUsed:
    """Cached tools of a server were used (`hit`), missing (`miss`), or fetched again (`refresh`)."""

    server: str
    event: CacheEvent


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """Counters of this process: events of sessions and of the tool cache."""

    sessions: Mapping[str, int] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoopLagged:
    """The event loop came back to a task so many seconds after it was due: what everything else waits for, too."""

    seconds: float


MetricEvent = (
    TurnEnded
    | ModelAnswered
    | CallEnded
    | ApprovalAsked
    | ApprovalEnded
    | Delivered
    | PlatformLimited
    | SessionChanged
    | CacheUsed
    | LoopLagged
)
MetricSink = Callable[[MetricEvent], None]
"""Takes a measurement, at once and without ever raising. Called in the event loop's thread."""


def null_sink(measurement: MetricEvent) -> None:
    """Discard all measurements."""

"""Measurements at runtime, a closed set. The measuring code does not depend on the sink."""

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
    """A turn has ended as `done`, `failed` or `cancelled`. `seconds` is the time since its message."""

    platform: str
    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model request has ended; each attempt counts. `first_seconds` is the time until the first event, None without
    one. Tokens are as counted by the provider.
    """

    model: str
    outcome: ModelOutcome
    seconds: float
    first_seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A tool call has ended as `done`, `failed`, `unknown`, or `denied` by a policy. A denial by a user is an
    `ApprovalEnded` only. `seconds` is the duration of the call, None if it was not sent or the time is unknown.
    """

    server: str
    tool: str
    status: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call waits for an approval."""

    platform: str


@dataclass(frozen=True, slots=True)
class ApprovalEnded:
    """An approval has ended. `seconds` is the time since the request."""

    platform: str
    outcome: ApprovalOutcome
    seconds: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """An attempt to deliver a turn's view has ended: done, delayed or given up. `seconds` is its duration."""

    platform: str
    outcome: DeliveryOutcome
    seconds: float


@dataclass(frozen=True, slots=True)
class PlatformLimited:
    """A platform has requested a pause of `seconds`, or the bot's own limit for the platform delayed a call by
    `seconds`.
    """

    platform: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """A session with an MCP server was `created`, or `closed` as intended, or an `error` ended or prevented it."""

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
    """The event loop resumed a task `seconds` after it was due. All other tasks wait equally."""

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
"""Record a measurement. Returns at once, never raises, and runs in the event loop's thread."""


def null_sink(measurement: MetricEvent) -> None:
    """Discard all measurements."""

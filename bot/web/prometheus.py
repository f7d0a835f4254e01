"""Prometheus metrics: `/metrics`.

Counters are of this process and start at zero with it. Gauges of unfinished work are read from the database on each
scrape, and are the same in every process. The global registry of prometheus_client is not used.

Labels are names of platforms, models, servers and tools. Beyond a limit per label, names are counted as `other`. No
label holds user text or user names.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot import __version__
from bot.domain.metrics import (
    ApprovalAsked,
    ApprovalEnded,
    ApprovalOutcome,
    CacheUsed,
    CallEnded,
    Delivered,
    DeliveryOutcome,
    LoopLagged,
    MetricEvent,
    MetricSink,
    ModelAnswered,
    PlatformLimited,
    SessionChanged,
    TurnEnded,
)
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.domain.turns import TurnStatus
from bot.errors import DatabaseError
from bot.ports import Backlog

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

PATH = "/metrics"
MOST_TOOLS = 200
MOST_SERVERS = 100
MOST_MODELS = 50
OTHER = "other"
LONGEST_NAME = 100
FRESH_SECONDS = 5.0
"""Seconds that values read from the database are reused."""
READING_SECONDS = 3.0
LAG_SECONDS = 0.5
"""Interval of the measurements of the event loop's lag."""

_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_PEOPLE = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)
_LAG = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

Names = tuple[str, ...]


class _KnownNames:
    """The first names up to a limit; later ones become `other`. Tool names may be long or contain half a surrogate
    pair.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[Names] = set()

    def __call__(self, *labels: str) -> Names:
        names = tuple(label[:LONGEST_NAME].encode("utf-8", "replace").decode() for label in labels)
        if names not in self._names:
            if len(self._names) >= self._most:
                return (OTHER,) * len(names)
            self._names.add(names)
        return names


class _Registry(CollectorRegistry):
    """Registry without the `_created` samples, which double the number of series."""

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """Metrics of this process, and gauges that are read on a scrape."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self.registry = registry = _Registry()
        self._gauges = _Gauges(clock)
        self._platforms: set[str] = set()
        self._servers, self._tools, self._models = (
            _KnownNames(MOST_SERVERS),
            _KnownNames(MOST_TOOLS),
            _KnownNames(MOST_MODELS),
        )

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"countersign_{name}", documentation, labels, registry=registry)

        def histogram(name: str, documentation: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"countersign_{name}", documentation, labels, buckets=buckets, registry=registry)

        self._turns = counter("turns", "Turns that have ended, as done, failed or cancelled.", "platform", "status")
        self._turn_seconds = histogram(
            "turn_seconds", "From the question to the end, people's thinking included.", _LONG, "platform"
        )
        self._requests = counter("model_requests", "Times a model was asked, repeats included.", "model", "outcome")
        self._model_seconds = histogram("model_seconds", "How long a model took for a whole answer.", _LONG, "model")
        self._first_token = histogram(
            "model_first_token_seconds", "How long a model took to begin its answer.", _LONG, "model"
        )
        self._tokens = counter("model_tokens", "Tokens, as the provider counted them.", "model", "kind")
        self._calls = counter("tool_calls", "Tool calls that have ended.", "server", "tool", "status")
        self._call_seconds = histogram("tool_seconds", "Duration of a tool call.", _SHORT, "server")
        self._approvals_asked = counter("approvals_asked", "Approvals that were requested.", "platform")
        self._approvals_ended = counter("approvals_ended", "Approvals that wait no longer.", "platform", "outcome")
        self._approval_seconds = histogram(
            "approval_seconds", "Time from the request of an approval to its outcome.", _PEOPLE, "outcome"
        )
        self._deliveries = counter("deliveries", "Drawings of turns that were attempted.", "platform", "outcome")
        self._delivery_seconds = histogram(
            "delivery_seconds", "How long a platform took for a whole drawing.", _SHORT, "platform"
        )
        self._limited = histogram(
            "platform_limited_seconds", "How long a platform's limits made calls wait.", _SHORT, "platform"
        )
        self._sessions = counter("mcp_sessions", "Sessions with MCP servers.", "server", "event")
        self._cache = counter("mcp_cache", "Uses of what is known of a server's tools.", "server", "event")
        self._lag = histogram("event_loop_lag_seconds", "How late the event loop was.", _LAG)
        build = Gauge("countersign_build_info", "What runs.", ("version", "python"), registry=registry)
        build.labels(__version__, platform.python_version()).set(1)
        registry.register(self._gauges)
        ProcessCollector(registry=registry)

    def set_sources(
        self,
        backlog: Callable[[], Awaitable[Backlog]],
        servers: Callable[[], Iterable[ServerSnapshot]],
        takes_writes: Callable[[], bool] = lambda: True,
        uses_files: Callable[[], bool] = lambda: True,
    ) -> None:
        """Set the sources of the gauges: unfinished work, state of MCP servers, database health, and whether the
        operator's files are in use as they are on disk.
        """
        self._gauges.backlog, self._gauges.servers = backlog, servers
        self._gauges.takes_writes = takes_writes
        self._gauges.uses_files = uses_files

    def observe(self, measurement: MetricEvent) -> None:  # noqa: C901, PLR0912 - one case for each kind
        """Count an event."""
        match measurement:
            case TurnEnded(platform_name, status, seconds):
                self._create_series(platform_name)
                self._turns.labels(platform_name, status).inc()
                self._turn_seconds.labels(platform_name).observe(seconds)
            case ModelAnswered():
                (model,) = self._models(measurement.model)
                self._requests.labels(model, measurement.outcome).inc()
                if measurement.outcome == "answered":
                    self._model_seconds.labels(model).observe(measurement.seconds)
                    self._tokens.labels(model, "input").inc(measurement.input_tokens)
                    self._tokens.labels(model, "output").inc(measurement.output_tokens)
                if measurement.first_seconds is not None:
                    self._first_token.labels(model).observe(measurement.first_seconds)
            case CallEnded(server, tool, status, seconds):
                self._calls.labels(*self._tools(server, tool), status).inc()
                if seconds is not None:
                    self._call_seconds.labels(*self._servers(server)).observe(seconds)
            case ApprovalAsked(platform_name):
                self._create_series(platform_name)
                self._approvals_asked.labels(platform_name).inc()
            case ApprovalEnded(platform_name, outcome, seconds):
                self._approvals_ended.labels(platform_name, _label(outcome)).inc()
                self._approval_seconds.labels(_label(outcome)).observe(seconds)
            case Delivered(platform_name, outcome, seconds):
                self._create_series(platform_name)
                self._deliveries.labels(platform_name, _label(outcome)).inc()
                self._delivery_seconds.labels(platform_name).observe(seconds)
            case PlatformLimited(platform_name, seconds):
                self._limited.labels(platform_name).observe(seconds)
            case SessionChanged(server, event):
                self._sessions.labels(*self._servers(server), event).inc()
            case CacheUsed(server, event):
                self._cache.labels(*self._servers(server), event).inc()
            case LoopLagged(seconds):
                self._lag.observe(seconds)

    def _create_series(self, platform_name: str) -> None:
        """Create all series of a platform with zero: queries miss the first increment of a new series."""
        if platform_name in self._platforms:
            return
        self._platforms.add(platform_name)
        for status in TurnStatus:
            if status.ended:
                self._turns.labels(platform_name, status)
        for outcome in get_args(ApprovalOutcome):
            self._approvals_ended.labels(platform_name, _label(outcome))
        for outcome in get_args(DeliveryOutcome):
            self._deliveries.labels(platform_name, _label(outcome))

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text, and the media type: the accepted one if Prometheus defines it."""
        await self._gauges.refresh()
        encode, media_type = choose_encoder(accept)
        # In a thread: rendering thousands of series would block the event loop.
        return await asyncio.to_thread(encode, self.registry), media_type

    def route(self) -> Route:
        """Return the route of the metrics."""

        async def respond(request: Request) -> Response:
            content, media_type = await self.render(request.headers.get("accept", ""))
            return Response(content, headers={"Content-Type": media_type})

        return Route(PATH, respond)


def _label(outcome: str) -> str:
    return outcome.replace(" ", "_")


class _Gauges(Collector):
    """Collector of gauges, with the values of the last read. Empty without sources."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.backlog: Callable[[], Awaitable[Backlog]] | None = None
        self.servers: Callable[[], Iterable[ServerSnapshot]] = tuple
        self.takes_writes: Callable[[], bool] = lambda: True
        self.uses_files: Callable[[], bool] = lambda: True
        self._clock = clock
        self._backlog: Backlog | None = None
        self._states: Sequence[ServerSnapshot] = ()
        self._read_at = -FRESH_SECONDS
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the values again if they are old. Unreadable values are left out."""
        self._states = tuple(self.servers())
        async with self._reading:
            if self.backlog is None or self._clock() - self._read_at < FRESH_SECONDS:
                return
            self._backlog = None
            try:
                async with asyncio.timeout(READING_SECONDS):
                    self._backlog = await self.backlog()
            except (DatabaseError, TimeoutError) as error:
                log.debug("backlog for metrics could not be read: %s", error or "no answer in time")
            self._read_at = self._clock()

    def describe(self) -> Iterable[Metric]:
        """Return no metrics: registration must not read."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. prometheus_client calls this in a thread, so it uses no event loop."""
        if self.backlog is not None:
            answers = float(self._backlog is not None)
            yield GaugeMetricFamily("countersign_database_up", "Whether the database answers.", answers)
            yield GaugeMetricFamily(
                "countersign_database_writable",
                "0 while the database refuses writes: its disk is full or fails, or it is read-only.",
                float(self.takes_writes()),
            )
            yield GaugeMetricFamily(
                "countersign_operator_files_current",
                "0 while a changed file of the operator cannot be used, and the previous one is in use.",
                float(self.uses_files()),
            )
        if self._backlog is not None:
            yield from _backlog_gauges(self._backlog)
        yield from _server_gauges(self._states)


def _backlog_gauges(backlog: Backlog) -> Iterable[Metric]:
    live = GaugeMetricFamily("countersign_turns_live", "Turns that go on, in all processes.", labels=["status"])
    for status, number in backlog.turns.items():
        live.add_metric([status], number)
    yield live
    yield GaugeMetricFamily(
        "countersign_turns_ready_oldest_seconds",
        "How long the oldest turn has waited that could begin, in all processes. Turns that the limit of their user "
        "holds back do not count.",
        backlog.oldest_ready,
    )
    yield GaugeMetricFamily(
        "countersign_approvals_waiting", "Calls that wait for an approval, in all processes.", backlog.approvals
    )
    yield GaugeMetricFamily(
        "countersign_deliveries_behind", "Turns whose drawing is behind, in all processes.", backlog.drawings
    )


def _server_gauges(states: Sequence[ServerSnapshot]) -> Iterable[Metric]:
    known_names = _KnownNames(MOST_SERVERS)
    active: Tally[str] = Tally()
    for state in states:
        (server,) = known_names(state.config.name)
        active[server] += state.status is ServerStatus.CONNECTED
    sessions = GaugeMetricFamily("countersign_mcp_sessions_active", "Sessions that stand.", labels=["server"])
    for server, number in active.items():
        sessions.add_metric([server], number)
    yield sessions
    servers = GaugeMetricFamily("countersign_mcp_servers", "MCP servers by how they stand.", labels=["status"])
    for status, number in Tally(state.status.name.lower() for state in states).items():
        servers.add_metric([status], number)
    yield servers


async def watch_loop(
    observe: MetricSink,
    *,
    seconds: float = LAG_SECONDS,
    clock: Callable[[], float] = monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Measure the event loop's lag every `seconds`, until cancelled: the time from when a task is due to its wakeup."""
    while True:
        due = clock() + seconds
        await pause(seconds)
        observe(LoopLagged(max(0.0, clock() - due)))

"""`/metrics` in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.domain.metrics import (
    ApprovalAsked,
    ApprovalEnded,
    CacheUsed,
    CallEnded,
    Delivered,
    LoopLagged,
    MetricEvent,
    ModelAnswered,
    PlatformLimited,
    SessionChanged,
    TurnEnded,
)
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus
from bot.errors import DatabaseUnavailable
from bot.ports import Backlog
from bot.web.application import application
from bot.web.prometheus import FRESH_SECONDS, MOST_SERVERS, MOST_TOOLS, Metrics, watch_loop
from bot.web.server import serve

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def samples(metrics: Metrics) -> Samples:
    content, _ = await metrics.render()
    return read(content.decode())


def of(found: Samples, name: str, **labels: str) -> float:
    return found[f"countersign_{name}", tuple(sorted(labels.items()))]


def stands(name: str, status: ServerStatus) -> ServerSnapshot:
    return ServerSnapshot(ServerConfig(name, HttpTransport("https://x.example")), status)


@dataclass
class FakeRuntime:
    """A backlog with a clock that stands still."""

    backlog: Backlog = Backlog({"queued": 2, "running": 1, "waiting": 3}, 12.5, 4, 5)
    states: Sequence[ServerSnapshot] = ()
    away: bool = False
    time: float = 0.0
    looks: int = 0
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(clock=lambda: self.time)
        self.metrics.set_sources(self.read_backlog, lambda: self.states)

    async def read_backlog(self) -> Backlog:
        self.looks += 1
        if self.away:
            raise DatabaseUnavailable("The database is away.")
        return self.backlog


@asynccontextmanager
async def serving(metrics: Metrics) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        serve(application(pages=[metrics.route()]), "127.0.0.1", 0) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield client


async def test_it_is_served_as_prometheus_asks_for_it() -> None:
    async with serving(Metrics()) as client:
        plain = await client.get("/metrics")
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "countersign_build_info{" in plain.text
        head = await client.head("/metrics")
        assert (head.status_code, head.content, head.headers["content-type"]) == (
            200,
            b"",
            plain.headers["content-type"],
        )
        wanted = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        modern = await client.get("/metrics", headers=wanted)
        assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert modern.text.endswith("# EOF\n")
        assert (await client.post("/metrics")).status_code == 405


@pytest.mark.parametrize(
    ("measured", "name", "labels"),
    [
        (TurnEnded("slack", "done", 1.5), "turns_total", {"platform": "slack", "status": "done"}),
        (TurnEnded("slack", "done", 1.5), "turn_seconds_count", {"platform": "slack"}),
        (CallEnded("s", "t", "failed", 0.5), "tool_calls_total", {"server": "s", "tool": "t", "status": "failed"}),
        (CallEnded("s", "t", "failed", 0.5), "tool_seconds_count", {"server": "s"}),
        (ApprovalAsked("slack"), "approvals_asked_total", {"platform": "slack"}),
        (
            ApprovalEnded("slack", "expired", 60.0),
            "approvals_ended_total",
            {"platform": "slack", "outcome": "expired"},
        ),
        (ApprovalEnded("slack", "expired", 60.0), "approval_seconds_count", {"outcome": "expired"}),
        (Delivered("slack", "given up", 1.0), "deliveries_total", {"platform": "slack", "outcome": "given_up"}),
        (Delivered("slack", "drawn", 1.0), "delivery_seconds_count", {"platform": "slack"}),
        (PlatformLimited("discord", 3.0), "platform_limited_seconds_count", {"platform": "discord"}),
        (SessionChanged("s", "created"), "mcp_sessions_total", {"server": "s", "event": "created"}),
        (CacheUsed("s", "hit"), "mcp_cache_total", {"server": "s", "event": "hit"}),
        (LoopLagged(0.02), "event_loop_lag_seconds_count", {}),
        (ModelAnswered("m", "rejected", 1.0), "model_requests_total", {"model": "m", "outcome": "rejected"}),
    ],
)
async def test_each_kind_is_counted(measured: MetricEvent, name: str, labels: dict[str, str]) -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.observe(measured)
    assert of(await samples(metrics), name, **labels) == 2


async def test_an_answer_counts_its_tokens_and_when_it_began() -> None:
    metrics = Metrics()
    metrics.observe(ModelAnswered("m", "answered", 3.0, 0.5, 100, 20))
    metrics.observe(ModelAnswered("m", "stopped", 9.0, 1.5))
    found = await samples(metrics)
    assert of(found, "model_tokens_total", model="m", kind="input") == 100
    assert of(found, "model_tokens_total", model="m", kind="output") == 20
    assert of(found, "model_seconds_sum", model="m") == 3.0
    assert of(found, "model_first_token_seconds_sum", model="m") == 2.0


async def test_counters_of_a_platform_begin_at_zero() -> None:
    metrics = Metrics()
    metrics.observe(TurnEnded("slack", "done", 1.0))
    found = await samples(metrics)
    assert of(found, "turns_total", platform="slack", status="failed") == 0
    assert of(found, "approvals_ended_total", platform="slack", outcome="not_shown") == 0
    assert of(found, "deliveries_total", platform="slack", outcome="given_up") == 0


async def test_a_call_that_was_not_sent_took_no_time() -> None:
    metrics = Metrics()
    metrics.observe(CallEnded("s", "t", "denied", None))
    assert not any(name.startswith("countersign_tool_seconds") for name, _ in await samples(metrics))


async def test_however_many_tools_and_servers_there_are_their_series_are_limited() -> None:
    metrics = Metrics()
    for number in range(MOST_TOOLS + 50):
        metrics.observe(CallEnded(f"s{number}", "t", "done", None))
        metrics.observe(SessionChanged(f"s{number}", "created"))
    metrics.observe(CallEnded("s0", "t", "done", None))
    found = await samples(metrics)
    assert of(found, "tool_calls_total", server="s0", tool="t", status="done") == 2
    assert of(found, "tool_calls_total", server="other", tool="other", status="done") == 50
    assert of(found, "mcp_sessions_total", server="other", event="created") == MOST_TOOLS + 50 - MOST_SERVERS
    assert sum(name == "countersign_tool_calls_total" for name, _ in found) == MOST_TOOLS + 1


async def test_names_that_no_file_can_hold_keep_nothing_from_being_read() -> None:
    metrics = Metrics()
    metrics.observe(CallEnded("s", 'half \ud83d "quoted"\n' + "x" * 5_000, "done", 0.1))
    names = [dict(labels)["tool"] for name, labels in await samples(metrics) if name == "countersign_tool_calls_total"]
    assert len(names) == 1
    assert names[0].startswith('half ? "quoted"\nxxx')
    assert len(names[0]) == 100


async def test_unfinished_turns_are_read_at_a_scrape_and_not_too_often() -> None:
    runtime = FakeRuntime()
    assert runtime.looks == 0
    for _ in range(3):
        found = await samples(runtime.metrics)
    assert runtime.looks == 1
    assert of(found, "turns_live", status="waiting") == 3
    assert of(found, "turns_ready_oldest_seconds") == 12.5
    assert (of(found, "approvals_waiting"), of(found, "deliveries_behind")) == (4, 5)
    assert of(found, "database_up") == 1
    runtime.backlog = Backlog({"queued": 9, "running": 0, "waiting": 0}, 0.0, 0, 0)
    runtime.time += FRESH_SECONDS
    assert of(await samples(runtime.metrics), "turns_live", status="queued") == 9


async def test_while_the_database_is_away_everything_else_is_still_there() -> None:
    runtime = FakeRuntime(away=True)
    runtime.metrics.observe(TurnEnded("slack", "done", 1.0))
    found = await samples(runtime.metrics)
    assert of(found, "database_up") == 0
    assert of(found, "turns_total", platform="slack", status="done") == 1
    assert not any(name == "countersign_turns_live" for name, _ in found)


async def test_a_database_that_refuses_writes_is_up_and_not_writable() -> None:
    runtime, takes_writes = FakeRuntime(), [False]
    runtime.metrics.set_sources(runtime.read_backlog, tuple, lambda: takes_writes[0])
    found = await samples(runtime.metrics)
    assert (of(found, "database_up"), of(found, "database_writable")) == (1, 0)
    takes_writes[0] = True
    assert of(await samples(runtime.metrics), "database_writable") == 1


async def test_a_database_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.web.prometheus.READING_SECONDS", 0.01)
    metrics = Metrics()

    async def silent() -> Backlog:
        await asyncio.Event().wait()
        raise AssertionError

    metrics.set_sources(silent, tuple)
    async with asyncio.timeout(30):
        assert of(await samples(metrics), "database_up") == 0


async def test_servers_are_counted_by_how_they_stand() -> None:
    runtime = FakeRuntime(states=[stands("a", ServerStatus.CONNECTED), stands("b", ServerStatus.FAILED)])
    found = await samples(runtime.metrics)
    assert of(found, "mcp_sessions_active", server="a") == 1
    assert of(found, "mcp_sessions_active", server="b") == 0
    assert (of(found, "mcp_servers", status="connected"), of(found, "mcp_servers", status="failed")) == (1, 1)


async def test_the_process_itself_is_measured() -> None:
    found = await samples(Metrics())
    assert found["process_resident_memory_bytes", ()] > 0
    assert not any(name.endswith("_created") for name, _ in found)


async def test_a_loop_that_comes_back_late_is_measured_by_how_late() -> None:
    found: list[MetricEvent] = []
    time = 0.0

    async def pause(seconds: float) -> None:
        nonlocal time
        if found:
            raise asyncio.CancelledError
        time += seconds + 0.25

    with pytest.raises(asyncio.CancelledError):
        await watch_loop(found.append, seconds=0.5, clock=lambda: time, pause=pause)
    assert found == [LoopLagged(0.25)]

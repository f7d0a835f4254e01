"""Faults of servers and of usage limits: their beginning, their end and their reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from bot.domain.health import Fault, FaultKind, FaultRecord
from bot.domain.pins import ReviewPolicy
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus
from bot.domain.usage import LimitPeriod, LimitScope, LimitStatus, LimitUnit, UsageLimit
from bot.engine.faults import (
    HOLD_SECONDS,
    PATIENCE_SECONDS,
    REPEAT_SECONDS,
    FaultReporter,
    FaultSource,
    ServerFaults,
    Suspicion,
)
from tests.admin.servers import Servers, tool

CONFIG = ServerConfig("weather", HttpTransport("https://weather.example/mcp"))
FAILED = ServerSnapshot(
    CONFIG,
    ServerStatus.FAILED,
    "Server weather cannot be reached: quoted words of the server. Fix: start it.",
    own_problem="Server weather cannot be reached. Fix: start it.",
)
RETRYING = replace(FAILED, is_retrying=True)


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class RecordingStore:
    """A fault store that records its calls."""

    calls: list[tuple[str, str, float]] = field(default_factory=list)

    async def report(self, fault: Fault, reporter: str, seconds: float) -> None:
        self.calls.append(("report", fault.key, seconds))

    async def extend(self, key: str, reporter: str, seconds: float) -> None:
        self.calls.append(("extend", key, seconds))

    async def withdraw(self, key: str, reporter: str) -> None:
        self.calls.append(("withdraw", key, 0))

    async def close_unreported(self) -> None:
        raise NotImplementedError

    async def undelivered_faults(self) -> list[FaultRecord]:
        raise NotImplementedError

    async def begin_message(self, record: FaultRecord) -> None:
        raise NotImplementedError

    async def record_message(self, record: FaultRecord, ref: str) -> None:
        raise NotImplementedError


async def faults_of(source: FaultSource) -> list[Fault]:
    return [fault for fault in await source() if isinstance(fault, Fault)]


async def test_a_server_has_failed_after_its_last_attempt_and_its_own_words_are_not_reported() -> None:
    servers = Servers([RETRYING])
    source = ServerFaults(servers)
    assert list(await source()) == [Suspicion(f"server:{CONFIG.id}"), Suspicion(f"sign-in:{CONFIG.id}")]
    servers.states = [FAILED]
    (fault,) = await faults_of(source)
    assert fault.kind is FaultKind.SERVER_FAILED
    assert fault.title == "MCP server weather has failed"
    assert fault.cause == "Server weather cannot be reached. Fix: start it."
    assert fault.command == "/mcp show weather"
    servers.states = [ServerSnapshot(CONFIG, ServerStatus.CONNECTED)]
    assert list(await source()) == []


async def test_a_server_that_is_disabled_or_removed_has_not_recovered() -> None:
    for states in ([], [ServerSnapshot(CONFIG, ServerStatus.DISABLED)]):
        servers = Servers([FAILED])
        source = ServerFaults(servers)
        assert (await faults_of(source))[0].over == "MCP server weather recovered"
        servers.states = states
        assert [fault.over for fault in await faults_of(source)] == ["MCP server weather is not used any more"]
        assert await faults_of(source) == []


async def test_a_server_with_many_attempts_has_failed_after_some_minutes() -> None:
    clock, servers = Clock(), Servers([RETRYING])
    source = ServerFaults(servers, clock=clock)
    assert await faults_of(source) == []
    clock.now += PATIENCE_SECONDS - 1
    servers.states = [replace(RETRYING, status=ServerStatus.CONNECTING, is_retrying=False)]
    assert await faults_of(source) == []
    clock.now += 2
    servers.states = [RETRYING]
    assert len(await faults_of(source)) == 1


async def test_a_sign_in_is_waited_for() -> None:
    servers = Servers([ServerSnapshot(CONFIG, ServerStatus.AUTH_REQUIRED, "Sign in.")], [tool(CONFIG, "look")])
    source = ServerFaults(servers)
    (fault,) = await faults_of(source)
    assert fault.kind is FaultKind.SIGN_IN
    servers.states = [ServerSnapshot(CONFIG, ServerStatus.CONNECTED)]
    assert await faults_of(source) == []


async def test_changed_tools_wait_for_a_review_only_where_changes_are_reviewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = Servers([ServerSnapshot(CONFIG, ServerStatus.CONNECTED)])
    monkeypatch.setattr(servers, "unpinned_tools", lambda _server: [tool(CONFIG, "look"), tool(CONFIG, "find")])
    (fault,) = await faults_of(ServerFaults(servers))
    assert fault.kind is FaultKind.REVIEW
    assert fault.cause.startswith("2 of its tools are new or changed")
    assert fault.command == "/mcp review weather"
    servers.review = ReviewPolicy.OFF
    assert await faults_of(ServerFaults(servers)) == []


async def test_a_fault_is_reported_when_it_begins_then_rarely_and_withdrawn_when_it_is_over() -> None:
    clock, store, servers = Clock(), RecordingStore(), Servers([FAILED])
    reporter = FaultReporter(store, "one", [ServerFaults(servers, clock=clock)], clock=clock)
    key = f"server:{CONFIG.id}"
    for _ in range(5):
        await reporter.update()
    assert store.calls == [("report", key, HOLD_SECONDS)]
    clock.now += REPEAT_SECONDS
    await reporter.update()
    assert len(store.calls) == 2
    servers.states = [replace(FAILED, status=ServerStatus.CONNECTING)]
    await reporter.update()
    assert store.calls[2:] == [("extend", key, HOLD_SECONDS), ("extend", f"sign-in:{CONFIG.id}", HOLD_SECONDS)]
    servers.states = [ServerSnapshot(CONFIG, ServerStatus.CONNECTED)]
    await reporter.update()
    assert {call[:2] for call in store.calls[4:]} == {("withdraw", key), ("withdraw", f"sign-in:{CONFIG.id}")}


async def test_a_usage_limit_is_reported_at_80_percent_and_when_it_is_reached_until_it_resets() -> None:
    clock, store = Clock(), RecordingStore()
    reporter = FaultReporter(store, "one", clock=clock, wall_clock=clock)
    limit = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 1_000)
    for used in (0, 799, 800, 900, 1_000, 1_200):
        reporter.report_limit(LimitStatus(limit, used, clock.now + 500), "slack:U1")
        await reporter.update()
    assert [(call[0], call[1].split(":")[1], call[2]) for call in store.calls] == [
        ("report", "near", 500),
        ("report", "reached", 500),
    ]

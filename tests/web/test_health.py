"""`/healthz`, `/readyz` and `/health`: liveness and readiness of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
import pytest

from bot import __version__
from bot.app.process import FRESH_SECONDS, HealthCheck
from bot.domain.health import Health, HealthStatus, ListenerStatus, ServersHealth
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus
from bot.errors import DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from bot.ports import Commands, EngineApi
from bot.web.application import application, ready_routes
from bot.web.server import serve

CONNECTED, CONNECTING, STANDBY = ListenerStatus.CONNECTED, ListenerStatus.CONNECTING, ListenerStatus.STANDBY


@dataclass
class Place:
    """A platform with a given listener status."""

    now: ListenerStatus

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        raise NotImplementedError

    async def listening(self) -> ListenerStatus:
        return self.now


@dataclass
class FakeRuntime:
    """A database, platforms and servers with a clock that stands still."""

    states: list[ServerStatus] = field(default_factory=list)
    away: bool = False
    trouble: DatabaseError | None = None
    silent: bool = False
    time: float = 0.0
    asked: int = 0

    async def ask(self) -> object:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        if self.away:
            raise DatabaseUnavailable("The database postgresql://db.internal is away.")
        return None

    def servers(self) -> list[ServerSnapshot]:
        return [
            ServerSnapshot(ServerConfig(f"s{number}", HttpTransport("https://secret.internal/mcp")), status)
            for number, status in enumerate(self.states)
        ]

    needs_servers: bool = False

    def check(self, **platforms: Place) -> HealthCheck:
        check = HealthCheck(self.ask, self.servers, needs_servers=self.needs_servers, clock=lambda: self.time)
        for name, place in platforms.items():
            check.watch(name, place)
        return check


async def get_health(check: HealthCheck, path: str = "/readyz") -> httpx2.Response:
    async with (
        serve(application(pages=ready_routes(check.check)), "127.0.0.1", 0) as port,
        httpx2.AsyncClient() as client,
    ):
        return await client.get(f"http://127.0.0.1:{port}{path}")


@pytest.mark.parametrize("path", ["/readyz", "/health"])
async def test_a_house_without_any_server_or_platform_is_ready(path: str) -> None:
    answer = await get_health(FakeRuntime().check(), path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "status": "ready",
        "version": __version__,
        "database": "up",
        "platforms": {},
        "servers": {"total": 0, "connected": 0, "errors": 0},
    }


async def test_servers_are_counted_and_named_nowhere() -> None:
    states = [ServerStatus.CONNECTED, ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED, ServerStatus.IDLE]
    answer = await get_health(FakeRuntime(states).check())
    assert answer.status_code == 200
    assert answer.json()["status"] == "degraded"
    assert answer.json()["servers"] == {"total": 4, "connected": 1, "errors": 2}
    assert "internal" not in answer.text


FAILED, OFF = ServerStatus.FAILED, ServerStatus.DISABLED


@pytest.mark.parametrize(
    ("states", "needs", "code"),
    [
        ([FAILED, ServerStatus.AUTH_REQUIRED, OFF, ServerStatus.DISCONNECTED], True, 503),
        ([FAILED, OFF], False, 200),
        ([FAILED, ServerStatus.IDLE], True, 200),
        ([OFF], True, 200),
        ([], True, 200),
    ],
)
async def test_it_is_unready_without_a_working_server_if_it_needs_one(
    states: list[ServerStatus], needs: bool, code: int
) -> None:
    answer = await get_health(FakeRuntime(states, needs_servers=needs).check())
    assert answer.status_code == code
    assert (answer.json()["status"] == "unready") is (code == 503)


async def test_a_database_that_is_away_makes_it_unready_and_is_named_nowhere() -> None:
    answer = await get_health(FakeRuntime(away=True).check(slack=Place(CONNECTED)))
    assert answer.status_code == 503
    assert (answer.json()["status"], answer.json()["database"]) == ("unready", "down")
    assert "internal" not in answer.text


async def test_a_database_that_says_nothing_is_as_good_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.process.DATABASE_SECONDS", 0.01)
    assert (await get_health(FakeRuntime(silent=True).check())).status_code == 503


@pytest.mark.parametrize(
    ("platforms", "condition"),
    [
        ({"slack": CONNECTED}, HealthStatus.READY),
        ({"slack": CONNECTED, "discord": STANDBY}, HealthStatus.READY),
        ({"slack": CONNECTED, "discord": CONNECTING}, HealthStatus.UNREADY),
    ],
)
def test_every_platform_that_is_received_here_must_be(
    platforms: Mapping[str, ListenerStatus], condition: HealthStatus
) -> None:
    assert Health(database=True, platforms=platforms).condition is condition
    assert Health(database=False, platforms=platforms).condition is HealthStatus.UNREADY


def test_even_if_no_server_can_be_used_the_house_is_ready() -> None:
    assert Health(database=True, servers=ServersHealth(3, 0, 3)).condition is HealthStatus.DEGRADED


async def test_health_follows_the_state_of_the_parts() -> None:
    runtime, slack = FakeRuntime(), Place(CONNECTING)
    check = runtime.check(slack=slack)
    assert (await check.check()).condition is HealthStatus.UNREADY
    slack.now = CONNECTED
    assert (await check.check()).condition is HealthStatus.READY
    runtime.away = True
    runtime.time += FRESH_SECONDS
    assert (await check.check()).condition is HealthStatus.UNREADY


async def test_many_probes_at_once_are_one_query_of_the_database() -> None:
    runtime = FakeRuntime()
    check = runtime.check()
    await asyncio.gather(*(check.check() for _ in range(50)))
    assert runtime.asked == 1


async def test_a_database_that_takes_no_writes_makes_it_unready_with_cause_and_fix_and_is_named_nowhere() -> None:
    runtime = FakeRuntime()
    runtime.trouble = DatabaseUnwritable(
        "The database db.internal cannot be written: its disk is full.",
        "free some space on its disk",
        reason="its disk is full",
    )
    answer = await get_health(runtime.check())
    assert answer.status_code == 503
    assert answer.json()["status"] == "unready"
    assert answer.json()["database"] == "unwritable"
    assert answer.json()["cause"] == "The database cannot be written: its disk is full."
    assert answer.json()["fix"] == "free some space on its disk"
    assert "internal" not in answer.text

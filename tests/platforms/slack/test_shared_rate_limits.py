"""Slack's rate limits, shared by several processes over one database, and per process while it is unavailable."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import psycopg
import pytest

from bot.domain.turns import TurnView
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.platforms.slack import rate_limits
from bot.platforms.slack.app import SlackSurface, open_slack
from bot.platforms.slack.rate_limits import SILENT_SECONDS, RateLimiter
from bot.platforms.slack.sending import Streaming
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.workspaces import SlackWorkspace, SlackWorkspaces
from bot.ports import Quota, QuotaExceeded, QuotaGranted, Quotas
from bot.storage.address import PostgresServer
from bot.storage.coordination import SqlQuotas
from bot.storage.postgresql import PostgresDatabase
from tests.fakes.slack import Message, TooMany
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.platforms.slack.test_surface import done, placed_view, running
from tests.postgres import Server

T = TypeVar("T")

UPDATES = 47
APPENDS = 95


class Time:
    """The clock of processes and database, which only the test advances."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)
        self.now = 1000.0

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, seconds: float) -> None:
        self._now = seconds
        self._connection.execute("update test_clock set at = %s", [seconds])

    def names(self) -> list[str]:
        """Return the keys of the requested limits in the database."""
        return [str(name) for (name,) in self._connection.execute("select name from quotas order by name")]

    def close(self) -> None:
        self._connection.close()


@dataclass
class Processes:
    """Processes with one database and one clock."""

    time: Time
    address: str
    stack: AsyncExitStack

    async def quotas(self) -> SqlQuotas:
        database = PostgresDatabase(PostgresServer(self.address))
        self.stack.push_async_callback(database.close)
        return SqlQuotas(database)

    async def pacing(self, pause: Callable[[float], Awaitable[None]], account: str = "slack:one") -> RateLimiter:
        pacing = RateLimiter(account=account, clock=lambda: self.time.now, pause=pause)
        pacing.share(await self.quotas())
        return pacing


@pytest.fixture
async def processes(postgres: Server) -> AsyncIterator[Processes]:
    address = await asyncio.to_thread(postgres.fresh, virtual_clock=True)
    async with AsyncExitStack() as stack:
        time = Time(address)
        stack.callback(time.close)
        yield Processes(time, address, stack)


async def nowhere(_seconds: float) -> None:
    """Pause without a wait."""


def most_in_a_minute(times: Sequence[float]) -> int:
    return max(sum(at <= each < at + 60 for each in times) for at in times)


async def test_two_processes_together_stay_below_the_limit_of_one(processes: Processes) -> None:
    time, out = processes.time, list[float]()
    waited = list[float]()

    async def note(seconds: float) -> None:
        waited.append(seconds)

    both = [await processes.pacing(note) for _ in range(2)]
    while time.now < 1180:
        for pacing in both:
            waited.clear()
            try:
                await pacing.take("chat.appendStream")
            except DeliveryFailed:
                continue
            out.append(time.now + sum(waited))
        time.now += 0.6
    assert most_in_a_minute(out) <= APPENDS
    assert len(out) > 2 * 95, "most of three minutes can be used"


async def test_calls_that_can_wait_leave_room_for_urgent_ones_of_another_process(processes: Processes) -> None:
    one, other = [await processes.pacing(nowhere) for _ in range(2)]
    asked = 0
    while one.has_headroom("chat.update"):
        await one.take("chat.update")
        asked += 1
    waited = list[float]()
    finishing = await processes.pacing(lambda seconds: _note_pause(waited, seconds))
    for _ in range(3):
        await finishing.take("chat.update")
    assert asked > 5
    assert waited == []
    assert other.has_headroom("chat.update"), "it has heard nothing yet"
    await other.take("chat.update")
    assert not other.has_headroom("chat.update")
    processes.time.now += 30
    assert other.has_headroom("chat.update")


async def _note_pause(into: list[float], seconds: float) -> None:
    into.append(seconds)


async def test_a_pause_that_slack_asks_one_process_for_holds_for_all(processes: Processes) -> None:
    waited = list[float]()
    one, other = [await processes.pacing(lambda seconds: _note_pause(waited, seconds)) for _ in range(2)]
    await one.close("chat.update", 7)
    await other.take("chat.update")
    assert waited == [pytest.approx(7)]
    assert not other.has_headroom("chat.update")
    assert not one.has_headroom("chat.update")
    await other.take("chat.postMessage", "C1")
    assert len(waited) == 1
    await one.close("chat.update", 60)
    with pytest.raises(DeliveryFailed) as failure:
        await other.take("chat.update")
    assert failure.value.retry_after == pytest.approx(60)
    third = await processes.pacing(nowhere)
    assert third.has_headroom("chat.update"), "it has heard nothing yet"
    with pytest.raises(DeliveryFailed):
        await third.take("chat.update")
    assert not third.has_headroom("chat.update")


async def test_another_workspace_has_limits_of_its_own_and_no_token_is_written_down(processes: Processes) -> None:
    tokens = ("xoxb-of-one-workspace", "xoxb-of-another")
    async with AsyncExitStack() as stack:
        for token in tokens:
            workspace = await stack.enter_async_context(open_slack(token))
            workspace.factory.share(await processes.quotas())
            for _ in range(3):
                await workspace.own.api.pacing.take("chat.startStream", "C1")
    names = processes.time.names()
    assert len(names) == 4, "one for the method and one for the channel, in each"
    assert not any(token in name or "xoxb" in name for name in names for token in tokens)


class Trouble(Quotas):
    """Quotas that answer unless `trouble` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.trouble: Callable[[], Awaitable[None]] | None = None

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        await self._meet()
        return QuotaGranted(0.0, quota.at_once)

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        await self._meet()

    async def forget_idle(self, limit: int) -> int:
        await self._meet()
        return 0

    async def _meet(self) -> None:
        self.asked += 1
        if self.trouble is not None:
            await self.trouble()


async def away() -> None:
    raise DatabaseUnavailable("The database is away.")


async def silent() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("trouble", [away, silent])
async def test_while_the_database_does_not_answer_each_process_counts_for_itself(
    trouble: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, rate_limits.__name__)
    monkeypatch.setattr(rate_limits, "ANSWER_SECONDS", 0.02)
    now, waited, quotas = 1000.0, list[float](), Trouble()
    pacing = RateLimiter(clock=lambda: now, pause=lambda seconds: _note_pause(waited, seconds))
    pacing.share(quotas)
    await pacing.take("chat.update")
    quotas.trouble = trouble
    for _ in range(UPDATES - 1):
        await pacing.take("chat.update")
    assert quotas.asked == 2, "nobody waits for it again and again"
    assert not pacing.has_headroom("chat.update")
    with pytest.raises(DeliveryFailed):
        await pacing.take("chat.update")
    await pacing.close("chat.postMessage", 5)
    await pacing.take("chat.postMessage")
    assert waited == [5]
    now += SILENT_SECONDS
    await pacing.take("chat.postMessage")
    assert quotas.asked == 3
    quotas.trouble = None
    now += SILENT_SECONDS
    await pacing.take("chat.postMessage")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@dataclass
class Drawers:
    """Two processes that deliver ten turns in one workspace."""

    place: ConnectedBot
    surfaces: Sequence[SlackSurface]
    roots: Sequence[Message]

    async def draw_all(self, view: TurnView) -> None:
        for number, root in enumerate(self.roots):
            shown = placed_view(self.place, view, root.ts, root.channel)
            shown = dataclasses.replace(shown, turn=dataclasses.replace(shown.turn, id=f"t{number}"))
            await self._draw_with_retry(shown, self.surfaces[number % 2])

    async def _draw_with_retry(self, view: TurnView, surface: SlackSurface) -> None:
        """Deliver a view, and retry after a rejection by Slack, as the engine does."""
        while True:
            try:
                await self.place.draw(view, surface)
            except DeliveryFailed as failure:
                self.place.slack.clock.advance(failure.retry_after or 1)
            else:
                return


class AtSlacksTime(Quotas):
    """Quotas whose database follows the clock of the fake Slack."""

    def __init__(self, inner: Quotas, sync: Callable[[], None]) -> None:
        self._inner = inner
        self._sync = sync

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        self._sync()
        return await self._inner.acquire(name, quota, most_wait)

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        self._sync()
        await self._inner.pause(name, quota, seconds)

    async def forget_idle(self, limit: int) -> int:
        self._sync()
        return await self._inner.forget_idle(limit)


@asynccontextmanager
async def ten_at_work(processes: Processes) -> AsyncIterator[Drawers]:
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(connected_bot(listening=False, streaming=Streaming.EVERYWHERE))
        slack = place.slack
        slack.clock.stop()

        def sync() -> None:
            processes.time.now = slack.clock.now()

        async def pause(seconds: float) -> None:
            slack.clock.advance(seconds)

        surfaces = []
        for _ in range(2):
            pacing = RateLimiter(account="slack:one", clock=slack.clock.now, pause=pause)
            pacing.share(AtSlacksTime(await processes.quotas(), sync))
            api = await stack.enter_async_context(WebApi(slack.bot_token, url=slack.url, pacing=pacing))
            workspaces = SlackWorkspaces(SlackWorkspace(api, UserDirectory(api)))
            surface = SlackSurface(workspaces, streaming=Streaming.EVERYWHERE, clock=slack.clock.now)
            surfaces.append(surface)
        roots = [slack.say(place.priya, slack.channel(f"c{n}", place.priya), "?") for n in range(10)]
        yield Drawers(place, surfaces, roots)


async def test_ten_streams_of_two_processes_are_never_refused_and_end_complete(processes: Processes) -> None:
    async with ten_at_work(processes) as at_work:
        slack = at_work.place.slack
        began, text = slack.clock.now(), ""
        while slack.clock.now() < began + 120:
            text += "word "
            await at_work.draw_all(running(text))
            slack.clock.advance(1)
        await at_work.draw_all(done(f"{text}The end."))
        assert not slack.calls.failed_calls()
        appends, updates = ([call.at for call in slack.calls.of(f"chat.{name}")] for name in ("appendStream", "update"))
        assert most_in_a_minute(appends) < 100
        assert most_in_a_minute(updates) < 50
        assert len(slack.calls.of("chat.startStream")) >= 9
        assert len(appends) > 100, "the limit is there to be used"
        for root in at_work.roots:
            (message,) = at_work.place.bot_posts(slack.workspace.channel(root.channel), root.ts)
            assert message.stream is None
            assert "The end." in str(message.blocks)


async def test_while_slack_wants_a_pause_no_process_calls_that_method(processes: Processes) -> None:
    async with ten_at_work(processes) as at_work:
        slack = at_work.place.slack
        await at_work.draw_all(running("word "))
        slack.clock.advance(10)
        slack.fail("chat.appendStream", TooMany(30))
        for length in range(2, 50):
            await at_work.draw_all(running("word " * length))
            slack.clock.advance(1)
        (refused,) = slack.calls.failed_calls()
        after = [call.at for call in slack.calls.of("chat.appendStream") if call.at > refused.at]
        assert after
        assert min(after) >= refused.at + 30

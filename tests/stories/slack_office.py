"""A company with the bot in its Slack: the fake workspace, the real SDKs, the real engine on SQLite."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.domain.approvals import ApprovalPolicy
from bot.engine.engine import Engine
from bot.engine.policy import Policies, ServerPolicy, Signatories
from bot.engine.rules import RuleBook
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.live import Streaming
from bot.platforms.slack.pacing import Pacing
from bot.platforms.slack.people import People
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.web_api import WebApi
from bot.reception.manners import Manners
from bot.storage import schema
from bot.storage.address import PostgresServer
from bot.storage.doorbell import listen
from bot.storage.postgresql import PostgresDatabase
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, ScriptedModel
from tests.fakes.slack import FakeSlack
from tests.platforms.slack.front_door import ScriptedCommands
from tests.stories.slack_room import Room


@dataclass(kw_only=True)
class Office(Room):
    """The room, and the bot's processes in the test's own."""

    database: Path
    model: ScriptedModel = field(default_factory=ScriptedModel)
    toolbox: FakeToolbox = field(default_factory=FakeToolbox)
    allowed: set[str] = field(default_factory=set)
    signatories: Signatories = Signatories()
    groups: frozenset[str] = frozenset()
    approval_seconds: float = 1800.0
    streaming: Streaming = Streaming.DIRECT
    server: str = ""
    """The address of a database on PostgreSQL, instead of the file."""

    @asynccontextmanager
    async def at_work(self, *, receiving: bool = True, drawing: bool = True) -> AsyncIterator[Engine]:
        """One process of the bot, from its start to its end; one that does not receive has the bot's token alone."""
        async with AsyncExitStack() as stack:
            log = await self._turn_log(stack)
            pacing = Pacing(clock=self.slack.clock.now, pause=_passing(self.slack))
            api = await stack.enter_async_context(WebApi(self.slack.bot_token, url=self.slack.url, pacing=pacing))
            people = People(api, self.groups)
            engine = Engine(
                log,
                self.model,
                self.toolbox,
                [SlackSurface(api, people, streaming=self.streaming)] if drawing else [],
                rules=RuleBook(self._policies(), self.signatories),
                approval_seconds=self.approval_seconds,
            )
            tasks = [asyncio.create_task(engine.run())]
            stack.push_async_callback(_ended, tasks)
            if receiving:
                self.slack.pace.strict = False
                before = self.slack.sockets.ever
                listener = SlackListener(api, people, app_token=self.slack.app.app_token, manners=Manners())
                tasks.append(asyncio.create_task(listener.run(engine, ScriptedCommands())))
                await self.slack.sockets.opened(before + 1)
                self.slack.pace.strict = True
            yield engine

    async def _turn_log(self, stack: AsyncExitStack) -> SqlTurnLog:
        if self.server:
            address = PostgresServer(self.server)
            shared = PostgresDatabase(address)
            stack.push_async_callback(shared.close)
            return SqlTurnLog(shared, functools.partial(listen, address))
        database = open_sqlite(self.database)
        stack.push_async_callback(database.close)
        await schema.upgrade(database)
        log = SqlTurnLog(database)
        await log.adopt_orphans()
        return log

    def _policies(self) -> Policies:
        servers: dict[str, dict[str, ApprovalPolicy]] = {}
        for name in self.allowed:
            server, _, tool = name.partition("__")
            servers.setdefault(server, {})[tool] = ApprovalPolicy.ALWAYS_ALLOW
        return Policies(servers={server: ServerPolicy(tools) for server, tools in servers.items()})


@asynccontextmanager
async def an_office(folder: Path) -> AsyncIterator[Office]:
    """The office, with nobody of the bot's at work yet."""
    async with FakeSlack() as slack:
        priya, sam = slack.user("Priya"), slack.user("Sam", admin=True)
        yield Office(slack, priya, sam, slack.channel("incidents", priya, sam), database=folder / "turns.db")


def _passing(slack: FakeSlack) -> Callable[[float], Awaitable[None]]:
    async def pause(seconds: float) -> None:
        slack.clock.advance(seconds)

    return pause


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in reversed(tasks):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""The plain service with the bot and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from bot.chat.context import Lookups
from bot.chat.users import AudiencePolicy
from tests.fakes.plain import TOKEN, Channel, FakePlain, User
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands
from tests.platforms.plain.api import PlainApi
from tests.platforms.plain.app import PlainListener


@dataclass
class ConnectedBot:
    """The fake, the connected bot and its parts."""

    plain: FakePlain
    api: PlainApi
    priya: User
    channel: Channel
    engine: FakeEngine = field(default_factory=FakeEngine)
    commands: ScriptedCommands = field(default_factory=ScriptedCommands)


@asynccontextmanager
async def connected_bot(
    *, listening: bool = True, audience: AudiencePolicy | None = None, records: Lookups | None = None
) -> AsyncIterator[ConnectedBot]:
    """A workspace with Priya in #incidents."""
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(FakePlain())

        async def pause(seconds: float) -> None:
            plain.clock.advance(seconds)

        session = await stack.enter_async_context(aiohttp.ClientSession())
        api, priya = PlainApi(session, TOKEN, plain.url, pause), plain.user("Priya")
        bot = ConnectedBot(plain, api, priya, plain.channel("incidents", priya))
        if listening:
            task = asyncio.create_task(
                PlainListener(api, records or Lookups(), audience or AudiencePolicy()).run(bot.engine, bot.commands)
            )
            stack.push_async_callback(_cancel_task, task)
        yield bot


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

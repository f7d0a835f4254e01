"""A process of the bot that receives from a platform: `python team_process.py DATABASE PLATFORM API_URL TOKEN...`.

Its model answers each question; with HANG in the environment, never. EARLY_SECONDS is the time in which a turn posts
nothing unless a user must act. KEEP_NOTHING deletes content once an answer is delivered, unless HOLD_DELETION is set.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.engine.turn_runner import EARLY_SECONDS, TurnSettings
from bot.ports import Listener, Surface
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, say
from tests.platforms.fake_engine import ScriptedCommands


class Echo:
    """A model that repeats the question."""

    capabilities = Capabilities()

    async def get(self, _name: str) -> Echo:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if os.environ.get("HANG"):
            await asyncio.Event().wait()
        yield say(f"You said: {request.messages[-1].text}")

    async def close(self) -> None:
        pass


async def slack(stack: AsyncExitStack, url: str, *tokens: str) -> tuple[Surface, Listener]:
    """The surface and the listener of Slack."""
    from bot.platforms.slack.app import open_slack  # noqa: PLC0415 - one platform is enough
    from bot.platforms.slack.listener import SlackListener  # noqa: PLC0415

    bot_token, app_token = tokens
    workspace = await stack.enter_async_context(open_slack(bot_token, url=url))
    return workspace.surface, SlackListener(workspace.workspaces, workspace.factory.app_api, app_token=app_token)


async def discord(stack: AsyncExitStack, url: str, *tokens: str) -> tuple[Surface, Listener]:
    """The surface and the listener of Discord."""
    from bot.platforms.discord.app import open_discord  # noqa: PLC0415 - one platform is enough
    from bot.platforms.discord.listener import DiscordListener  # noqa: PLC0415
    from tests.platforms.fake_engine import SharedLeases  # noqa: PLC0415

    office = await stack.enter_async_context(open_discord(*tokens, url=url))
    return office.surface, DiscordListener(office.rest, office.people, SharedLeases(), "this process")


async def plain(stack: AsyncExitStack, url: str, token: str) -> tuple[Surface, Listener]:
    """The surface and the listener of the plain service."""
    from bot.chat.context import Lookups  # noqa: PLC0415 - one platform is enough
    from tests.platforms.plain.app import open_plain  # noqa: PLC0415

    app = await stack.enter_async_context(open_plain(token, url))
    return app.surface, app.listener(Lookups())


async def hold(*_arguments: object, **_options: object) -> int:
    """Never delete anything."""
    await asyncio.Event().wait()
    return 0


async def main(file: str, platform: str, *credentials: str) -> None:
    """Receive and answer until killed."""
    async with AsyncExitStack() as stack:
        database = open_sqlite(Path(file))
        stack.push_async_callback(database.close)
        log = SqlTurnLog(database)
        await log.adopt_orphans()
        opened: dict[str, Callable[..., Awaitable[tuple[Surface, Listener]]]]
        opened = {"slack": slack, "discord": discord, "plain": plain}
        surface, listener = await opened[platform](stack, *credentials)
        engine = Engine(
            log,
            Echo(),
            FakeToolbox(),
            [surface],
            rules=RuleBook(Policies(), Approvers()),
            settings=TurnSettings(
                early_seconds=float(os.environ.get("EARLY_SECONDS", EARLY_SECONDS)),
                keeps_content="KEEP_NOTHING" not in os.environ,
            ),
        )
        if "HOLD_DELETION" in os.environ:
            log.delete_content = hold  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run())
            group.create_task(listener.run(engine, ScriptedCommands()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

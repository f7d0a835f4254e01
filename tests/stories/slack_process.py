"""A process of the bot in Slack: `python slack_process.py API_URL BOT_TOKEN APP_TOKEN DATABASE`.

Its model answers what it is asked, unless the environment says HANG: then it never does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest
from bot.engine.engine import Engine
from bot.engine.policy import Policies, Signatories
from bot.engine.rules import RuleBook
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.people import People
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.web_api import WebApi
from bot.storage import schema
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, say
from tests.platforms.slack.front_door import ScriptedCommands


class Echo:
    """A model that repeats the question."""

    capabilities = Capabilities()

    async def named(self, _name: str) -> Echo:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if os.environ.get("HANG"):
            await asyncio.Event().wait()
        yield say(f"You said: {request.messages[-1].text}")

    async def close(self) -> None:
        pass


async def main(url: str, bot_token: str, app_token: str, file: str) -> None:
    database = open_sqlite(Path(file))
    await schema.upgrade(database)
    log = SqlTurnLog(database)
    await log.adopt_orphans()
    async with WebApi(bot_token, url=url) as api, asyncio.TaskGroup() as group:
        people = People(api)
        rules = RuleBook(Policies(), Signatories())
        engine = Engine(log, Echo(), FakeToolbox(), [SlackSurface(api, people)], rules=rules)
        group.create_task(engine.run())
        group.create_task(SlackListener(api, people, app_token=app_token).run(engine, ScriptedCommands()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A company whose bot is the real program: `countersign run` as a process, in a folder as an operator has it.

Slack is the fake workspace over sockets, the model a fake service over HTTP; servers are real processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.llm import FakeLanguageModel
from tests.fakes.slack import FakeSlack, Message
from tests.stories.installation import Installation
from tests.stories.program import PATIENCE, Bot, a_bot
from tests.stories.slack_users import SlackUsers


@dataclass(kw_only=True)
class Company(SlackUsers):
    """The room, and the folder the bot runs in."""

    place: Installation

    @asynccontextmanager
    async def bot(self, *arguments: str, receiving: bool = True, **environment: str) -> AsyncIterator[Bot]:
        """The program from its start to its end; one that receives is connected by then."""
        before = self.slack.sockets.ever
        async with a_bot(self.place, *arguments, **environment) as bot:
            if receiving:
                await self.slack.sockets.wait_for_reconnect(before + 1, seconds=PATIENCE)
            else:
                await bot.logs("running on model")
            yield bot

    async def draws(self, thread: str, text: str) -> Message:
        """Wait, as long as a busy machine takes, until everybody can read this in a thread."""
        return await self.reads(thread, text, seconds=PATIENCE)

    def buttons(self, message: Message) -> list[str]:
        """The labels of a message's buttons."""
        elements = [each for block in message.blocks if block["type"] == "actions" for each in block["elements"]]
        return [element["text"]["text"] for element in elements]


@asynccontextmanager
async def a_company(
    folder: Path, model: FakeLanguageModel, servers: Mapping[str, Any] | None = None, **environment: str
) -> AsyncIterator[Company]:
    """Open the company without a running bot. Sam administers. `servers` is that of an Installation."""
    async with FakeSlack() as slack:
        slack.pace.strict = False  # its minutes stand still, those of the program do not
        priya, sam = slack.user("Priya"), slack.user("Sam", admin=True)
        known = {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app.app_token,
            "SLACK_API_URL": slack.url,
            "ADMINS": f"slack:{sam.id}",
            "LOG_FORMAT": "text",
        }
        place = Installation(folder, servers, model=model, **{**known, **environment})
        yield Company(slack, priya, sam, slack.channel("incidents", priya, sam), place=place)

"""A company whose bot is the real program: `countersign run` as a process, in a folder as an operator has it.

Slack is the fake workspace over sockets, the model a fake service over HTTP; servers are real processes.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.llm import FakeLanguageModel
from tests.fakes.slack import FakeSlack, Message
from tests.stories.slack_room import Room
from tests.stories.workplace import Workplace, becomes

PATIENCE = 30.0
"""Seconds that a program may take to start or to end on a busy machine."""


class Bot:
    """One process of `countersign run` and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        """Everything it has logged so far."""
        return self._log.read_text(encoding="utf-8")

    async def logs(self, pattern: str) -> re.Match[str]:
        """Wait until it logs something like that."""
        await becomes(lambda: re.search(pattern, self.log) is not None, f"a log of {pattern!r}", PATIENCE)
        found = re.search(pattern, self.log)
        assert found is not None
        return found

    async def leaves(self) -> int:
        """Tell it to leave, as a service manager does; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def dies(self) -> None:
        """Kill it where it stands."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@dataclass(kw_only=True)
class Company(Room):
    """The room, and the folder the bot runs in."""

    place: Workplace

    @asynccontextmanager
    async def bot(self, *arguments: str, receiving: bool = True, **environment: str) -> AsyncIterator[Bot]:
        """The program from its start to its end; one that receives is connected by then."""
        before = self.slack.sockets.ever
        log = self.place.folder / f"run-{len(list(self.place.folder.glob('run-*.log')))}.log"
        with log.open("wb") as written:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bot", "run", *arguments),
                cwd=self.place.folder,
                env={**self.place.environment, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=written,
                stderr=written,
            )
        bot = Bot(process, log)
        try:
            if receiving:
                await self.slack.sockets.opened(before + 1, seconds=PATIENCE)
            else:
                await bot.logs("running on model")
            yield bot
        finally:
            await bot.dies()

    async def draws(self, thread: str, text: str) -> Message:
        """Wait, as long as a busy machine takes, until everybody can read this in a thread."""
        return await self.reads(thread, text, seconds=PATIENCE)

    def buttons(self, message: Message) -> list[str]:
        """The labels of a message's buttons."""
        elements = [each for block in message.blocks if block["type"] == "actions" for each in block["elements"]]
        return [each["text"]["text"] for each in elements]


@asynccontextmanager
async def a_company(
    folder: Path, model: FakeLanguageModel, servers: Mapping[str, Any] | None = None, **environment: str
) -> AsyncIterator[Company]:
    """The company, with nobody of the bot's at work yet. Sam administers; `servers` as for a Workplace."""
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
        place = Workplace(folder, servers, model=model, **{**known, **environment})
        yield Company(slack, priya, sam, slack.channel("incidents", priya, sam), place=place)

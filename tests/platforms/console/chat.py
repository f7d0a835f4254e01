"""The interactive chat on a pseudo-terminal, with a scripted engine."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

from bot.chat.context import Lookups, with_card_forms
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import Streams
from bot.platforms.console.interactive import InteractiveChat
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import StartState, Welcome
from bot.ports import Commands, EngineApi
from tests.platforms.console.scripted_engine import Script, ScriptedCommands, ScriptedEngine
from tests.platforms.console.terminal import LIMIT_SECONDS, PseudoTerminal

T = TypeVar("T")
ENVIRON = {"TERM": "xterm-256color"}


@dataclass
class Chat:
    """A running interactive chat."""

    terminal: PseudoTerminal
    engine: ScriptedEngine
    task: asyncio.Task[int]

    async def code(self) -> int:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.task

    async def type(self, text: str, *shown: str) -> None:
        """Send a line at the prompt, and wait until these texts are on the screen."""
        await self.terminal.prompts()
        await self.press(f"{text}\r", *shown)

    async def press(self, keys: str, *shown: str) -> None:
        await self.terminal.presses(keys, *shown)


def now(value: T) -> asyncio.Future[T]:
    """Return a future with this result."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


@asynccontextmanager
async def chatting(
    scripts: dict[str, Script] | None = None,
    *,
    engine: asyncio.Future[EngineApi] | None = None,
    opening: asyncio.Future[StartState] | None = None,
    commands: Commands | None = None,
    environ: dict[str, str] | None = None,
    approve: ApproveMode = ApproveMode.ASK,
    history: Path | None = None,
    welcome: asyncio.Future[Welcome] | None = None,
    size: tuple[int, int] = (80, 24),
    quiet_seconds: float = 0.0,
    clock: Callable[[], float] = monotonic,
) -> AsyncIterator[Chat]:
    """A running chat. It is cancelled at the end, and must leave no tasks."""
    async with PseudoTerminal(*size) as terminal:
        scripted = ScriptedEngine(scripts)
        streams = Streams(terminal.stdin, terminal.stdout, io.StringIO(), environ or ENVIRON)
        chat = InteractiveChat(
            LocalUser("ana"),
            streams,
            model="demo model",
            approve=approve,
            history=history,
            welcome=welcome,
            quiet_seconds=quiet_seconds,
            clock=clock,
        )
        scripted.surface = chat.surface
        front_door: asyncio.Future[EngineApi] = now(scripted) if engine is None else engine
        offered = now(with_card_forms(scripted, commands or ScriptedCommands(), Lookups()))
        start = now(StartState("c1")) if opening is None else opening
        task = asyncio.create_task(chat.run(front_door, offered, start))
        try:
            yield Chat(terminal, scripted, task)
        finally:
            task.cancel()
            await asyncio.wait((task,))
            await scripted.close()

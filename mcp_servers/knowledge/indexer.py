"""The library in a thread of its own, and the task that keeps it up to date, so that nothing waits for the disk but who
asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mcp_servers.knowledge.folder import Refused
from mcp_servers.knowledge.library import Library

PATIENCE = 5.0
"""Seconds to wait for the folder to be read before a question is answered from what has been read so far."""

ANSWER_PATIENCE = 20.0
"""Seconds that an answer itself may take."""

_PAUSE = 0.005
"""Seconds between two steps of a refresh, for another server that shares the index and waits for its turn."""

Answer = TypeVar("Answer")


class _Refresh:
    """One time that the library is brought up to date. `problem` says why that could not be done."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.problem = ""


class BackgroundIndexer:
    """Asks one library for many. `patience` is how many seconds an answer waits for files to be read."""

    def __init__(self, library: Library, *, patience: float = PATIENCE) -> None:
        self._library = library
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="knowledge")
        self._wanted = asyncio.Event()
        self._coming = _Refresh()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the library up to date until the block is left, then close it. To be entered once."""
        self._wanted.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(self._keep())
                try:
                    yield
                finally:
                    task.cancel()
        finally:
            # Without awaiting, which a server that is being cancelled could not do; the thread is at most a file away.
            self._library.interrupt()
            self._thread.shutdown(cancel_futures=True)
            self._library.close()

    async def answer(self, ask: Callable[[Library], Answer]) -> tuple[Answer, bool]:
        """Ask the library once it knows every change made before now. The second value is False if that took too long:
        then the answer is of what has been read so far. Raises Refused.
        """
        up_to_date = await self._refreshed()
        try:
            async with asyncio.timeout(ANSWER_PATIENCE):
                return await self._in_thread(lambda: ask(self._library)), up_to_date
        except TimeoutError:
            self._library.interrupt()
            raise Refused(
                f"The index has not answered for {ANSWER_PATIENCE:.0f} seconds. Ask again with fewer words; "
                "if this stays so, check the disk that the folder and KNOWLEDGE_DATABASE are on."
            ) from None

    async def _keep(self) -> None:
        """Refresh the library whenever somebody wants it."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            begun, self._coming = self._coming, _Refresh()
            begun.problem = await self._refresh()
            begun.done.set()

    async def _refreshed(self) -> bool:
        """Wait for a refresh that begins after now. Raises Refused if it cannot be done."""
        coming = self._coming
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await coming.done.wait()
        if coming.problem:
            raise Refused(coming.problem)
        return coming.done.is_set()

    async def _refresh(self) -> str:
        """Refresh, letting others ask between the steps. Returns why it could not be done; empty if it was."""
        refresh = self._library.refresh()
        try:
            more = True
            while more:
                more = await self._in_thread(lambda: self._library.advance(refresh))
                await asyncio.sleep(_PAUSE if more else 0)
        except Refused as problem:
            return str(problem)
        return ""

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

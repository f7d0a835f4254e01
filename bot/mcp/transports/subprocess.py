"""The two pipes of a server's process.

Opened by `child_process`. No task stands between a pipe and whoever reads or writes: to hand a message from one task to
another costs more than to read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import anyio

_STDIN, _STDOUT = 0, 1


class SubprocessPipes(asyncio.SubprocessProtocol):
    """What asyncio tells of a process: the bytes it says, whether it can be told more, and that it has ended.

    `left` is set once it has ended. What it has started may hold its pipes open nevertheless.
    """

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has been started."""
        process = cast("asyncio.SubprocessTransport", transport)
        self._input = cast("asyncio.WriteTransport", process.get_pipe_transport(_STDIN))
        self._output = cast("asyncio.ReadTransport", process.get_pipe_transport(_STDOUT))

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 - there is one that is read
        """It has said something. Where that is not read it has to wait before it can say more."""
        if self._over:
            return
        self._chunks.append(data)
        self._news.set()
        if len(self._chunks) > 1:
            self._output.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It has closed its end, or something could not be written."""
        if fd == _STDIN:
            self._room.set()
        if fd == _STDOUT or exc is not None:
            # What could not be written may have been a request: the process may live on, and whoever waits for an
            # answer has to see the end. One that only reads no more may have something to say.
            self._end()

    def pause_writing(self) -> None:
        """It does not read what it is told."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._room.set()

    def process_exited(self) -> None:
        """It has ended."""
        self.left.set()

    async def read(self) -> bytes | None:
        """What the process says next, None if nothing more is heard."""
        while not self._chunks:
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        chunk = self._chunks.popleft()
        if not self._chunks:
            self._output.resume_reading()
        return chunk

    async def write(self, line: bytes) -> None:
        """Tell the process something. Waits while it does not read. Raises anyio.BrokenResourceError if it can be told
        nothing more, and nothing of this.
        """
        while not self._room.is_set():
            await self._room.wait()
        if self._input.is_closing():
            self.hang_up()
            raise anyio.BrokenResourceError
        self._input.write(line)

    def hang_up(self) -> None:
        """Hear nothing more. What comes is thrown away: a process that is stuck writing reads no input."""
        self._chunks.clear()
        self._end()
        self._output.resume_reading()

    def end_input(self) -> None:
        """Let it see the end of its input, after all that it was told."""
        self._input.close()
        self._room.set()

    def give_up(self) -> None:
        """Forget what it has not read: others may hold its input open for ever."""
        if self._input.get_write_buffer_size():
            self._input.abort()

    def _end(self) -> None:
        self._over = True
        self._news.set()

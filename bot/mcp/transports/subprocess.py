"""Pipes of a server's process.

Reader and writer use the pipes without a task in between, because passing a message between tasks costs more than
reading it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import anyio

_STDIN, _STDOUT = 0, 1


class SubprocessPipes(asyncio.SubprocessProtocol):
    """asyncio protocol of a process: output, flow control and end.

    `left` is set once the process has ended. Its children may still hold the pipes open.
    """

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transports of the pipes."""
        process = cast("asyncio.SubprocessTransport", transport)
        self._input = cast("asyncio.WriteTransport", process.get_pipe_transport(_STDIN))
        self._output = cast("asyncio.ReadTransport", process.get_pipe_transport(_STDOUT))

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 - there is one that is read
        """Buffer output. A full buffer pauses the process."""
        if self._over:
            return
        self._chunks.append(data)
        self._news.set()
        if len(self._chunks) > 1:
            self._output.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Close the stream that has ended."""
        if fd == _STDIN:
            self._room.set()
        if fd == _STDOUT or exc is not None:
            # A failed write may have lost a request while the process lives on, so its callers have to see the end. A
            # process that only closed its input may still answer.
            self._end()

    def pause_writing(self) -> None:
        """Make writers wait."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let writers continue."""
        self._room.set()

    def process_exited(self) -> None:
        """Set `left`."""
        self.left.set()

    async def read(self) -> bytes | None:
        """Return the next output, None at the end."""
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
        """Write a line, waiting for flow control. Raises anyio.BrokenResourceError if the input is closed; then no
        part of the line was written.
        """
        while not self._room.is_set():
            await self._room.wait()
        if self._input.is_closing():
            self.hang_up()
            raise anyio.BrokenResourceError
        self._input.write(line)

    def hang_up(self) -> None:
        """Discard further output. The pipe is still drained, because a process blocked in a write reads no input."""
        self._chunks.clear()
        self._end()
        self._output.resume_reading()

    def end_input(self) -> None:
        """Close the process's input after all pending writes."""
        self._input.close()
        self._room.set()

    def give_up(self) -> None:
        """Drop pending writes, because a child may hold the input open forever."""
        if self._input.get_write_buffer_size():
            self._input.abort()

    def _end(self) -> None:
        self._over = True
        self._news.set()

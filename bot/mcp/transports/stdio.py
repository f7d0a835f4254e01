"""Transport for a child process: one JSON-RPC message a line on its standard input and output.

The MCP library's own transport is not used: it takes quadratic time for long lines and has no size limit. Reader and
writer use the pipes without a task in between, because passing a message between tasks costs more than reading it. Of a
line that is too long only the two ends are kept, because they often hold the id of the request.

The shutdown follows modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle: close the input, wait,
terminate the process group, kill it.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, TextIO, cast

import anyio
import anyio.lowlevel
from anyio.abc import Process
from mcp.shared.message import SessionMessage

from bot.mcp.errors import LARGEST_ANSWER, TOO_LARGE
from bot.mcp.sdk import (
    IncomingStream,
    OutgoingStream,
    TransportStreams,
    get_default_environment,
    terminate_posix_process_tree,
)
from bot.mcp.transports.messages import Incoming, answered_id, read_messages, unreadable

log = logging.getLogger(__name__)

_STDIN, _STDOUT = 0, 1
_END_LENGTH = 512
_REAP_SECONDS = 2.0
_READ_BATCH = 32
"""Messages read before other tasks run, so that a process that never pauses cannot block the loop."""


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


class LineTooLong(NamedTuple):
    """Both ends of a line above the limit."""

    head: bytes
    tail: bytes

    @property
    def answers(self) -> int | str | None:
        """Id of the request that this line answers; None if it is unknown or the line is not a response."""
        return answered_id(self.head, self.tail)


class LineReader:
    """Line splitter. `most` is the limit of a line in bytes. Lines have no line ends."""

    def __init__(self, most: int = LARGEST_ANSWER) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._length = 0
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLong]:
        """Yield the lines that end in this chunk."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end])
            line = b"".join(self._parts) if self._length <= self._most else LineTooLong(self._head, self._tail)
            self._parts, self._length, self._head, self._tail = [], 0, b"", b""
            yield line
            start = end + 1
        self._take(chunk[start:])

    def _take(self, piece: bytes) -> None:
        fitted = self._length <= self._most
        self._length += len(piece)
        if self._length <= self._most:
            self._parts.append(piece)
            return
        if fitted:
            begun = b"".join(self._parts)
            self._parts.clear()
            self._head, self._tail = begun[:_END_LENGTH], begun[-_END_LENGTH:]
        self._head += piece[: _END_LENGTH - len(self._head)]
        self._tail = (self._tail + piece[-_END_LENGTH:])[-_END_LENGTH:]


@asynccontextmanager
async def child_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, errors: TextIO, leave_seconds: float
) -> AsyncIterator[TransportStreams]:
    """Start a process and exchange messages with it; end it after the block.

    `env` is added to the library's default variables. `errors` receives its stderr. It has `leave_seconds` to end by
    itself, and again after SIGTERM. Raises OSError and ValueError if the start fails.
    """
    # asyncio kills a process whose start is cancelled and waits for its end, but anyio cancels that wait, too. The
    # start takes no longer than the fork.
    with anyio.CancelScope(shield=True):
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            SubprocessPipes,
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=get_default_environment() | dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    # No await before the block: a cancellation in between would leave the process behind.
    outgoing = _Outgoing(pipes)
    try:
        yield _Incoming(pipes), outgoing
    finally:
        with anyio.CancelScope(shield=True):
            await outgoing.aclose()
            pipes.hang_up()
            pipes.end_input()
            await _end(transport, pipes, leave_seconds)
            await anyio.lowlevel.checkpoint()


class _Incoming(IncomingStream):
    """Read stream of the process's messages."""

    def __init__(self, pipes: SubprocessPipes) -> None:
        self._pipes = pipes
        self._lines = LineReader()
        self._ready: Iterator[bytes | LineTooLong] = iter(())
        self._messages: deque[Incoming] = deque()
        self._in_a_row = 0

    async def receive(self) -> Incoming:
        self._in_a_row += 1
        if self._in_a_row > _READ_BATCH:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while not self._messages:
            line = next(self._ready, None)
            if line is None:
                chunk = await self._pipes.read()
                if chunk is None:
                    raise anyio.EndOfStream
                self._ready = self._lines.feed(chunk)
            elif not isinstance(line, LineTooLong):
                self._messages.extend(await read_messages(line))
            elif (request := line.answers) is not None:
                self._messages.append(unreadable(request, TOO_LARGE))
            else:
                # The request of this line is unknown, so all requests have to fail.
                log.warning("MCP server process wrote a line above the size limit, connection closed")
                await self.aclose()
                raise anyio.EndOfStream
        return self._messages.popleft()

    async def aclose(self) -> None:
        self._ready = iter(())
        self._pipes.hang_up()


class _Outgoing(OutgoingStream):
    """Write stream to the process."""

    def __init__(self, pipes: SubprocessPipes) -> None:
        super().__init__()
        self._pipes = pipes

    async def _take(self, item: SessionMessage) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        await self._pipes.write(line.encode("utf-8", "replace"))


async def _end(process: asyncio.SubprocessTransport, pipes: SubprocessPipes, leave_seconds: float) -> None:
    """Wait for the end of the process, then force it. Its children may hold the pipes open."""
    if not await _has_exited(pipes, leave_seconds):
        await terminate_posix_process_tree(
            cast("Process", SimpleNamespace(pid=process.get_pid(), returncode=None)), leave_seconds
        )
        if not await _has_exited(pipes, _REAP_SECONDS):
            log.warning("MCP server process %d still runs after SIGKILL", process.get_pid())
    pipes.give_up()
    with suppress(PermissionError):
        process.close()


async def _has_exited(pipes: SubprocessPipes, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await pipes.left.wait()
    return pipes.left.is_set()

"""Transport for a child process: one JSON-RPC message a line on its standard input and output.

The MCP library's own transport is not used: it takes quadratic time for long lines and has no size limit.

The shutdown follows modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle: close the input, wait,
terminate the process group, kill it.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, cast

import anyio
import anyio.lowlevel
from anyio.abc import Process
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

from bot.mcp.protocol_noise import Junk
from bot.mcp.transports.ndjson import TOO_LARGE, LineReader, LineTooLong
from bot.mcp.transports.subprocess import SubprocessPipes
from bot.mcp.transports.write_stream import WriteStream

log = logging.getLogger(__name__)

_LEAVE_SECONDS = 2.0
_TERMINATE_SECONDS = 2.0
_REAP_SECONDS = 2.0
_READ_BATCH = 32
"""Messages read before other tasks run, so that a process that never pauses cannot block the loop."""

_OVERSIZE = ErrorData(code=INVALID_REQUEST, message=TOO_LARGE)

Incoming = SessionMessage | Exception


@asynccontextmanager
async def child_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, errors: TextIO
) -> AsyncIterator[TransportStreams]:
    """Start a process and exchange messages with it; end it after the block.

    `env` is added to the library's default variables. `errors` receives its stderr. Raises OSError and ValueError
    if the start fails.
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
            await _end(transport, pipes)
            await anyio.lowlevel.checkpoint()


class _Incoming:
    """Read stream of the process's messages."""

    def __init__(self, pipes: SubprocessPipes) -> None:
        self._pipes = pipes
        self._lines = LineReader()
        self._ready: Iterator[bytes | LineTooLong] = iter(())
        self._in_a_row = 0

    async def receive(self) -> Incoming:
        """Return the next message. Raises anyio.EndOfStream at the end."""
        self._in_a_row += 1
        if self._in_a_row > _READ_BATCH:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while (line := next(self._ready, None)) is None:
            chunk = await self._pipes.read()
            if chunk is None:
                raise anyio.EndOfStream
            self._ready = self._lines.feed(chunk)
        if not isinstance(line, LineTooLong):
            return _message(line)
        request = line.answers
        if request is None:
            # The request of this line is unknown, so all requests have to fail.
            log.warning("MCP server process wrote a line above the size limit, connection closed")
            await self.aclose()
            raise anyio.EndOfStream
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=_OVERSIZE))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._ready = iter(())
        self._pipes.hang_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
    except ValueError:
        return Junk(line)


class _Outgoing(WriteStream):
    """Write stream to the process."""

    def __init__(self, pipes: SubprocessPipes) -> None:
        super().__init__()
        self._pipes = pipes

    async def _take(self, item: SessionMessage) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        await self._pipes.write(line.encode("utf-8", "replace"))


async def _end(process: asyncio.SubprocessTransport, pipes: SubprocessPipes) -> None:
    """Wait for the end of the process, then force it. Its children may hold the pipes open."""
    if not await _has_exited(pipes, _LEAVE_SECONDS):
        await terminate_posix_process_tree(cast("Process", _ProcessHandle(process.get_pid())), _TERMINATE_SECONDS)
        if not await _has_exited(pipes, _REAP_SECONDS):
            log.warning("MCP server process %d still runs after SIGKILL", process.get_pid())
    pipes.give_up()
    with suppress(PermissionError):
        process.close()


@dataclass(frozen=True, slots=True)
class _ProcessHandle:
    """Adapter with the attributes of a process that the library's termination needs."""

    pid: int
    returncode: None = None


async def _has_exited(pipes: SubprocessPipes, seconds: float) -> bool:
    """Return True if the process has ended within that time."""
    with anyio.move_on_after(seconds):
        await pipes.left.wait()
    return pipes.left.is_set()

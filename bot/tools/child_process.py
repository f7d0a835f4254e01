"""A server as a child process: one JSON-RPC message a line on its standard input and output.

Called by `transports`. Stands in for the MCP library's own transport, which takes time that grows with the square of a
line's length and reads lines of any length. How a process is ended is the specification's order: its input is closed,
it gets a moment, then everything it has started is told to end, and is killed.
(modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle, Shutdown.)
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

import anyio
import anyio.lowlevel
from anyio.abc import AsyncResource, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

from bot.tools.lines import TOO_LARGE, Lines, TooLong

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 0.5
"""For what was accepted to be written before the input is closed."""
_LEAVE_SECONDS = 2.0
_TERMINATE_SECONDS = 2.0
_REAP_SECONDS = 2.0
_POLL_SECONDS = 0.01
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)

_OVERSIZE = ErrorData(code=INVALID_REQUEST, message=TOO_LARGE)

Incoming = SessionMessage | Exception


@asynccontextmanager
async def child_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, errors: TextIO
) -> AsyncIterator[TransportStreams]:
    """Start a process and exchange messages with it; it is gone after the block. `env` comes on top of a short list of
    harmless variables, `errors` takes its standard error. Raises OSError and ValueError if it cannot be started.
    """
    process = await anyio.open_process(
        list(command), env=get_default_environment() | dict(env), stderr=errors, cwd=cwd, start_new_session=True
    )
    # No await until the task group is entered: a cancellation in between would leave the process behind.
    heard, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, said = anyio.create_memory_object_stream[SessionMessage](0)
    written = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_read, process, heard)
        group.start_soon(_write, process, said, heard, written)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                # The reader goes on to throw away what comes: a process that is stuck writing reads no input.
                incoming.close()
                outgoing.close()
                with anyio.move_on_after(_FLUSH_SECONDS):
                    await written.wait()
                await _end(process)
                for each in (incoming, outgoing, heard, said):
                    await each.aclose()
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()


async def _read(process: Process, heard: MemoryObjectSendStream[Incoming]) -> None:
    """Hand on what the process says, one line at a time; hang up when that is over, and throw away what still comes."""
    assert process.stdout is not None
    try:
        async with heard:
            await _hand_on(process, heard)
    except _GONE as error:
        log.debug("a server's output ended: %r", error)
    finally:
        with anyio.CancelScope(shield=True), suppress(*_GONE):
            while True:
                await process.stdout.receive()


async def _hand_on(process: Process, heard: MemoryObjectSendStream[Incoming]) -> None:
    """Raises one of `_GONE` when there is nobody to talk or to listen."""
    assert process.stdout is not None
    lines = Lines()
    while True:
        for line in lines.feed(await process.stdout.receive()):
            message = _too_long(line) if isinstance(line, TooLong) else _message(line)
            if message is None:
                return
            await heard.send(message)


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
    except ValueError as error:
        return error


def _too_long(line: TooLong) -> SessionMessage | None:
    """A failure for whoever waits for this line; None if nobody can be told apart, and all have to be."""
    request = line.answers
    if request is None:
        log.warning("a server wrote a line that is too long to be read, and was hung up on")
        return None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=_OVERSIZE))


async def _write(
    process: Process,
    said: MemoryObjectReceiveStream[SessionMessage],
    heard: MemoryObjectSendStream[Incoming],
    written: anyio.Event,
) -> None:
    assert process.stdin is not None
    try:
        async with said:
            async for each in said:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
                await process.stdin.send(line.encode("utf-8", "replace"))
    except _GONE:
        # The process may live on: let the session see the end instead of waiting for an answer for ever.
        await heard.aclose()
    finally:
        written.set()


async def _end(process: Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    await _close(process.stdin)
    if not await _has_left(process, _LEAVE_SECONDS):
        await terminate_posix_process_tree(process, _TERMINATE_SECONDS)
        if not await _has_left(process, _REAP_SECONDS):
            log.warning("a server's process %d is still there after it was killed", process.pid)
    # Whoever survived may hold the pipe's other end open.
    await _close(process.stdout)
    _close_transport(process)


async def _has_left(process: Process, seconds: float) -> bool:
    """Whether it has ended within that time. `Process.wait` waits for its pipes as well, which a child of its own may
    have inherited.
    """
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL_SECONDS)
    return True


async def _close(stream: AsyncResource) -> None:
    with suppress(*_GONE):
        await stream.aclose()


def _close_transport(process: Process) -> None:
    """Close what asyncio keeps of a process whose pipes are held open by others: it would warn of it later."""
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()

"""Timing, servers and calls for the tests of the toolbox."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bot.domain.conversations import Author
from bot.domain.messages import ToolCall
from bot.domain.servers import DesiredServer, HttpTransport, ServerConfig, StdioTransport
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.retry import BreakerSettings, ConnectionTiming, RetryTiming, WaitTiming
from bot.mcp.server.status import OnSynced, OnSyncFailed, SyncNotifier
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.programs import Program, listening, python

FAKES = Path(__file__).parent.parent / "fakes" / "mcp"
ANA = Author("console", "ana", "Ana")
PATIENT = BreakerSettings(failures=1_000, losses=1_000)
"""A breaker that stays closed."""
FAST = ConnectionTiming(
    RetryTiming(first_pause=0.1, longest_pause=0.4, tries=1_000, quick_pause=0.02, minimum_pause=0.02),
    WaitTiming(settle=0.02, apart=0.02, start_slot=0.1),
    tripping=PATIENT,
)
LIMIT = 60.0
FAILED = "Error calling MCP server: "


def real(name: str = "s", *options: str, env: dict[str, str] | None = None, **fields: Any) -> ServerConfig:
    """Return the real server as a child process, on a Python that has its modules loaded."""
    transport = StdioTransport(python(), (str(FAKES / "server.py"), "stdio", *options), env or {})
    return ServerConfig(name, transport, **fields)


def raw(name: str = "s", *, env: dict[str, str] | None = None, script: dict[str, Any], **fields: Any) -> ServerConfig:
    """Return the scripted server as a child process."""
    arguments = ("-S", "-E", str(FAKES / "raw.py"), json.dumps(script))
    return ServerConfig(name, StdioTransport("python", arguments, env or {}), **fields)


def remote(name: str, url: str, headers: dict[str, str] | None = None, **fields: Any) -> ServerConfig:
    """Return a server at an address."""
    return ServerConfig(name, HttpTransport(url, headers or {}), **fields)


@contextmanager
def http_server(env: Mapping[str, str] | None = None, *, transport: str = "http") -> Iterator[tuple[str, Program]]:
    """Yield the real server over HTTP, or over `sse`: its address and its process."""
    with listening(str(FAKES / "server.py"), transport, environment=env) as (port, process):
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}", process


def faster(**changes: Any) -> ConnectionTiming:
    """Return `FAST` with other times, whichever part of it they belong to."""
    parts: dict[str, Any] = {"retries": FAST.retries, "waits": FAST.waits}
    for name, part in parts.items():
        known = {field.name for field in fields(part)} & changes.keys()
        parts[name] = replace(part, **{key: changes.pop(key) for key in known})
    return replace(FAST, **parts, **changes)


def toolbox(
    *servers: ServerConfig | DesiredServer,
    pacing: ConnectionTiming = FAST,
    on_synced: OnSynced | None = None,
    on_sync_failed: OnSyncFailed | None = None,
    **options: Any,
) -> McpToolbox:
    """Return a toolbox. An option may be one of `ConnectionDependencies`."""
    known = {field.name for field in fields(ConnectionDependencies)} & options.keys()
    notifier = SyncNotifier(on_synced, on_sync_failed)
    shared = ConnectionDependencies(timing=pacing, sync_notifier=notifier, **{key: options.pop(key) for key in known})
    return McpToolbox(entries(*servers), shared, **options)


@asynccontextmanager
async def running_toolbox(
    *servers: ServerConfig | DesiredServer, first_wait: float = LIMIT, **options: Any
) -> AsyncIterator[McpToolbox]:
    """Yield a toolbox (`toolbox`). It is closed after the block, and no process is left."""
    box = toolbox(*servers, first_wait=first_wait, **options)
    await box.start()
    try:
        yield box
    finally:
        await box.close()
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp:")] == []


@asynccontextmanager
async def connected_toolbox(*servers: ServerConfig | DesiredServer, **options: Any) -> AsyncIterator[McpToolbox]:
    """Yield a started toolbox (`started`) after its first offer."""
    async with running_toolbox(*servers, **options) as box:
        await box.offer()
        yield box


def entries(*servers: ServerConfig | DesiredServer) -> list[DesiredServer]:
    """Return servers as desired servers of the toolbox."""
    return [server if isinstance(server, DesiredServer) else DesiredServer(server) for server in servers]


def bad(name: str, problem: str) -> DesiredServer:
    """Return a server with an unusable definition."""
    return DesiredServer(ServerConfig(name, StdioTransport("")), problem=problem)


def tools_of(box: McpToolbox, server: str = "s") -> Sequence[Tool]:
    """Return the listed tools of a server of the operator's file."""
    return box.capabilities(f"file:{server}").tools


def tool_by_name(box: McpToolbox, tool: str, server: str = "s") -> Tool:
    """Return a tool by its original name."""
    return next(each for each in tools_of(box, server) if each.original_name == tool)


async def call(tool: Tool, box: McpToolbox, key: str = "turn:1", **arguments: Any) -> ToolOutcome:
    """Call a tool with these arguments."""
    return await call_with(tool, box, CallContext(ANA, key), **arguments)


async def call_with(tool: Tool, box: McpToolbox, context: CallContext, **arguments: Any) -> ToolOutcome:
    """Call a tool with these arguments in this context."""
    return await asyncio.wait_for(box.call(tool, ToolCall("c1", tool.name, arguments), context), LIMIT)


def text(outcome: ToolOutcome) -> str:
    """Return the text of a successful answer."""
    assert isinstance(outcome, CallReturned), outcome
    assert not outcome.result.is_error, outcome
    return outcome.result.text


def error_text(outcome: ToolOutcome) -> str:
    """Return the text of an answer with an error."""
    assert isinstance(outcome, CallReturned), outcome
    assert outcome.result.is_error, outcome
    return outcome.result.text


def unsent_reason(outcome: ToolOutcome) -> str:
    """Return the reason why a call was not sent."""
    assert isinstance(outcome, CallNotSent), outcome
    return outcome.reason.removeprefix(FAILED)


def unknown(outcome: ToolOutcome) -> str:
    """Return the reason why the outcome of a call is unknown."""
    assert isinstance(outcome, CallOutcomeUnknown), outcome
    assert outcome.reason.startswith(FAILED)
    return outcome.reason.removeprefix(FAILED)


def alive(pid: int) -> bool:
    """Return True if the process runs and is not a zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may also go while its file is read
        return False


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

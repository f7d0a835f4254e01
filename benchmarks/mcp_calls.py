"""Overhead of the toolbox in a call of an MCP server: latency, CPU and memory, compared with the MCP library's own
client.

    python -m benchmarks.mcp_calls [--rounds N] [--calls N]

Both run alternately in short rounds, so that other load on the machine affects both; the ratio is that of the
medians of all rounds. CPU is that of this process without the server. Each memory row is measured in a process of
its own. Results depend on the machine and have no limits.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from mcp import Client, StdioServerParameters, types
from rich.console import Console
from rich.table import Table

from bot.domain.conversations import Author
from bot.domain.messages import ToolCall
from bot.domain.servers import DesiredServer, HttpTransport, ServerConfig, ServerStatus, StdioTransport
from bot.domain.tools import CallReturned
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.retry import ConnectionTiming
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.mcp.toolboxes import FAKES, http_server, raw

AT_ONCE = 200
SERVERS = 50
TRANSPORTS = ("stdio", "streamable HTTP")
_PROGRAM = (str(FAKES / "server.py"), "stdio")
_TEXT = "The quick brown fox jumps over the lazy dog."
_CONTEXT = CallContext(Author("bench", "ana", "Ana"), "bench:1")
_LIMIT = 120.0

Call = Callable[[], Awaitable[None]]


@contextmanager
def _served(transport: str) -> Iterator[StdioTransport | HttpTransport]:
    """Start the real server of the tests and yield its address."""
    if transport == "stdio":
        yield StdioTransport(sys.executable, _PROGRAM)
        return
    with http_server() as (url, _):
        yield HttpTransport(url)


def _bare(where: StdioTransport | HttpTransport) -> Client:
    match where:
        case StdioTransport(command=command, args=args):
            return Client(StdioServerParameters(command=command, args=list(args)))
        case HttpTransport(url=url):
            return Client(url)


@asynccontextmanager
async def library(where: StdioTransport | HttpTransport) -> AsyncIterator[Call]:
    """Yield one call of the library's own client."""
    async with _bare(where) as client:
        await client.list_tools()

        async def call() -> None:
            answer = await client.call_tool("echo", {"text": _TEXT})
            assert isinstance(answer, types.CallToolResult)
            assert isinstance(answer.content[0], types.TextContent)
            assert answer.content[0].text == _TEXT

        yield call


@asynccontextmanager
async def toolbox(where: StdioTransport | HttpTransport) -> AsyncIterator[Call]:
    """Yield one call through the toolbox."""
    server = ServerConfig("s", where)
    box = McpToolbox([DesiredServer(server)])
    await box.start()
    try:
        assert (await box.connect(server.id)).status is ServerStatus.CONNECTED
        tool = next(each for each in box.capabilities(server.id).tools if each.original_name == "echo")

        async def call() -> None:
            outcome = await box.call(tool, ToolCall("c1", tool.name, {"text": _TEXT}), _CONTEXT)
            assert isinstance(outcome, CallReturned)
            assert outcome.result.text == _TEXT

        yield call
    finally:
        await box.close()


Way = Callable[[Call, int], Awaitable[object]]


async def _one_by_one(call: Call, count: int) -> None:
    for _ in range(count):
        await call()


async def _at_once(call: Call, count: int) -> None:
    await asyncio.gather(*(call() for _ in range(count)))


async def _eight_at_a_time(call: Call, count: int) -> None:
    """Run calls eight at a time, the toolbox's own limit for one server."""
    room = asyncio.Semaphore(8)

    async def one() -> None:
        async with room:
            await call()

    await asyncio.gather(*(one() for _ in range(count)))


@dataclass(frozen=True)
class Kind:
    """Kind of calls: the way of the library, that of the toolbox, and the number in a round."""

    name: str
    library: Way
    toolbox: Way
    count: int


def kinds(count: int, at_once: int) -> tuple[Kind, ...]:
    """Return the kinds, with `count` calls in a sequence and `at_once` concurrent ones."""
    return (
        Kind("one by one", _one_by_one, _one_by_one, count),
        Kind(f"{at_once} at once", _at_once, _at_once, at_once),
        Kind("the same, the library eight at a time", _eight_at_a_time, _at_once, at_once),
    )


@dataclass
class Timings:
    """Milliseconds of each call by round: wall clock, and CPU of this process."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def add(self, way: Way, call: Call, count: int) -> None:
        """Time one round."""
        gc.collect()
        began, cpu = time.perf_counter(), _cpu()
        async with asyncio.timeout(_LIMIT):
            await way(call, count)
        self.wall.append((time.perf_counter() - began) / count * 1000)
        self.cpu.append((_cpu() - cpu) / count * 1000)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def calls(table: Table, transport: str, rounds: int, count: int, at_once: int) -> None:
    """Add the rows of one transport."""
    both = [(Timings(), Timings()) for _ in kinds(count, at_once)]
    with _served(transport) as where:
        async with library(where) as bare, toolbox(where) as ours:
            for call in (bare, ours):  # Warm-up: the first call fills caches.
                await _one_by_one(call, 20)
                await _at_once(call, at_once)
            for n in range(rounds):
                for kind, (of_library, of_toolbox) in zip(kinds(count, at_once), both, strict=True):
                    turns = [(of_library, kind.library, bare), (of_toolbox, kind.toolbox, ours)]
                    for timings, way, call in turns if n % 2 else reversed(turns):
                        await timings.add(way, call, kind.count)
    for kind, (of_library, of_toolbox) in zip(kinds(count, at_once), both, strict=True):
        pairs = ((of_library.wall, of_toolbox.wall), (of_library.cpu, of_toolbox.cpu))
        table.add_row(transport, kind.name, *(figure for pair in pairs for figure in _compared(*pair)))


def _compared(of_library: Sequence[float], of_toolbox: Sequence[float]) -> tuple[str, str, str]:
    one, other = median(of_library), median(of_toolbox)
    return f"{one:.2f}", f"{other:.2f}", f"{other / one:.2f}"


# memory


@contextmanager
def _many(transport: str, servers: int) -> Iterator[list[StdioTransport | HttpTransport]]:
    """Yield one server more than are counted: processes with ten tools each, or one address repeatedly."""
    if transport == "stdio":
        tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(10)]
        process = raw(script={"listings": [[{"tools": tools}]]}).transport
        yield [process] * (servers + 1)
        return
    with http_server() as (url, _):
        yield [HttpTransport(url)] * (servers + 1)


@asynccontextmanager
async def _connected(places: Sequence[StdioTransport | HttpTransport]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for place in places:
            await (await stack.enter_async_context(_bare(place))).list_tools()
        yield


@asynccontextmanager
async def _kept(
    places: Sequence[StdioTransport | HttpTransport], until: ServerStatus = ServerStatus.CONNECTED
) -> AsyncIterator[None]:
    """Run a toolbox with these servers, once they have the status `until`."""
    pacing = ConnectionTiming(idle_after=None if until is ServerStatus.CONNECTED else 0.0)
    servers = [DesiredServer(ServerConfig(f"s{n}", each)) for n, each in enumerate(places)]
    box = McpToolbox(servers, ConnectionDependencies(timing=pacing))
    await box.start()
    try:
        async with asyncio.timeout(_LIMIT):
            while {state.status for state in box.servers()} != {until}:  # noqa: ASYNC110 - the toolbox has no event
                await asyncio.sleep(0.05)
        yield
    finally:
        await box.close()


_KINDS: dict[str, Callable[[Sequence[StdioTransport | HttpTransport]], AbstractAsyncContextManager[None]]] = {
    "the library's client, connected": _connected,
    "the toolbox, connected": _kept,
    "the toolbox, let go": lambda places: _kept(places, ServerStatus.IDLE),
}


async def memory(kind: str, transport: str, servers: int) -> float:
    """Return the kilobytes of this process for each of the servers, beside a first one that loads the shared parts."""
    with _many(transport, servers) as (first, *others):
        async with _KINDS[kind]([first]):
            before = _resident()
            async with _KINDS[kind](others):
                return (_resident() - before) / len(others) / 1024


def _resident() -> int:
    """Return the resident bytes of this process after a garbage collection."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _alone(kind: str, transport: str, servers: int) -> float:
    """Measure memory in a process of its own."""
    command = (sys.executable, "-m", "benchmarks.mcp_calls", "--memory", kind, transport, "--servers", str(servers))
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)  # noqa: S603 - ours


async def measure(rounds: int, count: int, at_once: int) -> None:
    """Run all timings and print the tables."""
    timings = Table("", "", "ms: library", "toolbox", "ratio", "CPU ms: library", "toolbox", "ratio")
    for transport in TRANSPORTS:
        await calls(timings, transport, rounds, count, at_once)
    Console(width=120).print(timings)


def measure_memory(servers: int) -> None:
    """Run all memory measurements and print the table."""
    table = Table(f"kB for each of {servers} servers", *TRANSPORTS)
    for kind in _KINDS:
        table.add_row(kind, *(f"{_alone(kind, transport, servers):.0f}" for transport in TRANSPORTS))
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each kind and transport")
    parser.add_argument("--calls", type=int, default=100, help="calls one by one in each round")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="concurrent calls in each round")
    parser.add_argument("--memory", nargs=2, metavar=("KIND", "TRANSPORT"), help="one figure of the memory and no more")
    parser.add_argument("--servers", type=int, default=SERVERS, help="servers whose memory is measured, or 0")
    options = parser.parse_args(arguments)
    if options.memory:
        kind, transport = options.memory
        print(asyncio.run(memory(kind, transport, options.servers)))
    else:
        asyncio.run(measure(options.rounds, options.calls, options.at_once))
        if options.servers:
            measure_memory(options.servers)


if __name__ == "__main__":
    main()

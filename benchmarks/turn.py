"""Cost of a whole turn on loopback: one call of an MCP server, then an answer in fifty pieces, without thinking time.

The product on SQLite without output is compared with a hand-written loop on the vendors' clients that stores nothing,
and with raw HTTP.

    python -m benchmarks.turn [--rounds N] [--turns N] [--postgresql [URL]] [--only N]
    python -m benchmarks.turn --soak N

The ways run alternately in short rounds, so that other load on the machine affects all of them; ratios are those of the
medians of all rounds. CPU is that of this process without the model service and the MCP server. Each memory row is
measured in a process of its own. Results depend on the machine and have no limits.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.mcp_calls import _cpu, _resident
from benchmarks.turn_services import served
from benchmarks.turn_ways import Opened, Way, client_loop, product, raw_http
from tests.postgres import running_server

SIZES = (1, 16, 64, 256)
MANY = 1000
"""Default number of conversations whose memory is measured."""
SOAKING = 64
"""Concurrent turns of the soak test."""
A_CONVERSATION = 10
"""Turns of each conversation. Later turns send a longer history to the model."""
PRODUCT, LOOP, RAW = "the product", "loop on the clients", "raw HTTP"
POSTGRESQL = "the product, PostgreSQL"


@dataclass(frozen=True, slots=True)
class Run:
    """One round: CPU milliseconds a turn, turns a second, milliseconds to the first text (median) and of a turn."""

    cpu: float
    rate: float
    first: float


async def run(way: Way, at_once: int, turns: int, numbers: Iterator[int]) -> Run:
    """Run `turns` turns, `at_once` of them concurrently, in new conversations of a few turns each."""
    firsts: list[float] = []

    async def talk() -> None:
        for n in range(max(1, turns // at_once)):
            if n % A_CONVERSATION == 0:
                conversation = next(numbers)
            firsts.append(await way.turn(conversation))

    gc.collect()
    began, cpu = time.perf_counter(), _cpu()
    await asyncio.gather(*(talk() for _ in range(at_once)))
    seconds, used = time.perf_counter() - began, _cpu() - cpu
    return Run(used / len(firsts) * 1000, len(firsts) / seconds, median(firsts) * 1000)


@asynccontextmanager
async def _opened(ways: Mapping[str, Opened]) -> AsyncIterator[dict[str, Way]]:
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(served())
        yield {name: await stack.enter_async_context(opened(services)) for name, opened in ways.items()}


async def measure(
    ways: Mapping[str, Opened], sizes: Sequence[int], rounds: int, turns: int
) -> dict[int, dict[str, Run]]:
    """Return the medians of all rounds, by the number of conversations and the way."""
    numbers = count(1)
    found: dict[int, dict[str, Run]] = {}
    async with _opened(ways) as opened:
        for size in sizes:
            many = max(turns if size > 1 else turns // 4, size)
            runs: dict[str, list[Run]] = {name: [] for name in opened}
            for each in opened.values():  # Warm-up: the first turn fills caches.
                await run(each, size, size, numbers)
            for n in range(rounds):
                for name, way in list(opened.items())[:: 1 if n % 2 else -1]:
                    runs[name].append(await run(way, size, many, numbers))
            found[size] = {name: medians(each) for name, each in runs.items()}
    return found


def medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""
    return Run(*(median(figures) for figures in zip(*map(astuple, runs), strict=True)))


def compare(ways: Mapping[str, Opened], sizes: Sequence[int], rounds: int, turns: int) -> None:
    """Measure everything and print the table."""
    table = Table("", "conversations", "CPU ms a turn", "ratio", "turns/s", "ratio", "ms to the first word", "ratio")
    for size, found in asyncio.run(measure(ways, sizes, rounds, turns)).items():
        for name, each in found.items():
            table.add_row(name, str(size), *_figures(each, found[LOOP]), end_section=name == RAW)
    Console(width=120).print(table)


def _figures(one: Run, other: Run) -> list[str]:
    figures: list[str] = []
    for name, digits in (("cpu", 2), ("rate", 0), ("first", 1)):
        figures += [f"{getattr(one, name):.{digits}f}", f"{getattr(one, name) / getattr(other, name):.2f}"]
    return figures


async def memory(way: Opened, conversations: int) -> tuple[float, float]:
    """Return the additional megabytes of this process after the turns of so many concurrent conversations, and at the
    peak.
    """
    async with _opened({"": way}) as opened:
        (each,) = opened.values()
        numbers = count(1)
        await run(each, min(SOAKING, conversations), min(SOAKING, conversations), numbers)
        before = _resident()
        await run(each, conversations, conversations, numbers)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return (_resident() - before) / 2**20, (peak - before) / 2**20


@dataclass(frozen=True, slots=True)
class Tenth:
    """State of a soak after so many turns: the round of this tenth, and the resident megabytes."""

    turns: int
    run: Run
    memory: float


async def soak(way: Opened, turns: int) -> list[Tenth]:
    """Run many turns. Return the state after each tenth of them."""
    async with _opened({"": way}) as opened:
        (each,) = opened.values()
        numbers = count(1)
        at_once = max(1, min(SOAKING, turns // 10))
        await run(each, at_once, at_once, numbers)
        return [
            Tenth(n * (turns // 10), await run(each, at_once, turns // 10, numbers), _resident() / 2**20)
            for n in range(1, 11)
        ]


def _show_soak(tenths: Sequence[Tenth]) -> None:
    table = Table("turns", "CPU ms a turn", "turns/s", "memory, MB")
    for each in tenths:
        table.add_row(str(each.turns), f"{each.run.cpu:.2f}", f"{each.run.rate:.0f}", f"{each.memory:.1f}")
    Console(width=120).print(table)


@contextmanager
def opened_ways(postgresql: str = "") -> Iterator[dict[str, Opened]]:
    """Yield the ways. `postgresql` is the address of an empty database, `own` for that of a new server."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if postgresql == "own":
            postgresql = stack.enter_context(running_server(f"-{os.getpid()}")).empty()
        folder, other = Path(name), Path(name) / "other"
        other.mkdir()
        ways: dict[str, Opened] = {PRODUCT: functools.partial(product, folder=folder)}
        if postgresql:
            ways[POSTGRESQL] = functools.partial(product, folder=other, database=postgresql)
        yield {**ways, LOOP: client_loop, RAW: raw_http}


def measure_memory(conversations: int) -> dict[str, tuple[float, float]]:
    """Return the megabytes of the product and of the loop as `memory` does, each measured in a process of its own."""
    found: dict[str, tuple[float, float]] = {}
    for name in (PRODUCT, LOOP):
        command = (sys.executable, "-m", "benchmarks.turn", "--memory", name, "--conversations", str(conversations))
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600).stdout  # noqa: S603 - ours
        ended, peak = map(float, printed.split())
        found[name] = ended, peak
    return found


def _show_memory(conversations: int) -> None:
    table = Table(f"MB for {conversations} conversations", "when they have ended", "at most, all at once")
    for name, megabytes in measure_memory(conversations).items():
        table.add_row(name, *(f"{each:.1f}" for each in megabytes))
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each number of conversations")
    parser.add_argument("--turns", type=int, default=256, help="turns of each way in a round")
    parser.add_argument("--only", type=int, help="this number of conversations only, and no memory")
    parser.add_argument("--postgresql", nargs="?", const="own", help="an empty database (default: a server of its own)")
    parser.add_argument("--soak", type=int, metavar="N", help="N turns of the product and no more")
    parser.add_argument("--memory", choices=(PRODUCT, LOOP), help="one row of the memory and no more")
    parser.add_argument("--conversations", type=int, default=MANY, help="conversations whose memory is measured")
    options = parser.parse_args(arguments)
    with opened_ways(options.postgresql or "") as ways:
        if options.memory:
            print(*(f"{each:.1f}" for each in asyncio.run(memory(ways[options.memory], options.conversations))))
        elif options.soak:
            _show_soak(asyncio.run(soak(ways[PRODUCT], options.soak)))
        else:
            compare(ways, (options.only,) if options.only else SIZES, options.rounds, options.turns)
            if not options.only:
                _show_memory(options.conversations)


if __name__ == "__main__":
    main()

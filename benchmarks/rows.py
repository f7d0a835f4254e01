"""Every row by which a release is compared with the last one, in one run.

    python -m benchmarks.rows [PART ...] [--json FILE] [--keep] [--soak N]

Each row has a figure of the product, where possible the same figure of something beside it, and their ratio. Ratios are
what is compared between machines: a row without anything beside it is divided by the time of a fixed loop of Python and
hashing. `benchmarks/results.jsonl` has the rows of releases; `--keep` appends those of this run. The file of `--json`
has one object a line for each row, also of a run that was interrupted. Exit code 1 if the burst lost a message.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.load import PROJECT, Load, carry
from benchmarks.load_accounts import percentile
from benchmarks.processes import approval_latency, rates
from benchmarks.start import starts
from benchmarks.turn import LOOP, MANY, POSTGRESQL, PRODUCT, RAW, measure, measure_memory, opened_ways, soak
from benchmarks.turn_services import served
from bot import __version__
from tests.postgres import running_server

KEPT = Path(__file__).with_name("results.jsonl")
NEWEST = PROJECT / "build" / "bench.jsonl"
LOOP_COUNT = 100_000
CALIBRATION = "the fixed loop"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a run: rounds and turns of each way, numbers of conversations, turns of the soak, messages of the burst,
    measured approvals, and conversations whose memory is measured.
    """

    rounds: int
    turns: int
    at_once: Sequence[int]
    soak: int
    messages: int
    approvals: int
    conversations: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was measured and where. `calibration` is CPU seconds of the fixed loop, `load` that of the machine before
    the run.
    """

    version: str
    commit: str
    python: str
    cpus: int
    load: float
    calibration: float

    @staticmethod
    def this() -> Machine:
        """Measure this machine."""
        return Machine(
            __version__, _commit(), platform.python_version(), os.cpu_count() or 0, os.getloadavg()[0], calibrate()
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `beside` is the same figure of `per`, `floor` that of raw HTTP."""

    name: str
    unit: str
    value: float
    beside: float | None = None
    per: str = ""
    floor: float | None = None

    @property
    def ratio(self) -> float | None:
        """The figure divided by the one beside it."""
        return self.value / self.beside if self.beside else None


def calibrate() -> float:
    """Return the CPU seconds of a fixed loop of Python and hashing, the least of five."""

    def once() -> float:
        began, digest = time.process_time(), b""
        for n in range(LOOP_COUNT):
            digest = hashlib.sha256(digest + str(n * n % 1009).encode()).digest()
        return time.process_time() - began

    return min(once() for _ in range(5))


# -------------------- the parts


def _turn(sizes: Sizes, _machine: Machine) -> Iterator[Row]:
    with opened_ways("own") as ways:
        found = asyncio.run(measure(ways, sizes.at_once, sizes.rounds, sizes.turns))
    for size, each in found.items():
        ours, loop, raw = each[PRODUCT], each[LOOP], each[RAW]
        yield Row(f"CPU of a turn, {size} at once", "ms", ours.cpu, loop.cpu, LOOP, raw.cpu)
        yield Row(f"turns, {size} at once", "1/s", ours.rate, loop.rate, LOOP, raw.rate)
        yield Row(f"first word, {size} at once", "ms", ours.first, loop.first, LOOP, raw.first)
        yield Row(f"turns on PostgreSQL, {size} at once", "1/s", each[POSTGRESQL].rate, ours.rate, "SQLite")


def _processes(sizes: Sizes, machine: Machine) -> Iterator[Row]:
    with running_server(f"-{os.getpid()}") as server:
        (one, two), latency = asyncio.run(_measure_processes(sizes, server.empty(), server.empty()))
    yield Row("turns on PostgreSQL, two processes", "1/s", two, one, "one process")
    yield _timed("from a decision to the call by another process", latency, machine)


async def _measure_processes(sizes: Sizes, first: str, second: str) -> tuple[list[float], float]:
    async with served("clock") as services:
        return (
            await rates(services, first, sizes.rounds, sizes.turns),
            await approval_latency(services, second, sizes.approvals),
        )


def _start(sizes: Sizes, _machine: Machine) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(starts(Path(folder), sizes.rounds))
    service, bare, imports = found.service, found.bare_service, found.bare_terminal
    yield Row("start of `run`, CPU", "s", service.cpu, bare.cpu, "openai and mcp, connected")
    yield Row("start of `run`, memory", "MB", service.memory, bare.memory, "openai and mcp, connected")
    yield Row("`chat -m hello`, CPU", "s", found.question.cpu, imports.cpu, "two imports")
    yield Row("until the prompt of `chat`", "s", found.prompt, imports.seconds, "two imports")


def _memory(sizes: Sizes, _machine: Machine) -> Iterator[Row]:
    found = measure_memory(sizes.conversations)
    for n, what in enumerate(("ended", "at most")):
        ours, loop = (found[way][n] for way in (PRODUCT, LOOP))
        yield Row(f"memory of {sizes.conversations:,} conversations, {what}", "MB", ours, loop, LOOP)


def _soak(sizes: Sizes, _machine: Machine) -> Iterator[Row]:
    with opened_ways() as ways:
        first, *_, last = asyncio.run(soak(ways[PRODUCT], sizes.soak))
    yield Row(f"memory after {last.turns:,} turns", "MB", last.memory, first.memory, "after a tenth of them")


def _burst(sizes: Sizes, machine: Machine) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outcome = asyncio.run(carry(Load(sizes.messages), f"sqlite:///{folder / 'load.db'}", folder))
    for way, seconds in outcome.acknowledged.items():
        for share in (0.5, 0.99):
            milliseconds = percentile(seconds, share) * 1000
            yield _timed(
                f"{way} acknowledged, p{share * 100:.0f} of {sizes.messages:,} messages", milliseconds, machine
            )
    wrong = sum(each.lost + each.doubled + each.disordered for each in outcome.accounts.values())
    yield Row(WRONG, "", wrong)


WRONG = "messages lost, doubled or out of order"
PARTS: Mapping[str, Callable[[Sizes, Machine], Iterator[Row]]] = {
    "soak": _soak,
    "turn": _turn,
    "processes": _processes,
    "start": _start,
    "memory": _memory,
    "burst": _burst,
}
"""The parts in the order in which they run. The soak is the first, because its memory is that of this process."""


def _timed(name: str, milliseconds: float, machine: Machine) -> Row:
    return Row(name, "ms", milliseconds, machine.calibration * 1000, CALIBRATION)


# -------------------- the run


def lines(machine: Machine, rows: Sequence[Row]) -> str:
    """Return one JSON object a line for each row."""
    return "".join(f"{json.dumps({**asdict(machine), **asdict(row), 'ratio': row.ratio})}\n" for row in rows)


def kept_rows(text: str) -> dict[str, dict[str, Any]]:
    """Return the newest line of each row."""
    return {line["name"]: line for line in map(json.loads, text.splitlines())}


def table(rows: Sequence[Row], kept: Mapping[str, Mapping[str, Any]], machine: Machine) -> Table:
    """Return the table, with the change of each ratio since the kept run."""
    releases = sorted({f"{line['version']} ({line['commit']})" for line in kept.values()})
    caption = (
        f"{machine.version} ({machine.commit}), Python {machine.python}, {machine.cpus} CPUs, load {machine.load:.1f} "
        f"before the run; {CALIBRATION}: {machine.calibration:.3f} s.\n"
        f"Changes are those of the ratios since {', '.join(releases) or 'no earlier run'}."
    )
    shown = Table(caption=caption, caption_justify="left")
    for name in ("", "unit", "measured", "beside", "of", "ratio", "raw HTTP", "change"):
        shown.add_column(name, justify="left" if name in {"", "unit", "of"} else "right")
    for row in rows:
        before = kept.get(row.name, {}).get("ratio")
        change = f"{(row.ratio / before - 1) * 100:+.0f} %" if row.ratio and before else ""
        figures = (_figure(row.value), _figure(row.beside), row.per, _figure(row.ratio), _figure(row.floor))
        shown.add_row(row.name, row.unit, *figures, change)
    return shown


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _commit() -> str:
    """Return the commit of this folder with a mark for changes, empty without Git."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = (git, "-C", str(PROJECT), "describe", "--always", "--dirty", "--exclude=*")
    return subprocess.run(command, capture_output=True, check=False, timeout=60, text=True).stdout.strip()  # noqa: S603 - ours


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts of the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some parts only: {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, default=NEWEST, metavar="FILE", help="default: build/bench.jsonl")
    parser.add_argument("--keep", action="store_true", help="append the rows to benchmarks/results.jsonl")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way")
    parser.add_argument("--turns", type=int, default=256, help="turns of each way in a round")
    parser.add_argument("--at-once", type=int, nargs="+", default=(1, 64, 256), help="numbers of conversations")
    parser.add_argument("--soak", type=int, default=1000, help="turns of the soak (a release: 10000)")
    parser.add_argument("--messages", type=int, default=3000, help="messages of the burst")
    parser.add_argument("--approvals", type=int, default=50, help="measured approvals")
    parser.add_argument("--conversations", type=int, default=MANY, help="conversations whose memory is measured")
    options = vars(parser.parse_args(arguments))
    parts, file, keep = (options.pop(name) for name in ("parts", "json", "keep"))
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    sizes, machine, rows = Sizes(**options), Machine.this(), list[Row]()
    kept = kept_rows(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as written:
        for name in parts or PARTS:
            for row in PARTS[name](sizes, machine):
                rows.append(row)
                written.write(lines(machine, [row]))
                written.flush()
    Console(width=140).print(table(rows, kept, machine))
    if keep:
        with KEPT.open("a", encoding="utf-8") as results:
            results.write(lines(machine, rows))
    return int(any(row.name == WRONG and row.value for row in rows))


if __name__ == "__main__":
    sys.exit(main())

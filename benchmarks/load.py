"""Load test: messages from Slack, Discord and the HTTP API at once, sent to the real program in a process of its
own.

    python -m benchmarks.load [--messages N] [--rate N] [--database sqlite|postgresql]

A third of the messages comes from each platform, through fakes on real sockets; the model answers at once. Prints
the times of acknowledgements and answers and the program's memory, then compares sent messages with results. Exit
code 1 if a message was lost, processed twice, or out of order in its conversation. Timings depend on the machine
and have no limits.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.load_accounts import Account, Ledger, Row, Usage, account, percentile
from benchmarks.load_ways import DiscordWay, HttpWay, SlackWay, Way
from tests.fakes.discord import FakeDiscord
from tests.fakes.slack import FakeSlack
from tests.postgres import running_server
from tests.stories.installation import Installation, becomes

A_CONVERSATION = 10
"""Maximum number of messages in one conversation, all of one user."""
TWICE = 20
"""Every message with a multiple of this number is sent twice."""
START_SECONDS = 60.0
STANDSTILL_SECONDS = 60.0
"""Seconds without progress after which the test ends."""
PROJECT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a load: `messages` in all, `rate` a second, or all at once if it is 0."""

    messages: int
    rate: float = 0.0

    @property
    def conversations(self) -> int:
        """Number of conversations on each platform."""
        return max(2, math.ceil(self.messages / 3 / A_CONVERSATION))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a load. Times are in seconds from the first message; `acknowledged` are seconds by platform."""

    accounts: dict[str, Account]
    sent: dict[str, int]
    twice: dict[str, int]
    acknowledged: dict[str, list[float]]
    taken: float
    answered: float
    drawn: float
    before: Usage
    after: Usage

    @property
    def messages(self) -> int:
        """Number of sent messages without repetitions."""
        return sum(self.sent.values())

    @property
    def is_right(self) -> bool:
        """True if no message was lost, processed twice or out of order."""
        return all(each.is_right for each in self.accounts.values())


async def carry(load: Load, url: str, folder: Path) -> Outcome:
    """Start the program on an empty database, send all messages, wait for the answers, and compare."""
    async with AsyncExitStack() as stack:
        slack, discord = await stack.enter_async_context(FakeSlack()), await stack.enter_async_context(FakeDiscord())
        http = HttpWay(name="http", conversations=load.conversations)
        stack.push_async_callback(http.close)
        by_slack = SlackWay(name="slack", conversations=load.conversations, slack=slack)
        by_discord = DiscordWay(name="discord", conversations=load.conversations, discord=discord)
        ways: tuple[Way, ...] = (by_slack, by_discord, http)
        settings = {"DATABASE_URL": url, "LOG_FORMAT": "text", **_environment(ways)}
        place = Installation(folder, {}, model=None, policy="", **settings)
        pid, log = await stack.enter_async_context(_program(place))
        await http.meet(int(await _logged(log, r"listening for requests at \S+, port (\d+)")))
        await slack.sockets.wait_for_connections(seconds=START_SECONDS)
        await discord.until(lambda: discord.gateway.identify_count, START_SECONDS)
        before, began, ledger = Usage.of(pid), time.time(), Ledger(url)
        await _send(load, ways)
        drawn = await _drained(load, ledger)
        await asyncio.gather(*(way.settled() for way in ways))
        await _drained(load, ledger)
        rows, after = await ledger.rows(), Usage.of(pid)
        accounts = {
            way.name: account(way.sent, rows, [await way.shown(n) for n in range(way.conversations)]) for way in ways
        }
        return Outcome(
            accounts=accounts,
            sent={way.name: len(way.sent) for way in ways},
            twice={way.name: way.came_twice for way in ways},
            acknowledged={way.name: _acknowledged(way, rows) for way in ways},
            taken=max((row.created_at for row in rows), default=began) - began,
            answered=max((row.ended_at or began for row in rows), default=began) - began,
            drawn=drawn - began,
            before=before,
            after=after,
        )


def _environment(ways: Sequence[Way]) -> dict[str, str]:
    return {name: value for way in ways for name, value in way.environment.items()}


@asynccontextmanager
async def _program(place: Installation) -> AsyncIterator[tuple[int, Path]]:
    """Run the program within the block. Yield its process id and its log file."""
    log = place.folder / "load.log"
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.load_program",
            cwd=place.folder,
            env={**place.environment, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": ""},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )
    try:
        yield process.pid, log
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(START_SECONDS):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _logged(log: Path, pattern: str) -> str:
    found = ""

    def has_it() -> bool:
        nonlocal found
        match = re.search(pattern, log.read_text(encoding="utf-8"))
        found = match[1] if match else ""
        return bool(found)

    await becomes(has_it, f"a log of {pattern!r}", START_SECONDS)
    return found


async def _send(load: Load, ways: Sequence[Way]) -> None:
    """Send the first message of every conversation; when its channels and threads exist, send all others at once."""
    shares = {way.name: load.messages // 3 + (load.messages % 3 > at) for at, way in enumerate(ways)}
    numbers = itertools.count()
    began = time.monotonic()

    async def talk(way: Way, conversation: int, ns: range) -> None:
        for n in ns:
            number = next(numbers)
            if load.rate:
                await asyncio.sleep(began + number / load.rate - time.monotonic())
            await way.say(conversation, n, twice=number % TWICE == 0)
            await asyncio.sleep(0)

    def share(way: Way, conversation: int) -> int:
        return shares[way.name] // way.conversations + (shares[way.name] % way.conversations > conversation)

    talks = [(way, n) for n in range(load.conversations) for way in ways]
    await asyncio.gather(*(talk(way, n, range(1)) for way, n in talks))
    await asyncio.gather(*(way.begun() for way in ways))
    await asyncio.gather(*(talk(way, n, range(1, share(way, n))) for way, n in talks))


async def _drained(load: Load, ledger: Ledger) -> float:
    """Wait until all turns have ended and are delivered, or there is no progress. Return the end in epoch seconds."""
    standing, since = (0, 0), time.time()
    while standing != (load.messages, 0) and time.time() - since < STANDSTILL_SECONDS:
        await asyncio.sleep(0.2)
        if (now := await ledger.standing()) != standing:
            standing, since = now, time.time()
    return since


def _acknowledged(way: Way, rows: Sequence[Row]) -> list[float]:
    """Return the seconds to the acknowledgement, or on a platform without one, until the message was stored."""
    if way.acknowledged is not None:
        return way.acknowledged
    return [row.created_at - way.sent[row.label] for row in rows if row.label in way.sent]


def report(outcome: Outcome, title: str) -> Table:
    """Return the report as a table."""
    table = Table(title=title, caption=_summary(outcome), caption_justify="left")
    for column in (
        "",
        "messages",
        "came twice",
        "ack p50, ms",
        "ack p99, ms",
        "lost",
        "doubled",
        "disordered",
        "displaced",
    ):
        table.add_column(column, justify="left" if not column else "right")
    for name, each in outcome.accounts.items():
        seconds = outcome.acknowledged[name]
        table.add_row(
            name,
            f"{outcome.sent[name]:,}",
            f"{outcome.twice[name]:,}",
            f"{percentile(seconds, 0.5) * 1000:,.0f}",
            f"{percentile(seconds, 0.99) * 1000:,.0f}",
            str(each.lost),
            str(each.doubled),
            str(each.disordered),
            str(each.displaced),
        )
    return table


def _summary(outcome: Outcome) -> str:
    count, used = outcome.messages, outcome.after.cpu - outcome.before.cpu
    speeds = {"taken": outcome.taken, "answered": outcome.answered, "shown": outcome.drawn}
    memory = {"before": outcome.before.memory, "at most": outcome.after.peak, "after": outcome.after.memory}
    lines = [
        "messages a second: " + ", ".join(f"{count / each:.0f} {name}" for name, each in speeds.items()),
        f"seconds in all: {outcome.drawn:.0f}; CPU of the program: {used / count * 1000:.0f} ms a message",
        "memory of the program: " + ", ".join(f"{each / 2**20:.0f} MiB {name}" for name, each in memory.items()),
        "Displaced answers stand below a later one: turns of a conversation follow each other, drawings need not.",
        "Discord asks for no acknowledgement: its times are those until a message is on disk.",
    ]
    if wrong := [label for each in outcome.accounts.values() for label in each.wrong]:
        lines.append(f"look at: {', '.join(wrong)}")
    return "\n".join(lines)


def _carried(load: Load, url: str, folder: Path, name: str) -> bool:
    outcome = asyncio.run(carry(load, url, folder))
    pace = f"{load.rate:g} a second" if load.rate else "all at once"
    Console(width=120).print(report(outcome, f"{outcome.messages:,} messages, {pace}, on {name}"))
    return outcome.is_right


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second (default: all at once)")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args(arguments)
    load = Load(options.messages, options.rate)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.database == "sqlite":
            right = _carried(load, f"sqlite:///{folder / 'load.db'}", folder, "SQLite")
        else:
            with running_server(f"-{os.getpid()}") as server:
                right = _carried(load, server.empty(), folder, "PostgreSQL")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

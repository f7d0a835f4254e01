"""Comparison of a load's sent messages with the rows of the database and the visible answers."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.load_program import ANSWER, LABEL

_STANDING = sa.text(
    "select (select count(*) from turns),"
    " (select count(*) from turns where status in ('queued', 'running', 'waiting'))"
    " + (select count(*) from deliveries where delivered_revision < revision)"
)
_TURNS = sa.text("select id, conversation, status, input, created_at, ended_at from turns order by conversation, seq")
_REPLIES = sa.text("select turn_id, body from steps order by turn_id, n")


@dataclass(frozen=True, slots=True)
class Row:
    """Turn in the database. Times are in epoch seconds; `answered` is True if its last reply is correct."""

    conversation: str
    label: str
    created_at: float
    ended_at: float | None
    answered: bool


@dataclass(frozen=True, slots=True)
class Account:
    """Result for the messages of one platform. `displaced` are answers below a later one, which is allowed, because
    turns are delivered concurrently. `wrong` has one example of each error.
    """

    lost: int
    doubled: int
    disordered: int
    displaced: int
    wrong: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """True if no message was lost, processed twice or out of order."""
        return not (self.lost or self.doubled or self.disordered)


class Ledger:
    """Reader of the database while the program writes to it."""

    def __init__(self, url: str) -> None:
        address = sa.make_url(url)
        if address.get_backend_name() == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        self._engine = sa.create_engine(address, poolclass=sa.NullPool)

    async def standing(self) -> tuple[int, int]:
        """Return the number of turns, and of those that are not ended and delivered."""
        ((turns, unfinished),) = await self._read(_STANDING)
        return int(turns), int(unfinished)

    async def rows(self) -> list[Row]:
        """Return every turn, in the order within its conversation."""
        last = {turn_id: str(body) for turn_id, body in await self._read(_REPLIES)}
        return [self._row(each, last.get(each.id, "")) for each in await self._read(_TURNS)]

    def _row(self, turn: Any, reply: str) -> Row:
        match = LABEL.search(str(turn.input))
        label = match[0] if match else ""
        answered = turn.status == "done" and ANSWER.format(label) in reply
        return Row(turn.conversation, label, turn.created_at, turn.ended_at, answered)

    async def _read(self, question: sa.TextClause) -> Sequence[Any]:
        def read() -> Sequence[Any]:
            with self._engine.connect() as connection:
                return connection.execute(question).all()

        return await asyncio.to_thread(read)


def account(sent: Mapping[str, float], rows: Iterable[Row], shown: Iterable[Sequence[str]]) -> Account:
    """Compare sent messages with their rows and with the answers in the conversations.

    A message without a row, a correct answer or a visible answer is lost.
    """
    talks: dict[str, list[str]] = defaultdict(list)
    answered = set()
    for row in rows:
        if row.label in sent:
            talks[row.conversation].append(row.label)
            answered |= {row.label} if row.answered else set()
    seen = [list(labels) for labels in shown]
    counts = Counter(label for labels in talks.values() for label in labels)
    sights = Counter(label for labels in seen for label in labels)
    lost = sorted(label for label in sent if label not in answered or label not in sights)
    doubled = sorted(label for label in sent if counts[label] > 1 or sights[label] > 1)
    disordered = [after for labels in talks.values() for after in _out_of_order(labels)]
    displaced = [after for labels in seen for after in _out_of_order(labels)]
    wrong = [*lost[:1], *doubled[:1], *disordered[:1]]
    return Account(len(lost), len(doubled), len(disordered), len(displaced), tuple(wrong))


def _out_of_order(labels: Sequence[str]) -> list[str]:
    numbers = [int(label.rpartition("-")[2]) for label in labels]
    return [after for (before, n), after in zip(pairwise(numbers), labels[1:], strict=False) if n < before]


def percentile(seconds: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share does not exceed; NaN for no values."""
    ordered = sorted(seconds)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of a process: resident memory now and at its peak, in bytes, and CPU seconds."""

    memory: int
    peak: int
    cpu: float

    @staticmethod
    def of(pid: int) -> Usage:
        """Read the usage of a process. Zeros without /proc."""
        folder = Path(f"/proc/{pid}")
        if not folder.exists():
            return Usage(0, 0, 0.0)
        lines = (folder / "status").read_text(encoding="utf-8").splitlines()
        sizes = {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
        ticks = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        return Usage(_bytes(sizes, "VmRSS"), _bytes(sizes, "VmHWM"), sum(map(int, ticks)) / _TICKS)


_TICKS = 100
"""Linux clock ticks in a second."""


def _bytes(sizes: Mapping[str, Sequence[str]], name: str) -> int:
    return int(sizes[name][0]) * 1024 if name in sizes else 0

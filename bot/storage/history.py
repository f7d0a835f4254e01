"""History of conversations: summaries, and a cache of ended turns, because a history rarely changes.

Every change of a turn raises its revision, and a cached value is valid for one revision. The database returns the ids
and revisions; only new or changed turns are read. Used by transactions, which run in threads.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.flows import Sources
from bot.domain.turns import History, HistorySummary, TurnRecord, truncate_results
from bot.storage.codec import converter
from bot.storage.dialect import Upsert, now
from bot.storage.tables import summaries, turns

MOST_CHARACTERS = 16 * 2**20
"""Of all turns together."""
LARGEST = MOST_CHARACTERS // 64
"""One that is larger would push out many others."""
_A_VALUE = 64
"""Characters added for each value's overhead."""


class HistoryCache:
    """Least recently used cache of ended turns, limited to `most` characters in all."""

    def __init__(self, most: int = MOST_CHARACTERS, largest: int = LARGEST) -> None:
        self._most = most
        self._largest = largest
        self._kept: OrderedDict[str, tuple[TurnRecord, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def put(self, records: Iterable[TurnRecord]) -> None:
        """Cache the ended ones of these records."""
        for record in records:
            if record.turn.status.ended:
                self._add(truncate_results(record))

    def get(self, revisions: Mapping[str, int]) -> dict[str, TurnRecord]:
        """Return the cached turns that match the given revisions."""
        cached = {}
        with self._lock:
            for turn_id, revision in revisions.items():
                record, _ = self._kept.get(turn_id, (None, 0))
                if record is not None and record.revision == revision:
                    self._kept.move_to_end(turn_id)
                    cached[turn_id] = record
        return cached

    def _add(self, record: TurnRecord) -> None:
        size = _size(record)
        if size > self._largest:
            return
        with self._lock:
            _, before = self._kept.pop(record.turn.id, (None, 0))
            self._kept[record.turn.id] = record, size
            self._size += size - before
            while self._size > self._most:
                _, (_, oldest) = self._kept.popitem(last=False)
                self._size -= oldest


def _size(value: object) -> int:
    """Return the approximate size of a value in characters."""
    match value:
        case str() | bytes():
            return _A_VALUE + len(value)
        case Mapping():
            return _A_VALUE + sum(_size(key) + _size(item) for key, item in value.items())
        case list() | tuple() | frozenset():
            return _A_VALUE + sum(map(_size, value))
        case _ if dataclasses.is_dataclass(value):
            return _A_VALUE + sum(_size(getattr(value, field.name)) for field in dataclasses.fields(value))
        case _:
            return _A_VALUE


def _values() -> dict[str, Any]:
    return {
        "upto": bindparam("u"),
        "text": bindparam("words"),
        "created_at": now(),
        "sources": bindparam("from", type_=summaries.c.sources.type),
    }


_read = sa.select(summaries.c.upto, summaries.c.text, summaries.c.sources).where(
    summaries.c.conversation == bindparam("k")
)
_save = Upsert(
    lambda insert: (
        insert(summaries)
        .values(conversation=bindparam("k"), **_values())
        .on_conflict_do_update(index_elements=["conversation"], set_=_values())
    )
)
# Locked, so that a concurrent deletion waits, and then deletes the new summary too.
_there = _read.with_for_update()
_turns_there = (
    sa.select(turns.c.seq)
    .where(turns.c.conversation == bindparam("k"), turns.c.seq.in_(bindparam("seqs", expanding=True)))
    .order_by(turns.c.seq)
    .with_for_update(read=True)
)
_delete = summaries.delete().where(summaries.c.conversation.in_(bindparam("keys", expanding=True)))


def read_summary(connection: sa.Connection, conversation: str) -> HistorySummary | None:
    """Return the conversation's summary."""
    row = connection.execute(_read, {"k": conversation}).first()
    return None if row is None else HistorySummary(row.upto, row.text, converter.structure(row.sources, Sources))


def stands(connection: sa.Connection, conversation: str, summary: HistorySummary, past: History) -> bool:
    """Return True if all sources of a summary still exist: the previous summary and the turns after it. They are locked
    until the transaction ends.
    """
    before = past.summary.upto if past.summary else 0
    row = connection.execute(_there, {"k": conversation}).first()
    if (row.upto if row else 0) != before:
        return False
    seqs = [record.turn.seq for record in past.turns if before < record.turn.seq <= summary.upto]
    return len(connection.execute(_turns_there, {"k": conversation, "seqs": seqs}).all()) == len(seqs)


def keep_summary(connection: sa.Connection, conversation: str, summary: HistorySummary) -> None:
    """Save a summary, replacing the previous one."""
    values = {
        "k": conversation,
        "u": summary.upto,
        "words": summary.text,
        "from": converter.unstructure(summary.sources, Sources),
    }
    connection.execute(_save.on(connection), values)


def forget(connection: sa.Connection, conversations: Collection[str]) -> None:
    """Delete the summaries of these conversations, because some of their turns were deleted."""
    connection.execute(_delete, {"keys": list(conversations)})

"""Cache of ended turns, because a conversation's history rarely changes.

Every change of a turn raises its revision, and a cached value is valid for one revision. The database returns the ids
and revisions; only new or changed turns are read. Used by transactions, which run in threads.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from bot.domain.history import truncate_results
from bot.domain.turns import TurnRecord

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

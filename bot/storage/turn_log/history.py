"""Earlier turns of conversations, their summaries, and a cache of ended turns, because a history rarely changes.

Every change of a turn raises its revision, and a cached value is valid for one revision. The database returns the ids
and revisions; only new or changed turns are read. Used by transactions, which run in threads.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import CONSOLE, ConversationKey
from bot.domain.flows import Sources
from bot.domain.turns import (
    Claim,
    History,
    HistorySummary,
    MessageRefs,
    ToolStep,
    TurnRecord,
    TurnStatus,
    truncate_results,
)
from bot.storage.codec import UNREADABLE, converter
from bot.storage.database import OWNER_RETRY_SECONDS, Store, insert_or_update, is_one_of, matching, now, transaction
from bot.storage.tables import (
    approval_of_step,
    approvals,
    conversations,
    deliveries,
    is_live,
    message_keys,
    message_refs,
    steps,
    summaries,
    turns,
)
from bot.storage.turn_log.records import read_step, read_turn, step_columns
from bot.storage.turn_log.states import check_claim

log = logging.getLogger(__name__)

MOST_CHARACTERS = 8 * 2**20
"""Of all turns together."""
LARGEST = MOST_CHARACTERS // 32
"""One that is larger would push out many others."""
_A_VALUE = 64
"""Characters added for each value's overhead."""


class HistoryCache:
    """Least recently used cache of ended turns, limited to `most` characters in all."""

    def __init__(self, most: int = MOST_CHARACTERS, largest: int = LARGEST) -> None:
        self._most = most
        self._largest = largest
        self._records: OrderedDict[str, tuple[TurnRecord, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def put(self, records: Iterable[TurnRecord]) -> None:
        """Cache the ended ones of these records."""
        for record in records:
            if record.turn.status.ended and not record.turn.content_deleted:
                self._add(truncate_results(record))

    def get(self, revisions: Mapping[str, int]) -> dict[str, TurnRecord]:
        """Return the cached turns that match the given revisions."""
        cached = {}
        with self._lock:
            for turn_id, revision in revisions.items():
                record, _ = self._records.get(turn_id, (None, 0))
                if record is not None and record.revision == revision:
                    self._records.move_to_end(turn_id)
                    cached[turn_id] = record
        return cached

    def discard(self, turn_ids: Collection[str]) -> None:
        """Drop these turns, except for conversations in a terminal: no platform has their texts, and this process has
        shown them.
        """
        with self._lock:
            for turn_id in turn_ids:
                record, size = self._records.get(turn_id, (None, 0))
                if record is not None and record.turn.conversation.platform != CONSOLE:
                    del self._records[turn_id]
                    self._size -= size

    def _add(self, record: TurnRecord) -> None:
        size = _size(record)
        if size > self._largest:
            return
        with self._lock:
            _, before = self._records.pop(record.turn.id, (None, 0))
            self._records[record.turn.id] = record, size
            self._size += size - before
            while self._size > self._most:
                _, (_, oldest) = self._records.popitem(last=False)
                self._size -= oldest


def _size(value: object) -> int:
    """Return the approximate size of a value in characters."""
    if isinstance(value, (str, bytes)):
        return _A_VALUE + len(value)
    kind: Any = type(value)
    return _A_VALUE + sum(map(_size, _find_parts(kind)(value)))


@functools.cache
def _find_parts(kind: Any) -> Callable[[Any], Iterable[object]]:
    """Return the function that returns the parts of a value of this type."""
    if dataclasses.is_dataclass(kind) and (names := [field.name for field in dataclasses.fields(kind)]):
        get = operator.attrgetter(*names)
        return get if len(names) > 1 else lambda value: (get(value),)
    if issubclass(kind, Mapping):
        return lambda value: (*value, *value.values())
    return iter if issubclass(kind, (list, tuple, frozenset)) else lambda _value: ()


_read = sa.select(summaries.c.upto, summaries.c.text, summaries.c.sources).where(matching(summaries, conversation="k"))
_save = insert_or_update(summaries, "upto", "text", "sources", created_at=now())
# Locked, so that a concurrent deletion waits, and then deletes the new summary too.
_lock_summary = _read.with_for_update()
_lock_turns = (
    sa.select(turns.c.seq)
    .where(matching(turns, conversation="k"), is_one_of(turns.c.seq, "seqs"))
    .order_by(turns.c.seq)
    .with_for_update(read=True)
)
_delete = summaries.delete().where(is_one_of(summaries.c.conversation, "keys"))
_all_steps = (
    sa.select(*step_columns)
    .select_from(steps)
    .outerjoin(approvals, approval_of_step)
    .where(is_one_of(steps.c.turn_id, "ids"))
    .order_by(steps.c.n)
)
_call_at = (
    sa.select(*step_columns)
    .select_from(steps)
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, approval_of_step)
    .where(matching(turns, conversation="conversation", seq="seq"), matching(steps, n="n"), steps.c.kind == "tool")
)
_refs = sa.select(message_refs).where(is_one_of(message_refs.c.turn_id, "ids"))
_turns = sa.select(turns).where(is_one_of(turns.c.id, "ids"))
_ended_before = (
    sa.select(turns.c.id, deliveries.c.revision.label("revision"), turns.c.content_deleted_at)
    .join(deliveries, deliveries.c.turn_id == turns.c.id)
    .where(
        matching(turns, conversation="conversation"),
        turns.c.seq < bindparam("before"),
        turns.c.seq > bindparam("after"),
        ~is_live(turns),
    )
    .order_by(turns.c.seq.desc())
    .limit(bindparam("limit"))
)
_is_ignored = sa.exists().where(
    message_keys.c.turn_id == turns.c.id,
    sa.func.substr(message_keys.c.key, 1, bindparam("ignored_length")) == bindparam("ignored"),
)
_latest = (
    sa.select(conversations.c.key)
    .join(turns, turns.c.conversation == conversations.c.key)
    .where(sa.func.substr(conversations.c.key, 1, bindparam("length")) == bindparam("reach"), ~_is_ignored)
    .order_by(turns.c.created_at.desc(), turns.c.seq.desc())
    .limit(1)
)
_is_undelivered = sa.exists().where(
    deliveries.c.turn_id == turns.c.id,
    deliveries.c.delivered_revision < deliveries.c.revision,
    turns.c.content_deleted_at.is_(None),
)
_is_reached = sa.func.substr(turns.c.conversation, 1, bindparam("length")) == bindparam("reach")
_unanswered = (
    sa.select(turns.c.conversation)
    .where(_is_reached, sa.or_(is_live(turns), _is_undelivered))
    .group_by(turns.c.conversation)
    .order_by(sa.func.max(turns.c.created_at).desc())
    .limit(bindparam("limit"))
)
_abandoned = (
    sa.select(turns.c.id)
    .where(
        _is_reached, turns.c.status == TurnStatus.RUNNING, sa.or_(turns.c.owner.is_(None), turns.c.lease_until < now())
    )
    .order_by(turns.c.created_at.desc())
    .limit(bindparam("limit"))
)


class SqlTurnHistory(Store):
    """Earlier turns of conversations; see `bot.ports.TurnHistory`. Part of `SqlTurnLog`."""

    _ended: HistoryCache

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """Return earlier turns of a conversation and the summary of the oldest."""
        return History() if before <= 1 else await self._read_history(conversation, before, limit)

    @transaction
    def _read_history(
        self, connection: sa.Connection, conversation: ConversationKey, before: int, limit: int
    ) -> History:
        """Return the last `limit` ended turns before a sequence number, oldest first, without those covered by the
        summary. Turns missing from the cache are read and cached. Those without content have bare steps, unless this
        process has shown them in a terminal.
        """
        stored = connection.execute(_read, {"k": str(conversation)}).first()
        summary = stored and HistorySummary(stored.upto, stored.text, converter.structure(stored.sources, Sources))
        wanted = {"before": before, "after": summary.upto if summary else 0, "limit": limit}
        rows = connection.execute(_ended_before, {"conversation": str(conversation), **wanted}).all()
        revisions = {row.id: row.revision for row in reversed(rows)}
        # Another process may have deleted their content.
        self._ended.discard([row.id for row in rows if row.content_deleted_at is not None])
        known = self._ended.get(revisions)
        if len(known) < len(revisions):
            read = _read_turns(
                connection, {turn_id: revision for turn_id, revision in revisions.items() if turn_id not in known}
            )
            self._ended.put(read.values())
            known |= read
        return History(tuple(known[turn_id] for turn_id in revisions if turn_id in known), summary)

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def save_summary(self, connection: sa.Connection, claim: Claim, summary: HistorySummary, past: History) -> None:
        """Save the summary of a conversation's oldest turns if all its sources exist. Raises LostLease and Stopped."""
        check_claim(connection, claim)
        key = str(claim.conversation)
        if _sources_exist(connection, key, summary, past):
            sources = converter.unstructure(summary.sources, Sources)
            values = {"conversation": key, "upto": summary.upto, "text": summary.text, "sources": sources}
            connection.execute(_save.on(connection), values)

    @transaction
    def message_refs(self, connection: sa.Connection, turn_ids: Collection[str]) -> Mapping[str, MessageRefs]:
        """Return the references of the posted messages of these turns, by turn."""
        refs: dict[str, dict[str, str]] = {turn_id: {} for turn_id in turn_ids}
        for row in connection.execute(_refs, {"ids": list(turn_ids)}):
            refs[row.turn_id][row.slot] = row.ref
        return refs

    @transaction
    def get_call(self, connection: sa.Connection, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """Return the call at step `n` of turn `seq` of a conversation, `None` if it does not exist."""
        row = connection.execute(_call_at, {"conversation": str(conversation), "seq": seq, "n": n}).first()
        try:
            step = None if row is None else read_step(row, conversation.platform)
        except UNREADABLE as error:
            log.warning("a call of %s cannot be read: %r", conversation, error)
            return None
        return step if isinstance(step, ToolStep) else None

    @transaction
    def latest_conversation(self, connection: sa.Connection, reach: str, ignored: str) -> ConversationKey | None:
        """Return the conversation with the key prefix `reach` that has the latest message. Messages with a key that
        begins with `ignored` do not count.
        """
        values = {"reach": reach, "length": len(reach), "ignored": ignored, "ignored_length": len(ignored)}
        key = connection.execute(_latest, values).scalar()
        return None if key is None else ConversationKey.parse(key)

    @transaction
    def unanswered_conversations(self, connection: sa.Connection, reach: str, limit: int) -> Sequence[ConversationKey]:
        """Return conversations with the key prefix `reach` in which a turn has not ended or its end is not delivered,
        the latest first.
        """
        keys = connection.execute(_unanswered, {"reach": reach, "length": len(reach), "limit": limit}).scalars()
        return [ConversationKey.parse(key) for key in keys]

    @transaction
    def abandoned_turns(self, connection: sa.Connection, reach: str, limit: int) -> Sequence[str]:
        """Return the ids of turns in conversations with the key prefix `reach` that have begun and whose process has
        ended, the latest first.
        """
        values = {"reach": reach, "length": len(reach), "limit": limit}
        return connection.execute(_abandoned, values).scalars().all()


def _read_turns(connection: sa.Connection, revisions: Mapping[str, int]) -> dict[str, TurnRecord]:
    """Return ended turns, without unreadable ones, which must not block the next answer. Each has the revision from
    before its read, so that a later change is read again.
    """
    ids = list(revisions)
    rows: dict[str, list[Any]] = {turn_id: [] for turn_id in ids}
    for step in connection.execute(_all_steps, {"ids": ids}):
        rows[step.step_turn_id].append(step)
    records = {}
    for row in connection.execute(_turns, {"ids": ids}):
        try:
            turn = read_turn(row)
            done = tuple(read_step(step, turn.conversation.platform) for step in rows[row.id])
        except UNREADABLE as error:
            log.warning("turn %s cannot be read and is left out of the history: %r", row.id, error)
        else:
            records[row.id] = truncate_results(TurnRecord(turn, done, revisions[row.id]))
    return records


def _sources_exist(connection: sa.Connection, conversation: str, summary: HistorySummary, past: History) -> bool:
    """Return True if all sources of a summary still exist: the previous summary and the turns after it. They are locked
    until the transaction ends.
    """
    before = past.summary.upto if past.summary else 0
    row = connection.execute(_lock_summary, {"k": conversation}).first()
    if (row.upto if row else 0) != before:
        return False
    seqs = [record.turn.seq for record in past.turns if before < record.turn.seq <= summary.upto]
    return len(connection.execute(_lock_turns, {"k": conversation, "seqs": seqs}).all()) == len(seqs)


def delete_summaries(connection: sa.Connection, conversations: Collection[str]) -> None:
    """Delete the summaries of these conversations, because some of their turns were deleted."""
    connection.execute(_delete, {"keys": list(conversations)})

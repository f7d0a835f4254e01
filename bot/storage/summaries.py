"""Summaries of a conversation's oldest turns: one row a conversation, deleted with any turn that it covers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.history import History, HistorySummary
from bot.domain.sources import Sources
from bot.storage.clock import now
from bot.storage.codec import converter
from bot.storage.tables import summaries, turns
from bot.storage.upsert import Upsert


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

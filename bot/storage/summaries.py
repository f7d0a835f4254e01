"""What a model has made of the oldest turns of a conversation: one row a conversation, which goes with it, and with any
turn that it speaks of.

Called by `records`, which reads it with the turns that follow, by `transcript` and by `retention`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.history import History, HistorySummary
from bot.storage.clock import now
from bot.storage.codec import read_sources, sources_body
from bot.storage.tables import summaries, turns
from bot.storage.upsert import Upsert


def _values() -> dict[str, Any]:
    """The columns of a summary but its key."""
    return {
        "upto": bindparam("u"),
        "text": bindparam("words"),
        "created_at": now(),
        "sources": bindparam("from", type_=summaries.c.sources.type),
    }


_read = sa.select(summaries.c.upto, summaries.c.text, summaries.c.sources).where(
    summaries.c.conversation == bindparam("k")
)
_keep = Upsert(
    lambda insert: (
        insert(summaries)
        .values(conversation=bindparam("k"), **_values())
        .on_conflict_do_update(index_elements=["conversation"], set_=_values())
    )
)
# Locked: who deletes a turn or a summary meanwhile waits, and then deletes what was made of them, too.
_there = _read.with_for_update()
_turns_there = (
    sa.select(turns.c.seq)
    .where(turns.c.conversation == bindparam("k"), turns.c.seq.in_(bindparam("seqs", expanding=True)))
    .order_by(turns.c.seq)
    .with_for_update(read=True)
)
_forget = summaries.delete().where(summaries.c.conversation.in_(bindparam("keys", expanding=True)))


def read_summary(connection: sa.Connection, conversation: str) -> HistorySummary | None:
    """The summary there is."""
    row = connection.execute(_read, {"k": conversation}).first()
    return None if row is None else HistorySummary(row.upto, row.text, read_sources(row.sources))


def stands(connection: sa.Connection, conversation: str, summary: HistorySummary, past: History) -> bool:
    """Whether everything is still there that a summary was made of: the one before it, which goes with any turn that it
    speaks of, and the turns behind that. They stay until the transaction ends.
    """
    before = past.summary.upto if past.summary else 0
    row = connection.execute(_there, {"k": conversation}).first()
    if (row.upto if row else 0) != before:
        return False
    seqs = [record.turn.seq for record in past.turns if before < record.turn.seq <= summary.upto]
    return len(connection.execute(_turns_there, {"k": conversation, "seqs": seqs}).all()) == len(seqs)


def keep_summary(connection: sa.Connection, conversation: str, summary: HistorySummary) -> None:
    """Keep a summary in place of the one there was."""
    values = {
        "k": conversation,
        "u": summary.upto,
        "words": summary.text,
        "from": sources_body(summary.sources),
    }
    connection.execute(_keep.on(connection), values)


def forget(connection: sa.Connection, conversations: Collection[str]) -> None:
    """Turns of these conversations are gone: nothing of what they said may stay."""
    connection.execute(_forget, {"keys": list(conversations)})

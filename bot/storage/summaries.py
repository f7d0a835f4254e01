"""What a model has made of the oldest turns of a conversation: one row a conversation, which goes with it, and with any
turn that it speaks of.

Called by `records`, which reads it with the turns that follow, by `transcript` and by `keeping`.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.past import Summary
from bot.storage.clock import now
from bot.storage.inserting import Insert
from bot.storage.tables import summaries

_read = sa.select(summaries.c.upto, summaries.c.text).where(summaries.c.conversation == bindparam("k"))
_keep = Insert(
    lambda insert: (
        insert(summaries)
        .values(conversation=bindparam("k"), upto=bindparam("u"), text=bindparam("words"), created_at=now())
        .on_conflict_do_update(
            index_elements=["conversation"],
            set_={"upto": bindparam("u"), "text": bindparam("words"), "created_at": now()},
        )
    )
)
_forget = summaries.delete().where(summaries.c.conversation.in_(bindparam("keys", expanding=True)))


def read_summary(connection: sa.Connection, conversation: str) -> Summary | None:
    """The summary there is."""
    row = connection.execute(_read, {"k": conversation}).first()
    return None if row is None else Summary(row.upto, row.text)


def keep_summary(connection: sa.Connection, conversation: str, summary: Summary) -> None:
    """Keep a summary in place of the one there was."""
    connection.execute(_keep.on(connection), {"k": conversation, "u": summary.upto, "words": summary.text})


def forget(connection: sa.Connection, conversations: Collection[str]) -> None:
    """Turns of these conversations are gone: nothing of what they said may stay."""
    connection.execute(_forget, {"keys": list(conversations)})

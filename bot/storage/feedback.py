"""Feedback on answers. See `bot.ports.FeedbackStore`."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.errors import NotFound
from bot.ports import Feedback
from bot.storage.database import Database, transaction
from bot.storage.dialect import Upsert, now
from bot.storage.tables import feedback, turns

# Locked, so that the turn is not deleted in between.
_turn = sa.select(turns.c.id).where(turns.c.id == bindparam("t")).with_for_update(read=True, key_share=True)
_save = Upsert(
    lambda insert: (
        insert(feedback)
        .values(turn_id=bindparam("t"), principal=bindparam("who"), good=bindparam("good"), at=now())
        .on_conflict_do_update(index_elements=["turn_id", "principal"], set_={"good": bindparam("good"), "at": now()})
    )
)
_of_turn = sa.select(feedback).where(feedback.c.turn_id == bindparam("t")).order_by(feedback.c.at, feedback.c.principal)


class SqlFeedbackStore:
    """Feedback by turn and user."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @transaction
    def save(self, connection: sa.Connection, turn_id: str, good: bool, by: Author) -> None:
        """Save a user's current feedback."""
        if connection.execute(_turn, {"t": turn_id}).first() is None:
            raise NotFound("That answer was deleted.")
        connection.execute(_save.on(connection), {"t": turn_id, "who": by.principal, "good": good})

    @transaction
    def for_turn(self, connection: sa.Connection, turn_id: str) -> Sequence[Feedback]:
        """Return the feedback on a turn's answer."""
        rows = connection.execute(_of_turn, {"t": turn_id})
        return [Feedback(row.turn_id, row.good, row.principal, row.at) for row in rows]

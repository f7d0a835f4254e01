"""How many turns come before one that waits for a place, in the order in which they are claimed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.turns import Turn, TurnStatus
from bot.storage.tables import is_live, turns

_held_up_by = turns.alias("held_up_by")
# A turn behind one that waits for people takes no place.
_competes = sa.and_(
    turns.c.status == TurnStatus.QUEUED,
    ~sa.exists().where(
        _held_up_by.c.conversation == turns.c.conversation, _held_up_by.c.status == sa.literal_column("'waiting'")
    ),
)


def _number(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


_others = (
    sa.select(
        turns.c.person,
        _number(turns.c.status == TurnStatus.RUNNING).label("running"),
        _number(_competes).label("queued"),
        _number(sa.and_(_competes, turns.c.created_at < bindparam("created_at"))).label("older"),
    )
    .where(is_live(turns), turns.c.conversation != bindparam("conversation"))
    .group_by(turns.c.person)
)


def position_of(connection: sa.Connection, turn: Turn) -> int:
    """Return how many queued turns of other conversations are claimed before this one, as things stand: those of its
    author that are older, and of everybody else those that find fewer turns of their author running.
    """
    given = {"conversation": str(turn.conversation), "created_at": turn.created_at}
    rows: dict[str, Any] = {row.person: row for row in connection.execute(_others, given)}
    mine = rows.pop(turn.author.principal, None)
    before = mine.older if mine else 0
    level = before + (mine.running if mine else 0)
    for row in rows.values():
        with_fewer = min(row.queued, max(0, level - row.running))
        # One more may find as many running. Then the older goes first.
        before += with_fewer + (row.running + with_fewer == level and row.older > with_fewer)
    return before

"""The number that grows with every change to servers, policies and profiles, and the lock such changes take turns by.

Every transaction that changes one of them bumps it first: what it reads afterwards stays true until it commits. The
order of locks is always revision, server or profile, what belongs to it, and the audit last.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.pg_notify import notify_config_changed
from bot.storage.tables import revisions
from bot.storage.upsert import Upsert

_read = sa.select(revisions.c.number)
# What is inserted or updated is locked until the end of the transaction, and the very first change has a row to lock.
_lock = Upsert(
    lambda insert: (
        insert(revisions)
        .values(id=1, number=0)
        .on_conflict_do_update(index_elements=["id"], set_={"number": revisions.c.number})
    )
)
_bump = Upsert(
    lambda insert: (
        insert(revisions)
        .values(id=1, number=1)
        .on_conflict_do_update(index_elements=["id"], set_={"number": revisions.c.number + 1})
    )
)


def read_version(connection: sa.Connection) -> int:
    """The present number."""
    return int(connection.execute(_read).scalar() or 0)


def lock(connection: sa.Connection) -> None:
    """Wait until nobody else is changing anything."""
    connection.execute(_lock.on(connection))


def bump(connection: sa.Connection) -> None:
    """Something is another now: whoever follows looks again, here and in other processes."""
    connection.execute(_bump.on(connection))
    notify_config_changed(connection)

"""The version of the configuration (servers, policies, profiles). Its row is also the lock.

Every transaction that changes the configuration bumps the version first, so that later reads stay true until it
commits. The order of locks is: version, server or profile, their dependent rows, audit.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import Upsert, notify_config_changed
from bot.storage.tables import config_version

_read = sa.select(config_version.c.version)
# An upsert locks the row until the end of the transaction, also for the very first change.
_lock = Upsert(
    lambda insert: (
        insert(config_version)
        .values(id=1, version=0)
        .on_conflict_do_update(index_elements=["id"], set_={"version": config_version.c.version})
    )
)
_bump = Upsert(
    lambda insert: (
        insert(config_version)
        .values(id=1, version=1)
        .on_conflict_do_update(index_elements=["id"], set_={"version": config_version.c.version + 1})
    )
)


def read_version(connection: sa.Connection) -> int:
    """Return the current version."""
    return int(connection.execute(_read).scalar() or 0)


def lock(connection: sa.Connection) -> None:
    """Wait for the transactions of other configuration changes and lock them out."""
    connection.execute(_lock.on(connection))


def bump(connection: sa.Connection) -> None:
    """Increase the version and notify other processes."""
    connection.execute(_bump.on(connection))
    notify_config_changed(connection)

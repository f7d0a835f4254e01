"""Exclusive leases of processes, on a database; see `bot.ports.Leases`."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.storage.clock import now
from bot.storage.database import Database
from bot.storage.tables import leases
from bot.storage.upsert import Upsert

_until = now() + bindparam("seconds", type_=sa.Double())
# One statement, so that the row decides between concurrent processes.
_hold = Upsert(
    lambda insert: (
        insert(leases)
        .values(name=bindparam("lease"), holder=bindparam("me"), until=_until)
        .on_conflict_do_update(
            index_elements=["name"],
            set_={"holder": bindparam("me"), "until": _until},
            where=sa.or_(leases.c.holder == bindparam("me"), leases.c.until <= now()),
        )
        .returning(leases.c.name)
    )
)
_release = leases.delete().where(leases.c.name == bindparam("lease"), leases.c.holder == bindparam("me"))


class SqlLeases:
    """Leases by name. Their transactions are urgent, because a late renewal loses the lease."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Acquire or renew a lease. Return True if the holder has it."""

        def acquire(connection: sa.Connection) -> bool:
            given = {"lease": name, "me": holder, "seconds": seconds}
            return connection.execute(_hold.on(connection), given).first() is not None

        return await self._database.run(acquire, patience=seconds / 3, urgent=True)

    async def release(self, name: str, holder: str) -> None:
        """Release a lease."""
        given = {"lease": name, "me": holder}
        await self._database.run(lambda connection: connection.execute(_release, given), urgent=True)

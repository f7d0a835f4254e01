"""Who alone does what only one process should do, on a database; see `bot.ports.Leases`."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.storage.clock import now
from bot.storage.database import Database
from bot.storage.tables import leases
from bot.storage.upsert import Upsert

_until = now() + bindparam("seconds", type_=sa.Double())
# One statement: of several who come at the same moment the row itself lets one through.
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
    """Leases by name. They go before other transactions: one that is renewed too late is lost."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease; whether it is the holder's now."""

        def take(connection: sa.Connection) -> bool:
            given = {"lease": name, "me": holder, "seconds": seconds}
            return connection.execute(_hold.on(connection), given).first() is not None

        return await self._database.run(take, patience=seconds / 3, urgent=True)

    async def release(self, name: str, holder: str) -> None:
        """Give a lease back."""
        given = {"lease": name, "me": holder}
        await self._database.run(lambda connection: connection.execute(_release, given), urgent=True)

"""Limits that all processes keep together, on a database; see `bot.ports.Quotas`.

Virtual scheduling (the generic cell rate algorithm, ITU-T I.371): a row says when the next turn is due if turns come
one by one. Each that is taken moves it by one interval; whoever comes early by no more than the burst may go at once.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.ports import Quota, QuotaExceeded, QuotaGranted
from bot.storage.clock import now
from bot.storage.database import Database
from bot.storage.tables import quotas
from bot.storage.upsert import Upsert

_due = quotas.c.due_at
_interval: sa.BindParameter[float] = bindparam("interval", type_=sa.Double())
_ahead = (_due - now()).label("ahead")
# The row's lock is waited for before its new values are worked out: nobody reads a time that is not true any more.
_take = Upsert(
    lambda insert: (
        insert(quotas)
        .values(name=bindparam("quota"), due_at=now() + _interval)
        .on_conflict_do_update(
            index_elements=["name"],
            set_={"due_at": sa.case((_due > now(), _due), else_=now()) + _interval},
            where=_due <= now() + bindparam("furthest", type_=sa.Double()),
        )
        .returning(_ahead)
    )
)
_closed = now() + bindparam("seconds", type_=sa.Double())
_hold_off = Upsert(
    lambda insert: (
        insert(quotas)
        .values(name=bindparam("quota"), due_at=_closed)
        .on_conflict_do_update(index_elements=["name"], set_={"due_at": _closed}, where=_due < _closed)
    )
)
_look = sa.select(_ahead).where(quotas.c.name == bindparam("quota"))

# One that somebody takes a turn of at this moment is passed over.
_idle = sa.select(quotas.c.name).where(_due <= now()).limit(bindparam("limit")).with_for_update(skip_locked=True)
_forget_idle = quotas.delete().where(quotas.c.name.in_(_idle))


class SqlQuotas:
    """Quotas by name. A turn that is granted costs one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        """Take the next turn if it comes in time."""
        return await self._database.run(lambda connection: _taken(connection, name, quota, most_wait))

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Let nobody have a turn for so long."""
        given = {"quota": name, "seconds": seconds + _earliness(quota)}
        await self._database.run(lambda connection: connection.execute(_hold_off.on(connection), given))

    async def forget_idle(self, limit: int) -> int:
        """Forget up to `limit` that nobody has to wait for."""
        return await self._database.run(lambda connection: connection.execute(_forget_idle, {"limit": limit}).rowcount)


def _taken(connection: sa.Connection, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
    early = _earliness(quota)
    given = {"quota": name, "interval": quota.interval, "furthest": most_wait + early}
    row = connection.execute(_take.on(connection), given).first()
    if row is not None:
        return QuotaGranted(max(row.ahead - quota.interval - early, 0.0), quota.at_once - row.ahead / quota.interval)
    ahead = connection.execute(_look, {"quota": name}).scalar_one()
    return QuotaExceeded(max(ahead - early, 0.0))


def _earliness(quota: Quota) -> float:
    """Seconds by which a turn may come before it is due."""
    return (quota.at_once - 1) * quota.interval

"""Shared state of all processes: rate limits (`bot.ports.Quotas`), exclusive leases (`bot.ports.Leases`), reported
faults (`bot.ports.FaultStore`), and the version of the configuration.

Rate limits use virtual scheduling (the generic cell rate algorithm, ITU-T I.371): a row holds the due time of the next
call at the regular rate. Each call moves it by one interval. A call that is early by no more than the burst is allowed
at once.

The row with the version of the configuration (servers, policies, profiles) is also its lock. Every transaction that
changes the configuration bumps the version first, so that later reads stay true until it commits. The order of locks
is: version, server or profile, their dependent rows, audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.health import Fault, FaultRecord
from bot.domain.turns import WakeupKind
from bot.ports import Quota, QuotaExceeded, QuotaGranted
from bot.storage import audit
from bot.storage.codec import decode, encode
from bot.storage.database import (
    Store,
    insert_new,
    insert_or_update,
    matching,
    now,
    send_wakeup,
    transaction,
)
from bot.storage.tables import config_version, fault_reports, faults, leases, quotas

QUIET_SECONDS = 3600.0
"""Shortest time between two messages about one fault."""
KEPT_SECONDS = 7 * 86400.0
"""Time after which a fault that is over is deleted."""

_due = quotas.c.due_at
_interval: sa.BindParameter[float] = bindparam("interval", type_=sa.Double())
_ahead = (_due - now()).label("ahead")
# The new values are computed after the row's lock is acquired, so that they are current.
_take = insert_or_update(
    quotas,
    name=bindparam("quota"),
    due_at=now() + _interval,
    set_={"due_at": sa.case((_due > now(), _due), else_=now()) + _interval},
    where=_due <= now() + bindparam("furthest", type_=sa.Double()),
    returning=[_ahead],
)
_until = now() + bindparam("seconds", type_=sa.Double())
_block = insert_or_update(quotas, name=bindparam("quota"), due_at=_until, set_={"due_at": _until}, where=_due < _until)
_select_ahead = sa.select(_ahead).where(matching(quotas, name="quota"))

# A quota that is being acquired at this moment is skipped.
_idle = sa.select(quotas.c.name).where(_due <= now()).limit(bindparam("limit")).with_for_update(skip_locked=True)
_delete_idle = quotas.delete().where(quotas.c.name.in_(_idle))
# One statement, so that the row decides between concurrent processes.
_hold = insert_or_update(
    leases,
    name=bindparam("lease"),
    holder=bindparam("me"),
    expires_at=_until,
    where=sa.or_(matching(leases, holder="me"), leases.c.expires_at <= now()),
    returning=[leases.c.name],
)
_holders = sa.select(leases.c.name, leases.c.holder).where(
    sa.func.substr(leases.c.name, 1, sa.func.length(bindparam("prefix", type_=sa.Text()))) == bindparam("prefix"),
    leases.c.expires_at > now(),
)
_release = leases.delete().where(matching(leases, name="lease", holder="me"))
_read = sa.select(config_version.c.version)
# An upsert locks the row until the end of the transaction, also for the very first change.
_version = config_version.c.version
_lock = insert_or_update(config_version, id=1, version=0, set_={"version": _version})
_bump = insert_or_update(config_version, id=1, version=1, set_={"version": _version + 1})


class SqlQuotas(Store):
    """Quotas by name. Each call costs one statement."""

    @transaction
    def acquire(
        self, connection: sa.Connection, name: str, quota: Quota, most_wait: float
    ) -> QuotaGranted | QuotaExceeded:
        """Acquire the quota's next slot if its wait is at most `most_wait` seconds."""
        early = _earliness(quota)
        values = {"quota": name, "interval": quota.interval, "furthest": most_wait + early}
        row = connection.execute(_take.on(connection), values).first()
        if row is not None:
            wait = max(row.ahead - quota.interval - early, 0.0)
            return QuotaGranted(wait, quota.at_once - row.ahead / quota.interval)
        ahead = connection.execute(_select_ahead, {"quota": name}).scalar_one()
        return QuotaExceeded(max(ahead - early, 0.0))

    @transaction
    def pause(self, connection: sa.Connection, name: str, quota: Quota, seconds: float) -> None:
        """Block the quota for `seconds`."""
        connection.execute(_block.on(connection), {"quota": name, "seconds": seconds + _earliness(quota)})

    @transaction
    def forget_idle(self, connection: sa.Connection, limit: int) -> int:
        """Delete up to `limit` quotas that limit no call now. Return their number."""
        return connection.execute(_delete_idle, {"limit": limit}).rowcount


def _earliness(quota: Quota) -> float:
    """Return how many seconds a call may be early."""
    return (quota.at_once - 1) * quota.interval


class SqlLeases(Store):
    """Leases by name. Their transactions are urgent, because a late renewal loses the lease."""

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Acquire or renew a lease. Return True if the holder has it."""
        values = {"lease": name, "me": holder, "seconds": seconds}

        def acquire(connection: sa.Connection) -> bool:
            return connection.execute(_hold.on(connection), values).first() is not None

        return await self._database.run(acquire, retry_seconds=seconds / 3, rank="urgent")

    @transaction(rank="urgent")
    def find_holders(self, connection: sa.Connection, prefix: str) -> Mapping[str, str]:
        """Return the holders of the unexpired leases whose names begin with the prefix, by name."""
        return {row.name: row.holder for row in connection.execute(_holders, {"prefix": prefix})}

    @transaction(rank="urgent")
    def release(self, connection: sa.Connection, name: str, holder: str) -> None:
        """Release a lease."""
        connection.execute(_release, {"lease": name, "me": holder})


def read_version(connection: sa.Connection) -> int:
    """Return the current version."""
    return int(connection.execute(_read).scalar() or 0)


def lock_config(connection: sa.Connection) -> None:
    """Wait for the transactions of other configuration changes and lock them out."""
    connection.execute(_lock.on(connection))


def bump_config_version(connection: sa.Connection) -> None:
    """Increase the version and notify other processes."""
    connection.execute(_bump.on(connection))
    send_wakeup(connection, WakeupKind.CONFIG_CHANGED)


def record_change(connection: sa.Connection, kind: str, actor: str, **facts: Any) -> None:
    """Record a change of the configuration in the audit (see `audit.record`), and bump the version."""
    audit.record(connection, kind, actor, **facts)
    bump_config_version(connection)


# -------------------- faults

_key = matching(faults, key="fault")
# A new fault is a closed one without a message, which is then opened like any other.
_counts = {"occurrences": 0, "message": 0, "revision": 0, "delivered": 0}
_insert = insert_new(faults, opened_at=now(), closed_at=now(), first_at=now(), ref="", **_counts)
_lock_fault = sa.select(faults, (faults.c.message_at + QUIET_SECONDS > now()).label("is_recent")).where(_key)
_lock_fault = _lock_fault.with_for_update()
_change = {"revision": faults.c.revision + 1, "kind": bindparam("new_kind"), "body": bindparam("new_body")}
_update_body = faults.update().where(_key).values(_change)
_reopen = (
    faults.update()
    .where(_key)
    .values({**_change, "opened_at": now(), "closed_at": None, "occurrences": faults.c.occurrences + 1})
)
_open = _reopen.values(first_at=now(), occurrences=1, message=faults.c.message + 1, message_at=None, ref="")
_report = insert_or_update(fault_reports, expires_at=_until)
_withdraw = fault_reports.delete().where(matching(fault_reports, key="fault", reporter="by"))
_is_reported = sa.exists().where(fault_reports.c.key == faults.c.key, fault_reports.c.expires_at > now())
_close = (
    faults.update()
    .where(faults.c.closed_at.is_(None), ~_is_reported)
    .values(closed_at=now(), revision=faults.c.revision + 1)
)
_forget_reports = fault_reports.delete().where(fault_reports.c.expires_at <= now())
_forget = faults.delete().where(faults.c.closed_at <= now() - KEPT_SECONDS)
_undelivered = sa.select(faults).where(faults.c.delivered < faults.c.revision).order_by(faults.c.opened_at)
_is_message = matching(faults, key="fault", message="number")
_begin_message = faults.update().where(_is_message, faults.c.message_at.is_(None)).values(message_at=now())
_record_message = (
    faults.update().where(_is_message).values(ref=bindparam("new_ref"), delivered=bindparam("shown_revision"))
)


class SqlFaultStore(Store):
    """Faults in the database."""

    @transaction
    def report(self, connection: sa.Connection, fault: Fault, reporter: str, seconds: float) -> None:
        """Open a fault, or keep it open for `seconds` more."""
        body = encode(fault)
        connection.execute(_insert.on(connection), {"key": fault.key, "kind": fault.kind.value, "body": body})
        row = connection.execute(_lock_fault, {"fault": fault.key}).one()
        change = {"fault": fault.key, "new_kind": fault.kind.value, "new_body": body}
        if row.closed_at is not None:
            connection.execute(_reopen if row.is_recent else _open, change)
        elif row.body != body:
            connection.execute(_update_body, change)
        connection.execute(_report.on(connection), {"key": fault.key, "reporter": reporter, "seconds": seconds})

    @transaction
    def extend(self, connection: sa.Connection, key: str, reporter: str, seconds: float) -> None:
        """Keep an open fault open for `seconds` more."""
        row = connection.execute(_lock_fault, {"fault": key}).first()
        if row is not None and row.closed_at is None:
            connection.execute(_report.on(connection), {"key": key, "reporter": reporter, "seconds": seconds})

    @transaction
    def withdraw(self, connection: sa.Connection, key: str, reporter: str) -> None:
        """Remove a reporter's report; close the fault if it was the last one."""
        connection.execute(_withdraw, {"fault": key, "by": reporter})
        connection.execute(_close.where(_key), {"fault": key})

    @transaction
    def close_unreported(self, connection: sa.Connection) -> None:
        """Close faults that are not reported any more, and delete old ones."""
        connection.execute(_close)
        connection.execute(_forget_reports)
        connection.execute(_forget)

    @transaction
    def undelivered_faults(self, connection: sa.Connection) -> Sequence[FaultRecord]:
        """Return the faults with an outdated message, oldest first."""
        return [
            decode(FaultRecord, row._asdict(), fault=row.body, is_attempted=row.message_at is not None)
            for row in connection.execute(_undelivered)
        ]

    @transaction
    def begin_message(self, connection: sa.Connection, record: FaultRecord) -> None:
        """Record that the message is about to be posted."""
        connection.execute(_begin_message, {"fault": record.fault.key, "number": record.message})

    @transaction
    def record_message(self, connection: sa.Connection, record: FaultRecord, ref: str) -> None:
        """Record the message that shows this revision."""
        shown = {"new_ref": ref, "shown_revision": record.revision}
        connection.execute(_record_message, {"fault": record.fault.key, "number": record.message, **shown})

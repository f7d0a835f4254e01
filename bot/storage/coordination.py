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
from bot.ports import Quota, QuotaExceeded, QuotaGranted
from bot.storage.codec import decode, encode
from bot.storage.database import RETRY_SECONDS, Store, Upsert, insert_or_update, notify_config_changed, now, transaction
from bot.storage.tables import config_version, fault_reports, faults, leases, quotas

QUIET_SECONDS = 3600.0
"""Shortest time between two messages about one fault."""
KEPT_SECONDS = 7 * 86400.0
"""Time after which a fault that is over is deleted."""

_due = quotas.c.due_at
_interval: sa.BindParameter[float] = bindparam("interval", type_=sa.Double())
_ahead = (_due - now()).label("ahead")
# The new values are computed after the row's lock is acquired, so that they are current.
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
_block = Upsert(
    lambda insert: (
        insert(quotas)
        .values(name=bindparam("quota"), due_at=_closed)
        .on_conflict_do_update(index_elements=["name"], set_={"due_at": _closed}, where=_due < _closed)
    )
)
_select_ahead = sa.select(_ahead).where(quotas.c.name == bindparam("quota"))

# A quota that is being acquired at this moment is skipped.
_idle = sa.select(quotas.c.name).where(_due <= now()).limit(bindparam("limit")).with_for_update(skip_locked=True)
_delete_idle = quotas.delete().where(quotas.c.name.in_(_idle))
_until = now() + bindparam("seconds", type_=sa.Double())
# One statement, so that the row decides between concurrent processes.
_hold = Upsert(
    lambda insert: (
        insert(leases)
        .values(name=bindparam("lease"), holder=bindparam("me"), expires_at=_until)
        .on_conflict_do_update(
            index_elements=["name"],
            set_={"holder": bindparam("me"), "expires_at": _until},
            where=sa.or_(leases.c.holder == bindparam("me"), leases.c.expires_at <= now()),
        )
        .returning(leases.c.name)
    )
)
_holders = sa.select(leases.c.name, leases.c.holder).where(
    sa.func.substr(leases.c.name, 1, sa.func.length(bindparam("prefix", type_=sa.Text()))) == bindparam("prefix"),
    leases.c.expires_at > now(),
)
_release = leases.delete().where(leases.c.name == bindparam("lease"), leases.c.holder == bindparam("me"))
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
            return QuotaGranted(
                max(row.ahead - quota.interval - early, 0.0), quota.at_once - row.ahead / quota.interval
            )
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

        return await self._database.run(acquire, retry_seconds=seconds / 3, urgent=True)

    @transaction(retry_seconds=RETRY_SECONDS, urgent=True)
    def find_holders(self, connection: sa.Connection, prefix: str) -> Mapping[str, str]:
        """Return the holders of the unexpired leases whose names begin with the prefix, by name."""
        return {row.name: row.holder for row in connection.execute(_holders, {"prefix": prefix})}

    @transaction(retry_seconds=RETRY_SECONDS, urgent=True)
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
    notify_config_changed(connection)


# -------------------- faults

_key = faults.c.key == bindparam("fault")
# A new fault is a closed one without a message, which is then opened like any other.
_insert = Upsert(
    lambda insert: (
        insert(faults)
        .values(
            opened_at=now(),
            closed_at=now(),
            first_at=now(),
            occurrences=0,
            message=0,
            ref="",
            revision=0,
            delivered=0,
        )
        .on_conflict_do_nothing()
    )
)
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
_expiry = now() + bindparam("seconds", type_=sa.Double())
_report = insert_or_update(fault_reports, expires_at=_expiry)
_withdraw = fault_reports.delete().where(
    fault_reports.c.key == bindparam("fault"), fault_reports.c.reporter == bindparam("by")
)
_is_reported = sa.exists().where(fault_reports.c.key == faults.c.key, fault_reports.c.expires_at > now())
_close = (
    faults.update()
    .where(faults.c.closed_at.is_(None), ~_is_reported)
    .values(closed_at=now(), revision=faults.c.revision + 1)
)
_forget_reports = fault_reports.delete().where(fault_reports.c.expires_at <= now())
_forget = faults.delete().where(faults.c.closed_at <= now() - KEPT_SECONDS)
_undelivered = sa.select(faults).where(faults.c.delivered < faults.c.revision).order_by(faults.c.opened_at)
_is_message = sa.and_(_key, faults.c.message == bindparam("number"))
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
        return [_record(row) for row in connection.execute(_undelivered).mappings()]

    @transaction
    def begin_message(self, connection: sa.Connection, record: FaultRecord) -> None:
        """Record that the message is about to be posted."""
        connection.execute(_begin_message, {"fault": record.fault.key, "number": record.message})

    @transaction
    def record_message(self, connection: sa.Connection, record: FaultRecord, ref: str) -> None:
        """Record the message that shows this revision."""
        shown = {"new_ref": ref, "shown_revision": record.revision}
        connection.execute(_record_message, {"fault": record.fault.key, "number": record.message, **shown})


def _record(row: Mapping[Any, Any]) -> FaultRecord:
    return FaultRecord(
        decode(Fault, row["body"]),
        opened_at=row["opened_at"],
        closed_at=row["closed_at"],
        first_at=row["first_at"],
        occurrences=row["occurrences"],
        message=row["message"],
        ref=row["ref"],
        is_attempted=row["message_at"] is not None,
        revision=row["revision"],
    )

"""Faults that operators are told of. See `bot.ports.FaultStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.health import Fault, FaultRecord
from bot.storage.codec import decode, encode
from bot.storage.database import Database, transaction
from bot.storage.dialect import Upsert, now
from bot.storage.tables import fault_reports, faults

QUIET_SECONDS = 3600.0
"""Shortest time between two messages about one fault."""
KEPT_SECONDS = 7 * 86400.0
"""Time after which a fault that is over is deleted."""

_key = faults.c.key == bindparam("fault")
# A new fault is a closed one without a message, which is then opened like any other.
_insert = Upsert(
    lambda insert: (
        insert(faults)
        .values(
            key=bindparam("fault"),
            kind=bindparam("kind"),
            body=bindparam("body"),
            opened_at=now(),
            closed_at=now(),
            first_at=now(),
            occurrences=0,
            message=0,
            ref="",
            revision=0,
            delivered=0,
        )
        .on_conflict_do_nothing(index_elements=["key"])
    )
)
_lock = sa.select(faults, (faults.c.message_at + QUIET_SECONDS > now()).label("is_recent")).where(_key)
_lock = _lock.with_for_update()
_change = {"revision": faults.c.revision + 1, "kind": bindparam("new_kind"), "body": bindparam("new_body")}
_update_body = faults.update().where(_key).values(_change)
_reopen = (
    faults.update()
    .where(_key)
    .values({**_change, "opened_at": now(), "closed_at": None, "occurrences": faults.c.occurrences + 1})
)
_open = _reopen.values(first_at=now(), occurrences=1, message=faults.c.message + 1, message_at=None, ref="")
_expiry = now() + bindparam("seconds", type_=sa.Double())
_report = Upsert(
    lambda insert: (
        insert(fault_reports)
        .values(key=bindparam("fault"), reporter=bindparam("by"), expires_at=_expiry)
        .on_conflict_do_update(index_elements=["key", "reporter"], set_={"expires_at": _expiry})
    )
)
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


class SqlFaultStore:
    """Faults in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @transaction
    def report(self, connection: sa.Connection, fault: Fault, reporter: str, seconds: float) -> None:
        """Open a fault, or keep it open for `seconds` more."""
        body = encode(fault)
        connection.execute(_insert.on(connection), {"fault": fault.key, "kind": fault.kind.value, "body": body})
        row = connection.execute(_lock, {"fault": fault.key}).one()
        change = {"fault": fault.key, "new_kind": fault.kind.value, "new_body": body}
        if row.closed_at is not None:
            connection.execute(_reopen if row.is_recent else _open, change)
        elif row.body != body:
            connection.execute(_update_body, change)
        connection.execute(_report.on(connection), {"fault": fault.key, "by": reporter, "seconds": seconds})

    @transaction
    def extend(self, connection: sa.Connection, key: str, reporter: str, seconds: float) -> None:
        """Keep an open fault open for `seconds` more."""
        row = connection.execute(_lock, {"fault": key}).first()
        if row is not None and row.closed_at is None:
            connection.execute(_report.on(connection), {"fault": key, "by": reporter, "seconds": seconds})

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

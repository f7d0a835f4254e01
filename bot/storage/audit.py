"""The audit: an append-only table of requests, decisions, stops and executed calls.

Each row carries the hash of the previous row and a MAC over its own hash, so that changed, removed, inserted and
rewritten rows are detected. Rows hold ids and hashes of arguments, never message texts: they outlive a deleted
conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.audit import NO_HASH
from bot.storage.audit_chain import row_hash
from bot.storage.audit_keys import CONNECTION_KEY, AuditKeys
from bot.storage.clock import now
from bot.storage.tables import audit, turns

_LOCK = 0x436F756E
"""Writers of the chain take turns: an advisory lock, held until the end of their transaction."""

NOBODY = "countersign"
"""Actor of expiries and crash recovery."""

_NO_KEYS = AuditKeys()

_lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
_last = sa.select(audit.c.seq, audit.c.hash, now().label("at")).order_by(audit.c.seq.desc()).limit(1)
_now = sa.select(now())
_add = audit.insert()
_rows = sa.select(audit).order_by(audit.c.seq)
_conversation = sa.select(turns.c.conversation).where(turns.c.id == bindparam("turn_id"))
_same = (
    sa.select(audit.c.seq)
    .where(
        audit.c.turn_id == bindparam("turn_id"),
        audit.c.kind == bindparam("kind"),
        audit.c.actor == bindparam("actor"),
        audit.c.body == bindparam("body"),
    )
    .limit(1)
)


def record(
    connection: sa.Connection,
    kind: str,
    actor: str,
    *,
    turn_id: str = "",
    conversation: str = "",
    subject: str = "",
    **facts: Any,
) -> None:
    """Add a row. `kind` is the event, `actor` a principal, `facts` are JSON values. `subject` is the id of the affected
    server or profile.
    """
    subject = _storable(subject)
    _lock_chain(connection)
    if turn_id and not conversation:
        conversation = connection.execute(_conversation, {"turn_id": turn_id}).scalar() or ""
    last = connection.execute(_last).first()
    row = {
        "seq": last.seq + 1 if last else 1,
        "at": last.at if last else connection.execute(_now).scalar_one(),
        "kind": kind,
        "conversation": conversation,
        "turn_id": turn_id,
        "actor": _storable(actor),
        "body": _body(subject, facts),
        "previous": last.hash if last else NO_HASH,
    }
    digest = row_hash(row)
    keys: AuditKeys = connection.info.get(CONNECTION_KEY, _NO_KEYS)
    connection.execute(_add, {**row, "subject": subject, "hash": digest, "mac": keys.sign_row(digest)})


def record_once(
    connection: sa.Connection, kind: str, actor: str, *, turn_id: str, subject: str = "", **facts: Any
) -> bool:
    """Add a row unless the turn has an identical one, so that repeated attempts do not fill the disk. Return True if
    the row was added.
    """
    same = {"turn_id": turn_id, "kind": kind, "actor": _storable(actor), "body": _body(_storable(subject), facts)}
    if connection.execute(_same, same).first() is not None:
        return False
    _lock_chain(connection)
    # Re-read under the lock: another process may have added it.
    if connection.execute(_same, same).first() is not None:
        return False
    record(connection, kind, actor, turn_id=turn_id, subject=subject, **facts)
    return True


def rows(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Yield every row, oldest first."""
    for row in connection.execute(_rows).mappings():
        yield dict(row)


def _lock_chain(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_lock)


def _body(subject: str, facts: dict[str, Any]) -> str:
    return json.dumps({**facts, "subject": subject} if subject else facts, sort_keys=True)


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")

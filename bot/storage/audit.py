"""Entries of the audit, an append-only table of requests, decisions, stops and executed calls: writing and queries.

Each row carries the hash of the previous row and a MAC over its own hash, so that changed, removed, inserted and
rewritten rows are detected. Rows hold ids and hashes of arguments, never message texts: they outlive a deleted
conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.audit import NO_HASH, AuditEntry, AuditHead, AuditQuery, AuditScope
from bot.storage.audit_chain import CONNECTION_KEY, AuditKeys, row_hash
from bot.storage.dialect import StorableText, has_prefix, now, prefix_bounds
from bot.storage.tables import audit, turns

Row = Mapping[str, Any]

_LOCK = 0x436F756E
"""Writers of the chain take turns: an advisory lock, held until the end of their transaction."""
NOBODY = "countersign"
"""Actor of events without a user: expiries, crash recovery, denials because no user could be asked."""
_NO_KEYS = AuditKeys()

_lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
_last = sa.select(audit.c.seq, audit.c.hash, now().label("at")).order_by(audit.c.seq.desc()).limit(1)
_now = sa.select(now())
_add = audit.insert()
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
# Written as in the index's condition, because planners use the index only then.
_has_subject = audit.c.subject != sa.literal_column("''")
_is_of_subject = sa.and_(_has_subject, audit.c.subject == bindparam("subject", type_=StorableText))
_is_of_actor = audit.c.actor == bindparam("person", type_=StorableText)
_is_since = audit.c.at >= bindparam("since", type_=sa.Double)
_is_before = audit.c.at < bindparam("until", type_=sa.Double)
_is_of_kinds = audit.c.kind.in_(bindparam("kinds", expanding=True))
_is_in_scope = sa.or_(
    has_prefix(audit.c.conversation, "home"),
    sa.and_(
        audit.c.conversation == sa.literal_column("''"),
        _has_subject,
        audit.c.subject.in_(bindparam("known", expanding=True)),
    ),
)
_first = sa.select(audit).order_by(audit.c.seq).limit(bindparam("limit"))
_head_row = sa.select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
_is_after = audit.c.seq > bindparam("behind")


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


def _lock_chain(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_lock)


def _body(subject: str, facts: dict[str, Any]) -> str:
    return json.dumps({**facts, "subject": subject} if subject else facts, sort_keys=True)


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def read_page(
    connection: sa.Connection, query: AuditQuery, limit: int, offset: int
) -> tuple[Sequence[AuditEntry], int]:
    """Return a page of matching rows, newest first, and the number of all matching rows."""
    conditions, values = _conditions(query)
    page = (
        sa.select(audit)
        .where(*conditions)
        .order_by(audit.c.seq.desc())
        .limit(bindparam("limit"))
        .offset(bindparam("offset"))
    )
    rows = connection.execute(page, {**values, "limit": limit, "offset": offset}).mappings()
    entries = [entry_of(dict(row)) for row in rows]
    count = sa.select(sa.func.count()).select_from(audit).where(*conditions)
    return entries, int(connection.execute(count, values).scalar_one())


def read_after(connection: sa.Connection, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
    """Return up to `limit` matching rows, oldest first, after the row number `behind`; from the first row if it is
    `None`.
    """
    conditions, values = _conditions(query)
    if behind is not None:
        conditions.append(_is_after)
        values["behind"] = behind
    return [dict(row) for row in connection.execute(_first.where(*conditions), {**values, "limit": limit}).mappings()]


def read_head(connection: sa.Connection) -> AuditHead:
    """Return the number and hash of the last row."""
    row = connection.execute(_head_row).first()
    return AuditHead() if row is None else AuditHead(row.seq, row.hash)


def entry_of(row: Row) -> AuditEntry:
    """Return a row as a value. Unreadable facts are returned as text."""
    return AuditEntry(
        seq=row["seq"],
        at=row["at"],
        kind=row["kind"],
        actor=row["actor"],
        facts=_read_facts(row["body"]),
        conversation=row["conversation"],
        turn_id=row["turn_id"],
        subject=row["subject"],
        previous=row["previous"],
        hash=row["hash"],
        mac=row["mac"],
    )


def _conditions(query: AuditQuery) -> tuple[list[sa.ColumnElement[bool]], dict[str, Any]]:
    conditions: list[sa.ColumnElement[bool]] = []
    values: dict[str, Any] = {}
    for is_given, condition, value in (
        (bool(query.subject), _is_of_subject, {"subject": query.subject}),
        (bool(query.person), _is_of_actor, {"person": query.person}),
        (bool(query.kinds), _is_of_kinds, {"kinds": list(query.kinds)}),
        (query.since is not None, _is_since, {"since": query.since}),
        (query.until is not None, _is_before, {"until": query.until}),
        (query.scope is not None, _is_in_scope, _scope(query.scope)),
    ):
        if is_given:
            conditions.append(condition)
            values.update(value)
    return conditions, values


def _scope(scope: AuditScope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {**prefix_bounds("home", f"{scope.home}:"), "known": sorted(scope.subjects)}


def _read_facts(body: Any) -> Mapping[str, object]:
    try:
        facts: dict[str, object] = dict(json.loads(body))
    except (TypeError, ValueError):
        return {"unreadable": str(body)}
    facts.pop("subject", None)
    return facts

"""Queries of the audit: pages of matching rows, and all rows in batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.audit import AuditEntry, AuditHead, AuditQuery, AuditScope
from bot.storage.key_prefix import has_prefix, prefix_bounds
from bot.storage.tables import StorableText, audit

Row = Mapping[str, Any]

# Written as in the index's condition, because planners use the index only then.
_named = audit.c.subject != sa.literal_column("''")
_of_subject = sa.and_(_named, audit.c.subject == bindparam("subject", type_=StorableText))
_of_actor = audit.c.actor == bindparam("person", type_=StorableText)
_since = audit.c.at >= bindparam("since", type_=sa.Double)
_until = audit.c.at < bindparam("until", type_=sa.Double)
_kinds = audit.c.kind.in_(bindparam("kinds", expanding=True))
_within = sa.or_(
    has_prefix(audit.c.conversation, "home"),
    sa.and_(
        audit.c.conversation == sa.literal_column("''"), _named, audit.c.subject.in_(bindparam("known", expanding=True))
    ),
)
_first = sa.select(audit).order_by(audit.c.seq).limit(bindparam("limit"))
_last = sa.select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
_behind = audit.c.seq > bindparam("behind")


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


def read_on(connection: sa.Connection, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
    """Return up to `limit` matching rows, oldest first, after the row number `behind`; from the first row if it is
    `None`.
    """
    conditions, values = _conditions(query)
    if behind is not None:
        conditions.append(_behind)
        values["behind"] = behind
    return [dict(row) for row in connection.execute(_first.where(*conditions), {**values, "limit": limit}).mappings()]


def read_head(connection: sa.Connection) -> AuditHead:
    """Return the number and hash of the last row."""
    row = connection.execute(_last).first()
    return AuditHead() if row is None else AuditHead(row.seq, row.hash)


def entry_of(row: Row) -> AuditEntry:
    """Return a row as a value. Unreadable facts are returned as text."""
    return AuditEntry(
        seq=row["seq"],
        at=row["at"],
        kind=row["kind"],
        actor=row["actor"],
        facts=_facts(row["body"]),
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
    for given, condition, value in (
        (bool(query.subject), _of_subject, {"subject": query.subject}),
        (bool(query.person), _of_actor, {"person": query.person}),
        (bool(query.kinds), _kinds, {"kinds": list(query.kinds)}),
        (query.since is not None, _since, {"since": query.since}),
        (query.until is not None, _until, {"until": query.until}),
        (query.scope is not None, _within, _scope(query.scope)),
    ):
        if given:
            conditions.append(condition)
            values.update(value)
    return conditions, values


def _scope(scope: AuditScope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {**prefix_bounds("home", f"{scope.home}:"), "known": sorted(scope.subjects)}


def _facts(body: Any) -> Mapping[str, object]:
    try:
        facts: dict[str, object] = dict(json.loads(body))
    except (TypeError, ValueError):
        return {"unreadable": str(body)}
    facts.pop("subject", None)
    return facts

"""The audit: what people asked for, decided and stopped, and what was run because of it, for ever.

Each row carries the hash of the one before it, so that a row that was changed, taken out or put in later shows. Rows
name things and people and carry hashes of arguments, never what was said: deleting a conversation leaves them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.storage.clock import now
from bot.storage.tables import audit, turns

_LOCK = 0x436F756E
"""Writers of the chain take turns: an advisory lock, held until the end of their transaction."""

_lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
_last = sa.select(audit.c.seq, audit.c.hash, now().label("at")).order_by(audit.c.seq.desc()).limit(1)
_now = sa.select(now())
_add = audit.insert()
_rows = sa.select(audit).order_by(audit.c.seq)
_conversation = sa.select(turns.c.conversation).where(turns.c.id == bindparam("turn_id"))

START = "0" * 64


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
    """Add a row. `kind` says what happened, `actor` who did it, `facts` are JSON. `subject` is the id of the server or
    profile it was done to.
    """
    subject = _storable(subject)
    if subject:
        facts["subject"] = subject
    if connection.dialect.name == "postgresql":
        connection.execute(_lock)
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
        "body": json.dumps(facts, sort_keys=True),
        "previous": last.hash if last else START,
    }
    connection.execute(_add, {**row, "subject": subject, "hash": _hash(row)})


def rows(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Every row, oldest first."""
    for row in connection.execute(_rows).mappings():
        yield dict(row)


def first_that_does_not_fit(connection: sa.Connection) -> int | None:
    """The number of the first row that was changed or does not follow the one before it; None if all is well."""
    previous, expected = START, 1
    for row in rows(connection):
        chained = row["seq"] == expected and row["previous"] == previous and row["hash"] == _hash(row)
        if not chained or row["subject"] != json.loads(row["body"]).get("subject", ""):
            return int(row["seq"])
        previous, expected = row["hash"], expected + 1
    return None


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _hash(row: dict[str, Any]) -> str:
    told = [
        row["seq"],
        repr(float(row["at"])),
        row["kind"],
        row["conversation"],
        row["turn_id"],
        row["actor"],
        row["body"],
        row["previous"],
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()

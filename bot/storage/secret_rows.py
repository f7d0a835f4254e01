"""Where each secret of a server comes from, on disk: a ciphertext, or a reference. Nothing here can decrypt.

`bound_to` is the place that a secret was given for (`bot.domain.secret_binding`); None if an earlier release wrote the
row and it has not been bound yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.secret_binding import binding_of
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import USER_SLOT, ServerRecord
from bot.storage.clock import now
from bot.storage.database import json_text
from bot.storage.tables import mcp_secrets, mcp_servers

_of = sa.select(mcp_secrets).where(mcp_secrets.c.server_id == bindparam("i"))
_all = sa.select(mcp_secrets)
_unbound = _all.where(mcp_secrets.c.bound_to.is_(None))
_add = mcp_secrets.insert().values(updated_at=now())
_delete = mcp_secrets.delete().where(mcp_secrets.c.server_id == bindparam("i"), mcp_secrets.c.slot == bindparam("s"))
_ciphertexts = (
    sa.select(
        mcp_servers.c.slug,
        mcp_secrets.c.server_id,
        mcp_secrets.c.slot,
        mcp_secrets.c.ciphertext,
        mcp_secrets.c.bound_to,
    )
    .join(mcp_servers, mcp_servers.c.id == mcp_secrets.c.server_id)
    .where(mcp_secrets.c.ciphertext.is_not(None))
    .order_by(mcp_servers.c.slug, mcp_secrets.c.slot)
)
_replace = (
    mcp_secrets.update()
    .where(
        mcp_secrets.c.server_id == bindparam("i"),
        mcp_secrets.c.slot == bindparam("s"),
        mcp_secrets.c.ciphertext == bindparam("was"),
    )
    .values(ciphertext=bindparam("to"))
)
_authentications = sa.select(mcp_servers.c.id, mcp_servers.c.authentication)
_clear_user = (
    mcp_servers.update()
    .where(mcp_servers.c.id == bindparam("i"), mcp_servers.c.authentication == bindparam("was"))
    .values(authentication=bindparam("to"))
)
_bind = (
    mcp_secrets.update()
    .where(
        mcp_secrets.c.server_id == bindparam("i"),
        mcp_secrets.c.slot == bindparam("s"),
        mcp_secrets.c.bound_to.is_(None),
    )
    .values(ciphertext=bindparam("to"), bound_to=bindparam("b"), vouched=bindparam("v"))
)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A stored secret in its place."""

    slug: str
    server_id: str
    slot: str
    ciphertext: str
    bound_to: str | None

    @property
    def place(self) -> str:
        """The context that its ciphertext opens in."""
        return place_of(self.server_id, self.slot, self.bound_to)


@dataclass(frozen=True, slots=True)
class Bound:
    """What becomes of a row that an earlier release wrote."""

    server_id: str
    slot: str
    ciphertext: str | None
    bound_to: str
    vouched: bool


def place_of(server_id: str, slot: str, bound_to: str | None) -> str:
    """Return the context that the ciphertext of a slot opens in. It holds the place that the secret was given for, so
    that a row whose place was changed by hand does not open.
    """
    return f"{server_id}:{slot}" if bound_to is None else f"{server_id}:{slot}:{bound_to}"


def read_all(connection: sa.Connection) -> Mapping[str, Sequence[Any]]:
    """The rows of all secrets, by server."""
    found: dict[str, list[Any]] = {}
    for row in connection.execute(_all):
        found.setdefault(row.server_id, []).append(row)
    return found


def read_of(connection: sa.Connection, server_id: str) -> Sequence[Any]:
    """The rows of a server's secrets."""
    return connection.execute(_of, {"i": server_id}).all()


def read_unbound(connection: sa.Connection) -> Sequence[Any]:
    """The rows that an earlier release wrote and that are not bound to a place yet."""
    return connection.execute(_unbound).all()


def bind(connection: sa.Connection, rows: Iterable[Bound]) -> int:
    """Bind rows that are still unbound. Return how many were."""
    return sum(
        connection.execute(
            _bind, {"i": row.server_id, "s": row.slot, "to": row.ciphertext, "b": row.bound_to, "v": row.vouched}
        ).rowcount
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class PlainUser:
    """A server whose user name an earlier release kept in the clear. `authentication` is the column without it."""

    server_id: str
    user: str
    was: str
    authentication: str


def read_plain_users(connection: sa.Connection) -> Sequence[PlainUser]:
    """The user names that are kept in the clear."""
    found = []
    for row in connection.execute(_authentications):
        try:
            body = json.loads(row.authentication)
            user = body.get("username", "")
        except (ValueError, AttributeError):
            continue
        if user and isinstance(user, str):
            found.append(PlainUser(row.id, user, row.authentication, json_text({**body, "username": ""})))
    return found


def seal_users(connection: sa.Connection, pairs: Iterable[tuple[PlainUser, str, str]]) -> int:
    """Put user names into rows of their own, each with its ciphertext and the place it is bound to. Return how many
    were still in the clear.
    """
    count = 0
    for user, ciphertext, bound_to in pairs:
        changed = connection.execute(
            _clear_user, {"i": user.server_id, "was": user.was, "to": user.authentication}
        ).rowcount
        if not changed:
            continue
        row = {"server_id": user.server_id, "slot": USER_SLOT, "source": SecretSource.STORED.value, "place": ""}
        connection.execute(_delete, {"i": user.server_id, "s": USER_SLOT})
        connection.execute(
            _add, {**row, "bound_to": bound_to, "vouched": False, "ciphertext": ciphertext, "updated_by": ""}
        )
        count += 1
    return count


def with_missing(record: ServerRecord, rows: Sequence[Any]) -> ServerRecord:
    """Return the record with the slots of stored secrets that have no value for the place the server has now."""
    missing = (
        row.slot
        for row in rows
        if row.source == SecretSource.STORED
        and (row.ciphertext is None or (row.bound_to is not None and row.bound_to != binding_of(record, row.slot)))
    )
    return replace(record, missing=frozenset(missing))


def references_of(rows: Sequence[Any]) -> Mapping[str, SecretReference]:
    """Where the secrets of rows come from, by slot. Raises ValueError for what a later release wrote."""
    return {row.slot: _reference(row) for row in rows}


def read_references(connection: sa.Connection, server_id: str) -> Mapping[str, SecretReference]:
    """Where a server's secrets come from, by slot."""
    return references_of(connection.execute(_of, {"i": server_id}).all())


def read_bound(connection: sa.Connection, server_id: str) -> Mapping[str, Any]:
    """The rows of a server's secrets, by slot."""
    return {row.slot: row for row in read_of(connection, server_id)}


def read_ciphertexts(connection: sa.Connection, server_id: str) -> Mapping[str, str]:
    """A server's stored secrets, by slot, still encrypted."""
    rows = connection.execute(_of, {"i": server_id})
    return {row.slot: row.ciphertext for row in rows if row.ciphertext is not None}


def write_secrets(connection: sa.Connection, record: ServerRecord, sealed: Mapping[str, str], by: str) -> None:
    """Make a server's secrets those of the record. A stored one that is not among `sealed` stays as it is, unless the
    place has changed that it was given for: then its value is deleted.
    """
    before = {row.slot: row for row in connection.execute(_of, {"i": record.id})}
    kept = {
        slot
        for slot, reference in record.secrets.items()
        if slot in before
        and slot not in sealed
        and _reference(before[slot]) == reference
        and before[slot].bound_to == binding_of(record, slot)
    }
    for slot in before.keys() - kept:
        connection.execute(_delete, {"i": record.id, "s": slot})
    for slot in record.secrets.keys() - kept:
        reference = record.secrets[slot]
        row = {
            "server_id": record.id,
            "slot": slot,
            "source": reference.source.value,
            "place": reference.place,
            "bound_to": binding_of(record, slot),
            "vouched": reference.vouched,
        }
        connection.execute(_add, {**row, "ciphertext": sealed.get(slot), "updated_by": by})


def read_all_sealed(connection: sa.Connection) -> Sequence[Sealed]:
    """All stored secrets of all servers."""
    rows = connection.execute(_ciphertexts)
    return [Sealed(row.slug, row.server_id, row.slot, row.ciphertext, row.bound_to) for row in rows]


def replace_sealed(connection: sa.Connection, pairs: Iterable[tuple[Sealed, str]]) -> int:
    """Put other ciphertexts of the same secrets in their places, where nobody has set them anew; how many."""
    return sum(
        connection.execute(_replace, {"i": old.server_id, "s": old.slot, "was": old.ciphertext, "to": new}).rowcount
        for old, new in pairs
    )


def _reference(row: Any) -> SecretReference:
    return SecretReference(SecretSource(row.source), row.place, bool(row.vouched))

"""Transactions on the tokens of the HTTP API. Of a token itself only a hash is here: whoever reads the database, or a
backup of it, can call nothing with what they find.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author
from bot.errors import Conflict
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.tables import api_tokens
from bot.storage.upsert import Upsert

_good = sa.and_(
    api_tokens.c.revoked_at.is_(None), sa.or_(api_tokens.c.expires_at.is_(None), api_tokens.c.expires_at > now())
)
_all = sa.select(api_tokens).order_by(api_tokens.c.name)
_named = sa.select(api_tokens).where(api_tokens.c.name == bindparam("name"))
_found = sa.select(api_tokens).where(api_tokens.c.hash == bindparam("h"), _good)
_revoke = (
    api_tokens.update()
    .where(api_tokens.c.name == bindparam("of_name"), api_tokens.c.revoked_at.is_(None))
    .values(revoked_at=now())
    .returning(api_tokens.c.id)
)
_expired = api_tokens.delete().where(api_tokens.c.name == bindparam("of_name"), sa.not_(_good))
# A name that somebody else takes at the same moment is theirs.
_add = Upsert(
    lambda insert: (
        insert(api_tokens)
        .values(
            id=bindparam("id"),
            name=bindparam("name"),
            hash=bindparam("hash"),
            role=bindparam("role"),
            workspace=bindparam("workspace"),
            created_by=bindparam("created_by"),
            created_at=now(),
            expires_at=now() + bindparam("lifetime", type_=sa.Double),
        )
        .on_conflict_do_nothing(index_elements=["name"])
        .returning(api_tokens.c.id)
    )
)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that is to be kept. `lifetime` is in seconds, None for ever."""

    id: str
    name: str
    hash: str
    role: ApiRole
    workspace: str
    lifetime: float | None


def hash_of(token: str) -> str:
    """What is kept of a token. It is random and long: it needs no salt, and nobody can try all there are."""
    return hashlib.sha256(token.encode()).hexdigest()


def create(connection: sa.Connection, new: NewToken, by: Author) -> ApiToken:
    """Keep a token, in the place of one of that name that is good for nothing any more. Raises Conflict if the name is
    taken by another one.
    """
    connection.execute(_expired, {"of_name": new.name})
    added = connection.execute(
        _add.on(connection),
        {
            "id": new.id,
            "name": new.name,
            "hash": new.hash,
            "role": new.role.value,
            "workspace": new.workspace,
            "created_by": by.principal,
            "lifetime": new.lifetime,
        },
    ).first()
    row = connection.execute(_named, {"name": new.name}).first()
    # The same id: the same transaction before, whose COMMIT's answer was lost.
    if row is None or row.id != new.id:
        raise Conflict(f"There is a token called {new.name} already.", "revoke it first, or take another name")
    kept = _read(row)
    if added is not None:
        audit.record(
            connection,
            "made token",
            by.principal,
            subject=kept.id,
            token=kept.name,
            role=kept.role.value,
            workspace=kept.workspace,
            expires_at=kept.expires_at,
        )
    return kept


def read_all(connection: sa.Connection) -> Sequence[ApiToken]:
    """All tokens, by name."""
    return [_read(row) for row in connection.execute(_all)]


def find(connection: sa.Connection, hashed: str) -> ApiToken | None:
    """The token of this hash, if it is good for something now."""
    row = connection.execute(_found, {"h": hashed}).first()
    return None if row is None else _read(row)


def revoke(connection: sa.Connection, name: str, by: Author) -> bool:
    """Let a token be good for nothing. False if there is none, or it is revoked."""
    revoked = connection.execute(_revoke, {"of_name": name}).scalar()
    if revoked is None:
        return False
    audit.record(connection, "revoked token", by.principal, subject=revoked, token=name)
    return True


def _read(row: sa.Row[tuple[object, ...]]) -> ApiToken:
    return ApiToken(
        id=row.id,
        name=row.name,
        role=ApiRole(row.role),
        workspace=row.workspace,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )

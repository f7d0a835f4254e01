"""Tokens of the HTTP API. See `bot.ports.TokenStore`.

Only a hash of a token is stored, so that readers of the database or a backup cannot use it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author
from bot.errors import Conflict
from bot.storage import audit
from bot.storage.codec import decode
from bot.storage.database import Store, change_once, insert_new, matching, now, transaction
from bot.storage.encryption import hash_token
from bot.storage.tables import api_tokens

_BYTES = 32
"""Random bytes in a token: 43 characters that are safe in an address."""
_all = sa.select(api_tokens).order_by(api_tokens.c.name)
_named = sa.select(api_tokens, now().label("now")).where(matching(api_tokens, name="name"))
_by_hash = sa.select(api_tokens, now().label("now")).where(matching(api_tokens, hash="h"))
_revoke = (
    api_tokens.update()
    .where(matching(api_tokens, name="of_name"), api_tokens.c.revoked_at.is_(None))
    .values(revoked_at=now())
    .returning(api_tokens.c.id)
)
_delete = api_tokens.delete().where(matching(api_tokens, id="of_id"))

# The unique index decides between concurrent tokens of the same name.
_add = insert_new(api_tokens, created_at=now(), expires_at=now() + bindparam("lifetime", type_=sa.Double))


class SqlTokenStore(Store):
    """Tokens by name."""

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Create a token valid for `lifetime` seconds. Raises Conflict if the name is taken."""
        token = f"cs_{secrets.token_urlsafe(_BYTES)}"
        row = {"id": str(uuid.uuid4()), "name": name, "hash": hash_token(token), "role": role.value}
        return await self._add({**row, "workspace": workspace, "created_by": by.principal, "lifetime": lifetime}), token

    @transaction
    def _add(self, connection: sa.Connection, token: Mapping[str, Any]) -> ApiToken:
        """Add a token, replacing an invalid one of the same name."""
        named = connection.execute(_named, {"name": token["name"]}).first()
        if named is not None and not decode(ApiToken, named._asdict()).is_valid(named.now):
            connection.execute(_delete, {"of_id": named.id})
        is_added = connection.execute(_add.on(connection), token).first() is not None
        row = connection.execute(_named, {"name": token["name"]}).first()
        # The same id: this transaction is repeated after a lost COMMIT response.
        if row is None or row.id != token["id"]:
            raise Conflict(f"A token named {token['name']} already exists.", "revoke it first, or take another name")
        created = decode(ApiToken, row._asdict())
        if is_added:
            facts = {"role": row.role, "workspace": row.workspace, "expires_at": row.expires_at}
            audit.record(connection, "made token", row.created_by, subject=row.id, token=row.name, **facts)
        return created

    @transaction
    def tokens(self, connection: sa.Connection) -> Sequence[ApiToken]:
        """Return all tokens by name."""
        return [decode(ApiToken, row._asdict()) for row in connection.execute(_all)]

    @transaction(rank="arrival")
    def find_by_secret(self, connection: sa.Connection, token: str) -> ApiToken | None:
        """Return the valid token with this secret, `None` without one."""
        row = connection.execute(_by_hash, {"h": hash_token(token)}).first()
        if row is None:
            return None
        found = decode(ApiToken, row._asdict())
        return found if found.is_valid(row.now) else None

    @change_once
    def revoke(self, connection: sa.Connection, name: str, by: Author) -> bool:
        """Revoke a token. Return False if it is missing or already revoked."""
        token_id = connection.execute(_revoke, {"of_name": name}).scalar()
        if token_id is None:
            return False
        audit.record(connection, "revoked token", by.principal, subject=token_id, token=name)
        return True

"""Tokens of the HTTP API, on a database: every method is one transaction, see `bot.ports.TokenStore`."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence

import sqlalchemy as sa

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author
from bot.storage import token_rows
from bot.storage.database import Database
from bot.storage.token_rows import NewToken, hash_of

_BYTES = 32
"""Random bytes in a token: 43 characters that are safe in an address."""


class SqlTokenStore:
    """Tokens by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Create a token valid for `lifetime` seconds. Raises Conflict if the name is taken."""
        token = f"cs_{secrets.token_urlsafe(_BYTES)}"
        new = NewToken(str(uuid.uuid4()), name, hash_of(token), role, workspace, lifetime)
        return await self._database.run(lambda connection: token_rows.create(connection, new, by)), token

    async def tokens(self) -> Sequence[ApiToken]:
        """Return all tokens by name."""
        return await self._database.run(token_rows.read_all)

    async def find_by_secret(self, token: str) -> ApiToken | None:
        """Return the valid token with this secret, `None` without one."""
        hashed = hash_of(token)
        return await self._database.run(lambda connection: token_rows.find(connection, hashed))

    async def revoke(self, name: str, by: Author) -> bool:
        """Revoke a token. Return False if it is missing or already revoked."""
        revoked = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal revoked
            # After a lost COMMIT response the token is revoked, and this call revoked it.
            revoked = token_rows.revoke(connection, name, by) or revoked
            return revoked

        return await self._database.run(transaction)

"""Lookup and revocation of grants, on a database; see `bot.ports.GrantStore`."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from bot.domain.conversations import Author
from bot.domain.grants import Grant
from bot.storage import grant_rows
from bot.storage.database import Database


class SqlGrantStore:
    """Grants by workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def active_grants(self, workspace: str) -> Sequence[Grant]:
        """Return the active grants in a workspace, newest first."""
        return await self._database.run(lambda connection: grant_rows.read_of_home(connection, workspace))

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """Revoke an active grant. Return False if it is not active."""
        revoked = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal revoked
            # After a lost COMMIT response the grant is inactive, and this call revoked it.
            revoked = grant_rows.revoke(connection, grant_id, by) or revoked
            return revoked

        return await self._database.run(transaction)

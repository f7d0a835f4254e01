"""Grants as people look them up and revoke them, on a database; see `bot.ports.GrantStore`."""

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

    async def active_grants(self, home: str) -> Sequence[Grant]:
        """The grants in force in a workspace, the latest first."""
        return await self._database.run(lambda connection: grant_rows.read_of_home(connection, home))

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """End a grant that is in force. False if it is not."""
        revoked = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal revoked
            # After a COMMIT whose answer was lost it is in force no more, and it was this that ended it.
            revoked = grant_rows.revoke(connection, grant_id, by) or revoked
            return revoked

        return await self._database.run(transaction)

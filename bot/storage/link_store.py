"""One-time links on a database: every method is one transaction, see `bot.ports.LinkStore`."""

from __future__ import annotations

import secrets

from bot.domain.conversations import Author, ConversationKey
from bot.domain.secrets import LINK_SECONDS, SecretLink
from bot.storage import link_rows
from bot.storage.database import Database

_BYTES = 32


class SqlLinkStore:
    """One-time links by token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Add a link. Return it with its token."""
        token = secrets.token_urlsafe(_BYTES)
        unsaved = SecretLink(server_id, slot, by, conversation)
        link = await self._database.run(lambda connection: link_rows.add(connection, token, unsaved, LINK_SECONDS))
        return link, token

    async def find(self, token: str) -> SecretLink | None:
        """Return the link, `None` if it is not valid."""
        return await self._database.run(lambda connection: link_rows.find(connection, token))

    async def take(self, token: str) -> SecretLink | None:
        """Use up the link. After a lost COMMIT response the link is used and `None` is returned, because two users must
        never get it.
        """
        return await self._database.run(lambda connection: link_rows.take(connection, token))

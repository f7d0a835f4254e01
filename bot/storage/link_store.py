"""One-time links on a database: every method one transaction, see `bot.ports.LinkStore`."""

from __future__ import annotations

import secrets

from bot.domain.conversations import Author, ConversationKey
from bot.domain.links import LINK_SECONDS, SecretLink
from bot.storage import link_rows
from bot.storage.database import Database

_BYTES = 32


class SqlLinkStore:
    """Links by what is in them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Make a link; what it is good for, and the token that is in it."""
        token = secrets.token_urlsafe(_BYTES)
        wanted = SecretLink(server_id, slot, by, conversation)
        link = await self._database.run(lambda connection: link_rows.add(connection, token, wanted, LINK_SECONDS))
        return link, token

    async def find(self, token: str) -> SecretLink | None:
        """The link, if it is good now."""
        return await self._database.run(lambda connection: link_rows.find(connection, token))

    async def take(self, token: str) -> SecretLink | None:
        """Use it up. After a COMMIT whose answer was lost it is used and nobody has it: better than two who have."""
        return await self._database.run(lambda connection: link_rows.take(connection, token))

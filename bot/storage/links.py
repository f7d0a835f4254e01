"""One-time links for entering secrets. See `bot.ports.LinkStore`.

Only a hash of a link's token is stored, so that readers of the table cannot use it.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.secrets import LINK_SECONDS, SecretLink
from bot.storage.codec import UNREADABLE
from bot.storage.database import Database, transaction
from bot.storage.dialect import now
from bot.storage.encryption import hash_token
from bot.storage.tables import one_time_links

_BYTES = 32
_links = one_time_links.c
_delete_old = one_time_links.delete().where(_links.expires_at <= now())
_delete_same = one_time_links.delete().where(
    _links.server_id == bindparam("i"), _links.slot == bindparam("s"), _links.principal == bindparam("who")
)
_add = (
    one_time_links.insert()
    .values(created_at=now(), expires_at=now() + bindparam("seconds"))
    .returning(_links.expires_at)
)

# One query for missing, used and expired links, so that neither response nor timing
# tells them apart.
_is_valid = (_links.hash == bindparam("h"), _links.used_at.is_(None), _links.expires_at > now())
_find = sa.select(one_time_links).where(*_is_valid)
_use_up = one_time_links.update().where(*_is_valid).values(used_at=now()).returning(*one_time_links.c)


class SqlLinkStore:
    """One-time links by token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Add a link. Return it with its token."""
        token = secrets.token_urlsafe(_BYTES)
        return await self._add(token, SecretLink(server_id, slot, by, conversation)), token

    @transaction
    def _add(self, connection: sa.Connection, token: str, link: SecretLink) -> SecretLink:
        """Add a link, replacing the user's other links for the same secret, and delete all expired links."""
        by = link.person
        connection.execute(_delete_old)
        connection.execute(_delete_same, {"i": link.server_id, "s": link.slot, "who": by.principal})
        row = {
            "hash": hash_token(token),
            "server_id": link.server_id,
            "slot": link.slot,
            "principal": by.principal,
            "user_name": by.name,
            "conversation": str(link.conversation),
            "seconds": LINK_SECONDS,
        }
        return replace(link, expires_at=connection.execute(_add, row).scalar_one())

    @transaction
    def find(self, connection: sa.Connection, token: str) -> SecretLink | None:
        """Return the link, `None` if it is not valid."""
        return _link_of(connection.execute(_find, {"h": hash_token(token)}).first())

    @transaction
    def use_link(self, connection: sa.Connection, token: str) -> SecretLink | None:
        """Use up the link. After a lost COMMIT response the link is used and `None` is returned, because two users must
        never get it.
        """
        return _link_of(connection.execute(_use_up, {"h": hash_token(token)}).first())


def _link_of(row: Any) -> SecretLink | None:
    if row is None:
        return None
    try:
        platform, _, person = row.principal.partition(":")
        author = Author(platform, person, row.user_name)
        return SecretLink(row.server_id, row.slot, author, ConversationKey.parse(row.conversation), row.expires_at)
    except UNREADABLE:
        return None

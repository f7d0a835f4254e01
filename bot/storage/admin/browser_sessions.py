"""Sessions in browsers. See `bot.ports.BrowserSessionStore`.

Only a hash of a session's secret is stored, so that readers of the database or a backup cannot use it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.browser_sessions import IDLE_SECONDS, SESSION_SECONDS, BrowserSession
from bot.domain.conversations import Author, ConversationKey
from bot.storage import audit
from bot.storage.codec import UNREADABLE
from bot.storage.database import Database, Store, change_once, insert_new, matching, now, transaction
from bot.storage.encryption import hash_token
from bot.storage.tables import browser_sessions

_BYTES = 32
_ID_BYTES = 6
_USED_SECONDS = 60.0
"""A use is written at most this often, because every page is one."""

_sessions = browser_sessions.c
_is_valid = sa.and_(_sessions.expires_at > now(), _sessions.used_at > now() - bindparam("idle", type_=sa.Double))
_by_hash = sa.select(browser_sessions).where(matching(browser_sessions, hash="h"), _is_valid)
_all = sa.select(browser_sessions).where(_is_valid).order_by(_sessions.used_at.desc())
_of_user = _all.where(_sessions.principal == bindparam("who"))
_add = insert_new(
    browser_sessions, created_at=now(), used_at=now(), expires_at=now() + bindparam("longest", type_=sa.Double)
)
_use = (
    browser_sessions.update()
    .where(matching(browser_sessions, hash="h"), _sessions.used_at < now() - _USED_SECONDS)
    .values(used_at=now())
)
_delete_old = browser_sessions.delete().where(~_is_valid)
_end = (
    browser_sessions.delete()
    .where(matching(browser_sessions, id="of_id"))
    .returning(_sessions.principal, _sessions.conversation)
)


class SqlBrowserSessionStore(Store):
    """Sessions by their secret. `idle` and `longest` are the time limits in seconds."""

    def __init__(self, database: Database, idle: float = IDLE_SECONDS, longest: float = SESSION_SECONDS) -> None:
        super().__init__(database)
        self._idle = idle
        self._longest = longest

    async def create(self, author: Author, conversation: ConversationKey, rights: str) -> tuple[BrowserSession, str]:
        """Add a session. Return it with its secret."""
        secret = secrets.token_urlsafe(_BYTES)
        row = {"hash": hash_token(secret), "id": secrets.token_hex(_ID_BYTES), "rights": rights}
        user = {"principal": author.principal, "user_name": author.name, "conversation": str(conversation)}
        return await self._add({**row, **user}), secret

    @transaction
    def _add(self, connection: sa.Connection, row: Mapping[str, Any]) -> BrowserSession:
        """Add a session, and delete all that have ended."""
        connection.execute(_delete_old, {"idle": self._idle})
        if connection.execute(_add.on(connection), {**row, "longest": self._longest}).first() is not None:
            audit.record(
                connection, "began session", row["principal"], subject=row["id"], conversation=row["conversation"]
            )
        return _session_of(connection.execute(_by_hash, {"h": row["hash"], "idle": self._idle}).one())

    @transaction(rank="arrival")
    def find(self, connection: sa.Connection, secret: str) -> BrowserSession | None:
        """Return the session, `None` if it is not valid."""
        key = {"h": hash_token(secret)}
        row = connection.execute(_by_hash, {**key, "idle": self._idle}).first()
        if row is None:
            return None
        connection.execute(_use, key)
        try:
            return _session_of(row)
        except UNREADABLE:
            return None

    @transaction
    def sessions(self, connection: sa.Connection, principal: str = "") -> Sequence[BrowserSession]:
        """Return the sessions, the last used first."""
        values = {"idle": self._idle, **({"who": principal} if principal else {})}
        rows = connection.execute(_of_user if principal else _all, values)
        return [_session_of(row) for row in rows]

    @change_once
    def end(self, connection: sa.Connection, session_id: str, by: Author) -> bool:
        """End a session. Return False if it is missing."""
        row = connection.execute(_end, {"of_id": session_id}).first()
        if row is None:
            return False
        place = {"subject": session_id, "conversation": row.conversation}
        audit.record(connection, "ended session", by.principal, **place, person=row.principal)
        return True


def _session_of(row: Any) -> BrowserSession:
    platform, _colon, user = row.principal.partition(":")
    author = Author(platform, user, row.user_name)
    times = (row.created_at, row.used_at, row.expires_at)
    return BrowserSession(row.id, author, ConversationKey.parse(row.conversation), row.rights, *times)

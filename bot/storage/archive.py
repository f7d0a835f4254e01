"""What has happened, for people who look it up, on a database; see `bot.stores.Archive`; and what concerns them now,
see `bot.stores.Overview`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import Turn
from bot.storage import keeping, overviews, past_calls, past_conversations
from bot.storage.database import Database
from bot.storage.tables import audit
from bot.stores import AuditEntry, AwaitedCall, ConversationSummary, PastCall

# In the words of the index, which planners take only then.
_about = audit.c.subject != sa.literal_column("''")
_of_one = sa.and_(_about, audit.c.subject == bindparam("subject"))
_latest = (
    sa.select(audit.c.seq, audit.c.at, audit.c.kind, audit.c.actor, audit.c.body)
    .order_by(audit.c.seq.desc())
    .limit(bindparam("limit"))
    .offset(bindparam("offset"))
)
_count = sa.select(sa.func.count()).select_from(audit)


class SqlArchive:
    """Conversations, calls and the audit, page by page; what waits, and what somebody has asked."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def conversations(
        self, reach: str, person: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """A page of conversations, the latest first, and how many there are in all."""
        return await self._database.run(
            lambda connection: past_conversations.read_conversations(connection, reach, person, limit, offset)
        )

    async def took_part(self, conversation: ConversationKey, person: str) -> bool:
        """Whether this person has asked something there."""
        return await self._database.run(
            lambda connection: past_conversations.took_part(connection, conversation, person)
        )

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        deleted = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal deleted
            # After a COMMIT whose answer was lost there is none any more, and it was this that deleted it.
            deleted = keeping.delete_conversation(connection, conversation, by) or deleted
            return deleted

        return await self._database.run(transaction)

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[PastCall], int]:
        """A page of calls, the latest first, and how many there are in all. `server` may be an id as well."""
        return await self._database.run(
            lambda connection: past_calls.read_calls(connection, server, workspace, limit, offset)
        )

    async def running(self, server: str) -> int:
        """How many calls to a server's tools wait for a signature now. `server` is its id or slug."""
        return await self._database.run(lambda connection: past_calls.count_waiting(connection, server))

    async def audit(self, subject: str, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """A page of what was done to a server or profile, the latest first, and how many there are in all."""
        return await self._database.run(lambda connection: _read_audit(connection, subject, limit, offset))

    async def waiting(self, reach: str, limit: int) -> Sequence[AwaitedCall]:
        """Calls that wait for a signature, the latest first."""
        return await self._database.run(lambda connection: overviews.read_waiting(connection, reach, limit))

    async def asked(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """What a person has asked, the latest first."""
        return await self._database.run(lambda connection: overviews.read_asked(connection, person, reach, limit))


def _read_audit(connection: sa.Connection, subject: str, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
    condition, values = (_of_one, {"subject": subject}) if subject else (_about, {})
    rows = connection.execute(_latest.where(condition), {**values, "limit": limit, "offset": offset})
    count = connection.execute(_count.where(condition), values).scalar_one()
    return [AuditEntry(row.seq, row.at, row.kind, row.actor, _facts(row.body)) for row in rows], count


def _facts(body: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads(body)
    facts.pop("subject", None)
    return facts

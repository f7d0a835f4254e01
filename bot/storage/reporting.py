"""What has happened, for people who look it up, on a database; see `bot.ports.ReportingStore`; and what concerns them
now, see `bot.ports.UserActivity`; and where it goes on, see `bot.ports.ActiveThreads`.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import NO_TURN_LIMITS, Turn, TurnLimits
from bot.ports import Activity, Backlog, CallSummary, ConversationSummary, PendingApprovalPage, PendingApprovalPosition
from bot.storage import activity, audit_rows, backlog, call_reports, conversation_reports, retention, user_activity
from bot.storage.database import Database


class SqlReporting:
    """Conversations, calls and the audit, page by page; what waits, and what somebody has asked. `limits` are those on
    the turns of one person.
    """

    def __init__(self, database: Database, limits: TurnLimits = NO_TURN_LIMITS) -> None:
        self._database = database
        self._limits = limits

    async def conversations(
        self, reach: str, person: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """A page of conversations, the latest first, and how many there are in all."""
        return await self._database.run(
            lambda connection: conversation_reports.read_conversations(connection, reach, person, limit, offset)
        )

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """One conversation, None if there is none."""
        return await self._database.run(
            lambda connection: conversation_reports.read_conversation(connection, conversation)
        )

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Keep an empty conversation. False if there is one."""
        created = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal created
            # After a COMMIT whose answer was lost there is one, and it was this that made it.
            created = conversation_reports.create_conversation(connection, conversation, title) or created
            return created

        return await self._database.run(transaction)

    async def has_participant(self, conversation: ConversationKey, person: str) -> bool:
        """Whether this person has asked something there."""
        return await self._database.run(
            lambda connection: conversation_reports.has_participant(connection, conversation, person)
        )

    async def active_conversations(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """The conversations in which somebody asked something lately, the latest first."""
        return await self._database.run(
            lambda connection: conversation_reports.read_active(connection, reach, seconds, limit)
        )

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        deleted = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal deleted
            # After a COMMIT whose answer was lost there is none any more, and it was this that deleted it.
            deleted = retention.delete_conversation(connection, conversation, by) or deleted
            return deleted

        return await self._database.run(transaction)

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        """A page of calls, the latest first, and how many there are in all. `server` may be an id as well."""
        return await self._database.run(
            lambda connection: call_reports.read_calls(connection, server, workspace, limit, offset)
        )

    async def count_pending(self, server: str) -> int:
        """How many calls to a server's tools wait for a signature now. `server` is its id or slug."""
        return await self._database.run(lambda connection: call_reports.count_waiting(connection, server))

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """A page of the audit, the latest row first, and how many rows fit in all."""
        return await self._database.run(lambda connection: audit_rows.read_page(connection, query, limit, offset))

    async def backlog(self) -> Backlog:
        """How much there is to do now."""
        return await self._database.run(lambda connection: backlog.read_backlog(connection, self._limits.running))

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        """What has happened since then."""
        return await self._database.run(lambda connection: activity.read_activity(connection, since, workspace, server))

    async def pending_approvals(
        self, reaches: Sequence[str], limit: int, behind: PendingApprovalPosition | None = None
    ) -> PendingApprovalPage:
        """Return calls that wait for a signature, newest first."""
        return await self._database.run(
            lambda connection: user_activity.read_waiting(connection, reaches, limit, behind)
        )

    async def recent_turns(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """What a person has asked, the latest first."""
        return await self._database.run(
            lambda connection: user_activity.read_recent_turns(connection, person, reach, limit)
        )

    async def open_elicitations(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """The ids of what servers wait to hear from a person, the latest first."""
        return await self._database.run(
            lambda connection: user_activity.read_open_elicitations(connection, person, reach, limit)
        )

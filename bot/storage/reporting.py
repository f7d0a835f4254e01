"""Reports of past and current activity, on a database; see `bot.ports.ReportingStore`, `bot.ports.UserActivity` and
`bot.ports.ActiveThreads`.
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
    """Pages of conversations, calls and the audit, and the pending work and recent turns of a user. `limits` are those
    on the turns of one user.
    """

    def __init__(self, database: Database, limits: TurnLimits = NO_TURN_LIMITS) -> None:
        self._database = database
        self._limits = limits

    async def conversations(
        self, reach: str, person: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """Return a page of conversations, newest first, and the number of all."""
        return await self._database.read(
            lambda connection: conversation_reports.read_conversations(connection, reach, person, limit, offset)
        )

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """Return the summary of a conversation, `None` if it does not exist."""
        return await self._database.read(
            lambda connection: conversation_reports.read_conversation(connection, conversation)
        )

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Add an empty conversation. Return False if it exists."""
        created = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal created
            # After a lost COMMIT response the conversation exists, and this call created it.
            created = conversation_reports.create_conversation(connection, conversation, title) or created
            return created

        return await self._database.run(transaction)

    async def has_participant(self, conversation: ConversationKey, person: str) -> bool:
        """Return True if the user is the author of a turn in the conversation."""
        return await self._database.read(
            lambda connection: conversation_reports.has_participant(connection, conversation, person)
        )

    async def active_conversations(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """Return the recently active conversations, newest first."""
        return await self._database.read(
            lambda connection: conversation_reports.read_active(connection, reach, seconds, limit)
        )

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        deleted = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal deleted
            # After a lost COMMIT response the conversation is gone, and this call deleted it.
            deleted = retention.delete_conversation(connection, conversation, by) or deleted
            return deleted

        return await self._database.run(transaction)

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        """Return a page of calls, newest first, and the number of all. `server` is an id or a slug."""
        return await self._database.read(
            lambda connection: call_reports.read_calls(connection, server, workspace, limit, offset)
        )

    async def count_pending(self, server: str) -> int:
        """Return the number of calls to a server's tools that await approval. `server` is its id or slug."""
        return await self._database.read(lambda connection: call_reports.count_waiting(connection, server))

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """Return a page of the audit, newest first, and the number of all matching rows."""
        return await self._database.read(lambda connection: audit_rows.read_page(connection, query, limit, offset))

    async def backlog(self) -> Backlog:
        """Return the amount of unfinished work."""
        return await self._database.read(lambda connection: backlog.read_backlog(connection, self._limits.running))

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        """Return the activity since `since`, in epoch seconds."""
        return await self._database.read(
            lambda connection: activity.read_activity(connection, since, workspace, server)
        )

    async def pending_approvals(
        self, reaches: Sequence[str], limit: int, behind: PendingApprovalPosition | None = None
    ) -> PendingApprovalPage:
        """Return calls that await approval, newest first."""
        return await self._database.read(
            lambda connection: user_activity.read_waiting(connection, reaches, limit, behind)
        )

    async def recent_turns(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """Return a user's recent turns, newest first."""
        return await self._database.read(
            lambda connection: user_activity.read_recent_turns(connection, person, reach, limit)
        )

    async def open_elicitations(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """Return the ids of a user's open elicitations, newest first."""
        return await self._database.read(
            lambda connection: user_activity.read_open_elicitations(connection, person, reach, limit)
        )

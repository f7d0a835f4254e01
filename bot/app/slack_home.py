"""The bot's Home tab in Slack for one user, built from stored rows and server states.

Approvers and admins are looked up each time it is opened; the result is not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import time

from bot.app.pending_calls import read_if_readable
from bot.chat.approval_inbox import ReadPendingCalls
from bot.chat.home_message import SHOWN, Home
from bot.commands.dependencies import Rights
from bot.domain.conversations import Member
from bot.domain.servers import EVERYWHERE, ServerSnapshot
from bot.ports import ServerAdmin, UserActivity
from bot.ports.platform import OpenElicitation

FindQuestion = Callable[[str], Awaitable[OpenElicitation | None]]


@dataclass(frozen=True, slots=True)
class HomeTabBuilder:
    """Builder of Homes. `pending_calls` returns those that a user may decide, `inquiry` an open elicitation."""

    overview: UserActivity
    pending_calls: ReadPendingCalls
    inquiry: FindQuestion
    rights: Rights
    servers: ServerAdmin

    async def home(self, member: Member, here: str) -> Home:
        """Return one user's Home in a workspace, by its key. Raises CountersignError."""
        pending = await self.pending_calls(member, here, 0, SHOWN)
        elicitations = await self.overview.open_elicitations(member.author.principal, f"{here}:", SHOWN)
        questions = await asyncio.gather(*map(self._question, elicitations))
        return Home(
            time(),
            waiting=pending.calls,
            more_waiting=max(pending.count - SHOWN, 0),
            all_counted=pending.all_counted,
            inquiries=tuple(question for question in questions if question is not None),
            asked=await self.overview.recent_turns(member.author.principal, f"{here}:", SHOWN),
            servers=self._servers(here) if self.rights.administers(member) else None,
        )

    async def _question(self, elicitation_id: str) -> OpenElicitation | None:
        """Return the elicitation, None if it is no longer open."""
        elicitation = await read_if_readable(self.inquiry(elicitation_id))
        return elicitation if elicitation is not None and elicitation.elicitation.open else None

    def _servers(self, here: str) -> Sequence[ServerSnapshot]:
        return [state for state in self.servers.servers() if state.config.workspace in (EVERYWHERE, here)]

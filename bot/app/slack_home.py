"""The bot's Home tab in Slack for one user, built from stored rows and server states.

Approvers and admins are looked up each time it is opened; the result is not cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TypeVar

from bot.chat.home_message import SHOWN, Home, PendingApprovalSummary
from bot.commands.dependencies import Rights
from bot.domain.conversations import ConversationKey, Member
from bot.domain.elicitation_answers import OpenElicitation
from bot.domain.servers import EVERYWHERE, ServerSnapshot
from bot.domain.turns import StepStatus, ToolStep, Turn
from bot.engine.policy.rules import RuleBook, can_approve
from bot.errors import CountersignError
from bot.ports import ServerAdmin, UserActivity
from bot.ports.reporting import read_pending_approvals

log = logging.getLogger(__name__)

MOST_READ = 10_000
"""Pending calls of a workspace that are read for one Home, newest first."""

FindCall = Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]]
Found = TypeVar("Found")
FindQuestion = Callable[[str], Awaitable[OpenElicitation | None]]


@dataclass(frozen=True, slots=True)
class HomeTabBuilder:
    """Builder of the Homes of one workspace. `workspace` returns the token's workspace, `approval` the call of an
    approval, `inquiry` an open elicitation.
    """

    workspace: Callable[[], Awaitable[str]]
    overview: UserActivity
    approval: FindCall
    inquiry: FindQuestion
    rules: RuleBook
    rights: Rights
    servers: ServerAdmin

    async def home(self, member: Member) -> Home:
        """Return one user's Home. Raises CountersignError."""
        here = ConversationKey("slack", await self.workspace(), "", "").workspace_key
        theirs = await read_pending_approvals(
            self.overview, (f"{here}:",), partial(can_approve, self.rules, member), limit=MOST_READ, most_read=MOST_READ
        )
        calls = await asyncio.gather(*(self._call(call.approval_id) for call in theirs.calls[:SHOWN]))
        elicitations = await self.overview.open_elicitations(member.author.principal, f"{here}:", SHOWN)
        questions = await asyncio.gather(*map(self._question, elicitations))
        return Home(
            time(),
            waiting=tuple(call for call in calls if call is not None),
            more_waiting=len(theirs.calls[SHOWN:]),
            all_counted=theirs.behind is None,
            inquiries=tuple(question for question in questions if question is not None),
            asked=await self.overview.recent_turns(member.author.principal, f"{here}:", SHOWN),
            servers=self._servers(here) if self.rights.administers(member) else None,
        )

    async def _call(self, approval_id: str) -> PendingApprovalSummary | None:
        """Return the call, None if it is no longer pending."""
        call = await _readable(self.approval(approval_id))
        return PendingApprovalSummary(*call) if call is not None and call[1].status is StepStatus.AWAITING else None

    async def _question(self, elicitation_id: str) -> OpenElicitation | None:
        """Return the elicitation, None if it is no longer open."""
        elicitation = await _readable(self.inquiry(elicitation_id))
        return elicitation if elicitation is not None and elicitation.elicitation.open else None

    def _servers(self, here: str) -> Sequence[ServerSnapshot]:
        return [state for state in self.servers.servers() if state.config.workspace in (EVERYWHERE, here)]


async def _readable(looking: Awaitable[Found | None]) -> Found | None:
    """Return the result, None if it cannot be read: it must not hide other pending calls. Raises CountersignError."""
    try:
        return await looking
    except CountersignError:
        raise
    except Exception:
        log.exception("pending call is unreadable, left out of the Home")
        return None

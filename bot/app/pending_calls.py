"""The calls that wait for one user's approval, read for `/approvals` and Slack's Home.

Approvers are looked up each time; the result is not cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bot.chat.approval_inbox import PendingCall, PendingCalls
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus, Turn
from bot.engine.policy.rules import RuleBook, is_expected_approver
from bot.errors import CountersignError
from bot.ports import ApprovalLog, UserActivity
from bot.ports.platform import ApproverDirectory
from bot.ports.reporting import read_pending_approvals

log = logging.getLogger(__name__)

MOST_READ = 10_000
"""Pending calls of a workspace that are read for one list, the newest."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class PendingCallReader:
    """Reads pending calls. `directory` links to their cards; None without links. `is_direct` returns True for a direct
    conversation.
    """

    overview: UserActivity
    log: ApprovalLog
    rules: RuleBook
    directory: ApproverDirectory | None = None
    is_direct: Callable[[ConversationKey], bool] = lambda _conversation: False

    async def read(self, member: Member, workspace_key: str, start: int, count: int) -> PendingCalls:
        """Return the calls of a workspace that wait for this user, oldest first, from `start` on. Raises
        CountersignError.
        """
        theirs = await read_pending_approvals(
            self.overview,
            (f"{workspace_key}:",),
            partial(is_expected_approver, self.rules, member),
            limit=MOST_READ,
            most_read=MOST_READ,
        )
        ids = [call.approval_id for call in reversed(theirs.calls)]
        calls = await asyncio.gather(*map(self._call, ids[start : start + count]))
        return PendingCalls(tuple(call for call in calls if call is not None), len(ids), theirs.behind is None)

    async def _call(self, approval_id: str) -> PendingCall | None:
        """Return the call, None if it is no longer pending."""
        call = await read_if_readable(self.log.get_approval(approval_id))
        if call is None or call[1].status is not StepStatus.AWAITING:
            return None
        turn, step = call
        url = await self._card_url(turn, approval_id)
        return PendingCall(turn, step, url, self.is_direct(turn.conversation))

    async def _card_url(self, turn: Turn, approval_id: str) -> str:
        if self.directory is None:
            return ""
        view, refs = await self.log.get_view(turn.id), await self.log.get_message_refs(turn.id)
        return await self.directory.card_url(view, approval_id, refs)


async def read_if_readable(reading: Awaitable[Found | None]) -> Found | None:
    """Return the result, None if it cannot be read: it must not hide other pending calls. Raises CountersignError."""
    try:
        return await reading
    except CountersignError:
        raise
    except Exception:
        log.exception("pending call is unreadable, left out of the list")
        return None

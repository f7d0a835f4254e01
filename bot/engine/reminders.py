"""Approval reminders: one for each approval, at half of its time, if its requirements want it.

Every process that delivers polls for due reminders. The database assigns each to one process, at most once: after a
crash a reminder is lost, not repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from bot.domain.approvals import Approval, ChannelTarget, approval_targets
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import ToolStep, Turn
from bot.domain.views import Notice, NoticeTarget
from bot.engine.call_authorization import named_people
from bot.engine.rules import Rules
from bot.engine.surfaces import surface_for
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.ports import ApprovalLog, Surface

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
NOTICE_SECONDS = 30.0
BATCH = 20
MAX_RECIPIENTS = 20


class Reminders:
    """Background loop that sends due reminders to approvers."""

    def __init__(
        self,
        turn_log: ApprovalLog,
        surfaces: Sequence[Surface],
        rules: Callable[[ConversationKey], Rules],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._surfaces = surfaces
        self._rules = rules
        self._pause = pause

    async def run(self) -> None:
        """Poll and send until cancelled."""
        while True:
            try:
                await self.remind()
            except DatabaseUnavailable:
                pass  # logged by the database
            except Exception:  # an error must not stop later reminders
                log.exception("due reminders were not sent")
            await self._pause(POLL_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - jitter is no secret

    async def remind(self) -> None:
        """Send the reminders that are due."""
        key_prefixes = [surface.key_prefix for surface in self._surfaces]
        for turn, step in await self._log.take_reminders(key_prefixes, BATCH) if key_prefixes else ():
            await self._remind_approvers(turn, step)

    async def _remind_approvers(self, turn: Turn, step: ToolStep) -> None:
        surface = surface_for(self._surfaces, turn.conversation)
        if surface is None or step.approval is None:
            return
        signatories = self._rules(turn.conversation).signatories
        terms = step.approval.terms
        users = _approving_users(terms.approvers or (signatories.approvers,), step.approval)
        place = str(turn.conversation)
        targets = [NoticeTarget(place, user.partition(":")[2], private=True) for user in users[:MAX_RECIPIENTS]]
        notice = Notice(_reminder_text(step, step.approval.requested_for, signatories.needed(terms)))
        # Approvers without user ids are groups: remind all users in the card's channels.
        for target in targets or _card_channels(step.approval, turn.conversation):
            try:
                async with asyncio.timeout(NOTICE_SECONDS):
                    await surface.post_notice(target, notice)
            except (DeliveryFailed, TimeoutError) as error:
                log.warning("reminder for approval %s was not sent: %s", step.approval.id, error)


def _approving_users(approvers: Iterable[frozenset[str]], approval: Approval) -> list[str]:
    """Return the principals of the approvers who are named as users of the author's platform."""
    asker = approval.requested_for
    excluded = frozenset({asker.principal, *approval.editors}) if approval.terms.four_eyes else frozenset()
    return named_people(approvers, asker, excluded)


def _card_channels(approval: Approval, conversation: ConversationKey) -> list[NoticeTarget]:
    """Return notices to all users in the channels of the approval card."""
    channels = [target.id for target in approval_targets(approval) if isinstance(target, ChannelTarget)]
    conversations = [replace(conversation, channel=channel, thread="") for channel in channels]
    return [NoticeTarget(str(each)) for each in conversations or [conversation]]


def _reminder_text(step: ToolStep, asker: Author, needed: str) -> str:
    call_name = f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name
    suffix = f" ({step.approval.id[:8]})" if step.approval else ""
    return f"{call_name}{suffix}, which {asker.name} asked for, still awaits approval. It needs {needed}."

"""One reminder, half-way to the time when a question goes away, where its terms want one.

Run by the engine in every process that draws; which of them reminds is settled by the database, once and for all: a
process that dies in between leaves the people unreminded rather than reminded twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from bot.domain.approval_targets import ChannelTarget, approval_targets
from bot.domain.approvals import Approval
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import ToolStep, Turn
from bot.domain.views import Notice, NoticeTarget
from bot.engine.approval_routing import named_people
from bot.engine.rules import Rules
from bot.engine.surfaces import surface_for
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.ports import Surface, TurnLog

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
TELL_SECONDS = 30.0
AT_ONCE = 20
MOST_PEOPLE = 20


class Reminders:
    """Looks which questions are at half time and tells those who may sign, until cancelled."""

    def __init__(
        self,
        turn_log: TurnLog,
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
        """Look, remind, look again."""
        while True:
            try:
                await self.remind()
            except DatabaseUnavailable:
                pass  # the database itself says once that it is away
            except Exception:  # one question's trouble must not keep the others from being remembered
                log.exception("reminders could not be sent")
            await self._pause(LOOK_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - jitter is no secret

    async def remind(self) -> None:
        """Remind of what is due now."""
        reaches = [surface.key_prefix for surface in self._surfaces]
        for turn, step in await self._log.take_reminders(reaches, AT_ONCE) if reaches else ():
            await self._tell(turn, step)

    async def _tell(self, turn: Turn, step: ToolStep) -> None:
        surface = surface_for(self._surfaces, turn.conversation)
        if surface is None or step.approval is None:
            return
        signatories = self._rules(turn.conversation).signatories
        terms = step.approval.terms
        people = _people(terms.approvers or (signatories.approvers,), step.approval)
        place = str(turn.conversation)
        audiences = [NoticeTarget(place, each.partition(":")[2], private=True) for each in people[:MOST_PEOPLE]]
        notice = Notice(_words(step, step.approval.requested_for, signatories.needed(terms)))
        # Where those who may sign are groups, everybody hears it who is where the card stands.
        for audience in audiences or _around(step.approval, turn.conversation):
            try:
                async with asyncio.timeout(TELL_SECONDS):
                    await surface.post_notice(audience, notice)
            except (DeliveryFailed, TimeoutError) as error:
                log.warning("nobody could be reminded of approval %s: %s", step.approval.id, error)


def _people(approvers: Iterable[frozenset[str]], approval: Approval) -> list[str]:
    """The principals of those who could sign and are named as people of the platform on which it was asked."""
    asker = approval.requested_for
    barred = frozenset({asker.principal, *approval.editors}) if approval.terms.four_eyes else frozenset()
    return named_people(approvers, asker, barred)


def _around(approval: Approval, where: ConversationKey) -> list[NoticeTarget]:
    """Everybody in the channels where the card stands."""
    channels = [each.id for each in approval_targets(approval) if isinstance(each, ChannelTarget)]
    there = [replace(where, channel=channel, thread="") for channel in channels]
    return [NoticeTarget(str(each)) for each in there or [where]]


def _words(step: ToolStep, asker: Author, needed: str) -> str:
    called = f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name
    number = f" ({step.approval.id[:8]})" if step.approval else ""
    return f"{called}{number}, which {asker.name} asked for, still waits for a signature. It needs {needed}."

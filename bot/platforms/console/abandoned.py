"""Turns that killed chats left. Whoever starts next on the database runs them to their end, and says what they may have
done.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, StepStatus, ToolStep, TurnView
from bot.errors import NotFound
from bot.i18n import _, ngettext
from bot.platforms.console.turn_tracker import MOST_CONVERSATIONS
from bot.ports import TurnViews

log = logging.getLogger(__name__)


async def find_abandoned(turn_log: TurnViews, key_prefix: str) -> Sequence[TurnView]:
    """Return the turns with this key prefix that have begun, and whose process has ended."""
    return [
        await turn_log.get_view(turn_id) for turn_id in await turn_log.abandoned_turns(key_prefix, MOST_CONVERSATIONS)
    ]


def describe(view: TurnView) -> str:
    """Return what a turn may have done when its process ended, in one sentence."""
    name = view.turn.conversation.thread
    calls = [step for step in view.steps if isinstance(step, ToolStep) and step.status is StepStatus.STARTED]
    if not calls:
        return _("In conversation {name} a question was left without an answer: /open {name}", name=name)
    return ngettext(
        "In conversation {name} the program ended during a call, and it may have run: {calls}. /open {name}",
        "In conversation {name} the program ended during calls, and they may have run: {calls}. /open {name}",
        len(calls),
        name=name,
        calls=", ".join(f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name for step in calls),
    )


class AbandonedSurface:
    """Surface of a process without a terminal for the turns that killed chats left. They are logged."""

    min_interval = 1.0

    def __init__(self) -> None:
        self.key_prefixes: tuple[str, ...] = ()

    async def adopt(self, turn_log: TurnViews, key_prefix: str) -> None:
        """Show the turns that are left now."""
        views = await find_abandoned(turn_log, key_prefix)
        for view in views:
            log.warning("a chat has ended in a turn, which goes on here. %s", describe(view))
        self.key_prefixes = tuple(f"{view.turn.conversation}:" for view in views)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:  # noqa: ARG002 - of the protocol
        """Display nothing: the conversation shows it when it is opened."""
        nothing: Sequence[PostedMessage] = ()
        for posted in nothing:
            yield posted

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Display nothing."""

    async def member(self, author: Author, conversation: ConversationKey) -> Member:  # noqa: ARG002 - of the protocol
        """Return the user without rights, because a terminal alone knows them."""
        return Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Raise NotFound."""
        raise NotFound(_("The terminal has no upload {name}.", name=repr(attachment.name)))

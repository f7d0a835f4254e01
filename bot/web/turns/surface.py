"""HTTP as a Surface: conversations that programs hold with the bot, `api:WORKSPACE:TOKEN:THREAD`.

Nobody need be connected: the rows are the truth, and a drawing is out as soon as it was handed to those who follow the
turn, if there is anybody. A call that waits can be seen and signed over HTTP from that moment on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from bot.domain.api_clients import ApiClient
from bot.domain.conversations import HTTP, Attachment, Author, ConversationKey, Member
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.rendering.text_safety import single_line
from bot.web.turns.subscriptions import Subscriptions
from bot.web.turns.uploads import Uploads

log = logging.getLogger(__name__)

SLOT = "stream"
OUT = "out"
"""There is no message to be edited later: the reference says only that the turn was drawn."""
PACE_SECONDS = 0.05

FindCaller = Callable[[str], Awaitable[ApiClient | None]]
"""Whose token has this name, and what it is good for now; None if it is good for nothing."""


class ApiSurface:
    """Hands what is drawn to whoever follows. It stands before the stores are open: `know` says who calls."""

    key_prefix = f"{HTTP}:"
    min_interval = PACE_SECONDS

    def __init__(self, following: Subscriptions, uploads: Uploads) -> None:
        self.following = following
        self.uploads = uploads
        self._find_caller: asyncio.Future[FindCaller] = asyncio.get_running_loop().create_future()

    def know(self, find_caller: FindCaller) -> None:
        """From now on it can be told who somebody is."""
        self._find_caller.set_result(find_caller)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Hand the view on; it is out with that, whether anybody looks or not."""
        self.following.publish(view)
        if view.turn.status.ended:
            for attachment in view.turn.question.attachments:
                self.uploads.forget(attachment)
        yield PostedMessage(SLOT, refs.get(SLOT, OUT))

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """There is nobody to be told outside a turn: what waits is told by `GET /api/responses/approvals`."""
        log.info("%s: %s", audience.conversation, single_line(notice.text, 200))

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """The token of that name as it is now. One that is revoked, over or of another workspace has no rights, and
        counts as somebody from outside.
        """
        if author.platform == HTTP:
            find_caller = await asyncio.shield(self._find_caller)
            caller = await find_caller(author.id)
            if caller is not None and caller.covers_workspace(where.workspace_key):
                return caller.member
        return Member(author, external=True)

    async def fetch(self, attachment: Attachment) -> bytes:
        """An image that came with a question to this process. Raises NotFound."""
        return self.uploads.read(attachment)

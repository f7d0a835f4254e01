"""HTTP as a Surface: conversations of API clients, `api:WORKSPACE:TOKEN:THREAD`.

Delivery succeeds without a connected client: stored rows are the truth, and a view is delivered once it was published
to the subscribers. A pending call can be read and approved over HTTP from then on.
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
"""Message reference of a delivered turn; there is no message to edit."""
PACE_SECONDS = 0.05

FindCaller = Callable[[str], Awaitable[ApiClient | None]]
"""Return the API client with this token name and its current rights; None if the token is invalid."""


class ApiSurface:
    """Surface that publishes views to subscribers. Call `know` before members are looked up."""

    key_prefix = f"{HTTP}:"
    min_interval = PACE_SECONDS

    def __init__(self, following: Subscriptions, uploads: Uploads) -> None:
        self.following = following
        self.uploads = uploads
        self._find_caller: asyncio.Future[FindCaller] = asyncio.get_running_loop().create_future()

    def know(self, find_caller: FindCaller) -> None:
        """Set the lookup of API clients."""
        self._find_caller.set_result(find_caller)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Publish a view, with or without subscribers."""
        self.following.publish(view)
        if view.turn.status.ended:
            for attachment in view.turn.question.attachments:
                self.uploads.forget(attachment)
        yield PostedMessage(SLOT, refs.get(SLOT, OUT))

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Log the notice: API clients have no messages outside turns; `GET /api/responses/approvals` lists pending
        calls.
        """
        log.info("%s: %s", audience.conversation, single_line(notice.text, 200))

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Return the token's current member. A revoked or expired token, or one of another workspace, counts as a user
        from outside, without rights.
        """
        if author.platform == HTTP:
            find_caller = await asyncio.shield(self._find_caller)
            caller = await find_caller(author.id)
            if caller is not None and caller.covers_workspace(where.workspace_key):
                return caller.member
        return Member(author, external=True)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Return an image that this process received with the input. Raises NotFound."""
        return self.uploads.read(attachment)

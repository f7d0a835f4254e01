"""HTTP as a Surface: conversations that programs hold with the bot, `api:WORKSPACE:TOKEN:THREAD`.

Nobody need be connected: the rows are the truth, and a drawing is out as soon as it was handed to those who follow the
turn, if there is anybody. A call that waits can be seen and signed over HTTP from that moment on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from bot.domain.callers import Caller
from bot.domain.conversations import HTTP, Attachment, Author, ConversationKey, Member
from bot.domain.views import Audience, Drawn, Notice, Refs, TurnView
from bot.rendering.plain import one_line
from bot.web.turns.following import Following
from bot.web.turns.uploads import Uploads

log = logging.getLogger(__name__)

SLOT = "stream"
OUT = "out"
"""There is no message to be edited later: the reference says only that the turn was drawn."""
PACE_SECONDS = 0.05

FindCaller = Callable[[str], Awaitable[Caller | None]]
"""Whose token has this name, and what it is good for now; None if it is good for nothing."""


class ApiSurface:
    """Hands what is drawn to whoever follows. It stands before the stores are open: `know` says who calls."""

    reach = f"{HTTP}:"
    pace = PACE_SECONDS

    def __init__(self, following: Following, uploads: Uploads) -> None:
        self.following = following
        self.uploads = uploads
        self._find_caller: asyncio.Future[FindCaller] = asyncio.get_running_loop().create_future()

    def know(self, find_caller: FindCaller) -> None:
        """From now on it can be told who somebody is."""
        self._find_caller.set_result(find_caller)

    async def show(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
        """Hand the view on; it is out with that, whether anybody looks or not."""
        self.following.hand(view)
        if view.turn.status.ended:
            for attachment in view.turn.question.attachments:
                self.uploads.forget(attachment)
        yield Drawn(SLOT, refs.get(SLOT, OUT))

    async def tell(self, audience: Audience, notice: Notice) -> None:
        """There is nobody to be told outside a turn: what waits is told by `GET /api/responses/approvals`."""
        log.info("%s: %s", audience.conversation, one_line(notice.text, 200))

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """The token of that name as it is now. One that is revoked, over or of another workspace has no rights, and
        counts as somebody from outside.
        """
        if author.platform == HTTP:
            find_caller = await asyncio.shield(self._find_caller)
            caller = await find_caller(author.id)
            if caller is not None and caller.reaches(where.home):
                return caller.member
        return Member(author, external=True)

    async def fetch(self, attachment: Attachment) -> bytes:
        """An image that came with a question to this process. Raises NotFound."""
        return self.uploads.read(attachment)

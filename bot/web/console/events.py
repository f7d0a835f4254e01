"""Server-sent events of the pages: a turn as it grows, live lists, and changes of the list of waiting calls.

A page works without them. A stream ends after a while, and looks at the session again while it lasts, so that a user
who is gone sees nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bot.domain.locales import use_locale
from bot.errors import CountersignError
from bot.i18n import _
from bot.web.console.approval_pages import CALLS_A_PAGE, pending_state
from bot.web.console.command_pages import CommandPages, split_words
from bot.web.console.conversation_pages import ConversationPages
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.places import key_prefixes
from bot.web.console.rendering import HEADERS
from bot.web.console.request import ConsoleRequest, read_number
from bot.web.console.sessions import Sessions
from bot.web.problems import Problem

STREAM_SECONDS = 300.0
"""Seconds after which a browser asks for the stream again."""
CHECK_SECONDS = 10.0
"""Seconds between two looks at the session."""
POLL_SECONDS = 3.0
MOST_STREAMS = 8
"""Streams of one session in this process."""
_END = "event: end\ndata:\n\n"


def message(html: str) -> str:
    """Return an event without a name, whose data takes the place of its element's content."""
    return "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"


class _Events(StreamingResponse):
    """A stream that closes its generator, also if the browser leaves."""

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, 200, {**HEADERS}, "text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


class EventPages:
    """The streams."""

    def __init__(
        self,
        dependencies: ConsoleDependencies,
        sessions: Sessions,
        conversations: ConversationPages,
        commands: CommandPages,
    ) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._conversations = conversations
        self._commands = commands
        self._open: Counter[str] = Counter()

    async def events(self, call: ConsoleRequest) -> Response:
        """Follow a turn (`turn`), a live page (`live`, its command line), or the list of waiting calls (`approvals`,
        the state that the page has).
        """
        if self._open[call.viewer.session.id] >= MOST_STREAMS:
            raise Problem(429, "too_many_streams", _("Too many pages follow at once."), headers={"Retry-After": "30"})
        turn_id = call.form.get("turn")
        if turn_id:
            await self._conversations.find_view(call, turn_id)
            return _Events(self._counted(call, self._turn(call, turn_id)))
        read = self._list_reader(call) if call.form.get("live") else self._approvals_reader(call)
        return _Events(self._counted(call, self._polled(call, read)))

    async def _counted(self, call: ConsoleRequest, events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        session = call.viewer.session.id
        self._open[session] += 1
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            self._open[session] -= 1
            if not self._open[session]:
                del self._open[session]

    async def _turn(self, call: ConsoleRequest, turn_id: str) -> AsyncGenerator[str, None]:
        ends, checked = time.monotonic() + STREAM_SECONDS, time.monotonic()
        web = self._dependencies.web
        try:
            async with aclosing(web.surface.subscriptions.views(turn_id, web.engine.view)) as views:
                async for view in views:
                    if time.monotonic() - checked > CHECK_SECONDS:
                        if not await self._is_valid(call):
                            return
                        checked = time.monotonic()
                    with use_locale(call.viewer.locale):
                        html = await self._conversations.turn(call, view)
                    yield message(html)
                    if view.turn.status.ended:
                        yield _END
                        return
                    if time.monotonic() > ends:
                        return
        except CountersignError:
            yield _END

    def _list_reader(self, call: ConsoleRequest) -> Callable[[], Awaitable[str]]:
        words, known = split_words(call.form.get("live")), ""

        async def read() -> str:
            nonlocal known
            before, known = known, await self._commands.first_reply(call, *words)
            return f'{known}<div class="finished"></div>' if known not in ("", before) else ""

        return read

    def _approvals_reader(self, call: ConsoleRequest) -> Callable[[], Awaitable[str]]:
        known, page = call.form.get("approvals"), max(read_number(call.form.get("page")), 1)
        prefixes, start = key_prefixes(call.viewer), (page - 1) * CALLS_A_PAGE

        async def read() -> str:
            nonlocal known
            pending = await self._dependencies.read_pending(call.viewer.member, prefixes, start, CALLS_A_PAGE)
            before, known = known, pending_state(pending)
            return call.render("changed.html") if known != before else ""

        return read

    async def _polled(self, call: ConsoleRequest, read: Callable[[], Awaitable[str]]) -> AsyncGenerator[str, None]:
        """Yield the HTML that `read` returns from time to time, unless it is empty."""
        ends = time.monotonic() + STREAM_SECONDS
        yield ": \n\n"
        while time.monotonic() < ends and await self._is_valid(call):
            began = time.monotonic()
            with use_locale(call.viewer.locale):
                html = await read()
            if html:
                yield message(html)
            # A long list takes long to read: to follow it takes a twentieth of a core at most.
            await asyncio.sleep(max(POLL_SECONDS, 20 * (time.monotonic() - began)))

    async def _is_valid(self, call: ConsoleRequest) -> bool:
        try:
            return await self._sessions.is_current(call.viewer)
        except (CountersignError, Problem):
            return False

"""Following a turn from outside: its views, from wherever they can be had, until it has ended.

Views of turns that this process draws come at once (`Subscriptions.publish`, called by the surface); what another
process drives is read from the rows, once a second at most, however many follow it. Nothing waits for a follower:
whoever is slow gets the newest view when they are ready for it, and nobody's drawing is held up. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
from bot.errors import DatabaseUnavailable

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0

Read = Callable[[str], Awaitable[TurnView]]
"""Reads a turn as it stands on disk (`EngineApi.view`)."""


@dataclass(slots=True, eq=False)
class _Mailbox:
    """What a follower has not seen yet: one view, the newest."""

    newest: TurnView | None = None
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, view: TurnView) -> None:
        if self.newest is None or view.revision >= self.newest.revision:
            self.newest = view
            self.filled.set()

    def take(self) -> TurnView | None:
        view, self.newest = self.newest, None
        self.filled.clear()
        return view


@dataclass(slots=True, eq=False)
class _Followed:
    """A turn that somebody follows, and what was last read of it; `looked_at` is in the loop's seconds."""

    boxes: set[_Mailbox] = field(default_factory=set)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_disk: TurnView | None = None
    looked_at: float = 0.0


class Subscriptions:
    """Everybody in this process who follows a turn. `poll` is in seconds."""

    def __init__(self, poll: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._followed: dict[str, _Followed] = {}

    @property
    def followers(self) -> int:
        """How many there are."""
        return sum(len(each.boxes) for each in self._followed.values())

    def publish(self, view: TurnView) -> None:
        """Let those who follow this turn see it as it is drawn now; at once, and whoever is behind skips the views in
        between.
        """
        followed = self._followed.get(view.turn.id)
        for box in followed.boxes if followed is not None else ():
            box.put(view)

    async def views(self, turn_id: str, read: Read) -> AsyncGenerator[TurnView, None]:
        """The turn as it stands, then every newer view until it has ended; a row that cannot be read for now is tried
        again. To be closed by whoever leaves before that. Raises NotFound (also when it is deleted meanwhile).
        """
        with self._opened(turn_id) as (followed, box):
            last = await read(turn_id)
            yield last
            while not last.turn.status.ended:
                view = await self._next(followed, box, turn_id, read)
                if view is not None and _is_news(last, view):
                    last = view
                    yield view

    @contextlib.contextmanager
    def _opened(self, turn_id: str) -> Iterator[tuple[_Followed, _Mailbox]]:
        followed, box = self._followed.setdefault(turn_id, _Followed()), _Mailbox()
        followed.boxes.add(box)
        try:
            yield followed, box
        finally:
            followed.boxes.discard(box)
            if not followed.boxes and self._followed.get(turn_id) is followed:
                del self._followed[turn_id]

    async def _next(self, followed: _Followed, box: _Mailbox, turn_id: str, read: Read) -> TurnView | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await box.filled.wait()
        if (handed := box.take()) is not None:
            return handed
        try:
            on_disk = await self._look(followed, turn_id, read)
        except DatabaseUnavailable:
            return None  # the database itself says once that it is away
        # A live view that came meanwhile knows more than the rows of the same revision.
        handed = box.take()
        return handed if handed is not None and handed.revision >= on_disk.revision else on_disk

    async def _look(self, followed: _Followed, turn_id: str, read: Read) -> TurnView:
        """Read the turn, unless another follower of it just has."""
        loop = asyncio.get_running_loop()
        async with followed.looking:
            if followed.on_disk is None or loop.time() - followed.looked_at >= self._poll / 2:
                followed.on_disk = await read(turn_id)
                followed.looked_at = loop.time()
            return followed.on_disk


def _is_news(last: TurnView, view: TurnView) -> bool:
    """Whether a view tells more than the last one. Rows know nothing of the moment: where they are no newer, what was
    seen live of a reply or a call stays as it was.
    """
    if view.revision != last.revision:
        return view.revision > last.revision
    live = bool(view.streaming or view.running or view.progress or view.activity)
    queued = view.turn.status is TurnStatus.QUEUED and (view.ahead, view.blocker) != (last.ahead, last.blocker)
    return live or queued or view.turn.status is not last.turn.status

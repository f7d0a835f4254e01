"""Subscriptions to the views of a turn, until it has ended.

Views of turns that this process delivers arrive at once through `Subscriptions.publish`. Turns of other processes are
read from the database, at most once per poll interval for all subscribers. A slow subscriber gets only the newest view
and delays no others.
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
"""Reads the stored view of a turn (`EngineApi.view`)."""


@dataclass(slots=True, eq=False)
class _Mailbox:
    """The newest unread view of a subscriber."""

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
    """A turn with subscribers, and its last stored view; `looked_at` is in the loop's seconds."""

    boxes: set[_Mailbox] = field(default_factory=set)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_disk: TurnView | None = None
    looked_at: float = 0.0


class Subscriptions:
    """Subscribers of this process. `poll` is in seconds."""

    def __init__(self, poll: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._followed: dict[str, _Followed] = {}

    @property
    def followers(self) -> int:
        """Number of subscribers."""
        return sum(len(each.boxes) for each in self._followed.values())

    def publish(self, view: TurnView) -> None:
        """Publish a view to the subscribers of its turn. Slow subscribers skip views."""
        followed = self._followed.get(view.turn.id)
        for box in followed.boxes if followed is not None else ():
            box.put(view)

    async def views(self, turn_id: str, read: Read) -> AsyncGenerator[TurnView, None]:
        """Yield the current view, then newer ones until the turn has ended. Unreadable rows are read again later. Close
        the generator if you stop earlier. Raises NotFound, also if the turn is deleted meanwhile.
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
            return None  # the database logs its own outages
        # A live view received meanwhile is newer than rows of the same revision.
        handed = box.take()
        return handed if handed is not None and handed.revision >= on_disk.revision else on_disk

    async def _look(self, followed: _Followed, turn_id: str, read: Read) -> TurnView:
        """Read the turn, unless another subscriber has just read it."""
        loop = asyncio.get_running_loop()
        async with followed.looking:
            if followed.on_disk is None or loop.time() - followed.looked_at >= self._poll / 2:
                followed.on_disk = await read(turn_id)
                followed.looked_at = loop.time()
            return followed.on_disk


def _is_news(last: TurnView, view: TurnView) -> bool:
    """Return True if a view is newer than the last one. Rows lack live progress, so rows of the same revision are not
    newer.
    """
    if view.revision != last.revision:
        return view.revision > last.revision
    live = bool(view.streaming or view.running or view.progress or view.activity)
    queued = view.turn.status is TurnStatus.QUEUED and (view.ahead, view.blocker) != (last.ahead, last.blocker)
    return live or queued or view.turn.status is not last.turn.status

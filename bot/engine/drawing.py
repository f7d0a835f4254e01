"""Getting views out: the newest of each turn, at the pace of its platform, and again after a failure.

Two sources feed it: turns that this process drives hand in their views as they change, and the turn log names those
whose drawing is behind and that nobody drives. A drawing counts only when the surface has said that it is out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from bot.domain.views import TurnView
from bot.errors import DatabaseError, DeliveryFailed, NotFound
from bot.ports import Surface, TurnLog

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
BATCH = 20
RETRY_SECONDS = 5.0
GOODBYE_SECONDS = 3.0


class Drawings:
    """The drawings this process makes, one task a turn."""

    def __init__(
        self,
        turn_log: TurnLog,
        surfaces: Sequence[Surface],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._surfaces = surfaces
        self._pause = pause
        self._newest: dict[str, TurnView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refs: dict[str, dict[str, str]] = {}
        self._underway: dict[str, int] = {}
        self._kicked = asyncio.Event()

    def show(self, view: TurnView) -> None:
        """Draw this view, unless a newer one comes before its turn does."""
        turn_id = view.turn.id
        if self._surface_for(view) is None:
            return
        self._newest[turn_id] = view
        if turn_id not in self._tasks:
            self._tasks[turn_id] = asyncio.create_task(self._draw(turn_id), name=f"drawing:{turn_id}")

    def forget(self, turn_id: str) -> None:
        """Another process draws this turn now."""
        self._newest.pop(turn_id, None)

    def kick(self) -> None:
        """Something may be behind: look now."""
        self._kicked.set()

    async def run(self) -> None:
        """Catch up with what is behind, until cancelled; then let what is being drawn get out."""
        try:
            while True:
                self._kicked.clear()
                try:
                    for surface in self._surfaces:
                        await self._catch_up(surface)
                except DatabaseError as error:
                    log.warning("drawings wait for the database: %s", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._kicked.wait()
        finally:
            await self._say_goodbye()

    async def _catch_up(self, surface: Surface) -> None:
        for turn_id in await self._log.undrawn(surface.reach, BATCH):
            with contextlib.suppress(NotFound):
                view = await self._log.view(turn_id)
                if view.revision > self._underway.get(turn_id, -1):
                    self.show(view)

    async def _draw(self, turn_id: str) -> None:
        drawn_up_to = -1
        try:
            while (view := self._newest.pop(turn_id, None)) is not None:
                surface = self._surface_for(view)
                assert surface is not None
                self._underway[turn_id] = view.revision
                if await self._draw_once(surface, view) and view.revision > drawn_up_to:
                    drawn_up_to = view.revision
                    await self._log.drawn(turn_id, drawn_up_to)
                if turn_id in self._newest:
                    await self._pause(surface.pace)
        except DatabaseError as error:
            log.warning("turn %s will be drawn again: %s", turn_id, error)
        finally:
            self._tasks.pop(turn_id, None)
            self._refs.pop(turn_id, None)
            self._underway.pop(turn_id, None)

    async def _draw_once(self, surface: Surface, view: TurnView) -> bool:
        """Whether the view is out; if not, its time will come again."""
        turn_id = view.turn.id
        try:
            refs = self._refs.get(turn_id)
            if refs is None:
                refs = self._refs[turn_id] = dict(await self._log.refs(turn_id))
            async with contextlib.aclosing(surface.show(view, refs)) as out:
                async for drawn in out:
                    if refs.get(drawn.slot) != drawn.ref:
                        refs[drawn.slot] = drawn.ref
                        await self._log.keep(turn_id, drawn)
        except DeliveryFailed as failure:
            await self._failed(view, failure)
            return False
        except Exception:  # a surface's bug must not take the others' drawings along
            log.exception("drawing turn %s failed", turn_id)
            await self._log.postpone(turn_id, RETRY_SECONDS)
            return False
        return True

    async def _failed(self, view: TurnView, failure: DeliveryFailed) -> None:
        turn_id = view.turn.id
        log.warning("turn %s could not be drawn: %s", turn_id, failure)
        if failure.permanent:
            await self._log.abandon(turn_id, view.revision, str(failure))
            return
        seconds = failure.retry_after if failure.retry_after is not None else RETRY_SECONDS
        await self._log.postpone(turn_id, seconds)
        # A turn that is still driven has no one else to draw it: wait here, then draw what is newest by then.
        await self._pause(seconds)
        if not view.turn.status.ended:
            self._newest.setdefault(turn_id, view)

    async def _say_goodbye(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=GOODBYE_SECONDS)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _surface_for(self, view: TurnView) -> Surface | None:
        key = str(view.turn.conversation)
        return next((surface for surface in self._surfaces if key.startswith(surface.reach)), None)

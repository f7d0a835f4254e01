"""Getting views out: the newest of each turn, at the pace of its platform, and again after a failure.

Two sources feed it: turns that this process drives hand in their views as they change, and the turn log names those
whose drawing is behind and in nobody's hands. A drawing counts only when the surface has said that it is out, and
only the process that has taken a turn's drawing in hand makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from bot.domain.views import TurnView
from bot.errors import DatabaseError, DeliveryFailed, LostLease, NotFound
from bot.ports import Surface, TurnLog

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
HOLD_SECONDS = 4.0
BATCH = 20
RETRY_SECONDS = 5.0
ELSEWHERE_SECONDS = 0.5
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
        self._driven: set[str] = set()
        self._refs: dict[str, dict[str, str]] = {}
        self._leased: set[str] = set()
        self._underway: dict[str, int] = {}
        self._kicked = asyncio.Event()
        self._suspended = False

    def begin(self, turn_id: str) -> None:
        """This turn is driven here, and nobody has ever drawn it."""
        self._refs[turn_id] = {}

    def show(self, view: TurnView) -> None:
        """Draw this view of a turn that is driven here, unless a newer one comes before its turn does."""
        self._driven.add(view.turn.id)
        self._put_up(view)

    def settle(self, turn_id: str) -> None:
        """The turn is no longer driven here: what is in hand gets out, then anybody may draw it."""
        self._driven.discard(turn_id)
        if turn_id in self._refs and turn_id not in self._tasks:
            self._begin(turn_id)

    def forget(self, turn_id: str) -> None:
        """Another process drives this turn now: nothing more of it is drawn here."""
        self._newest.pop(turn_id, None)
        self.settle(turn_id)

    def kick(self) -> None:
        """Something may be behind: look now."""
        self._kicked.set()

    def suspend(self) -> None:
        """Nobody knows whether turns are still ours: draw nothing until that is clear."""
        self._suspended = True

    def resume(self) -> None:
        """What is still held is ours after all."""
        if self._suspended:
            self._suspended = False
            for turn_id in {*self._newest, *(self._refs.keys() - self._driven)}:
                self._begin(turn_id)

    async def run(self) -> None:
        """Catch up with what is behind, until cancelled; then let what is being drawn get out."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._catch_up_forever(), name="catch-up")
                group.create_task(self._hold_forever(), name="hold")
        finally:
            await self._say_goodbye()

    # ------------------------------------------------------------------ catching up

    async def _catch_up_forever(self) -> None:
        while True:
            self._kicked.clear()
            with contextlib.suppress(DatabaseError):  # the database itself says once that it is away
                for surface in self._surfaces:
                    await self._catch_up(surface)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._kicked.wait()

    async def _catch_up(self, surface: Surface) -> None:
        for turn_id in await self._log.undrawn(surface.reach, BATCH):
            with contextlib.suppress(NotFound):
                view = await self._log.view(turn_id)
                if view.revision > self._underway.get(turn_id, -1):
                    self._put_up(view)

    async def _hold_forever(self) -> None:
        while True:
            await self._pause(HOLD_SECONDS)
            held = list(self._leased)
            with contextlib.suppress(DatabaseError):
                kept = await self._log.hold(held) if held else frozenset()
                for turn_id in held:
                    if turn_id not in kept and turn_id in self._leased:
                        self._lose(turn_id)
                        self._newest.pop(turn_id, None)

    # ------------------------------------------------------------------ drawing

    def _put_up(self, view: TurnView) -> None:
        if self._surface_for(view) is None:
            return
        self._newest[view.turn.id] = view
        self._begin(view.turn.id)

    def _begin(self, turn_id: str) -> None:
        if turn_id not in self._tasks and not self._suspended:
            self._tasks[turn_id] = asyncio.create_task(self._draw(turn_id), name=f"drawing:{turn_id}")

    async def _draw(self, turn_id: str) -> None:
        drawn_up_to = -1
        last: TurnView | None = None
        try:
            while not self._suspended and (view := self._newest.pop(turn_id, None)) is not None:
                last = view
                surface = self._surface_for(view)
                assert surface is not None
                self._underway[turn_id] = view.revision
                if await self._draw_once(surface, view) and view.revision > drawn_up_to and self._counts(view):
                    drawn_up_to = view.revision
                    if await self._log.drawn(turn_id, drawn_up_to):
                        self._leased.add(turn_id)
                    else:
                        self._lose(turn_id)
                if turn_id in self._newest:
                    await self._pause(surface.pace)
        except LostLease:
            self._lose(turn_id)
            if turn_id in self._driven and last is not None:
                # Another process still draws what it showed of this turn before: it will have done in a moment.
                self._newest.setdefault(turn_id, last)
                await self._pause(ELSEWHERE_SECONDS)
        except DatabaseError as error:
            log.warning("turn %s will be drawn again: %s", turn_id, error)
        finally:
            self._underway.pop(turn_id, None)
            try:
                await self._let_go(turn_id)
            finally:
                self._tasks.pop(turn_id, None)
                if turn_id in self._newest:
                    self._begin(turn_id)

    def _counts(self, view: TurnView) -> bool:
        """Whether it must be on disk that this is out: its end is owed to somebody, a card's time begins to run. In
        between, whoever drives the turn draws it again anyway.
        """
        return view.turn.id not in self._driven or view.turn.status.ended or bool(view.awaiting)

    async def _let_go(self, turn_id: str) -> None:
        """Hand the drawing back, unless more is to come from here."""
        if turn_id in self._driven or turn_id in self._newest or turn_id not in self._refs:
            return
        await self._put_down(turn_id)

    async def _put_down(self, turn_id: str) -> None:
        leased = turn_id in self._leased
        self._lose(turn_id)
        if leased:
            with contextlib.suppress(DatabaseError):
                await self._log.put_down(turn_id)

    def _lose(self, turn_id: str) -> None:
        """The drawing is not in hand any more."""
        self._refs.pop(turn_id, None)
        self._leased.discard(turn_id)

    async def _draw_once(self, surface: Surface, view: TurnView) -> bool:
        """Whether the view is out; if not, its time will come again. Raises LostLease."""
        turn_id = view.turn.id
        try:
            refs = self._refs.get(turn_id)
            if refs is None:
                refs = self._refs[turn_id] = dict(await self._log.take(turn_id))
                self._leased.add(turn_id)
            async with contextlib.aclosing(surface.show(view, refs)) as out:
                async for drawn in out:
                    if refs.get(drawn.slot) != drawn.ref:
                        await self._log.keep(turn_id, drawn)
                        refs[drawn.slot] = drawn.ref
                        self._leased.add(turn_id)
        except DeliveryFailed as failure:
            await self._failed(view, failure)
            return False
        except (LostLease, DatabaseError):
            raise
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
        if turn_id in self._driven:
            # Nobody else draws a turn that is driven here: wait, then draw what is newest by then.
            await self._pause(seconds)
            self._newest.setdefault(turn_id, view)
        else:
            # The log names it again when its time has come, to whichever process is there then.
            self._newest.pop(turn_id, None)

    async def _say_goodbye(self) -> None:
        self._driven.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while self._tasks:
                    await asyncio.wait(set(self._tasks.values()))
        self._suspended = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for turn_id in list(self._refs):
            await self._put_down(turn_id)

    def _surface_for(self, view: TurnView) -> Surface | None:
        key = f"{view.turn.conversation}:"
        return next((surface for surface in self._surfaces if key.startswith(surface.reach)), None)

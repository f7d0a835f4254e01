"""Getting views out: the newest of each turn, at the pace of its platform, and again after a failure.

Two sources feed it: turns that this process drives hand in their views as they change, and the turn log names those
whose drawing is behind and in nobody's hands. A drawing counts only when the surface has said that it is out, and
only the process that has taken a turn's drawing in hand makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from bot.domain.metrics import Delivered, DeliveryOutcome, MetricSink, null_sink
from bot.domain.turns import Step, StepStatus, ToolStep, TurnStatus
from bot.domain.views import Notice, NoticeTarget, TurnView
from bot.engine.monotonic_clock import monotonic
from bot.engine.surfaces import surface_for
from bot.errors import DatabaseError, DeliveryFailed, LostLease, NotFound
from bot.logs import in_context
from bot.ports import Surface, TurnLog

# -------------------- undeliverable notices
# What is said in private where nothing else can be said: the end of a turn that can never be drawn where it was
# asked.
#
# Called by whoever draws, once a drawing has been given up. What is drawn in the conversation after all, such as a
# call that was turned down because its card could not be posted, needs no words beside it.

TELL_SECONDS = 30.0
QUESTION_LIMIT = 200
REMEMBERED = 1000

UNANSWERED = "I could not answer you where you asked “{question}”. {cause}"
NOT_RUN = "What needed an approval there was not run."


class UndeliverableNotices:
    """Tells whoever asked, once a turn as far as this process knows, and at the first try or never."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, None] = OrderedDict()

    async def notify_author(self, surface: Surface, view: TurnView, failure: DeliveryFailed) -> None:
        """The drawing of this view was given up. Never raises: there is nobody left to tell."""
        turn = view.turn
        # Whoever has stopped a turn waits for no answer.
        if turn.status not in (TurnStatus.DONE, TurnStatus.FAILED) or turn.id in self._told:
            return
        self._told[turn.id] = None
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        audience = NoticeTarget(str(turn.conversation), turn.author.id, private=True)
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await surface.post_notice(audience, Notice(_words(view, failure)))
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("who asked for turn %s could not be told that it cannot be shown: %s", turn.id, error)
        except Exception:  # a surface's bug must not take the drawing along
            log.exception("who asked for turn %s could not be told that it cannot be shown", turn.id)


def _words(view: TurnView, failure: DeliveryFailed) -> str:
    question = " ".join(view.turn.question.text.split())
    if len(question) > QUESTION_LIMIT:
        question = question[: QUESTION_LIMIT - 1].rstrip() + "…"
    said = UNANSWERED.format(question=question, cause=failure.cause)
    return f"{said} {NOT_RUN}" if any(map(_unshown, view.steps)) else said


def _unshown(step: Step) -> bool:
    """Whether a call was turned down by nobody: its card could not be posted."""
    return (
        isinstance(step, ToolStep)
        and step.status is StepStatus.DENIED
        and step.approval is not None
        and not step.approval.decided_by
    )


log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
HOLD_SECONDS = 4.0
BATCH = 20
SHOW_SECONDS = 60.0
"""How long a platform gets for each message of a drawing."""
RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 300.0
ELSEWHERE_SECONDS = 0.5
GOODBYE_SECONDS = 3.0
PUT_DOWN_SECONDS = 1.0


class ViewDelivery:
    """The drawings this process makes, one task a turn. `on_settled` hears of turns with calls that were turned down
    because their cards cannot be posted.
    """

    def __init__(
        self,
        turn_log: TurnLog,
        surfaces: Sequence[Surface],
        *,
        on_settled: Callable[[str], None] = lambda _turn_id: None,
        observe: MetricSink = null_sink,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._log = turn_log
        self._surfaces = surfaces
        self._on_settled = on_settled
        self._observe = observe
        self._pause = pause
        self._clock = clock
        self._held_at = clock()
        self._excuses = UndeliverableNotices()
        self._holding = asyncio.Lock()
        self._failures: dict[str, int] = {}
        self._newest: dict[str, TurnView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._driven: set[str] = set()
        self._refs: dict[str, dict[str, str]] = {}
        self._leased: set[str] = set()
        self._underway: dict[str, TurnView] = {}
        self._speechless: dict[str, asyncio.Future[None]] = {}
        self._kicked = asyncio.Event()
        self._suspended = False

    def begin(self, turn_id: str) -> None:
        """This turn is driven here, and nobody has ever drawn it: its drawing was taken with the claim."""
        self._refs[turn_id] = {}
        self._leased.add(turn_id)

    def deliver(self, view: TurnView) -> None:
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

    def wake(self) -> None:
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
        for turn_id in await self._log.stale_views(surface.key_prefix, BATCH):
            underway = self._underway.get(turn_id)
            if underway is not None and underway.turn.status.ended:
                continue  # nothing newer is to be read; should there be, it is found behind the next time
            view = await self._read(turn_id)
            # Read before it is looked at again: a drawing may have begun meanwhile.
            underway = self._underway.get(turn_id)
            if view is not None and (underway is None or view.revision > underway.revision):
                self._put_up(view)

    async def _read(self, turn_id: str) -> TurnView | None:
        """The view of a turn; None if it is gone, or if it cannot be read, which must not keep others undrawn."""
        try:
            return await self._log.get_view(turn_id)
        except DatabaseError:
            raise
        except NotFound:
            return None
        except Exception:
            log.exception("turn %s cannot be read", turn_id)
            await self._log.retry_delivery_at(turn_id, self._next_pause(turn_id))
            return None

    async def _hold_forever(self) -> None:
        while True:
            await self._pause(HOLD_SECONDS)
            async with self._holding:
                with contextlib.suppress(DatabaseError):
                    await self._hold()

    async def _hold(self) -> None:
        asked_at = self._clock()
        held = list(self._leased)
        kept = await self._log.renew_deliveries(held) if held else frozenset()
        for turn_id in held:
            if turn_id not in kept and turn_id in self._leased:
                self._lose(turn_id)
                self._newest.pop(turn_id, None)
        self._held_at = asked_at

    def _is_certain(self) -> bool:
        """Whether what is in hand cannot have become another's: this process may have slept, or its database."""
        lease = self._log.lease_seconds
        return lease is None or self._clock() - self._held_at < lease - HOLD_SECONDS

    async def _make_certain(self, turn_id: str) -> None:
        """Wait until it is known that the drawing is still in hand. Raises LostLease."""
        while not self._is_certain():
            async with self._holding:
                if self._is_certain():
                    break
                try:
                    await self._hold()
                except DatabaseError:
                    await self._pause(POLL_SECONDS)
        if turn_id not in self._leased:
            raise LostLease(turn_id)

    # ------------------------------------------------------------------ drawing

    def _put_up(self, view: TurnView) -> None:
        turn_id = view.turn.id
        # While one is drawn the next is looked at when its time has come: most never are.
        if turn_id not in self._tasks and self._surface_for(view) is None:
            return
        self._newest[turn_id] = view
        if view.streaming and (waiting := self._speechless.pop(turn_id, None)) is not None:
            waiting.cancel()
        self._begin(turn_id)

    def _begin(self, turn_id: str) -> None:
        if turn_id not in self._tasks and not self._suspended:
            with in_context(turn=turn_id):
                self._tasks[turn_id] = asyncio.create_task(self._draw(turn_id), name=f"drawing:{turn_id}")

    async def _draw(self, turn_id: str) -> None:
        drawn_up_to = -1
        last: TurnView | None = None
        try:
            while not self._suspended and (view := self._newest.pop(turn_id, None)) is not None:
                last = view
                surface = self._surface_for(view)
                if surface is None:
                    break  # it has moved on
                self._underway[turn_id] = view
                if await self._draw_once(surface, view) and view.revision > drawn_up_to and self._counts(view):
                    drawn_up_to = view.revision
                    if await self._log.mark_delivered(turn_id, drawn_up_to):
                        self._leased.add(turn_id)
                    else:
                        self._lose(turn_id)
                if (newest := self._newest.get(turn_id)) is not None:
                    await self._keep_pace(surface, view, newest)
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

    async def _keep_pace(self, surface: Surface, view: TurnView, newest: TurnView) -> None:
        """Wait between two drawings. The first words of a reply wait for nothing."""
        if view.streaming:
            await self._pause(surface.min_interval)
        elif not newest.streaming:
            turn_id = view.turn.id
            waiting = self._speechless[turn_id] = asyncio.ensure_future(self._pause(surface.min_interval))
            try:
                await asyncio.wait({waiting})
            finally:
                waiting.cancel()
                self._speechless.pop(turn_id, None)

    def _counts(self, view: TurnView) -> bool:
        """Whether it must be on disk that this is out: its end is owed to somebody, a card's time begins to run. In
        between, whoever drives the turn draws it again anyway.
        """
        waits = view.awaiting or view.asks
        return view.turn.id not in self._driven or view.turn.status.ended or bool(waits)

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
                await self._log.release_delivery(turn_id)

    def _lose(self, turn_id: str) -> None:
        """The drawing is not in hand any more."""
        self._refs.pop(turn_id, None)
        self._leased.discard(turn_id)

    async def _draw_once(self, surface: Surface, view: TurnView) -> bool:
        """Whether the view is out; if not, its time will come again. Raises LostLease."""
        turn_id = view.turn.id
        began = self._clock()
        try:
            refs = self._refs.get(turn_id)
            if refs is None:
                refs = self._refs[turn_id] = dict(await self._log.acquire_delivery(turn_id, view.revision))
                self._leased.add(turn_id)
                view = await self._brought_up_to_date(view)
            await self._make_certain(turn_id)
            await self._show(surface, view, refs)
        except DeliveryFailed as failure:
            await self._failed(surface, view, failure, began)
            return False
        except TimeoutError:
            silence = DeliveryFailed(f"The platform gave no answer within {SHOW_SECONDS:.0f} s.")
            await self._failed(surface, view, silence, began)
            return False
        except (LostLease, DatabaseError):
            raise
        except Exception:  # a surface's bug must not take the others' drawings along
            log.exception("drawing turn %s failed", turn_id)
            self._measure(view, "delayed", began)
            await self._log.retry_delivery_at(turn_id, self._next_pause(turn_id))
            return False
        self._failures.pop(turn_id, None)
        self._measure(view, "drawn", began)
        return True

    async def _brought_up_to_date(self, view: TurnView) -> TurnView:
        """The view, or what the process that had the drawing until now has made of the turn since: it may have shown
        that already.
        """
        with contextlib.suppress(NotFound):
            on_disk = await self._log.get_view(view.turn.id)
            return on_disk if on_disk.revision > view.revision else view
        return view

    async def _show(self, surface: Surface, view: TurnView, refs: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        view = replace(view, read=partial(self._log.get_file, view.turn.id))
        async with (
            asyncio.timeout(SHOW_SECONDS) as limit,
            contextlib.aclosing(surface.deliver(view, refs)) as out,
        ):
            async for drawn in out:
                if refs.get(drawn.slot) != drawn.ref:
                    # What is out must be remembered, however long the database takes.
                    limit.reschedule(None)
                    await self._log.save_message_ref(view.turn.id, drawn)
                    refs[drawn.slot] = drawn.ref
                    # If the database was away, the drawing may be anybody's by now: before more of it is posted.
                    await self._make_certain(view.turn.id)
                limit.reschedule(loop.time() + SHOW_SECONDS)

    def _next_pause(self, turn_id: str) -> float:
        """How long to wait after a failure that named no time, longer after each."""
        self._failures[turn_id] = failures = self._failures.get(turn_id, 0) + 1
        return float(min(RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS))

    async def _failed(self, surface: Surface, view: TurnView, failure: DeliveryFailed, began: float) -> None:
        turn_id = view.turn.id
        log.warning("turn %s could not be drawn: %s", turn_id, failure)
        if failure.permanent:
            self._failures.pop(turn_id, None)
            turned_down = await self._log.give_up_delivery(turn_id, view.revision, failure.cause)
            self._measure(view, "given up", began)
            if turned_down:
                self._on_settled(turn_id)
                self.wake()
            await self._excuses.notify_author(surface, view, failure)
            return
        self._measure(view, "delayed", began)
        seconds = failure.retry_after if failure.retry_after is not None else self._next_pause(turn_id)
        await self._log.retry_delivery_at(turn_id, seconds)
        if turn_id in self._driven:
            # Nobody else draws a turn that is driven here: wait, then draw what is newest by then.
            await self._pause(seconds)
            self._newest.setdefault(turn_id, view)
        else:
            # The log names it again when its time has come, to whichever process is there then.
            self._newest.pop(turn_id, None)

    def _measure(self, view: TurnView, outcome: DeliveryOutcome, began: float) -> None:
        self._observe(Delivered(view.turn.conversation.platform, outcome, self._clock() - began))

    async def _say_goodbye(self) -> None:
        self._driven.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while self._tasks:
                    await asyncio.wait(set(self._tasks.values()))
        self._suspended = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PUT_DOWN_SECONDS):
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)
                # What cannot be put down is anybody's a lease later.
                await asyncio.gather(*(self._put_down(turn_id) for turn_id in list(self._refs)))

    def _surface_for(self, view: TurnView) -> Surface | None:
        return surface_for(self._surfaces, view.turn.conversation)

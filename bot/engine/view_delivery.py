"""View delivery: posts the newest view of each turn at its platform's rate, with retries.

Views come from the turns that run here, and from the turn log for stale views that no process delivers. A view is
stored as delivered once the surface has finished. Only the process with a turn's delivery lease posts its messages.
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

NOTICE_SECONDS = 30.0
QUESTION_LIMIT = 200
MAX_NOTIFIED = 1000

UNANSWERED = "I could not answer you where you asked “{question}”. {cause}"
NOT_RUN = "What needed an approval there was not run."


class UndeliverableNotices:
    """Private notices to authors whose answers cannot be posted. Each turn gets at most one, without a retry."""

    def __init__(self) -> None:
        self._notified: OrderedDict[str, None] = OrderedDict()

    async def notify_author(self, surface: Surface, view: TurnView, failure: DeliveryFailed) -> None:
        """Notify the author of an undeliverable view. Never raises."""
        turn = view.turn
        # An author who stopped the turn expects no answer.
        if turn.status not in (TurnStatus.DONE, TurnStatus.FAILED) or turn.id in self._notified:
            return
        self._notified[turn.id] = None
        while len(self._notified) > MAX_NOTIFIED:
            self._notified.popitem(last=False)
        audience = NoticeTarget(str(turn.conversation), turn.author.id, private=True)
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await surface.post_notice(audience, Notice(_notice_text(view, failure)))
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("turn %s: author not notified of the undeliverable view: %s", turn.id, error)
        except Exception:  # a surface's bug must not stop the delivery
            log.exception("turn %s: author not notified of the undeliverable view", turn.id)


def _notice_text(view: TurnView, failure: DeliveryFailed) -> str:
    question = " ".join(view.turn.question.text.split())
    if len(question) > QUESTION_LIMIT:
        question = question[: QUESTION_LIMIT - 1].rstrip() + "…"
    text = UNANSWERED.format(question=question, cause=failure.cause)
    return f"{text} {NOT_RUN}" if any(map(_is_undelivered_call, view.steps)) else text


def _is_undelivered_call(step: Step) -> bool:
    """Return True if the call was denied because its approval card could not be posted."""
    return (
        isinstance(step, ToolStep)
        and step.status is StepStatus.DENIED
        and step.approval is not None
        and not step.approval.decided_by
    )


log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
RENEW_SECONDS = 4.0
BATCH = 20
DELIVERY_SECONDS = 60.0
"""Time limit, in seconds, of each message."""
RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 300.0
LOST_LEASE_SECONDS = 0.5
SHUTDOWN_SECONDS = 3.0
RELEASE_SECONDS = 1.0


class ViewDelivery:
    """Delivery of views by this process, in one task a turn. `on_settled` gets the ids of turns with calls that were
    denied because their cards could not be posted.
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
        self._renewed_at = clock()
        self._notices = UndeliverableNotices()
        self._renewal_lock = asyncio.Lock()
        self._failures: dict[str, int] = {}
        self._newest: dict[str, TurnView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: set[str] = set()
        self._refs: dict[str, dict[str, str]] = {}
        self._leased: set[str] = set()
        self._in_delivery: dict[str, TurnView] = {}
        self._interval_waits: dict[str, asyncio.Future[None]] = {}
        self._look_now = asyncio.Event()
        self._suspended = False

    def begin(self, turn_id: str) -> None:
        """Prepare a new turn that runs here. Its delivery lease came with the claim."""
        self._refs[turn_id] = {}
        self._leased.add(turn_id)

    def deliver(self, view: TurnView) -> None:
        """Deliver this view of a turn that runs here, unless a newer one replaces it before."""
        self._running.add(view.turn.id)
        self._enqueue(view)

    def settle(self, turn_id: str) -> None:
        """Stop expecting views of this turn: deliver the last one, then release the lease."""
        self._running.discard(turn_id)
        if turn_id in self._refs and turn_id not in self._tasks:
            self._begin(turn_id)

    def forget(self, turn_id: str) -> None:
        """Drop the views of a turn that another process runs now."""
        self._newest.pop(turn_id, None)
        self.settle(turn_id)

    def wake(self) -> None:
        """Look for stale views now."""
        self._look_now.set()

    def suspend(self) -> None:
        """Pause delivery while the turns' leases are uncertain."""
        self._suspended = True

    def resume(self) -> None:
        """Continue delivery of the turns that are still held."""
        if self._suspended:
            self._suspended = False
            for turn_id in {*self._newest, *(self._refs.keys() - self._running)}:
                self._begin(turn_id)

    async def run(self) -> None:
        """Deliver stale views until cancelled, then finish the deliveries in progress."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._catch_up_forever(), name="catch-up")
                group.create_task(self._renew_forever(), name="leases")
        finally:
            await self._shut_down()

    # ------------------------------------------------------------------ stale views

    async def _catch_up_forever(self) -> None:
        while True:
            self._look_now.clear()
            with contextlib.suppress(DatabaseError):  # logged by the database
                for surface in self._surfaces:
                    await self._catch_up(surface)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._look_now.wait()

    async def _catch_up(self, surface: Surface) -> None:
        for turn_id in await self._log.stale_views(surface.key_prefix, BATCH):
            current = self._in_delivery.get(turn_id)
            if current is not None and current.turn.status.ended:
                continue  # a newer view, if any, is stale at the next poll
            view = await self._read(turn_id)
            # Looked up again because a delivery may have started during the read.
            current = self._in_delivery.get(turn_id)
            if view is not None and (current is None or view.revision > current.revision):
                self._enqueue(view)

    async def _read(self, turn_id: str) -> TurnView | None:
        """Return the view of a turn; None if it is missing or unreadable."""
        try:
            return await self._log.get_view(turn_id)
        except DatabaseError:
            raise
        except NotFound:
            return None
        except Exception:
            log.exception("turn %s: view cannot be read, retry scheduled", turn_id)
            await self._log.retry_delivery_at(turn_id, self._next_pause(turn_id))
            return None

    async def _renew_forever(self) -> None:
        while True:
            await self._pause(RENEW_SECONDS)
            async with self._renewal_lock:
                with contextlib.suppress(DatabaseError):
                    await self._renew()

    async def _renew(self) -> None:
        started_at = self._clock()
        held = list(self._leased)
        renewed = await self._log.renew_deliveries(held) if held else frozenset()
        for turn_id in held:
            if turn_id not in renewed and turn_id in self._leased:
                self._drop_lease(turn_id)
                self._newest.pop(turn_id, None)
        self._renewed_at = started_at

    def _has_valid_leases(self) -> bool:
        """Return True if this process's delivery leases cannot have expired."""
        lease = self._log.lease_seconds
        return lease is None or self._clock() - self._renewed_at < lease - RENEW_SECONDS

    async def _ensure_lease(self, turn_id: str) -> None:
        """Wait until the delivery lease is certainly held. Raises LostLease."""
        while not self._has_valid_leases():
            async with self._renewal_lock:
                if self._has_valid_leases():
                    break
                try:
                    await self._renew()
                except DatabaseError:
                    await self._pause(POLL_SECONDS)
        if turn_id not in self._leased:
            raise LostLease(turn_id)

    # ------------------------------------------------------------------ delivery

    def _enqueue(self, view: TurnView) -> None:
        turn_id = view.turn.id
        # During a delivery only the newest view is looked at, afterwards: most are replaced before.
        if turn_id not in self._tasks and self._surface_for(view) is None:
            return
        self._newest[turn_id] = view
        if view.streaming and (waiting := self._interval_waits.pop(turn_id, None)) is not None:
            waiting.cancel()
        self._begin(turn_id)

    def _begin(self, turn_id: str) -> None:
        if turn_id not in self._tasks and not self._suspended:
            with in_context(turn=turn_id):
                self._tasks[turn_id] = asyncio.create_task(self._deliver_turn(turn_id), name=f"delivery:{turn_id}")

    async def _deliver_turn(self, turn_id: str) -> None:
        delivered_revision = -1
        last: TurnView | None = None
        try:
            while not self._suspended and (view := self._newest.pop(turn_id, None)) is not None:
                last = view
                surface = self._surface_for(view)
                if surface is None:
                    break  # the surface was disconnected
                self._in_delivery[turn_id] = view
                if (
                    await self._deliver_once(surface, view)
                    and view.revision > delivered_revision
                    and self._must_store(view)
                ):
                    delivered_revision = view.revision
                    if await self._log.mark_delivered(turn_id, delivered_revision):
                        self._leased.add(turn_id)
                    else:
                        self._drop_lease(turn_id)
                if (newest := self._newest.get(turn_id)) is not None:
                    await self._wait_interval(surface, view, newest)
        except LostLease:
            self._drop_lease(turn_id)
            if turn_id in self._running and last is not None:
                # Another process is still delivering an earlier view and will release the lease soon.
                self._newest.setdefault(turn_id, last)
                await self._pause(LOST_LEASE_SECONDS)
        except DatabaseError as error:
            log.warning("turn %s: delivery interrupted, will be retried: %s", turn_id, error)
        finally:
            self._in_delivery.pop(turn_id, None)
            try:
                await self._release_if_done(turn_id)
            finally:
                self._tasks.pop(turn_id, None)
                if turn_id in self._newest:
                    self._begin(turn_id)

    async def _wait_interval(self, surface: Surface, view: TurnView, newest: TurnView) -> None:
        """Wait for the platform's interval between two deliveries. The first text of a reply does not wait."""
        if view.streaming:
            await self._pause(surface.min_interval)
        elif not newest.streaming:
            turn_id = view.turn.id
            waiting = self._interval_waits[turn_id] = asyncio.ensure_future(self._pause(surface.min_interval))
            try:
                await asyncio.wait({waiting})
            finally:
                waiting.cancel()
                self._interval_waits.pop(turn_id, None)

    def _must_store(self, view: TurnView) -> bool:
        """Return True if this delivery must be stored: the turn has ended or waits for users, or it does not run here.
        All other views of a running turn are delivered again anyway.
        """
        waits = view.awaiting or view.asks
        return view.turn.id not in self._running or view.turn.status.ended or bool(waits)

    async def _release_if_done(self, turn_id: str) -> None:
        """Release the delivery lease unless more views follow."""
        if turn_id in self._running or turn_id in self._newest or turn_id not in self._refs:
            return
        await self._release(turn_id)

    async def _release(self, turn_id: str) -> None:
        leased = turn_id in self._leased
        self._drop_lease(turn_id)
        if leased:
            with contextlib.suppress(DatabaseError):
                await self._log.release_delivery(turn_id)

    def _drop_lease(self, turn_id: str) -> None:
        """Drop the local state of a delivery lease."""
        self._refs.pop(turn_id, None)
        self._leased.discard(turn_id)

    async def _deliver_once(self, surface: Surface, view: TurnView) -> bool:
        """Return True if the view was delivered; otherwise schedule a retry. Raises LostLease."""
        turn_id = view.turn.id
        started_at = self._clock()
        try:
            refs = self._refs.get(turn_id)
            if refs is None:
                refs = self._refs[turn_id] = dict(await self._log.acquire_delivery(turn_id, view.revision))
                self._leased.add(turn_id)
                view = await self._newest_stored(view)
            await self._ensure_lease(turn_id)
            await self._post(surface, view, refs)
        except DeliveryFailed as failure:
            await self._failed(surface, view, failure, started_at)
            return False
        except TimeoutError:
            timeout = DeliveryFailed(f"The platform did not answer within {DELIVERY_SECONDS:.0f} s.")
            await self._failed(surface, view, timeout, started_at)
            return False
        except (LostLease, DatabaseError):
            raise
        except Exception:  # a surface's bug must not stop other deliveries
            log.exception("turn %s: delivery failed, retry scheduled", turn_id)
            self._measure(view, "delayed", started_at)
            await self._log.retry_delivery_at(turn_id, self._next_pause(turn_id))
            return False
        self._failures.pop(turn_id, None)
        self._measure(view, "drawn", started_at)
        return True

    async def _newest_stored(self, view: TurnView) -> TurnView:
        """Return the stored view if it is newer. The previous lease holder may have delivered it already."""
        with contextlib.suppress(NotFound):
            on_disk = await self._log.get_view(view.turn.id)
            return on_disk if on_disk.revision > view.revision else view
        return view

    async def _post(self, surface: Surface, view: TurnView, refs: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        view = replace(view, read=partial(self._log.get_file, view.turn.id))
        async with (
            asyncio.timeout(DELIVERY_SECONDS) as limit,
            contextlib.aclosing(surface.deliver(view, refs)) as messages,
        ):
            async for message in messages:
                if refs.get(message.slot) != message.ref:
                    # A posted message must be stored, however long the database takes.
                    limit.reschedule(None)
                    await self._log.save_message_ref(view.turn.id, message)
                    refs[message.slot] = message.ref
                    # The lease may have expired while the database was unavailable.
                    await self._ensure_lease(view.turn.id)
                limit.reschedule(loop.time() + DELIVERY_SECONDS)

    def _next_pause(self, turn_id: str) -> float:
        """Return the seconds until the next try, doubled with each failure."""
        self._failures[turn_id] = failures = self._failures.get(turn_id, 0) + 1
        return float(min(RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS))

    async def _failed(self, surface: Surface, view: TurnView, failure: DeliveryFailed, started_at: float) -> None:
        turn_id = view.turn.id
        log.warning("turn %s: delivery failed: %s", turn_id, failure)
        if failure.permanent:
            self._failures.pop(turn_id, None)
            denied_calls = await self._log.give_up_delivery(turn_id, view.revision, failure.cause)
            self._measure(view, "given up", started_at)
            if denied_calls:
                self._on_settled(turn_id)
                self.wake()
            await self._notices.notify_author(surface, view, failure)
            return
        self._measure(view, "delayed", started_at)
        seconds = failure.retry_after if failure.retry_after is not None else self._next_pause(turn_id)
        await self._log.retry_delivery_at(turn_id, seconds)
        if turn_id in self._running:
            # Only this process delivers a running turn: wait, then deliver the newest view.
            await self._pause(seconds)
            self._newest.setdefault(turn_id, view)
        else:
            # The turn log returns the turn again when its retry is due.
            self._newest.pop(turn_id, None)

    def _measure(self, view: TurnView, outcome: DeliveryOutcome, started_at: float) -> None:
        self._observe(Delivered(view.turn.conversation.platform, outcome, self._clock() - started_at))

    async def _shut_down(self) -> None:
        self._running.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                while self._tasks:
                    await asyncio.wait(set(self._tasks.values()))
        self._suspended = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)
                # The leases of the others expire.
                await asyncio.gather(*(self._release(turn_id) for turn_id in list(self._refs)))

    def _surface_for(self, view: TurnView) -> Surface | None:
        return surface_for(self._surfaces, view.turn.conversation)

"""View delivery: posts the newest view of each turn at its platform's rate, with retries.

Views come from the turns that run here, and from the turn log for stale views that no process delivers. A view is
stored as delivered once the surface has finished. Only the process with a turn's delivery lease posts its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bot.domain.locales import use_locale
from bot.domain.metrics import Delivered, DeliveryOutcome, MetricSink, null_sink
from bot.domain.turns import Notice, NoticeTarget, PostedMessage, Step, StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.engine.surfaces import Surfaces
from bot.errors import DatabaseError, DeliveryFailed, LostLease, NotFound
from bot.i18n import _, gettext_lazy
from bot.logs import in_context
from bot.ports import DeliveryQueue, Surface

log = logging.getLogger(__name__)
NOTICE_SECONDS = 30.0
QUESTION_LIMIT = 200
MAX_NOTIFIED = 1000
NOT_RUN = gettext_lazy("What needed an approval there was not run.")
_UNKNOWN_OUTCOME = gettext_lazy("may have run")
_OUTCOMES = {
    StepStatus.DONE: gettext_lazy("done"),
    StepStatus.FAILED: gettext_lazy("ended with an error"),
    StepStatus.UNKNOWN: _UNKNOWN_OUTCOME,
}
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


class UndeliverableNotices:
    """Private notices about undeliverable answers, to the author and to the approvers of the calls that ran. Each turn
    gets them at most once, without a retry.
    """

    def __init__(self, turn_log: DeliveryQueue) -> None:
        self._log = turn_log
        self._notified: OrderedDict[str, None] = OrderedDict()

    async def notify(self, surface: Surface, view: TurnView, failure: DeliveryFailed) -> None:
        """Notify the author and the approvers of an undeliverable view. Raises DatabaseError."""
        turn = view.turn
        # An author who stopped the turn expects no answer.
        if turn.status not in (TurnStatus.DONE, TurnStatus.FAILED) or turn.id in self._notified:
            return
        self._notified[turn.id] = None
        while len(self._notified) > MAX_NOTIFIED:
            self._notified.popitem(last=False)
        calls = {
            step.n: step
            for step in view.steps
            if isinstance(step, ToolStep) and not step.only_reads and (step.status in _OUTCOMES or step.is_stopped)
        }
        approved: dict[str, list[ToolStep]] = {}
        for n, principals in (await self._log.approvers_by_call(turn.id)).items():
            for principal in principals:
                if n in calls and principal != turn.author.principal:
                    approved.setdefault(principal, []).append(calls[n])
        with use_locale(turn.question.author_locale):
            await self._notify_user(surface, turn, turn.author.id, _notice_text(view, failure, [*calls.values()]))
        for principal, steps in approved.items():
            platform, _colon, user = principal.partition(":")
            if platform == turn.author.platform:
                with use_locale(turn.question.locale):
                    text = _(
                        "You approved this for {asker}: {calls}. I could not show it where {asker} asked “{question}”. "
                        "{cause}",
                        asker=turn.author.name,
                        calls=_format_calls(steps),
                        question=_question(turn),
                        cause=_(failure.cause),
                    )
                    await self._notify_user(surface, turn, user, text)

    async def _notify_user(self, surface: Surface, turn: Turn, user: str, text: str) -> None:
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await surface.post_notice(NoticeTarget(str(turn.conversation), user, private=True), Notice(text))
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("turn %s: user not notified of the undeliverable view: %s", turn.id, error)
        except Exception:  # a surface's bug must not stop the delivery
            log.exception("turn %s: user not notified of the undeliverable view", turn.id)


def _notice_text(view: TurnView, failure: DeliveryFailed, ran: Sequence[ToolStep]) -> str:
    text = _(
        "I could not answer you where you asked “{question}”. {cause}",
        question=_question(view.turn),
        cause=_(failure.cause),
    )
    if ran:
        calls = _("What ran: {calls}.", calls=_format_calls(ran))
        text = f"{text} {calls}"
    return f"{text} {NOT_RUN}" if any(map(_is_undelivered_call, view.steps)) else text


def _question(turn: Turn) -> str:
    question = " ".join(turn.question.text.split())
    return question if len(question) <= QUESTION_LIMIT else question[: QUESTION_LIMIT - 1].rstrip() + "…"


def _format_calls(steps: Sequence[ToolStep]) -> str:
    return ", ".join(f"{call_name(step)} ({_(_OUTCOMES.get(step.status, _UNKNOWN_OUTCOME))})" for step in steps)


def call_name(step: ToolStep) -> str:
    """Return the name of a call for users."""
    return f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name


def _is_undelivered_call(step: Step) -> bool:
    """Return True if the call was denied because its approval card could not be posted."""
    return (
        isinstance(step, ToolStep)
        and step.status is StepStatus.DENIED
        and step.approval is not None
        and not step.approval.decided_by
        and step.result is not None
    )


@dataclass(slots=True, eq=False)
class TurnDelivery:
    """Delivery of one turn's views by this process.

    `running` is True while the turn runs here, so that more views follow. `newest` is the next view, `current` the one
    that `task` posts now. `refs` are the posted messages; None before the first delivery under a lease. `failures`
    counts the failed deliveries since the last success; it outlives the lease. `interval_wait` is the wait for the
    platform's interval.
    """

    turn_id: str
    running: bool = False
    newest: TurnView | None = None
    current: TurnView | None = None
    refs: dict[str, str] | None = None
    leased: bool = False
    failures: int = 0
    task: asyncio.Task[None] | None = None
    interval_wait: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to remember."""
        has_views = self.running or self.newest is not None or self.task is not None
        return not (has_views or self.refs is not None or self.leased or self.failures)

    def take_newest(self) -> TurnView | None:
        """Return the next view and remove it."""
        view, self.newest = self.newest, None
        return view

    def drop_lease(self) -> None:
        """Forget the lease and the messages that were posted under it."""
        self.refs, self.leased = None, False

    def count_failure(self) -> float:
        """Count a failure. Return the seconds until the next try, doubled with each failure."""
        self.failures += 1
        return float(min(RETRY_SECONDS * 2 ** (self.failures - 1), LONGEST_RETRY_SECONDS))

    def must_store(self, view: TurnView) -> bool:
        """Return True if the delivery of a view must be stored: the turn has ended or waits for users, or it does not
        run here. All other views of a running turn are delivered again anyway.
        """
        return not self.running or view.turn.status.ended or bool(view.awaiting or view.asks)


class ViewDelivery:
    """Delivery of views by this process, in one task a turn. `on_settled` gets the ids of turns with calls that were
    denied because their cards could not be posted. `on_end` is called when the end of a turn is out, or given up.
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        turn_log: DeliveryQueue,
        surfaces: Surfaces,
        *,
        clock: Callable[[], float],
        on_settled: Callable[[str], None] = lambda _turn_id: None,
        on_end: Callable[[], None] = lambda: None,
        observe: MetricSink = null_sink,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._surfaces = surfaces
        self._on_settled = on_settled
        self._on_end = on_end
        self._observe = observe
        self._pause = pause
        self._clock = clock
        self._renewed_at = clock()
        self._notices = UndeliverableNotices(turn_log)
        self._renewal_lock = asyncio.Lock()
        self.turns: dict[str, TurnDelivery] = {}
        """Turns with a view to deliver, a lease, or failures to remember, by id."""
        self._look_now = asyncio.Event()
        self.is_suspended = False
        """True while delivery pauses, and after the end."""

    def begin(self, turn_id: str) -> None:
        """Prepare a new turn that runs here. Its delivery lease came with the claim."""
        turn = self._turn(turn_id)
        turn.refs, turn.leased = {}, True

    def deliver(self, view: TurnView) -> None:
        """Deliver this view of a turn that runs here, unless a newer one replaces it before."""
        self._turn(view.turn.id).running = True
        self._enqueue(view)

    def settle(self, turn_id: str) -> None:
        """Stop expecting views of this turn: deliver the last one, then release the lease."""
        turn = self._turn(turn_id)
        turn.running = False
        if turn.refs is not None:
            self._start(turn)
        self._remove_if_idle(turn)

    def forget(self, turn_id: str) -> None:
        """Drop the views of a turn that another process runs now."""
        self._turn(turn_id).newest = None
        self.settle(turn_id)

    def wake(self) -> None:
        """Look for stale views now."""
        self._look_now.set()

    def suspend(self) -> None:
        """Pause delivery while the turns' leases are uncertain."""
        self.is_suspended = True

    def resume(self) -> None:
        """Continue delivery of the turns that are still held."""
        if self.is_suspended:
            self.is_suspended = False
            for turn in self.turns.values():
                if turn.newest is not None or (turn.refs is not None and not turn.running):
                    self._start(turn)

    @property
    def is_idle(self) -> bool:
        """True if no view is being delivered."""
        return all(turn.task is None for turn in self.turns.values())

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
                for prefix in self._surfaces.key_prefixes:
                    for turn_id in await self._log.stale_views(prefix, BATCH):
                        await self._catch_up(turn_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._look_now.wait()

    async def _catch_up(self, turn_id: str) -> None:
        """Deliver the stored view of a turn if it is newer. Raises DatabaseError."""
        current = self._current(turn_id)
        if current is not None and current.turn.status.ended:
            return  # a newer view, if any, is stale at the next poll
        try:
            view = await self._log.get_view(turn_id)
        except DatabaseError:
            raise
        except NotFound:
            return
        except Exception:
            log.exception("turn %s: view cannot be read, retry scheduled", turn_id)
            await self._log.retry_delivery_at(turn_id, self._turn(turn_id).count_failure())
            return
        # Looked up again because a delivery may have started during the read.
        current = self._current(turn_id)
        if current is None or view.revision > current.revision:
            self._enqueue(view)

    async def _renew_forever(self) -> None:
        while True:
            await self._pause(RENEW_SECONDS)
            async with self._renewal_lock:
                with contextlib.suppress(DatabaseError):
                    await self._renew()

    async def _renew(self) -> None:
        started_at = self._clock()
        leased = [turn for turn in self.turns.values() if turn.leased]
        renewed = await self._log.renew_deliveries([turn.turn_id for turn in leased]) if leased else frozenset()
        for turn in leased:
            if turn.turn_id not in renewed and turn.leased:
                turn.drop_lease()
                turn.newest = None
                self._remove_if_idle(turn)
        self._renewed_at = started_at

    def _has_valid_leases(self) -> bool:
        """Return True if this process's delivery leases cannot have expired."""
        return self._clock() - self._renewed_at < self._log.lease_seconds - RENEW_SECONDS

    async def _ensure_lease(self, turn: TurnDelivery) -> None:
        """Wait until the delivery lease is certainly held. Raises LostLease."""
        while not self._has_valid_leases():
            async with self._renewal_lock:
                if self._has_valid_leases():
                    break
                try:
                    await self._renew()
                except DatabaseError:
                    await self._pause(POLL_SECONDS)
        if not turn.leased:
            raise LostLease(turn.turn_id)

    # ------------------------------------------------------------------ delivery

    def _enqueue(self, view: TurnView) -> None:
        turn = self._turn(view.turn.id)
        # During a delivery only the newest view is looked at, afterwards: most are replaced before.
        if turn.task is None and self._surfaces.find(view.turn.conversation) is None:
            self._remove_if_idle(turn)
            return
        turn.newest = view
        if view.streaming and turn.interval_wait is not None:
            turn.interval_wait.cancel()
            turn.interval_wait = None
        self._start(turn)

    def _start(self, turn: TurnDelivery) -> None:
        if turn.task is None and not self.is_suspended:
            with in_context(turn=turn.turn_id):
                turn.task = asyncio.create_task(self._deliver_turn(turn), name=f"delivery:{turn.turn_id}")

    async def _deliver_turn(self, turn: TurnDelivery) -> None:
        try:
            await self._deliver_views(turn)
        except DatabaseError as error:
            log.warning("turn %s: delivery interrupted, will be retried: %s", turn.turn_id, error)
        finally:
            turn.current = None
            try:
                # More views may follow under the same lease.
                if not turn.running and turn.newest is None and turn.refs is not None:
                    await self._release(turn)
            finally:
                turn.task = None
                if turn.newest is not None:
                    self._start(turn)
                self._remove_if_idle(turn)

    async def _deliver_views(self, turn: TurnDelivery) -> None:
        """Deliver the newest view until there is no newer one."""
        delivered_revision = -1
        try:
            while not self.is_suspended and (view := turn.take_newest()) is not None:
                turn.current = view
                surface = self._surfaces.find(view.turn.conversation)
                if surface is None:
                    break  # the surface was disconnected
                delivered = await self._deliver_once(surface, turn, view)
                if delivered and view.revision > delivered_revision and turn.must_store(view):
                    delivered_revision = view.revision
                    if await self._log.mark_delivered(turn.turn_id, delivered_revision):
                        turn.leased = True
                    else:
                        turn.drop_lease()
                    if view.turn.status.ended:
                        self._on_end()
                if turn.newest is not None:
                    await self._wait_interval(surface, turn, view, turn.newest)
        except LostLease:
            turn.drop_lease()
            if turn.running:
                # Another process is still delivering an earlier view and will release the lease soon.
                turn.newest = turn.newest or turn.current
                await self._pause(LOST_LEASE_SECONDS)

    async def _wait_interval(self, surface: Surface, turn: TurnDelivery, view: TurnView, newest: TurnView) -> None:
        """Wait for the platform's interval between two deliveries. The first text of a reply does not wait."""
        if view.streaming:
            await self._pause(surface.min_interval)
        elif not newest.streaming:
            waiting = turn.interval_wait = asyncio.ensure_future(self._pause(surface.min_interval))
            try:
                await asyncio.wait({waiting})
            finally:
                waiting.cancel()
                turn.interval_wait = None

    async def _release(self, turn: TurnDelivery) -> None:
        leased = turn.leased
        turn.drop_lease()
        if leased:
            with contextlib.suppress(DatabaseError):
                await self._log.release_delivery(turn.turn_id)

    async def _deliver_once(self, surface: Surface, turn: TurnDelivery, view: TurnView) -> bool:
        """Return True if the view was delivered; otherwise schedule a retry. Raises LostLease."""
        started_at = self._clock()
        try:
            refs = turn.refs
            if refs is None:
                refs = turn.refs = dict(await self._log.acquire_delivery(turn.turn_id, view.revision))
                turn.leased = True
                with contextlib.suppress(NotFound):
                    # The previous lease holder may have delivered a newer one already.
                    view = max(view, await self._log.get_view(view.turn.id), key=lambda each: each.revision)
            await self._ensure_lease(turn)
            await self._post(surface, turn, view, refs)
        except (DeliveryFailed, TimeoutError) as error:
            timeout = _("The platform did not answer within {seconds} s.", seconds=f"{DELIVERY_SECONDS:.0f}")
            failure = error if isinstance(error, DeliveryFailed) else DeliveryFailed(timeout)
            await self._handle_failure(surface, turn, view, failure, started_at)
            return False
        except (LostLease, DatabaseError):
            raise
        except Exception:  # a surface's bug must not stop other deliveries
            log.exception("turn %s: delivery failed, retry scheduled", turn.turn_id)
            self._measure(view, "delayed", started_at)
            await self._log.retry_delivery_at(turn.turn_id, turn.count_failure())
            return False
        turn.failures = 0
        self._measure(view, "drawn", started_at)
        return True

    async def _post(self, surface: Surface, turn: TurnDelivery, view: TurnView, refs: dict[str, str]) -> None:
        if view.turn.question.deleted and not refs:
            return  # nothing is posted that would need an end
        view = replace(view, read=partial(self._log.get_file, view.turn.id))
        await self._save_posted(turn, view, refs, surface.deliver(view, refs))
        elsewhere = self._surfaces.find_for_cards(view.turn.conversation)
        if elsewhere is not None:
            cards, home = elsewhere
            distant = replace(view, turn=replace(view.turn, conversation=home))
            await self._save_posted(turn, view, refs, cards.deliver_cards(distant, refs))

    async def _save_posted(
        self, turn: TurnDelivery, view: TurnView, refs: dict[str, str], posting: AsyncGenerator[PostedMessage, None]
    ) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DELIVERY_SECONDS) as limit, contextlib.aclosing(posting) as messages:
            async for message in messages:
                if refs.get(message.slot) != message.ref:
                    # A posted message must be stored, however long the database takes.
                    limit.reschedule(None)
                    await self._log.save_message_ref(view.turn.id, message)
                    refs[message.slot] = message.ref
                    # The lease may have expired while the database was unavailable.
                    await self._ensure_lease(turn)
                limit.reschedule(loop.time() + DELIVERY_SECONDS)

    async def _handle_failure(
        self, surface: Surface, turn: TurnDelivery, view: TurnView, failure: DeliveryFailed, started_at: float
    ) -> None:
        log.warning("turn %s: delivery failed: %s", turn.turn_id, failure)
        if failure.permanent:
            turn.failures = 0
            denied_calls = await self._log.give_up_delivery(turn.turn_id, view.revision, failure.cause)
            self._measure(view, "given up", started_at)
            if denied_calls:
                self._on_settled(turn.turn_id)
                self.wake()
            await self._notices.notify(surface, view, failure)
            if view.turn.status.ended:
                self._on_end()
            return
        self._measure(view, "delayed", started_at)
        seconds = failure.retry_after if failure.retry_after is not None else turn.count_failure()
        await self._log.retry_delivery_at(turn.turn_id, seconds)
        if turn.running:
            # Only this process delivers a running turn: wait, then deliver the newest view.
            await self._pause(seconds)
            turn.newest = turn.newest or view
        else:
            # The turn log returns the turn again when its retry is due.
            turn.newest = None

    def _measure(self, view: TurnView, outcome: DeliveryOutcome, started_at: float) -> None:
        self._observe(Delivered(view.turn.conversation.platform, outcome, self._clock() - started_at))

    async def _shut_down(self) -> None:
        for turn in self.turns.values():
            turn.running = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                while tasks := self._tasks():
                    await asyncio.wait(tasks)
        self.is_suspended = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                tasks = self._tasks()
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)
                # The leases of the others expire.
                held = [turn for turn in self.turns.values() if turn.refs is not None]
                await asyncio.gather(*(self._release(turn) for turn in held))

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {turn.task for turn in self.turns.values() if turn.task is not None}

    def _turn(self, turn_id: str) -> TurnDelivery:
        """Return the delivery of a turn, a new one if there is none. `_remove_if_idle` removes it."""
        if turn_id not in self.turns:
            self.turns[turn_id] = TurnDelivery(turn_id)
        return self.turns[turn_id]

    def _remove_if_idle(self, turn: TurnDelivery) -> None:
        # A task that has ended may hold a delivery that was removed and replaced since.
        if turn.is_idle and self.turns.get(turn.turn_id) is turn:
            del self.turns[turn.turn_id]

    def _current(self, turn_id: str) -> TurnView | None:
        turn = self.turns.get(turn_id)
        return None if turn is None else turn.current

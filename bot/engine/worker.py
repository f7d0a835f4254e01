"""Worker: the turns that this process claims, runs, stops and releases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass

from bot.domain.arrivals import Arrivals
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.locales import use_locale
from bot.domain.turns import Claim, Receipt, Step, TurnRecord, TurnStatus, Wakeup, WakeupKind
from bot.engine.surfaces import Surfaces
from bot.engine.turn_runner import TurnRunner
from bot.engine.view_delivery import ViewDelivery
from bot.errors import CountersignError, DatabaseUnavailable, LostLease, ModelError, Stopped
from bot.i18n import _, gettext_lazy
from bot.logs import in_context
from bot.ports import TurnLog

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 4.0
CLAIM_AT_ONCE = 8
LONGEST_PAUSE_SECONDS = 60.0
CLEAN_UP_SECONDS = 4.0
"""Time limit, in seconds, for cancelled turns at shutdown."""
HAND_OVER_SECONDS = 2.0
UNREADABLE = gettext_lazy("The stored data of this question cannot be read.")


@dataclass(slots=True)
class Capacity:
    """Concurrency limit of one process. Stored turns start before new messages.

    `limit` is the highest number of concurrent turns.
    """

    limit: int
    others_wait: bool = True
    """True if the last poll left stored turns waiting, and until the first poll has finished."""
    _starting: int = 0
    _claiming: int = 0
    _enqueuing: int = 0
    _enqueued: int = 0

    def available(self, claimed: int) -> int:
        """Return the number of turns that may start besides the `claimed` ones."""
        return self.limit - claimed - self._starting - self._claiming

    def has_free_slot(self, claimed: int) -> bool:
        """Return True if a turn that is not stored yet may start before the next poll."""
        return not self.others_wait and self.available(claimed) > self._enqueuing + self._enqueued

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Count a message that is stored and claimed in one step."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    @contextmanager
    def enqueuing(self) -> Iterator[None]:
        """Count a message that the next poll must claim. A poll in progress may miss it."""
        self._enqueuing += 1
        try:
            yield
        finally:
            self._enqueuing -= 1
            self._enqueued += 1

    @contextmanager
    def polling(self, most: int) -> Iterator[None]:
        """Count a poll that claims up to `most` turns."""
        self._enqueued = 0
        self._claiming = most
        try:
            yield
        finally:
            self._claiming = 0


@dataclass(slots=True, eq=False)
class _ClaimedTurn:
    """A claimed turn. `is_stopping` is True once its task was cancelled for good."""

    claim: Claim
    task: asyncio.Task[None] | None = None
    runner: TurnRunner | None = None
    is_stopping: bool = False

    @property
    def unfinished_reply(self) -> Sequence[Step]:
        """Text that the model had written, as a step."""
        return self.runner.unfinished_reply if self.runner is not None else ()

    @property
    def unanswered_calls(self) -> Mapping[int, float]:
        """Seconds since each call was sent that has not ended, by step number."""
        return self.runner.unanswered_calls if self.runner is not None else {}


class Worker:
    """Runs the claimed turns concurrently, at most `most_turns`, and reports their state to `delivery`.

    `create_runner` returns a runner for a claimed turn, at its stored state. Turns with other key prefixes than those
    of `surfaces` are not claimed, and none while `arrivals` go first. `on_change` is called when servers, policies or
    profiles may have changed. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        turn_log: TurnLog,
        create_runner: Callable[[Claim, TurnRecord], TurnRunner],
        delivery: ViewDelivery,
        surfaces: Surfaces,
        *,
        on_change: Callable[[], None],
        most_turns: int,
        pause: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
        arrivals: Arrivals,
    ) -> None:
        self._log = turn_log
        self._arrivals = arrivals
        self._create_runner = create_runner
        self._delivery = delivery
        self._surfaces = surfaces
        self._on_change = on_change
        self.capacity = Capacity(most_turns)
        self._pause = pause
        self._clock = clock
        self._renewed_at = 0.0
        self.turns: dict[str, _ClaimedTurn] = {}
        """Claimed turns, by id."""
        self._claiming: asyncio.Future[Sequence[Claim]] | None = None
        """The running claim query, until its turns have started."""
        self._context: Context | None = None
        """Context that turn tasks start in; None while the worker is stopped."""
        self._poll_now = asyncio.Event()

    @property
    def free_slots(self) -> int:
        """Number of turns that may start now."""
        return self.capacity.available(len(self.turns))

    def poll(self) -> None:
        """Poll for claimable turns now."""
        self._poll_now.set()

    def wake(self, turn_id: str) -> None:
        """Wake a turn after a decision."""
        turn = self.turns.get(turn_id)
        if turn is not None and turn.runner is not None:
            turn.runner.wake()
        self.poll()

    def cancel(self, turn_id: str) -> None:
        """Cancel the task of a turn that was stopped or claimed by another process. A second call has no effect."""
        turn = self.turns.get(turn_id)
        if turn is not None and turn.task is not None and not turn.is_stopping:
            turn.is_stopping = True
            turn.task.cancel()
        self.poll()

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message. Start its turn at once if there is a free slot, else leave it to the next poll."""
        with self._arrivals.one():
            if self._begins_at_once(message.conversation):
                return await self._enqueue_and_start(message)
            try:
                with self.capacity.enqueuing():
                    return await self._log.enqueue(message)
            finally:
                self.poll()

    def _begins_at_once(self, conversation: ConversationKey) -> bool:
        """Return True if a new turn may start here without a poll. If processes share the turns, the next poll decides,
        so that the least busy one claims it.
        """
        if self._log.shares_turns or self._context is None or self._arrivals.go_first:
            return False
        key = f"{conversation}:"
        return self.capacity.has_free_slot(len(self.turns)) and key.startswith(self._surfaces.key_prefixes)

    async def _enqueue_and_start(self, message: InboundMessage) -> Receipt:
        claim = None
        try:
            with self.capacity.starting():
                receipt, claim = await self._log.enqueue_and_claim(message)
        finally:
            if claim is None:
                self.poll()
        if claim is not None and self._context is not None:
            self._context.run(self._start_turn, claim)
        elif claim is not None:
            # The message is stored in either case: if the release fails, the claim expires with its lease.
            with contextlib.suppress(CountersignError, TimeoutError):
                async with asyncio.timeout(HAND_OVER_SECONDS):
                    await self._log.release([claim])
                    await self._log.release_delivery(claim.turn_id)
        return receipt

    async def run(self) -> None:
        """Claim and run turns until cancelled; then cancel and release them."""
        self._context = copy_context()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_forever(), name="claims")
                group.create_task(self._renew_forever(), name="heartbeat")
                group.create_task(self._log.listen(self._on_wakeup), name="wakeups")
        finally:
            self._context = None
            await self._shut_down()

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        """Handle a wakeup from another process, or an echo of this one's own."""
        match wakeup.kind:
            case WakeupKind.APPROVAL_DECIDED:
                self.wake(wakeup.turn_id)
            case WakeupKind.STOP_REQUESTED:
                self.cancel(wakeup.turn_id)
            case WakeupKind.CONFIG_CHANGED:
                self._on_change()
            case WakeupKind.WORK_AVAILABLE:
                # Also sent after a lost connection, during which any wakeup may have been missed.
                self._on_change()
                self.poll()
        self._delivery.wake()

    # ------------------------------------------------------------------ claiming

    async def _claim_forever(self) -> None:
        while True:
            await self._arrivals.wait()
            self._poll_now.clear()
            claims = await self._claim()
            for claim in claims:
                self._start_turn(claim)
            self._claiming = None
            if not claims:
                with contextlib.suppress(TimeoutError):
                    # Jitter keeps many processes from polling in step; it is no secret.
                    async with asyncio.timeout(POLL_SECONDS * random.uniform(0.9, 1.1)):  # noqa: S311
                        await self._poll_now.wait()

    async def _claim(self) -> Sequence[Claim]:
        most = min(CLAIM_AT_ONCE, self.free_slots)
        if most <= 0:
            self.capacity.others_wait = True
            return ()
        started_at = self._clock()
        with self.capacity.polling(most):
            # `keys()` is a live view: a retry of the query excludes the turns claimed by then.
            self._claiming = asyncio.ensure_future(
                self._log.claim(most, self.turns.keys(), self._surfaces.key_prefixes)
            )
            try:
                # Shielded because turns claimed during shutdown must be released, too.
                claims = await asyncio.shield(self._claiming)
            except DatabaseUnavailable:
                self.capacity.others_wait = True
                return ()  # logged by the database
        if self._clock() - started_at > self._log.lease_seconds - HEARTBEAT_SECONDS:
            return ()  # the leases may have expired during a suspension of this process
        self.capacity.others_wait = len(claims) == most
        return claims

    def _start_turn(self, claim: Claim) -> None:
        turn = self.turns[claim.turn_id] = _ClaimedTurn(claim)
        # The task inherits the context: every log line of the turn names it.
        with in_context(turn=claim.turn_id, conversation=str(claim.conversation)):
            turn.task = asyncio.create_task(self._run_turn(turn), name=f"turn:{claim.turn_id}")
        turn.task.add_done_callback(lambda _task: self._remove(turn))

    def _remove(self, turn: _ClaimedTurn) -> None:
        # Compared by identity because the entry may be a newer claim on the same turn.
        if self.turns.get(turn.claim.turn_id) is turn:
            del self.turns[turn.claim.turn_id]
            self._delivery.settle(turn.claim.turn_id)
        self.poll()

    # ------------------------------------------------------------------ running

    async def _run_turn(self, turn: _ClaimedTurn) -> None:
        """Run a turn to its end. Texts about it are in the language of its conversation."""
        claim = turn.claim
        with contextlib.ExitStack() as locale:
            try:
                record = claim.initial_record or await self._log.resume(claim)
                locale.enter_context(use_locale(record.turn.question.locale))
                turn.runner = self._create_runner(claim, record)
                await turn.runner.run()
            except Stopped:
                await self._end(turn, TurnStatus.CANCELLED, "", turn.unfinished_reply)
            except LostLease:
                log.info("turn %s: claimed by another process", claim.turn_id)
                self._delivery.forget(claim.turn_id)
            except asyncio.CancelledError:
                if turn.is_stopping:
                    await self._end(turn, TurnStatus.CANCELLED, "", turn.unfinished_reply)
                raise
            except DatabaseUnavailable:
                await self._release(claim)
            except ModelError as error:
                log.warning("turn %s: %s", claim.turn_id, error)
                await self._end(turn, TurnStatus.FAILED, str(error), turn.unfinished_reply)
            except Exception:
                reference = secrets.token_hex(3)
                log.exception("turn %s: failed, reference %s", claim.turn_id, reference)
                failure = _(
                    "Something broke on my end; it is logged as {reference}. Please try again.", reference=reference
                )
                await self._end(turn, TurnStatus.FAILED, failure)

    async def _end(self, turn: _ClaimedTurn, status: TurnStatus, failure: str, last: Sequence[Step] = ()) -> None:
        claim = turn.claim
        try:
            await self._log.finish(claim, status, last, failure, unanswered=turn.unanswered_calls)
        except LostLease:
            self._delivery.forget(claim.turn_id)
        except Exception as error:  # noqa: BLE001 - the turn must end in any case
            log.error("turn %s: not ended: %r", claim.turn_id, error)
            await self._end_unread(claim, failure or str(UNREADABLE))
        self._delivery.wake()

    async def _end_unread(self, claim: Claim, failure: str) -> None:
        """End a turn with unreadable rows. It stays claimed until then, because a released one would be claimed
        again at once.
        """
        seconds = POLL_SECONDS
        while True:
            try:
                await self._log.fail(claim, failure)
            except LostLease:
                self._delivery.forget(claim.turn_id)
                return
            except Exception as error:  # noqa: BLE001 - a released turn would come back at once
                log.error("turn %s: not ended, next try in %.0f s: %r", claim.turn_id, seconds, error)
                await self._pause(seconds)
                seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
            else:
                return

    async def _release(self, claim: Claim) -> None:
        """Release a turn as soon as the database accepts writes."""
        while True:
            await self._pause(POLL_SECONDS)
            with contextlib.suppress(DatabaseUnavailable):
                await self._log.release([claim])
                return

    # ------------------------------------------------------------------ leases and shutdown

    async def _renew_forever(self) -> None:
        self._renewed_at = self._clock()
        while True:
            await self._pause(HEARTBEAT_SECONDS)
            if turns := dict(self.turns):
                await self._renew(turns)
            else:
                self._renewed_at = self._clock()
                self._delivery.resume()

    async def _renew(self, turns: Mapping[str, _ClaimedTurn]) -> None:
        """Renew the leases of these turns.

        Database errors cancel nothing: if no process can reach the database, the turns stay claimed here.
        Only delivery pauses, because other processes may deliver by then.
        """
        started_at = self._clock()
        renewal = asyncio.ensure_future(self._log.renew([turn.claim for turn in turns.values()]))
        try:
            # A database that does not answer counts as unavailable.
            done_in_time, _ = await asyncio.wait({renewal}, timeout=self._lease_seconds_left())
            if not done_in_time:
                self._delivery.suspend()
            renewed = await renewal
        except DatabaseUnavailable:
            if self._lease_seconds_left() == 0:
                self._delivery.suspend()
            return
        finally:
            renewal.cancel()
        self._renewed_at = started_at
        for turn_id, turn in turns.items():
            if turn_id not in renewed and self.turns.get(turn_id) is turn:
                self.cancel(turn_id)
            elif turn.runner is not None:
                # A wakeup may have been lost: look for decisions.
                turn.runner.wake_if_waiting()
        self._delivery.resume()

    def _lease_seconds_left(self) -> float:
        """Return the seconds for which the leases are certainly valid."""
        return max(0.0, self._renewed_at + self._log.lease_seconds - HEARTBEAT_SECONDS - self._clock())

    async def _shut_down(self) -> None:
        """Cancel all turns, wait CLEAN_UP_SECONDS for them, and release them within HAND_OVER_SECONDS. Leases of others
        expire.
        """
        claims = {turn.task: turn.claim for turn in self.turns.values() if turn.task is not None}
        for turn in self.turns.values():
            if turn.task is not None and not turn.is_stopping:
                turn.task.cancel()
        stuck: set[asyncio.Task[None]] = set()
        if claims:
            _, stuck = await asyncio.wait(claims.keys(), timeout=CLEAN_UP_SECONDS)
        for task in stuck:
            log.warning("task %s did not end, its lease will expire", task.get_name())
            task.cancel()
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                # A turn that is still cleaning up must not start elsewhere.
                done = [claim for task, claim in claims.items() if task not in stuck]
                late_claims: Sequence[Claim] = ()
                if self._claiming is not None:
                    with contextlib.suppress(CountersignError):
                        late_claims = [claim for claim in await self._claiming if claim not in claims.values()]
                await self._log.release([*done, *late_claims])
                for claim in late_claims:
                    await self._log.release_delivery(claim.turn_id)
        except (CountersignError, TimeoutError) as error:
            log.warning("claimed turns were not released: %s", error or "the database does not answer")

"""The turns this process drives: takes them in or claims them, keeps them, stops them, and gives them back when it
leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Protocol

from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Claim, Receipt, TurnRecord, TurnStatus
from bot.domain.wakeups import ApprovalDecided, ConfigChanged, StopRequested, Wakeup, WorkAvailable
from bot.engine.monotonic_clock import monotonic
from bot.engine.turn_runner import TurnRunner
from bot.errors import CountersignError, DatabaseUnavailable, LostLease, ModelError, Stopped
from bot.logs import in_context
from bot.ports import TurnLog

# -------------------- capacity
# How many more turns may begin in this process, and who goes first: what waits on disk, before what comes in now.
#
# Called by `worker`, which holds the turns; knows neither them nor where they come from.


@dataclass(slots=True)
class Capacity:
    """Room for `limit` turns side by side. Of those that are on disk and wait, this process knows what its last look
    for them has found; until the first has ended it takes it that there are some.
    """

    limit: int = 32
    others_wait: bool = True
    """The last look has found no end of turns that wait."""
    _taken_in: int = 0
    _asked_for: int = 0
    _lining_up: int = 0
    _lined_up: int = 0

    def available(self, held: int) -> int:
        """How many more may begin where so many are held."""
        return self.limit - held - self._taken_in - self._asked_for

    def has_free_slot(self, held: int) -> bool:
        """Whether one that is not on disk yet may begin, beside all that came before it."""
        return not self.others_wait and self.available(held) > self._lining_up + self._lined_up

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """One is put on disk that begins with that."""
        self._taken_in += 1
        try:
            yield
        finally:
            self._taken_in -= 1

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """One is put on disk that has to be looked for. A look that is under way may miss it."""
        self._lining_up += 1
        try:
            yield
        finally:
            self._lining_up -= 1
            self._lined_up += 1

    @contextmanager
    def looking(self, most: int) -> Iterator[None]:
        """It is looked for those that wait; up to `most` of them begin."""
        self._lined_up = 0
        self._asked_for = most
        try:
            yield
        finally:
            self._asked_for = 0


log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 4.0
CLAIM_AT_ONCE = 8
LONGEST_PAUSE_SECONDS = 60.0
CLEAN_UP_SECONDS = 4.0
"""How long calls in flight get to end when this process leaves."""
HAND_OVER_SECONDS = 2.0
UNREADABLE = "What is stored of this question cannot be read."


class Begin(Protocol):
    """Makes a turn ready to be driven."""

    def __call__(self, claim: Claim, record: TurnRecord) -> TurnRunner:
        """The turn of this claim, as far as it has got."""
        ...


class ViewSink(Protocol):
    """What becomes of the drawing of turns that this process drives."""

    def forget(self, turn_id: str) -> None:
        """Another process drives it now."""

    def settle(self, turn_id: str) -> None:
        """It has ended, waits for people or was given back."""

    def wake(self) -> None:
        """Something on disk may want drawing."""

    def suspend(self) -> None:
        """It is not known whether turns are still ours."""

    def resume(self) -> None:
        """It is known again."""


@dataclass(slots=True, eq=False)
class _Held:
    """A turn in this process's hands. `stopping` is set once, when its task has been cancelled for good."""

    claim: Claim
    task: asyncio.Task[None] | None = None
    turn: TurnRunner | None = None
    stopping: bool = False


@dataclass(slots=True)
class Worker:
    """Drives turns side by side, as far as there is `room`, and tells `shown` what becomes of them. `clock` is in
    seconds and never jumps.
    """

    turn_log: TurnLog
    begin: Begin
    shown: ViewSink
    reaches: Callable[[], Sequence[str]]
    """The reaches of the surfaces, which may move: this process drives no turns that it could not draw."""
    changed: Callable[[], None] = lambda: None
    """Hears that servers, policies or profiles may be others now."""
    room: Capacity = field(default_factory=Capacity)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = monotonic
    _renewed_at: float = 0.0
    _held: dict[str, _Held] = field(default_factory=dict)
    _claiming: asyncio.Future[Sequence[Claim]] | None = None
    """What is being claimed, until it is held."""
    _home: Context | None = None
    """What turns are driven in, whosever message they come from; None unless this worker runs."""
    _kicked: asyncio.Event = field(default_factory=asyncio.Event)

    def poll(self) -> None:
        """There may be something to claim: look now."""
        self._kicked.set()

    def wake(self, turn_id: str) -> None:
        """Somebody has decided something about this turn."""
        held = self._held.get(turn_id)
        if held is not None and held.turn is not None:
            held.turn.wake()
        self.poll()

    def cancel(self, turn_id: str) -> None:
        """The turn was stopped, or is another's now. Its task is cancelled once; a second stop changes nothing."""
        held = self._held.get(turn_id)
        if held is not None and held.task is not None and not held.stopping:
            held.stopping = True
            held.task.cancel()
        self.poll()

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk. Its turn begins with that where it can; else it is looked for."""
        if self._begins_at_once(message.conversation):
            return await self._take_in(message)
        try:
            with self.room.queueing():
                return await self.turn_log.enqueue(message)
        finally:
            self.poll()

    def _begins_at_once(self, conversation: ConversationKey) -> bool:
        """Whether a turn may begin here, as far as its conversation lets it. Of several processes, whoever has the
        least to do should claim it.
        """
        if self.turn_log.lease_seconds is not None or self._home is None:
            return False
        key = f"{conversation}:"
        return self.room.has_free_slot(len(self._held)) and any(key.startswith(reach) for reach in self.reaches())

    async def _take_in(self, message: InboundMessage) -> Receipt:
        claim = None
        try:
            with self.room.taking_in():
                receipt, claim = await self.turn_log.enqueue_and_claim(message)
        finally:
            if claim is None:
                self.poll()
        if claim is not None and self._home is not None:
            self._home.run(self._hold, claim)
        elif claim is not None:
            # It is received, whether it can be given back or not: the next process finds it in either case.
            with contextlib.suppress(CountersignError, TimeoutError):
                async with asyncio.timeout(HAND_OVER_SECONDS):
                    await self.turn_log.release([claim])
                    await self.turn_log.release_delivery(claim.turn_id)
        return receipt

    async def run(self) -> None:
        """Claim and drive until cancelled; then cancel what is held, wait for it, and give it back."""
        self._home = copy_context()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_forever(), name="claims")
                group.create_task(self._beat_forever(), name="heartbeat")
                group.create_task(self.turn_log.listen(self._hear), name="doorbell")
        finally:
            self._home = None
            await self._hand_over()

    def _hear(self, ring: Wakeup) -> None:
        """Another process has changed something; this may also be an echo of our own."""
        match ring:
            case ApprovalDecided(turn_id):
                self.wake(turn_id)
            case StopRequested(turn_id):
                self.cancel(turn_id)
            case ConfigChanged():
                self.changed()
            case WorkAvailable():
                # It is also heard after a silence, in which anything may have been called.
                self.changed()
                self.poll()
        self.shown.wake()

    # ------------------------------------------------------------------ claiming

    async def _claim_forever(self) -> None:
        while True:
            self._kicked.clear()
            claims = await self._claim()
            for claim in claims:
                self._hold(claim)
            self._claiming = None
            if not claims:
                with contextlib.suppress(TimeoutError):
                    # Jitter keeps many processes from asking in step; it is no secret.
                    async with asyncio.timeout(POLL_SECONDS * random.uniform(0.9, 1.1)):  # noqa: S311
                        await self._kicked.wait()

    async def _claim(self) -> Sequence[Claim]:
        most = min(CLAIM_AT_ONCE, self.room.available(len(self._held)))
        if most <= 0:
            self.room.others_wait = True
            return ()
        asked_at = self.clock()
        with self.room.looking(most):
            # What is held is read when the database comes to it, and again when it is tried again.
            self._claiming = asyncio.ensure_future(self.turn_log.claim(most, self._held.keys(), self.reaches()))
            try:
                # Shielded: what was claimed while this process was told to leave must be given back, too.
                claims = await asyncio.shield(self._claiming)
            except DatabaseUnavailable:
                self.room.others_wait = True
                return ()  # the database itself says once that it is away
        lease = self.turn_log.lease_seconds
        if lease is not None and self.clock() - asked_at > lease - HEARTBEAT_SECONDS:
            return ()  # this process has slept: others may have them by now, or it finds them once more
        self.room.others_wait = len(claims) == most
        return claims

    def _hold(self, claim: Claim) -> None:
        held = _Held(claim)
        self._held[claim.turn_id] = held
        # The task takes the context along: every line that is written for the turn names it.
        with in_context(turn=claim.turn_id, conversation=str(claim.conversation)):
            held.task = asyncio.create_task(self._drive(held), name=f"turn:{claim.turn_id}")
        held.task.add_done_callback(lambda _task: self._let_go(held))

    def _let_go(self, held: _Held) -> None:
        # By identity: the entry may be a newer claim on the same turn.
        if self._held.get(held.claim.turn_id) is held:
            del self._held[held.claim.turn_id]
            self.shown.settle(held.claim.turn_id)
        self.poll()

    # ------------------------------------------------------------------ driving

    async def _drive(self, held: _Held) -> None:
        claim = held.claim
        try:
            held.turn = self.begin(claim, claim.initial_record or await self.turn_log.resume(claim))
            await held.turn.run()
        except Stopped:
            await self._end(claim, TurnStatus.CANCELLED, "")
        except LostLease:
            log.info("turn %s is another process's now", claim.turn_id)
            self.shown.forget(claim.turn_id)
        except asyncio.CancelledError:
            if held.stopping:
                await self._end(claim, TurnStatus.CANCELLED, "")
            raise
        except DatabaseUnavailable:
            await self._give_back(claim)
        except ModelError as error:
            log.warning("turn %s: %s", claim.turn_id, error)
            await self._end(claim, TurnStatus.FAILED, str(error))
        except Exception:
            reference = secrets.token_hex(3)
            log.exception("turn %s failed, reference %s", claim.turn_id, reference)
            await self._end(
                claim, TurnStatus.FAILED, f"Something broke on my end; it is logged as {reference}. Please try again."
            )

    async def _end(self, claim: Claim, status: TurnStatus, failure: str) -> None:
        try:
            await self.turn_log.finish(claim, status, (), failure)
        except LostLease:
            self.shown.forget(claim.turn_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn must not be left as it is
            log.error("turn %s could not be ended: %r", claim.turn_id, error)
            await self._end_unread(claim, failure or UNREADABLE)
        self.shown.wake()

    async def _end_unread(self, claim: Claim, failure: str) -> None:
        """End a turn whose rows are of no use. It is kept in hand until that is done: let go, it would be claimed again
        at once, and for ever.
        """
        seconds = POLL_SECONDS
        while True:
            try:
                await self.turn_log.fail(claim, failure)
            except LostLease:
                self.shown.forget(claim.turn_id)
                return
            except Exception as error:  # noqa: BLE001 - let go, it would come back at once
                log.error("turn %s could not be ended, trying again: %r", claim.turn_id, error)
                await self.pause(seconds)
                seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
            else:
                return

    async def _give_back(self, claim: Claim) -> None:
        """Let go of a turn that the database would not let us write, as soon as it does."""
        while True:
            await self.pause(POLL_SECONDS)
            with contextlib.suppress(DatabaseUnavailable):
                await self.turn_log.release([claim])
                return

    # ------------------------------------------------------------------ keeping and leaving

    async def _beat_forever(self) -> None:
        self._renewed_at = self.clock()
        while True:
            await self.pause(HEARTBEAT_SECONDS)
            held = dict(self._held)
            if held:
                await self._renew(held)
            else:
                self._renewed_at = self.clock()
                self.shown.resume()

    async def _renew(self, held: Mapping[str, _Held]) -> None:
        """Renew the leases of turns that were in hand a moment ago.

        While the database is away nothing is cancelled: if it is away for everybody, the turns are still ours when it
        is back, and what a tool has returned meanwhile counts. Only drawing stops, since others may draw by then.
        """
        asked_at = self.clock()
        renewing = asyncio.ensure_future(self.turn_log.renew([each.claim for each in held.values()]))
        try:
            # A database that says nothing at all is as good as away.
            answered, _ = await asyncio.wait({renewing}, timeout=self._certain_seconds())
            if not answered:
                self.shown.suspend()
            kept = await renewing
        except DatabaseUnavailable:
            if self._certain_seconds() == 0:
                self.shown.suspend()
            return
        finally:
            renewing.cancel()
        self._renewed_at = asked_at
        for turn_id, each in held.items():
            if turn_id not in kept and self._held.get(turn_id) is each:
                self.cancel(turn_id)
            elif each.turn is not None:
                # The doorbell may not reach this process: look whether somebody has decided something.
                each.turn.wake_if_waiting()
        self.shown.resume()

    def _certain_seconds(self) -> float | None:
        """How long turns are still ours for certain, with time to spare; None if nobody could take them."""
        lease = self.turn_log.lease_seconds
        return None if lease is None else max(0.0, self._renewed_at + lease - HEARTBEAT_SECONDS - self.clock())

    async def _hand_over(self) -> None:
        """Cancel what is in hand and give it back, within a limit: what is not given back is taken, a lease later."""
        held = {each.task: each.claim for each in self._held.values() if each.task is not None}
        for each in self._held.values():
            if each.task is not None and not each.stopping:
                each.task.cancel()
        stuck: set[asyncio.Task[None]] = set()
        if held:
            _, stuck = await asyncio.wait(held.keys(), timeout=CLEAN_UP_SECONDS)
        for task in stuck:
            log.warning("%s does not end, its turn is left to its lease", task.get_name())
            task.cancel()
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                # A turn whose clean-up goes on must not begin elsewhere.
                done = [claim for task, claim in held.items() if task not in stuck]
                meanwhile = [claim for claim in await self._claimed_meanwhile() if claim not in held.values()]
                await self.turn_log.release([*done, *meanwhile])
                for claim in meanwhile:
                    await self.turn_log.release_delivery(claim.turn_id)
        except (CountersignError, TimeoutError) as error:
            log.warning("turns could not be handed over: %s", error or "the database does not answer")

    async def _claimed_meanwhile(self) -> Sequence[Claim]:
        """Turns that were being claimed when this process was told to leave."""
        if self._claiming is None:
            return ()
        with contextlib.suppress(CountersignError):
            return await self._claiming
        return ()

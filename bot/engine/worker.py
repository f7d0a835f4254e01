"""The turns this process drives: claims them, keeps them, stops them, and gives them back when it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.domain.turns import Claim, TurnRecord, TurnStatus
from bot.engine.turn import TurnInProgress
from bot.errors import CountersignError, DatabaseError, LostLease, ModelError, Stopped
from bot.ports import TurnLog

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 4.0
CLAIM_AT_ONCE = 8


class Begin(Protocol):
    """Makes a turn ready to be driven."""

    def __call__(self, claim: Claim, record: TurnRecord) -> TurnInProgress:
        """The turn of this claim, as far as it has got."""
        ...


@dataclass(slots=True, eq=False)
class _Held:
    """A turn in this process's hands. `stopping` is set once, when its task has been cancelled for good."""

    claim: Claim
    task: asyncio.Task[None] | None = None
    turn: TurnInProgress | None = None
    stopping: bool = False


@dataclass(slots=True)
class Worker:
    """Drives up to `limit` turns side by side. `forget` is told of turns that another process has taken over, `ended`
    of turns that have ended on an error and whose last state nobody has shown yet.
    """

    turn_log: TurnLog
    begin: Begin
    forget: Callable[[str], None]
    ended: Callable[[], None]
    limit: int = 32
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _held: dict[str, _Held] = field(default_factory=dict)
    _kicked: asyncio.Event = field(default_factory=asyncio.Event)

    def kick(self) -> None:
        """There may be something to claim: look now."""
        self._kicked.set()

    def ring(self, turn_id: str) -> None:
        """Somebody has decided something about this turn."""
        held = self._held.get(turn_id)
        if held is not None and held.turn is not None:
            held.turn.ring()
        self.kick()

    def interrupt(self, turn_id: str) -> None:
        """The turn was stopped, or is another's now. Its task is cancelled once; a second stop changes nothing."""
        held = self._held.get(turn_id)
        if held is not None and held.task is not None and not held.stopping:
            held.stopping = True
            held.task.cancel()
        self.kick()

    async def run(self) -> None:
        """Claim and drive until cancelled; then cancel what is held, wait for it, and give it back."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_forever(), name="claims")
                group.create_task(self._beat_forever(), name="heartbeat")
        finally:
            await self._hand_over()

    # ------------------------------------------------------------------ claiming

    async def _claim_forever(self) -> None:
        while True:
            self._kicked.clear()
            claims = await self._claim()
            for claim in claims:
                self._hold(claim)
            if not claims:
                with contextlib.suppress(TimeoutError):
                    # Jitter keeps many processes from asking in step; it is no secret.
                    async with asyncio.timeout(POLL_SECONDS * random.uniform(0.9, 1.1)):  # noqa: S311
                        await self._kicked.wait()

    async def _claim(self) -> Sequence[Claim]:
        room = min(CLAIM_AT_ONCE, self.limit - len(self._held))
        if room <= 0:
            return ()
        try:
            return await self.turn_log.claim(room)
        except DatabaseError as error:
            log.error("turns wait for the database: %s", error)
            return ()

    def _hold(self, claim: Claim) -> None:
        held = _Held(claim)
        self._held[claim.turn_id] = held
        held.task = asyncio.create_task(self._drive(held), name=f"turn:{claim.turn_id}")
        held.task.add_done_callback(lambda _task: self._let_go(held))

    def _let_go(self, held: _Held) -> None:
        # By identity: the entry may be a newer claim on the same turn.
        if self._held.get(held.claim.turn_id) is held:
            del self._held[held.claim.turn_id]
        self.kick()

    # ------------------------------------------------------------------ driving

    async def _drive(self, held: _Held) -> None:
        claim = held.claim
        try:
            held.turn = self.begin(claim, await self.turn_log.resume(claim))
            await held.turn.drive()
        except Stopped:
            await self._end(claim, TurnStatus.CANCELLED, "")
        except LostLease:
            log.info("turn %s is another process's now", claim.turn_id)
            self.forget(claim.turn_id)
        except asyncio.CancelledError:
            if held.stopping:
                await self._end(claim, TurnStatus.CANCELLED, "")
            raise
        except DatabaseError as error:
            log.error("turn %s waits for the database: %s", claim.turn_id, error)
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
            self.forget(claim.turn_id)
        except CountersignError as error:
            log.error("turn %s could not be ended: %s", claim.turn_id, error)
        self.ended()

    async def _give_back(self, claim: Claim) -> None:
        """Let go of a turn that the database would not let us write, as soon as it does."""
        while True:
            await self.pause(POLL_SECONDS)
            with contextlib.suppress(DatabaseError):
                await self.turn_log.release([claim])
                return

    # ------------------------------------------------------------------ keeping and leaving

    async def _beat_forever(self) -> None:
        while True:
            await self.pause(HEARTBEAT_SECONDS)
            held = dict(self._held)
            try:
                kept = await self.turn_log.renew([each.claim for each in held.values()]) if held else frozenset()
            except DatabaseError as error:
                log.error("leases could not be renewed: %s", error)
                continue
            for turn_id, each in held.items():
                if turn_id not in kept and self._held.get(turn_id) is each:
                    self.interrupt(turn_id)

    async def _hand_over(self) -> None:
        held = list(self._held.values())
        for each in held:
            if each.task is not None and not each.stopping:
                each.task.cancel()
        await asyncio.gather(*(each.task for each in held if each.task is not None), return_exceptions=True)
        try:
            await self.turn_log.release([each.claim for each in held])
        except CountersignError as error:
            log.warning("turns could not be handed over: %s", error)

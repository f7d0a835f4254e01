"""Deliveries to the app: each event once, however many attempts it takes, in order of its making.

An event is tried again after `within` seconds without an acknowledgement, at once, after one minute and after five;
commands and interactions are never tried again. Transports (`sockets`, `signed_posts`) only carry one attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tests.fakes.clock import Clock
from tests.fakes.slack.messages import Json

Kind = Literal["events_api", "slash_commands", "interactive"]
Outcome = Literal["acknowledged", "timeout", "http_error", "connection_failed"]


@dataclass
class Attempt:
    """One try. `by`: which connection or URL it went to; `status`: of HTTP; `seconds` until its outcome."""

    number: int
    by: str = ""
    outcome: Outcome | None = None
    status: int = 0
    seconds: float = 0.0
    no_retry: bool = False
    answer: Json | str | None = None


@dataclass
class Delivery:
    """One delivery to the app. `payload` is its content, `answer` the body of the acknowledgement, if any."""

    id: str
    kind: Kind
    payload: Json
    attempts: list[Attempt] = field(default_factory=list)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_acknowledged(self) -> bool:
        """Has the app acknowledged any attempt?"""
        return any(attempt.outcome == "acknowledged" for attempt in self.attempts)

    @property
    def answer(self) -> Json | str | None:
        """Body of the app's acknowledgement."""
        for attempt in self.attempts:
            if attempt.outcome == "acknowledged":
                return attempt.answer
        return None

    @property
    def event(self) -> Json:
        """The inner event of an event."""
        event: Json = self.payload.get("event", {})
        return event


class Transport(Protocol):
    """A way to the app."""

    def carry(self, delivery: Delivery, attempt: Attempt, reason: str, within: float) -> Coroutine[Any, Any, None]:
        """Try once and write the outcome into `attempt`; `reason` says why the one before failed ('' at first)."""
        ...


@dataclass
class Post:
    """The post office. Owns a task per delivery that is not settled; `close` ends them."""

    clock: Clock
    transport: Transport
    within: float = 3.0
    retries: tuple[float, ...] = (0.0, 60.0, 300.0)
    sent: list[Delivery] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def send(self, delivery: Delivery) -> Delivery:
        """Begin to deliver; returns at once."""
        self.sent.append(delivery)
        self._start(self._deliver(delivery))
        return delivery

    def again(self, delivery: Delivery, *, reason: str = "timeout") -> Attempt:
        """Deliver once more without need, as Slack may. Return the running attempt."""
        attempt = Attempt(len(delivery.attempts))
        delivery.attempts.append(attempt)
        self._start(self.transport.carry(delivery, attempt, reason, self.within))
        return attempt

    async def idle(self, seconds: float = 60.0) -> None:
        """Wait until everything sent so far is settled.

        Raises:
            TimeoutError: it was not within these seconds of real time.
        """
        async with asyncio.timeout(seconds):
            for delivery in list(self.sent):
                await delivery.settled.wait()

    async def close(self) -> None:
        """End every attempt."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        reason = ""
        waits = (None, *(self.retries if delivery.kind == "events_api" else ()))
        for wait in waits:
            if wait:
                await self.clock.reach(self.clock.now() + wait)
            attempt = Attempt(len(delivery.attempts))
            delivery.attempts.append(attempt)
            await self.transport.carry(delivery, attempt, reason, self.within)
            if delivery.is_acknowledged or attempt.no_retry:
                break
            reason = attempt.outcome or "timeout"
        delivery.settled.set()

"""How often each of Slack's methods may be called: kept for the whole workspace, by everything in this process.

Limits count per method, workspace and app (docs.slack.dev, "Rate limits" and each method's own page). What Slack
itself says in `Retry-After` wins. Must not know what is being sent; how large it may be stands in `limits.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from bot.errors import DeliveryFailed

MINUTE = 60.0
POSTS_AT_ONCE = 3
POSTS_PERIOD = 3.2
"""Slack takes about one post a second in a channel, and a few at once."""
PATIENCE = 20.0
"""Seconds a caller waits for its turn; longer waits are a DeliveryFailed that says how long."""
RESERVE = 0.25
"""The part of a limit that is kept for what must get out: ends and cards."""
REMEMBERED_CHANNELS = 1000

_A_MINUTE: Mapping[str, int] = {
    "auth.test": 100,
    "chat.appendStream": 100,
    "chat.delete": 50,
    "chat.postEphemeral": 100,
    "chat.postMessage": 300,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.update": 50,
    "conversations.info": 50,
    "conversations.open": 50,
    "conversations.replies": 50,
    "files.completeUploadExternal": 100,
    "files.getUploadURLExternal": 100,
    "files.info": 100,
    "usergroups.list": 20,
    "users.info": 100,
    "views.open": 100,
    "views.publish": 100,
    "views.push": 100,
    "views.update": 100,
}
DEFAULT_A_MINUTE = 50
MARGIN = 0.95
"""Slack counts at its own end, where calls arrive bunched."""
_POSTS = frozenset({"chat.postMessage", "chat.startStream"})


@dataclass(slots=True)
class _Gate:
    """At most `count` calls in any `period` seconds. `taken` are the times at which calls were let through."""

    count: int
    period: float
    taken: deque[float] = field(default_factory=deque)
    closed_until: float = 0.0

    def opens(self, now: float) -> float:
        """The earliest time for one more call."""
        earliest = max(now, self.closed_until)
        if len(self.taken) >= self.count:
            earliest = max(earliest, self.taken[-self.count] + self.period)
        return earliest

    def take(self, at: float) -> None:
        self.taken.append(at)
        while len(self.taken) > self.count:
            self.taken.popleft()

    def used(self, now: float) -> int:
        return sum(at > now - self.period for at in self.taken)


class Pacing:
    """Lets calls through one after the other, as fast as Slack takes them.

    `processes` is how many processes use the same app in the same workspace: each takes its share.
    """

    def __init__(
        self,
        *,
        processes: int = 1,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._processes = max(processes, 1)
        self._clock = clock
        self._pause = pause
        self._gates: dict[str, _Gate] = {}
        self._channels: dict[str, _Gate] = {}

    async def take(self, method: str, channel: str = "") -> None:
        """Wait for the method's turn, and for a post for the channel's. Raises DeliveryFailed if that would take too
        long.
        """
        now = self._clock()
        gates = [self._gate(method)]
        if method in _POSTS and channel:
            gates.append(self._channel(channel, now))
        at = max(gate.opens(now) for gate in gates)
        if at - now > PATIENCE:
            raise DeliveryFailed(f"Slack takes no more {method} for now.", retry_after=at - now)
        for gate in gates:
            gate.take(at)
        if at > now:
            await self._pause(at - now)

    def close(self, method: str, seconds: float) -> None:
        """Slack has asked for a pause."""
        gate = self._gate(method)
        gate.closed_until = max(gate.closed_until, self._clock() + seconds)

    def spare(self, method: str) -> bool:
        """Whether there is room for a call that might as well not be made: some is kept for those that must."""
        gate, now = self._gate(method), self._clock()
        return gate.opens(now) <= now and gate.used(now) < gate.count * (1 - RESERVE)

    def room(self, method: str) -> float:
        """How many calls a minute there are that might as well not be made."""
        return self._gate(method).count * (1 - RESERVE)

    def _gate(self, method: str) -> _Gate:
        if method not in self._gates:
            count = int(_A_MINUTE.get(method, DEFAULT_A_MINUTE) * MARGIN / self._processes)
            self._gates[method] = _Gate(max(count, 1), MINUTE)
        return self._gates[method]

    def _channel(self, channel: str, now: float) -> _Gate:
        if len(self._channels) > REMEMBERED_CHANNELS:
            self._channels = {name: gate for name, gate in self._channels.items() if gate.opens(now) > now}
        return self._channels.setdefault(channel, _Gate(POSTS_AT_ONCE, POSTS_PERIOD))

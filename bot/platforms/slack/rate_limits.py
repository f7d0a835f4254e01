"""Rate limits of Slack's methods, shared by all processes that share a database, else local to this process.

Limits count per method, workspace and app (docs.slack.dev, "Rate limits" and each method's page). Slack's `Retry-After`
has precedence.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from bot.domain.metrics import MetricSink, PlatformLimited, null_sink
from bot.errors import DatabaseError, DeliveryFailed
from bot.i18n import gettext_lazy
from bot.ports import Quota, QuotaExceeded, QuotaGranted, Quotas

# -------------------- rate window


@dataclass(slots=True)
class RateWindow:
    """At most `count` calls in any `period` seconds of this process. `quota` replaces the count while the processes
    share their limits. `reserve` is the share for required calls.
    """

    name: str
    count: int
    period: float
    quota: Quota
    reserve: float
    _taken: deque[float] = field(default_factory=deque)
    _closed_until: float = 0.0
    _left: tuple[float, float] | None = None
    """Calls that all processes together had left, or will have, at a time."""

    def next_call_at(self, now: float) -> float:
        """Return the earliest time of one more call."""
        earliest = max(now, self._closed_until)
        if len(self._taken) >= self.count:
            earliest = max(earliest, self._taken[-self.count] + self.period)
        return earliest

    def count_call(self, at: float) -> None:
        """Count a call at that time."""
        self._taken.append(at)
        while len(self._taken) > self.count:
            self._taken.popleft()

    def close(self, until: float) -> None:
        """Block all calls until that time."""
        self._closed_until = max(self._closed_until, until)
        self.record_retry_after(1.0, self._closed_until)

    def blocked_seconds(self, now: float) -> float:
        """Return the seconds until calls are unblocked."""
        return max(self._closed_until - now, 0.0)

    def record_retry_after(self, left: float, at: float) -> None:
        """Record the number of calls that all processes had left at that time."""
        self._left = left, at

    def has_headroom(self, now: float) -> bool:
        """Return True if this process could make a call now without using the reserve."""
        used = sum(at > now - self.period for at in self._taken)
        return self.next_call_at(now) <= now and used < self.count * (1 - self.reserve)

    def spare_for_all(self, now: float) -> bool:
        """Return True if all processes together have headroom, estimated from the last answer and the time since."""
        if self._left is None:
            return True
        left, at = self._left
        left = min(left + (now - at) / self.quota.interval, float(self.quota.at_once))
        return left >= 1 + self.quota.at_once * self.reserve


# -------------------- shared rate limits
# An unavailable store must not delay deliveries: after a short time each process counts for itself, and Slack's own
# rejections apply.

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
"""Seconds that a call to Slack waits for the shared store."""
SILENT_SECONDS = 10.0
"""Seconds without requests to the shared store after it failed."""

T = TypeVar("T")


class SharedRateLimits:
    """Quotas under the name of one account. `clock` counts seconds."""

    def __init__(self, quotas: Quotas, account: str, clock: Callable[[], float]) -> None:
        self._quotas = quotas
        self._account = account
        self._clock = clock
        self._asked_again_at = float("-inf")
        self._failing = False

    @property
    def works(self) -> bool:
        """True while the shared store is asked."""
        return self._clock() >= self._asked_again_at

    async def take(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded | None:
        """Take a permit; return None if the shared store is unavailable."""
        return await self._answer(lambda: self._quotas.acquire(self._quota_name(name), quota, most_wait))

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Pause this method in all processes; no effect while the shared store is down."""
        await self._answer(lambda: self._quotas.pause(self._quota_name(name), quota, seconds))

    def _quota_name(self, name: str) -> str:
        return f"{self._account}:{name}"

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        if not self.works:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await ask()
        except (DatabaseError, TimeoutError) as error:
            self._asked_again_at = self._clock() + SILENT_SECONDS
            if not self._failing:
                self._failing = True
                log.warning("rate limits of Slack are local to this process for now (%s)", type(error).__name__)
            return None
        if self._failing:
            self._failing = False
            log.info("rate limits of Slack are shared with other processes again")
        return answer


MINUTE = 60.0
POSTS_AT_ONCE = 3
POSTS_PERIOD = 3.2
"""Seconds of a window for posts. Slack allows about one post a second in a channel, with short bursts."""
PATIENCE = 20.0
"""Seconds a caller waits for its turn. A longer wait raises DeliveryFailed, which names the seconds."""
RESERVE = 0.25
"""Share of a limit reserved for required calls: ends of turns and cards."""
AT_ONCE = 1 / 3
"""Share of a limit that all processes together may use in a burst; the rest is spread over the minute."""
REMEMBERED_CHANNELS = 1000

_A_MINUTE: Mapping[str, int] = {
    "assistant.threads.setStatus": 100,
    "assistant.threads.setSuggestedPrompts": 100,
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
    "conversations.history": 50,
    "files.completeUploadExternal": 100,
    "files.getUploadURLExternal": 100,
    "files.info": 100,
    "reactions.remove": 20,
    "usergroups.list": 20,
    "users.info": 100,
    "views.open": 100,
    "views.publish": 100,
    "views.push": 100,
    "views.update": 100,
}
DEFAULT_A_MINUTE = 50
MARGIN = 0.95
"""Share of Slack's limit that is used, because calls arrive at Slack in bursts."""
_POSTS = frozenset({"chat.postMessage", "chat.startStream"})
_BUNCHED = frozenset({"chat.startStream", "chat.stopStream"})
"""Methods that users trigger at the same moment: half of their limit may be used in a burst."""
_NEEDLESS = frozenset({"chat.startStream"})
"""Optional methods without a reserve: a stream that cannot be started is posted instead."""


class RateLimiter:
    """Delays calls until Slack's limits allow them.

    `account` identifies the owner of the limits. It is equal in all processes with the same token and is not a secret.
    `observe` receives the seconds that calls wait.
    """

    def __init__(
        self,
        *,
        account: str = "",
        observe: MetricSink = null_sink,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._account = account
        self._observe = observe
        self.clock = clock
        self._pause = pause
        self._sharing: SharedRateLimits | None = None
        self._gates: dict[str, RateWindow] = {}
        self._channels: dict[str, RateWindow] = {}

    def share(self, quotas: Quotas) -> None:
        """Share the limits with other processes from now on."""
        self._sharing = SharedRateLimits(quotas, self._account, self.clock)

    async def take(self, method: str, channel: str = "") -> None:
        """Wait for a permit of the method, and of the channel for a post. Raises DeliveryFailed if the wait would be
        too long.
        """
        # The channel first: if it refuses, a turn of the method would be lost.
        gates = [self._channel(channel)] if method in _POSTS and channel else []
        wait = 0.0
        for gate in (*gates, self._gate(method)):
            wait = max(wait, await self._turn(gate, method))
        if wait > 0:
            self._observe(PlatformLimited("slack", wait))
            await self._pause(wait)

    async def close(self, method: str, seconds: float, channel: str = "") -> None:
        """Pause a method for the seconds that Slack requested: in the channel of a post, because Slack limits posts by
        channel; everywhere if another channel is paused too, because then the workspace's limit is reached.
        """
        self._observe(PlatformLimited("slack", seconds))
        now = self.clock()
        gate = self._gate(method)
        if method in _POSTS and channel:
            others = any(name != channel and window.blocked_seconds(now) > 0 for name, window in self._channels.items())
            gate = gate if others else self._channel(channel)
        gate.close(now + seconds)
        if self._sharing is not None:
            await self._sharing.pause(gate.name, gate.quota, seconds)

    def has_headroom(self, method: str) -> bool:
        """Return True if the limit has headroom for an optional call. The use by other processes is estimated."""
        gate, now = self._gate(method), self.clock()
        return gate.has_headroom(now) and (not self._shares or gate.spare_for_all(now))

    def remaining(self, method: str) -> float:
        """Return the number of optional calls a minute."""
        gate = self._gate(method)
        return MINUTE / gate.quota.interval if self._shares else gate.count * (1 - gate.reserve)

    @property
    def _shares(self) -> bool:
        return self._sharing is not None and self._sharing.works

    async def _turn(self, gate: RateWindow, method: str) -> float:
        """Take a permit and return the seconds until it is valid. Raises DeliveryFailed without taking one if the wait
        would be too long.
        """
        answer = await self._sharing.take(gate.name, gate.quota, PATIENCE) if self._sharing is not None else None
        now = self.clock()
        match answer:
            case QuotaGranted(wait, left):
                gate.record_retry_after(left, now)
                wait = max(wait, gate.blocked_seconds(now))
            case QuotaExceeded(wait):
                gate.record_retry_after(1.0, now + wait)
            case None:
                wait = gate.next_call_at(now) - now
        if isinstance(answer, QuotaExceeded) or wait > PATIENCE:
            raise DeliveryFailed(
                gettext_lazy("Slack's rate limit is reached for now."), retry_after=wait, details=method
            )
        gate.count_call(now + wait)
        return wait

    def _gate(self, method: str) -> RateWindow:
        if method not in self._gates:
            count = int(_A_MINUTE.get(method, DEFAULT_A_MINUTE) * MARGIN)
            at_once = round(count / 2 if method in _BUNCHED else count * AT_ONCE)
            quota = Quota(at_once, MINUTE / (count - at_once))
            self._gates[method] = RateWindow(method, count, MINUTE, quota, 0.0 if method in _NEEDLESS else RESERVE)
        return self._gates[method]

    def _channel(self, channel: str) -> RateWindow:
        if len(self._channels) > REMEMBERED_CHANNELS:
            now = self.clock()
            self._channels = {name: gate for name, gate in self._channels.items() if gate.next_call_at(now) > now}
        quota = Quota(POSTS_AT_ONCE, POSTS_PERIOD / POSTS_AT_ONCE)
        return self._channels.setdefault(
            channel, RateWindow(f"posts:{channel}", POSTS_AT_ONCE, POSTS_PERIOD, quota, 0.0)
        )

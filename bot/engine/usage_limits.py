"""Usage limits, checked before a turn's first model request.

A running turn is finished, and concurrent turns are not seen: both may exceed a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bot.domain.turns import Turn
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitStatus,
    UsageLimit,
    UsageOwner,
    UsageQuery,
    UsageTotal,
    limit_owner,
    limits_for,
)
from bot.errors import LimitReached
from bot.ports import UsageStore

LARGE_REQUESTS = 2_000
LARGE_SECONDS = 10.0
"""Seconds for which a sum of many requests is cached: one request more changes little."""
_WHOSE = {LimitScope.PERSON: "your", LimitScope.CHANNEL: "this channel's", LimitScope.WORKSPACE: "this workspace's"}
_WHEN = {LimitPeriod.DAY: "for today", LimitPeriod.MONTH: "for this month"}


async def no_limits(_turn: Turn) -> None:
    """Accept all turns."""


class UsageLimiter:
    """Usage limits with their present usage. `clock` is in epoch seconds."""

    def __init__(
        self,
        limits: Sequence[UsageLimit],
        usage: UsageStore,
        currency: str = "",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._usage = usage
        self._currency = currency
        self._clock = clock
        self._large: dict[UsageQuery, tuple[float, UsageTotal]] = {}
        """Cached large sums, with their expiry."""

    async def check(self, turn: Turn) -> None:
        """Raise LimitReached if a limit of this turn is used up."""
        now = self._clock()
        for status in await self.statuses(UsageOwner.of(turn.author, turn.conversation)):
            if status.reached:
                raise LimitReached(_limit_text(status, now))

    async def statuses(self, owner: UsageOwner) -> Sequence[LimitStatus]:
        """Return the status of every limit for this owner, in the order of the file."""
        limits = limits_for(self._limits, owner)
        if not limits:
            return ()
        now = self._clock()
        sums = await self._sums([_query(limit, owner, now) for limit in limits], now)
        return [
            LimitStatus(limit, limit.used(total, self._currency), limit.every.end(now), self._currency)
            for limit, total in zip(limits, sums, strict=True)
        ]

    async def _sums(self, queries: Sequence[UsageQuery], now: float) -> Sequence[UsageTotal]:
        # The upper bound covers a clock that was set back.
        self._large = {query: entry for query, entry in self._large.items() if now < entry[0] <= now + LARGE_SECONDS}
        results = {query: self._large[query][1] for query in queries if query in self._large}
        missing = [query for query in queries if query not in results]
        if missing:
            totals = dict(zip(missing, await self._usage.totals(missing), strict=True))
            # A concurrent check may have replaced an entry: set, not kept.
            expiry = now + LARGE_SECONDS
            self._large |= {
                query: (expiry, total) for query, total in totals.items() if total.requests >= LARGE_REQUESTS
            }
            results |= totals
        return [results[query] for query in queries]


def _query(limit: UsageLimit, owner: UsageOwner, now: float) -> UsageQuery:
    since, name = limit.every.begin(now), limit_owner(limit, owner)
    match limit.per:
        case LimitScope.PERSON:
            return UsageQuery(since, person=name)
        case LimitScope.CHANNEL:
            return UsageQuery(since, channel=name)
        case LimitScope.WORKSPACE:
            return UsageQuery(since, workspace=name)


def _limit_text(status: LimitStatus, now: float) -> str:
    limit = status.limit
    when = datetime.fromtimestamp(status.resets_at, UTC)
    hours = max(status.resets_at - now, 0) / 3600
    wait = f"in {hours:.0f} h" if hours >= 2 else f"in {hours * 60:.0f} min"
    wait = f"in {hours / 24:.0f} days" if hours >= 48 else wait
    return (
        f"The request was not sent: {_WHOSE[limit.per]} limit {_WHEN[limit.every]} is used up, {status.said}. "
        f"It resets on {when.day} {when:%B} at 00:00 UTC, {wait}."
    )

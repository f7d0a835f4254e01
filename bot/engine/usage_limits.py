"""Limits on what is spent, looked at before a question reaches a model.

Called by whoever drives a turn, and by commands that show how much is left. A turn that has begun is finished, and two
that begin in the same moment do not see each other: a limit is passed by what is under way when it is reached.
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
"""A sum of many requests is made anew so often, and not for each question: one request more changes little of it."""
_WHOSE = {LimitScope.PERSON: "your", LimitScope.CHANNEL: "this channel's", LimitScope.WORKSPACE: "this workspace's"}
_WHEN = {LimitPeriod.DAY: "for today", LimitPeriod.MONTH: "for this month"}


async def no_limits(_turn: Turn) -> None:
    """Where nothing is limited."""


class UsageLimiter:
    """The limits, and how much of them is used up. `clock` is in epoch seconds."""

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
        """Sums that take long to make, and until when they hold."""

    async def check(self, turn: Turn) -> None:
        """Raises LimitReached if nothing is left of a limit that holds for this question."""
        now = self._clock()
        for balance in await self.statuses(UsageOwner.of(turn.author, turn.conversation)):
            if balance.reached:
                raise LimitReached(_said(balance, now))

    async def statuses(self, spender: UsageOwner) -> Sequence[LimitStatus]:
        """How every limit stands that holds for this person there, in the order of the file."""
        limits = limits_for(self._limits, spender)
        if not limits:
            return ()
        now = self._clock()
        sums = await self._sums([_query(limit, spender, now) for limit in limits], now)
        return [
            LimitStatus(limit, limit.used(spent, self._currency), limit.every.end(now), self._currency)
            for limit, spent in zip(limits, sums, strict=True)
        ]

    async def _sums(self, queries: Sequence[UsageQuery], now: float) -> Sequence[UsageTotal]:
        # A clock that was put back must not let them hold for longer.
        self._large = {query: kept for query, kept in self._large.items() if now < kept[0] <= now + LARGE_SECONDS}
        known = {query: self._large[query][1] for query in queries if query in self._large}
        missing = [query for query in queries if query not in known]
        if missing:
            found = dict(zip(missing, await self._usage.totals(missing), strict=True))
            # Meanwhile another question may have found that what is known here is too old for it.
            until = now + LARGE_SECONDS
            self._large |= {query: (until, spent) for query, spent in found.items() if spent.requests >= LARGE_REQUESTS}
            known |= found
        return [known[query] for query in queries]


def _query(limit: UsageLimit, spender: UsageOwner, now: float) -> UsageQuery:
    since, name = limit.every.begin(now), limit_owner(limit, spender)
    match limit.per:
        case LimitScope.PERSON:
            return UsageQuery(since, person=name)
        case LimitScope.CHANNEL:
            return UsageQuery(since, channel=name)
        case LimitScope.WORKSPACE:
            return UsageQuery(since, workspace=name)


def _said(balance: LimitStatus, now: float) -> str:
    limit = balance.limit
    when = datetime.fromtimestamp(balance.resets_at, UTC)
    hours = max(balance.resets_at - now, 0) / 3600
    wait = f"in {hours:.0f} h" if hours >= 2 else f"in {hours * 60:.0f} min"
    wait = f"in {hours / 24:.0f} days" if hours >= 48 else wait
    return (
        f"The model was not asked: {_WHOSE[limit.per]} limit {_WHEN[limit.every]} is used up, {balance.said}. "
        f"It begins anew on {when.day} {when:%B} at 00:00 UTC, {wait}."
    )

"""Report of `/usage` as JSON values, as in `GET /api/usage`. Money is in units of its currency, to the millionth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bot.domain.usage import MICRO, LimitStatus, LimitUnit, UsageGrouping, UsageTotal, total

MOST_NAMES = 1_000


def usage_report(
    since: float, by: UsageGrouping, sums: Sequence[tuple[str, UsageTotal]], limits: Iterable[LimitStatus]
) -> Mapping[str, Any]:
    """Return usage since a time (epoch seconds): the total, and at most `MOST_NAMES` sums."""
    return {
        "since": _moment(since),
        "by": by.value,
        "total": _sum(total(spent for _, spent in sums)),
        "sums": [{"name": name, **_sum(spent)} for name, spent in sums[:MOST_NAMES]],
        "omitted": max(0, len(sums) - MOST_NAMES),
        "limits": [_limit(limit) for limit in limits],
    }


def _sum(spent: UsageTotal) -> dict[str, Any]:
    usage = spent.usage
    return {
        "requests": spent.requests,
        "inputTokens": usage.input_tokens,
        "cachedTokens": usage.cached_tokens,
        "cacheWrites": usage.cache_writes,
        "outputTokens": usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "costs": {currency: cost / MICRO for currency, cost in spent.costs.items()},
        "unpriced": spent.unpriced,
        "estimated": spent.estimated,
    }


def _limit(balance: LimitStatus) -> dict[str, Any]:
    limit = balance.limit
    of_money = limit.unit is LimitUnit.MONEY
    return {
        "per": limit.per.value,
        "every": limit.every.value,
        "unit": limit.unit.value,
        "used": balance.used / MICRO if of_money else balance.used,
        "most": limit.most / MICRO if of_money else limit.most,
        "currency": balance.currency if of_money else "",
        "resetsAt": _moment(balance.resets_at),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

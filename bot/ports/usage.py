"""The store of tokens and money used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.usage import UsageGrouping, UsageQuery, UsageTotal


class UsageStore(Protocol):
    """Recorded usage of models. The rows are written with their completions (`bot.ports.TurnLog`)."""

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        """Return the sum of each query."""

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        """Return the sums by name, the most expensive first; without prices, the most tokens first."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than `seconds`. Return their number."""

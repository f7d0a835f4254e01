"""The store of tokens and money used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.usage import UsageGrouping, UsageQuery, UsageTotal


class UsageStore(Protocol):
    """What was asked of models. The rows are written with the replies they are about (`bot.ports.TurnLog`)."""

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        """What fits each query, added up."""

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        """What fits, added up by name, the most expensive first; where nothing has a price, the most tokens."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than that; how many there were."""

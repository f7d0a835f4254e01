"""Usage of models, on a database: every method is one transaction, see `bot.ports.UsageStore`."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.usage import UsageGrouping, UsageQuery, UsageTotal
from bot.storage import usage_rows
from bot.storage.database import Database


class SqlUsageStore:
    """Sums of recorded usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        """Return one sum for each query."""
        return await self._database.run(
            lambda connection: [usage_rows.read_sum(connection, query) for query in queries]
        )

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        """Return sums by name."""
        return await self._database.read(lambda connection: usage_rows.read_sums(connection, query, by))

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete older usage."""
        return await self._database.run(lambda connection: usage_rows.delete_old(connection, seconds, limit))

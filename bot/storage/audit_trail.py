"""All of the audit, read piece by piece: to be exported, and to see whether every row is what it was.

For the command line, the doctor and the daily line in the log. Each piece is a transaction of its own, so that a long
audit takes little memory and never holds up the bot; what is added meanwhile is read, too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from bot.domain.audit import AuditEntry, AuditHead, AuditQuery, Finding, Whole
from bot.storage.audit_chain import Chain
from bot.storage.audit_rows import Row, entry_of, read_head, read_on
from bot.storage.database import Database

PIECE = 500
"""Rows a transaction."""

_ALL = AuditQuery()


class SqlAuditTrail:
    """The audit from its beginning to its end."""

    def __init__(self, database: Database, piece: int = PIECE) -> None:
        self._database = database
        self._piece = piece

    async def head(self) -> AuditHead:
        """The last row, as somebody may remember it."""
        return await self._database.run(read_head)

    async def entries(self, query: AuditQuery) -> AsyncGenerator[AuditEntry, None]:
        """All rows that fit, oldest first."""
        rows = await self._read(query, None, self._piece)
        while rows:
            for row in rows:
                yield entry_of(row)
            rows = await self._read(query, rows[-1]["seq"], self._piece) if len(rows) == self._piece else ()

    async def verify(self, known: AuditHead | None = None) -> Finding:
        """Compare every row with the one before, from the first on, and row `known.seq` with what is known of it.

        Found is whatever was changed, put in or taken out in between; what was cut off at the end, or an audit that was
        written anew as a whole, only with a `known` row from before.
        """
        chain = Chain(known)
        rows = await self._read(_ALL, None, self._piece)
        while rows:
            for row in rows:
                misfit = chain.add(row)
                if misfit is not None:
                    return misfit
            # A piece begins once more with the row that the one before has ended with: two of one number would show.
            rows = (await self._read(_ALL, chain.head.seq - 1, self._piece + 1))[1:]
        return chain.end() or Whole(chain.head)

    async def _read(self, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
        return await self._database.run(lambda connection: read_on(connection, query, behind, limit))

"""All of the audit, read piece by piece: exported, and verified.

Each piece is a transaction of its own, so that a long audit takes little memory and never holds up the bot. Rows that
are added meanwhile are read, too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from bot.domain.audit import AuditEntry, AuditHead, AuditQuery, AuditReport
from bot.storage.audit_rows import Row, entry_of, read_head, read_on
from bot.storage.audit_verification import NOTHING_NOTED, Noted, Verification
from bot.storage.database import Database

PIECE = 500
"""Rows a transaction."""


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

    async def verify(self, noted: Noted = NOTHING_NOTED, *, quick: bool = False) -> AuditReport:
        """Compare every row with the one before, with its MAC, with what was noted outside the database, and with the
        turns it is about. `quick` limits all of it to the latest rows and turns.
        """
        return await Verification(self._database, self._piece, noted).run(quick=quick)

    async def _read(self, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
        return await self._database.run(lambda connection: read_on(connection, query, behind, limit))

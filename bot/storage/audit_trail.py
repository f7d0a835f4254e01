"""Export and verification of the whole audit, in batches.

Each batch is its own transaction, so that a long audit takes little memory and does not block the bot. Rows that are
added meanwhile are read too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from bot.domain.audit import AuditEntry, AuditHead, AuditQuery, AuditReport
from bot.storage.audit_rows import Row, entry_of, read_head, read_on
from bot.storage.audit_verification import NOTHING_NOTED, Noted, Verification
from bot.storage.database import Database

BATCH_SIZE = 500
"""Rows a transaction."""


class SqlAuditTrail:
    """Reader and verifier of the whole audit."""

    def __init__(self, database: Database, batch_size: int = BATCH_SIZE) -> None:
        self._database = database
        self._batch_size = batch_size

    async def head(self) -> AuditHead:
        """Return the number and hash of the last row."""
        return await self._database.read(read_head)

    async def entries(self, query: AuditQuery) -> AsyncGenerator[AuditEntry, None]:
        """Yield all matching rows, oldest first."""
        rows = await self._read(query, None, self._batch_size)
        while rows:
            for row in rows:
                yield entry_of(row)
            rows = await self._read(query, rows[-1]["seq"], self._batch_size) if len(rows) == self._batch_size else ()

    async def verify(self, noted: Noted = NOTHING_NOTED, *, quick: bool = False) -> AuditReport:
        """Verify the chain of rows, their MACs, the checkpoints in `noted`, and the turns they refer to. `quick` limits
        this to the latest rows and turns.
        """
        return await Verification(self._database, self._batch_size, noted).run(quick=quick)

    async def _read(self, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
        return await self._database.read(lambda connection: read_on(connection, query, behind, limit))

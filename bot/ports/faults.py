"""Store of faults that operators are told of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.faults import Fault, FaultRecord


class FaultStore(Protocol):
    """Faults of all processes, and the messages about them. A fault lasts while any reporter reports it. The
    database's clock decides.
    """

    async def report(self, fault: Fault, reporter: str, seconds: float) -> None:
        """Open a fault, or keep it open for `seconds` more. A fault that was over gets a new message if the last one
        is older than an hour; otherwise the last one counts it. Raises DatabaseError.
        """

    async def extend(self, key: str, reporter: str, seconds: float) -> None:
        """Keep a fault open for `seconds` more if it is open. Raises DatabaseError."""

    async def withdraw(self, key: str, reporter: str) -> None:
        """Remove a reporter's report. The fault is over if no other reporter reports it. Raises DatabaseError."""

    async def close_unreported(self) -> None:
        """Close faults that no reporter reports any more, and delete those that were over days ago. Raises
        DatabaseError.
        """

    async def undelivered(self) -> Sequence[FaultRecord]:
        """Return the faults with an outdated message, oldest first. Raises DatabaseError."""

    async def begin_message(self, record: FaultRecord) -> None:
        """Record that the message is about to be posted. Raises DatabaseError."""

    async def record_message(self, record: FaultRecord, ref: str) -> None:
        """Record that the message with this reference shows the fault as it is in `record`. Raises DatabaseError."""

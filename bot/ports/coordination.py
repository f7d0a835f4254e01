"""Coordination of the processes of one bot: rate limits, leases, and the faults that operators are told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.faults import Fault, FaultRecord


@dataclass(frozen=True, slots=True)
class Quota:
    """Rate limit: `at_once` times after a pause, and once more every `interval` seconds. In any `period` that is
    `at_once + period / interval` times at most.
    """

    at_once: int
    interval: float


@dataclass(frozen=True, slots=True)
class QuotaGranted:
    """Permission to start in `wait` seconds. `left` is the number of further starts without a wait; below zero, the
    number of waiting callers.
    """

    wait: float
    left: float


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """No start is available in time. The next one is in `wait` seconds."""

    wait: float


class Quotas(Protocol):
    """Rate limits by name, shared by all processes. The database's clock decides. A repeated request after a lost
    response uses up one start and does no other harm.
    """

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        """Acquire the next start if it is within `most_wait` seconds. Raises DatabaseError."""

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Delay all new requests by `seconds`; after that starts come one by one. Earlier grants remain. Raises
        DatabaseError.
        """

    async def forget_idle(self, limit: int) -> int:
        """Delete up to `limit` names that limit no request now. Return their number. Raises DatabaseError."""


class Leases(Protocol):
    """Leases for work that only one process should do at a time. The database's clock decides."""

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Acquire a free lease, or renew the holder's own. Return True if it is held for `seconds` from before this
        call. A lease of another holder is free once it is released or expired. Raises DatabaseError before half of
        `seconds` have passed if the database is unreachable.
        """

    async def find_holders(self, prefix: str) -> Mapping[str, str]:
        """Return the holders of the leases that have not expired and whose names begin with the prefix, by name. Raises
        DatabaseError.
        """

    async def release(self, name: str, holder: str) -> None:
        """Release a lease at once; no effect on another holder's. Raises DatabaseError."""


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

    async def undelivered_faults(self) -> Sequence[FaultRecord]:
        """Return the faults with an outdated message, oldest first. Raises DatabaseError."""

    async def begin_message(self, record: FaultRecord) -> None:
        """Record that the message is about to be posted. Raises DatabaseError."""

    async def record_message(self, record: FaultRecord, ref: str) -> None:
        """Record that the message with this reference shows the fault as it is in `record`. Raises DatabaseError."""

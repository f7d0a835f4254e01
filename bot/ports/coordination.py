"""Coordination of the processes of one bot: rate limits and leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
    """The quota leaves no start in time; it may in `wait` seconds."""

    wait: float


class Quotas(Protocol):
    """Limits that all processes keep together, by name. The database's clock decides. Asking twice where the answer to
    the first was lost costs a turn and does no harm.
    """

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        """Take the next turn if it comes within `most_wait` seconds; nothing otherwise. Raises DatabaseError."""

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Let nobody who asks from now on have a turn before `seconds` are over; after that they come one by one.
        Turns that were granted stay granted. Raises DatabaseError.
        """

    async def forget_idle(self, limit: int) -> int:
        """Forget up to `limit` names that nobody would have to wait for: they say nothing. How many there were. Raises
        DatabaseError.
        """


class Leases(Protocol):
    """Leases for work that only one process should do at a time. The database's clock decides."""

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Take what is free, or renew what is the holder's: True if it is theirs for `seconds`, to be counted from
        before this was called. What another holds is free once they released it, or once their seconds are over.
        Raises DatabaseError, before half of the seconds are over if the database is away.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let another have it at once. Nothing happens if it is not the holder's. Raises DatabaseError."""

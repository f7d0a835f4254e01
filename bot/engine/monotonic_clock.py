"""A clock for limits and leases: it never jumps, and goes on while the machine sleeps."""

from __future__ import annotations

import time

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic() -> float:
    """Seconds since some moment in the past. Where the system has no such clock, sleep does not count."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)

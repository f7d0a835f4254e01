"""Monotonic clock for limits and leases. Time in system sleep counts."""

from __future__ import annotations

import time

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic() -> float:
    """Return seconds since an arbitrary moment. Without CLOCK_BOOTTIME, system sleep does not count."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)

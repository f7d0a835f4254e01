"""Discord's ids: milliseconds since 2015 and a number, so that later things have larger ids."""

from __future__ import annotations

from tests.fakes.clock import Clock

EPOCH = 1_420_070_400_000
PER_MILLISECOND = 1 << 22


class Snowflakes:
    """Makes ids, each larger than every one before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        """Return an id of this moment."""
        moment = (int(self._clock.now() * 1000) - EPOCH) * PER_MILLISECOND
        self._last = max(moment, self._last + 1)
        return str(self._last)


def moment_of(snowflake: str) -> float:
    """Return the time of an id, in seconds since 1970."""
    return (int(snowflake) // PER_MILLISECOND + EPOCH) / 1000

"""When a connection that has ended is made again.

Kept by the owner of one `connection`. Counts what went wrong in a row; the times come from its `pacing`.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.mcp.connection_timing import ConnectionTiming


class ReconnectBackoff:
    """The pauses before the next try, in seconds; None means that nobody tries until somebody needs the server.
    `chance` gives random numbers in [0, 1).
    """

    def __init__(self, pacing: ConnectionTiming, chance: Callable[[], float]) -> None:
        self._pacing = pacing
        self._chance = chance
        self._failures = 0

    def failed(self) -> float | None:
        """The server could not be connected to."""
        self._failures += 1
        return self._planned(self._failures)

    def lost(self, lived: float) -> float | None:
        """A connection that worked for `lived` seconds ended by itself. One that lived long is forgiven what was
        before, and the first try after it is made at once.
        """
        self._failures = 0 if lived >= self._pacing.steady_after else self._failures + 1
        if self._failures <= 1 and self._pacing.tries:
            return self._pacing.quick_pause
        return self._planned(max(1, self._failures - 1))

    def refused(self) -> float:
        """The server does not know us. It is asked again so rarely that this never ends."""
        return self._pacing.sign_in_pause

    def afresh(self) -> None:
        """Somebody wants it tried, whatever has happened."""
        self._failures = 0

    def _planned(self, failures: int) -> float | None:
        return None if failures > self._pacing.tries else self._pacing.pause(failures, self._chance())

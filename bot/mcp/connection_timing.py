"""How long a connection waits before it tries again, and similar times.

A value given to every connection; tests give a fast one. All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.mcp.circuit_breaker import AT_ONCE, BreakerSettings


@dataclass(frozen=True, slots=True)
class ConnectionTiming:
    """The times of a connection.

    `first_pause`, `factor`, `longest_pause`, `spread`: 5, 10, 20, 40, 60, 60 ... each up to a quarter more or less.
    `tries`: after so many of them in vain the server is tried no more, but once whenever somebody needs it.
    `quick_pause`: before the first try after a connection that had worked was lost.
    `steady_after`: a connection that lived this long is forgiven its earlier failures.
    `nudge_after`: a call shortens the pause, but never below this.
    `patience`: how long a call waits for a connection that is being made.
    `settle`, `apart`: what a server says has changed is listed when it has said nothing more for the first, and no
    sooner than the second after it was listed last; one that never stops is not waited for longer than that.
    `sign_in_pause`: before a server that does not know us is tried again without being asked to.
    `farewell`: how long a connection that is replaced or given up waits for its running calls.
    `crowding`: how long a server that starts keeps others from starting, if there are many.
    `idle_after`: a connection that nobody has used for so long is closed until somebody does; None means never.
    `confirm`: how long a server may take to confirm its tools before a call that somebody approved is sent.
    `longest_ttl`: for how long a server's word that its tools stay as they are is taken, at most.
    `quiet_after`, `quiet_limit`: a server that nobody has used for so long is asked whether it is there, and how long
    it may take to say so; None asks nobody.
    `tripping`: when calls leave a server alone that keeps failing.
    """

    first_pause: float = 5.0
    factor: float = 2.0
    longest_pause: float = 60.0
    tries: int = 5
    spread: float = 0.25
    quick_pause: float = 0.2
    steady_after: float = 30.0
    nudge_after: float = 1.0
    patience: float = 5.0
    settle: float = 0.3
    apart: float = 5.0
    crowding: float = 2.0
    sign_in_pause: float = 900.0
    farewell: float = 10.0
    idle_after: float | None = 1800.0
    confirm: float = 5.0
    longest_ttl: float = 60.0
    quiet_after: float | None = 60.0
    quiet_limit: float = 15.0
    tripping: BreakerSettings = BreakerSettings()

    def without_reconnecting(self) -> ConnectionTiming:
        """The same times, and a server that has failed is left alone until an admin connects it."""
        return replace(self, tries=0, tripping=AT_ONCE)

    def pause(self, failures: int, chance: float) -> float:
        """The wait after so many failures in a row (at least one). `chance` is a random number in [0, 1)."""
        # Long before this many doublings the pause is the longest one; a float ends at some thousand.
        planned = min(self.first_pause * self.factor ** min(failures - 1, 64), self.longest_pause)
        return planned * (1 + self.spread * (2 * chance - 1))

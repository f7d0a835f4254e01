"""Timing of connections: pauses, timeouts and intervals, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.mcp.circuit_breaker import AT_ONCE, BreakerSettings


@dataclass(frozen=True, slots=True)
class ConnectionTiming:
    """Times of a connection.

    `first_pause`, `factor`, `longest_pause`, `spread`: pauses between attempts of 5, 10, 20, 40, 60, 60 ..., each up to
    a quarter more or less. `tries`: maximum number of failed attempts in a row; after that each use starts one attempt.
    `quick_pause`: before the first attempt after a lost connection. `steady_after`: a connection that lived this long
    resets the failures. `minimum_pause`: minimum pause when a call waits. `patience`: how long a call waits for a
    connection in progress. `settle`, `apart`: changed capabilities are listed when the server has been quiet for the
    first, and at least the second after the last listing. `sign_in_pause`: between attempts at a server that rejects
    the credentials. `farewell`: maximum wait for running calls when a connection is closed. `start_slot_seconds`:
    how long a starting server delays the start of others, if there are many. `idle_after`: an unused
    connection is closed after this time; None means never. `confirm`: timeout for confirming the tools before
    an approved call is sent.
    `longest_ttl`: upper limit for a server's cache lifetime of its tools. `quiet_after`, `quiet_limit`: an unused
    server is pinged after the first, with the second as timeout; None means no pings. `tripping`: settings of the
    circuit breaker.
    """

    first_pause: float = 5.0
    factor: float = 2.0
    longest_pause: float = 60.0
    tries: int = 5
    spread: float = 0.25
    quick_pause: float = 0.2
    steady_after: float = 30.0
    minimum_pause: float = 1.0
    patience: float = 5.0
    settle: float = 0.3
    apart: float = 5.0
    start_slot_seconds: float = 2.0
    sign_in_pause: float = 900.0
    farewell: float = 10.0
    idle_after: float | None = 1800.0
    confirm: float = 5.0
    longest_ttl: float = 60.0
    quiet_after: float | None = 60.0
    quiet_limit: float = 15.0
    tripping: BreakerSettings = BreakerSettings()

    def without_reconnecting(self) -> ConnectionTiming:
        """Return the same times without reconnects: after a failure an admin has to connect the server."""
        return replace(self, tries=0, tripping=AT_ONCE)

    def pause(self, failures: int, chance: float) -> float:
        """Return the pause after `failures` failures in a row, at least 1. `chance` is a random number in [0, 1)."""
        # The longest pause is reached long before 64 doublings; a float overflows at 1,024.
        planned = min(self.first_pause * self.factor ** min(failures - 1, 64), self.longest_pause)
        return planned * (1 + self.spread * (2 * chance - 1))

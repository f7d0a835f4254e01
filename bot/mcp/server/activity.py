"""Use of one server: running requests, and the time of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ActivityTracker:
    """Tracker of the use of one server. `clock` is in seconds; `on_end` is called after each request.

    `unresponsive` is set when a call has ended without an answer and no other request is running: the server should be
    pinged.
    """

    def __init__(self, clock: Callable[[], float], on_end: Callable[[], None]) -> None:
        self.running = 0
        self.unresponsive = asyncio.Event()
        self._clock = clock
        self._on_end = on_end
        self._last = clock()
        self._call_timed_out = False

    @contextmanager
    def track_user(self) -> Iterator[None]:
        """Count a request of a user within the block."""
        with self.track_internal():
            try:
                yield
            finally:
                self._last = self._clock()

    @contextmanager
    def track_internal(self) -> Iterator[None]:
        """Count an internal request within the block. It does not keep the connection open."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if self._call_timed_out and not self.running:
                self._call_timed_out = False
                self.unresponsive.set()
            self._on_end()

    def mark_unresponsive(self) -> None:
        """Record that the server did not answer in time."""
        self._call_timed_out = True

    @property
    def unused_since(self) -> float:
        """Clock time of the last use, or now while a request is running."""
        return self._clock() if self.running else self._last

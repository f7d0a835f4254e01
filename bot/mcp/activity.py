"""Who uses a connection now, and since when nobody does.

Kept by the `connection`: calls and what people ask of a server count, what the program asks by itself does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ActivityTracker:
    """The use of one server. `clock` is in seconds; `on_end` is called whenever somebody has done with it.

    `wondered`: a call has ended without an answer and no other is under way, so whoever tends the connection may ask
    whether the server is still there.
    """

    def __init__(self, clock: Callable[[], float], on_end: Callable[[], None]) -> None:
        self.running = 0
        self.wondered = asyncio.Event()
        self._clock = clock
        self._on_end = on_end
        self._last = clock()
        self._wondering = False

    @contextmanager
    def track_user(self) -> Iterator[None]:
        """Somebody uses it within the block."""
        with self.track_internal():
            try:
                yield
            finally:
                self._last = self._clock()

    @contextmanager
    def track_internal(self) -> Iterator[None]:
        """The program itself needs it within the block; it does not stay open for that."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if self._wondering and not self.running:
                self._wondering = False
                self.wondered.set()
            self._on_end()

    def mark_unresponsive(self) -> None:
        """The server did not answer in time: it may hang."""
        self._wondering = True

    @property
    def unused_since(self) -> float:
        """The time on the clock since which nobody has used it: now if somebody does."""
        return self._clock() if self.running else self._last

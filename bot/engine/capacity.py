"""How many more turns may begin in this process, and who goes first: what waits on disk, before what comes in now.

Called by `worker`, which holds the turns; knows neither them nor where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Capacity:
    """Room for `limit` turns side by side. Of those that are on disk and wait, this process knows what its last look
    for them has found; until the first has ended it takes it that there are some.
    """

    limit: int = 32
    others_wait: bool = True
    """The last look has found no end of turns that wait."""
    _taken_in: int = 0
    _asked_for: int = 0
    _lining_up: int = 0
    _lined_up: int = 0

    def available(self, held: int) -> int:
        """How many more may begin where so many are held."""
        return self.limit - held - self._taken_in - self._asked_for

    def has_free_slot(self, held: int) -> bool:
        """Whether one that is not on disk yet may begin, beside all that came before it."""
        return not self.others_wait and self.available(held) > self._lining_up + self._lined_up

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """One is put on disk that begins with that."""
        self._taken_in += 1
        try:
            yield
        finally:
            self._taken_in -= 1

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """One is put on disk that has to be looked for. A look that is under way may miss it."""
        self._lining_up += 1
        try:
            yield
        finally:
            self._lining_up -= 1
            self._lined_up += 1

    @contextmanager
    def looking(self, most: int) -> Iterator[None]:
        """It is looked for those that wait; up to `most` of them begin."""
        self._lined_up = 0
        self._asked_for = most
        try:
            yield
        finally:
            self._asked_for = 0

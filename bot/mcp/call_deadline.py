"""How long a call is still waited for. Used by `calls`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self


class CallDeadline:
    """A limit for a block: `silence` seconds after the last word of the server and `whole` in all, without the time in
    which a person is asked; `still` is how much that was. Raises TimeoutError out of the block.
    """

    def __init__(self, silence: float, whole: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._silence = silence
        self._began = self._now()
        self._ends = self._began + whole
        self.still = 0.0
        self._pauses = 0
        self._stopped = 0.0
        self._limit = asyncio.timeout_at(self._next())

    @property
    def waited(self) -> float:
        """The seconds after which it was over, or until now."""
        return (self._limit.when() or self._now()) - self._began - self.still

    def heard(self) -> None:
        """The server has said something."""
        if not self._pauses:
            self._set(self._next())

    @contextmanager
    def pause(self) -> Iterator[None]:
        """No time passes within the block."""
        if not self._pauses:
            self._stopped = self._now()
            self._set(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                still = self._now() - self._stopped
                self.still += still
                self._ends += still
                self._set(self._next())

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._limit.__aexit__(kind, error, trace)

    def _next(self) -> float:
        return min(self._now() + self._silence, self._ends)

    def _set(self, when: float | None) -> None:
        # What comes too late finds the time over.
        with suppress(RuntimeError):
            self._limit.reschedule(when)

"""Deadline of a call that pauses while a user is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self


class CallDeadline:
    """Timeout for a block: `silence` seconds after the server's last message and `whole` seconds in all, without
    pauses. `still` is the sum of the pauses in seconds. Raises TimeoutError out of the block.
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
        """Seconds until the timeout, or until now, without pauses."""
        return (self._limit.when() or self._now()) - self._began - self.still

    def heard(self) -> None:
        """Restart the silence timeout because the server sent a message."""
        if not self._pauses:
            self._set(self._next())

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock within the block."""
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
        # A message after the deadline must not extend it.
        with suppress(RuntimeError):
            self._limit.reschedule(when)

"""How long a server may say nothing in the middle of an answer. Used by `http_client`.

The HTTP library has a limit for that, but none that stands still while a server waits for a person.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx2

from bot.mcp.request_context import RequestContext


class ReadTimeout:
    """A limit of so many seconds, None for none, without the time in which a person is asked about the attempt."""

    def __init__(self, seconds: float | None, attempt: RequestContext) -> None:
        self._seconds = seconds
        self._attempt = attempt

    @classmethod
    def of(cls, request: httpx2.Request, attempt: RequestContext) -> ReadTimeout:
        """The limit that a request has, which is taken from it."""
        limits = request.extensions.get("timeout", {})
        request.extensions = {**request.extensions, "timeout": {**limits, "read": None}}
        return cls(limits.get("read"), attempt)

    async def first(self, network: httpx2.AsyncBaseTransport, request: httpx2.Request) -> httpx2.Response:
        """The answer to a request, as soon as it begins. Raises ReadTimeout if that is too late."""
        try:
            async with asyncio.timeout(self._seconds):
                return await network.handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer", request=request) from error

    async def next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """What comes next, None at the end. Raises ReadTimeout if that is too late."""
        if self._seconds is None:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(None) as limit:
                watch = _Watch(limit, self._seconds, self._attempt)
                try:
                    return await anext(chunks, None)
                finally:
                    watch.end()
        except TimeoutError as error:
            raise httpx2.ReadTimeout("nothing more") from error


class _Watch:
    """Puts a limit off for as long as people are being asked."""

    def __init__(self, limit: asyncio.Timeout, seconds: float, attempt: RequestContext) -> None:
        self._limit = limit
        self._seconds = seconds
        self._attempt = attempt
        self._heard = time.monotonic()
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._look)

    def end(self) -> None:
        """It is over."""
        self._alarm.cancel()

    def _look(self) -> None:
        left = self._attempt.quiet_since(self._heard) + self._seconds - time.monotonic()
        loop = asyncio.get_running_loop()
        if left > 0:
            self._alarm = loop.call_later(left, self._look)
        else:
            self._limit.reschedule(loop.time())

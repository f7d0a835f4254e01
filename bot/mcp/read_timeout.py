"""Read timeout of responses that pauses while a user is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx2

from bot.mcp.request_context import RequestContext


class ReadTimeout:
    """Timeout in seconds, None for no limit, without the time in which users are asked."""

    def __init__(self, seconds: float | None, attempt: RequestContext) -> None:
        self._seconds = seconds
        self._attempt = attempt

    @classmethod
    def of(cls, request: httpx2.Request, attempt: RequestContext) -> ReadTimeout:
        """Return the timeout of a request, and remove it from the request."""
        limits = request.extensions.get("timeout", {})
        request.extensions = {**request.extensions, "timeout": {**limits, "read": None}}
        return cls(limits.get("read"), attempt)

    async def first(self, network: httpx2.AsyncBaseTransport, request: httpx2.Request) -> httpx2.Response:
        """Return the response when it begins. Raises ReadTimeout."""
        try:
            async with asyncio.timeout(self._seconds):
                return await network.handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer", request=request) from error

    async def next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, None at the end. Raises ReadTimeout."""
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
    """Timer that is postponed while users are asked."""

    def __init__(self, limit: asyncio.Timeout, seconds: float, attempt: RequestContext) -> None:
        self._limit = limit
        self._seconds = seconds
        self._attempt = attempt
        self._heard = time.monotonic()
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._look)

    def end(self) -> None:
        """End the timer."""
        self._alarm.cancel()

    def _look(self) -> None:
        left = self._attempt.quiet_since(self._heard) + self._seconds - time.monotonic()
        loop = asyncio.get_running_loop()
        if left > 0:
            self._alarm = loop.call_later(left, self._look)
        else:
            self._limit.reschedule(loop.time())

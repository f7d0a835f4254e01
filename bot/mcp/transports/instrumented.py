"""A transport's two streams, watched: who was lost, what was sent, and answers repaired on the way in.

Wrapped around every transport by `open`. Knows JSON-RPC frames, not what they mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

import anyio
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from bot.mcp import request_context
from bot.mcp.response_repair import repair_response

_REPAIRED = ("tools/list", "tools/call", "resources/list", "resources/templates/list", "prompts/list")


@asynccontextmanager
async def instrument(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """The transport's streams; `on_end` is called when the other side has hung up."""
    async with transport as (incoming, outgoing):
        methods: dict[str, str] = {}
        yield _Incoming(incoming, methods, on_end), _Outgoing(outgoing, methods)


class _Incoming:
    """Reads messages, repairs the answers whose method is known and tells when there are no more."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], methods: dict[str, str], on_end: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._methods = methods
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The sender's context, for transports that carry one; the library asks for it by this name."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            return self._repair(await self._inner.receive())
        except anyio.EndOfStream:
            self._on_end()
            raise

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _repair(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            method = self._methods.pop(str(message.id), "")
            if method and isinstance(message, JSONRPCResponse):
                message.result = repair_response(method, message.result)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Incoming:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _Outgoing:
    """Writes messages, remembers what was asked and marks the asker's attempt as sent."""

    def __init__(self, inner: WriteStream[SessionMessage], methods: dict[str, str]) -> None:
        self._inner = inner
        self._methods = methods

    async def send(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=request_id, method=method):
                if method in _REPAIRED:
                    self._methods[str(request_id)] = method
                await self._send_request(item)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                self._methods.pop(str((params or {}).get("requestId")), None)
                await self._inner.send(item)
            case JSONRPCResponse() | JSONRPCError():
                # What the server has asked meanwhile is answered in the surroundings of the call that it is about, and
                # how that goes is not how the call goes.
                with request_context.begin():
                    await self._inner.send(item)
            case _:
                await self._inner.send(item)

    async def _send_request(self, item: SessionMessage) -> None:
        attempt = request_context.current()
        # Marked before and not after: a write that is cancelled half-way may have reached the server.
        attempt.sent = True
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            attempt.sent = False
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Outgoing:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

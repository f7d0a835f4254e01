"""Transport for streamable HTTP: the MCP library's own, above a client that reads the answers first.

The library takes any answer in a request's stream for its own, gives one in a body to whichever request it names, and
waits for its time limit after one that it cannot read. Here each request gets its own answer, or at once an error that
says what was wrong (`messages`). Answers to other requests are dropped.

The answer to a request that was accepted with 202 is taken from the stream that belongs to no request, as older clients
do.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse
from mcp.types.jsonrpc import RequestId

from bot.mcp.errors import FOREIGN_ID, LARGEST_ANSWER, NOT_RPC, UNREADABLE
from bot.mcp.sdk import TransportStreams
from bot.mcp.transports.messages import canonical_id, read_messages, unreadable, well_formed

log = logging.getLogger(__name__)

_JSON, _EVENTS = "application/json", "text/event-stream"
_Answer = JSONRPCResponse | JSONRPCError
_Waiting = dict[RequestId | None, asyncio.Queue[str]]
"""Data of the events with the answer to each request that waits for one."""
_OF_THE_BODY = frozenset(("content-type", "content-length", "transfer-encoding"))


def streamable_client(client: httpx2.AsyncClient, url: str) -> AbstractAsyncContextManager[TransportStreams]:
    """Exchange messages with the server at `url`. The client's transport is an `AnswerReader`."""
    return streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST_ANSWER)


class AnswerReader(httpx2.AsyncBaseTransport):
    """Transport that gives the library answers that it can read, each for its own request."""

    def __init__(self, server: str, inner: httpx2.AsyncBaseTransport) -> None:
        self._server = server
        self._inner = inner
        self._waiting: _Waiting = {}
        self._opening = asyncio.Lock()
        self._streams: set[_Events] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and read the response if it may hold messages."""
        request_id = _request_id(request)
        if request.method == "GET" and "last-event-id" not in request.headers:
            async with self._opening:
                response = await self._read(request, _Answers(self._server, None, self._waiting))
                if isinstance(response.stream, _Events):
                    self._streams.add(response.stream)
                    response.stream.on_end = partial(self._end, response.stream)
                return response
        if request_id is None:
            return await self._read(request, _Answers(self._server, None))
        # The answer may come in the other stream before the response does.
        queue = self._waiting[canonical_id(request_id)] = asyncio.Queue()
        response = await self._read(request, _Answers(self._server, request_id))
        if response.status_code == 202:
            async with self._opening:
                has_stream = bool(self._streams)
            if has_stream:
                awaited = _Awaited(queue, self._waiting, request_id)
                return httpx2.Response(200, headers={"content-type": _EVENTS}, stream=awaited)
        self._waiting.pop(canonical_id(request_id), None)
        return response

    def _end(self, stream: _Events) -> None:
        self._streams.discard(stream)
        for queue in self._waiting.values():
            queue.put_nowait("")

    async def _read(self, request: httpx2.Request, answers: _Answers) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith(_EVENTS) and response.is_success:
            response.stream = _Events(response, request, answers)
            response.headers["content-type"] = _EVENTS
        elif content_type.startswith(_JSON) and answers.request_id is not None and response.status_code != 202:
            return await _readable(response, answers)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class _Awaited(httpx2.AsyncByteStream):
    """Stream with the answer to a request that comes in another stream. It ends without one if that stream ends."""

    def __init__(self, queue: asyncio.Queue[str], waiting: _Waiting, request_id: RequestId) -> None:
        self._queue = queue
        self._waiting = waiting
        self._id = canonical_id(request_id)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._queue.get():
            yield f"data: {data}\n\n".encode("utf-8", "replace")

    async def aclose(self) -> None:
        self._waiting.pop(self._id, None)


def _request_id(request: httpx2.Request) -> RequestId | None:
    """Return the id of the JSON-RPC request; None for a notification, an answer or a stream."""
    if request.method != "POST":
        return None
    message = json.loads(request.content)
    request_id: RequestId | None = message.get("id") if "method" in message else None
    return request_id


class _Answers:
    """Reader of the messages for one request; without `request_id`, of a stream for all requests, in which answers to
    those that are `waiting` go to them.
    """

    def __init__(self, server: str, request_id: RequestId | None, waiting: _Waiting | None = None) -> None:
        self.request_id = request_id
        self._waiting: _Waiting = {} if waiting is None else waiting
        self.has_foreign = False
        self._server = server

    async def read(self, data: bytes | str) -> list[JSONRPCMessage] | None:
        """Return the messages without answers to other requests; None if `data` is one message to be left as it is."""
        message = await well_formed(data)
        if message is not None and (
            not isinstance(message.message, _Answer) or (self.request_id == message.message.id)
        ):
            return None
        items = await read_messages(data, self.request_id)
        return [item.message for item in items if isinstance(item, SessionMessage) and self._is_own(item.message)]

    def _is_own(self, message: JSONRPCMessage) -> bool:
        if not isinstance(message, _Answer):
            return True
        if self.request_id is None:
            if (queue := self._waiting.get(canonical_id(message.id))) is None:
                return True
            queue.put_nowait(_dump(message))
            return False
        if message.id is None:
            message.id = self.request_id
        if canonical_id(message.id) == canonical_id(self.request_id):
            return True
        level = logging.DEBUG if self.has_foreign else logging.WARNING
        log.log(level, "MCP server %s answered another request than the one that was sent, dropped", self._server)
        self.has_foreign = True
        return False


async def _readable(response: httpx2.Response, answers: _Answers) -> httpx2.Response:
    """Return a response with the answer to its request, or with an error in its place."""
    try:
        body = await response.aread()
    except httpx2.StreamError:
        return response  # The reason is recorded, and the library ends the request.
    except BaseException:
        await response.aclose()
        raise
    messages = await answers.read(body)
    if messages is None:
        return response
    if response.is_error:
        errors = [message for message in messages if isinstance(message, JSONRPCError)]
        legible = [message for message in errors if message.error.message not in UNREADABLE]
        return _rewritten(response, legible) if legible else response
    if not any(isinstance(message, _Answer) for message in messages):
        why = FOREIGN_ID if answers.has_foreign else NOT_RPC
        messages.append(unreadable(answers.request_id, why).message)
    return _rewritten(response, messages)


def _rewritten(response: httpx2.Response, messages: Sequence[JSONRPCMessage]) -> httpx2.Response:
    """Return the response with these messages, of which several become a stream of events."""
    one = len(messages) == 1
    texts = [_dump(message) for message in messages]
    content = texts[0] if one else "".join(f"data: {text}\n\n" for text in texts)
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_BODY]
    headers.append(("content-type", _JSON if one else _EVENTS))
    return httpx2.Response(response.status_code, headers=headers, content=content, extensions=response.extensions)


class _Events(httpx2.AsyncByteStream):
    """Stream of events with messages that the library can read."""

    def __init__(self, response: httpx2.Response, request: httpx2.Request, answers: _Answers) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._inner = response.stream
        self._answers = answers
        self.on_end: Callable[[], None] = lambda: None
        headers = {"content-type": response.headers["content-type"]}
        self._read = httpx2.Response(200, headers=headers, stream=self._inner, request=request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._read, max_event_size=LARGEST_ANSWER):
            messages = await self._answers.read(event.data) if event.event == "message" and event.data else None
            texts = [event.data] if messages is None else [_dump(message) for message in messages]
            for number, text in enumerate(texts, 1):
                yield _frame(event, text, is_last=number == len(texts))

    async def aclose(self) -> None:
        self.on_end()
        await self._inner.aclose()


def _frame(event: httpx2.ServerSentEvent, text: str, *, is_last: bool) -> bytes:
    """Return an event with another text. A stream is resumed after the last message of a batch only."""
    lines = [f"event: {event.event}", *(f"data: {line}" for line in text.split("\n"))]
    if event.id and is_last:
        lines.append(f"id: {event.id}")
    if event.retry is not None:
        lines.append(f"retry: {event.retry}")
    return "\n".join((*lines, "", "")).encode("utf-8", "replace")


def _dump(message: JSONRPCMessage) -> str:
    # pydantic would write an infinite number as null.
    return json.dumps(message.model_dump(by_alias=True, exclude_unset=True))

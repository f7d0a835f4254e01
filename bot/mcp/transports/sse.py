"""Transport for HTTP+SSE: an event stream beside the requests (MCP specification 2024-11-05, basic/transports).

The first event names the endpoint for messages. The MCP library's own transport is not used: under it a failed
request waits for its timeout, requests are serialized, and an event above a megabyte ends the stream.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCRequest

from bot.i18n import gettext_lazy
from bot.mcp.errors import LARGEST_ANSWER, InvalidDefinition
from bot.mcp.failures import http_error_response
from bot.mcp.sdk import OutgoingStream, TransportStreams, request_within_origin, sse_within_origin
from bot.mcp.transports.messages import Incoming, read_messages

log = logging.getLogger(__name__)

_FAILED = (httpx2.HTTPError, httpx2.StreamError)
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)
_KNOWN_TYPES = frozenset(("text/html", "text/plain", "application/json"))
"""Content types that may be named to users and models. Others are text of the server."""
_FIX = gettext_lazy("check its url, and that its transport is the right one")


@asynccontextmanager
async def sse_client(
    client: httpx2.AsyncClient, url: str, on_request_failed: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Exchange messages with the server at `url`. `on_request_failed` is called when a request fails, which ends only
    that request. Raises InvalidDefinition if there is no such server, and HTTPStatusError.
    """
    incoming_writer, incoming = anyio.create_memory_object_stream[Incoming](0)
    async with incoming_writer, incoming, sse_within_origin(client, url, max_event_size=LARGEST_ANSWER) as events:
        _check(events.response)
        async with anyio.create_task_group() as group:
            address = await group.start(_read, events, url, incoming_writer)
            outgoing = _Outgoing(client, address, group, incoming_writer, on_request_failed)
            try:
                yield incoming, outgoing
            finally:
                await outgoing.aclose()
                group.cancel_scope.cancel()


def _check(response: httpx2.Response) -> None:
    if response.is_redirect:
        raise InvalidDefinition(
            gettext_lazy("Its url leads to another address."), gettext_lazy("use that address instead")
        )
    response.raise_for_status()
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        type_name = kind if kind in _KNOWN_TYPES else gettext_lazy("another type")
        raise InvalidDefinition(
            gettext_lazy("Its url answers with {type} and not with a stream of events.", type=type_name), _FIX
        )


async def _read(
    events: httpx2.EventSource,
    url: str,
    incoming_writer: MemoryObjectSendStream[Incoming],
    *,
    task_status: TaskStatus[str],
) -> None:
    """Forward the server's messages, and close the stream at the end. The endpoint event comes first."""
    address = ""
    try:
        async with incoming_writer:
            async for event in events:
                match event.event:
                    case "endpoint" if not address:
                        address = _endpoint_url(url, event.data)
                        task_status.started(address)
                    case "message" if address and event.data:
                        for message in await read_messages(event.data):
                            await incoming_writer.send(message)
                    case _:
                        log.debug("unknown SSE event %.40r ignored", event.event)
    except (*_FAILED, *_GONE) as error:
        log.debug("SSE stream ended: %r", error)
    if not address:
        raise InvalidDefinition(gettext_lazy("Its stream of events ended before it said where to write to."), _FIX)


def _endpoint_url(url: str, given: str) -> str:
    """Return the endpoint for messages. Raises InvalidDefinition if it is on another host."""
    try:
        address = urljoin(url, given)
        ours, theirs = urlsplit(url), urlsplit(address)
        same = (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)
    except ValueError:
        same = False
    if not same or theirs.username is not None:
        raise InvalidDefinition(
            gettext_lazy("Its stream of events wants to be written to at another host."),
            gettext_lazy("use the url of that host"),
        )
    return address


class _Outgoing(OutgoingStream):
    """Write stream that sends each message as a request. Requests run concurrently, in the sender's context. A
    notification is sent before `send` returns, so that it arrives first.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        address: str,
        group: TaskGroup,
        incoming_writer: MemoryObjectSendStream[Incoming],
        on_request_failed: Callable[[], None],
    ) -> None:
        super().__init__()
        self._client = client
        self._address = address
        self._group = group
        self._incoming_writer = incoming_writer
        self._on_request_failed = on_request_failed

    async def _take(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._group.start_soon(self._ask, item, item.message.id)
        else:
            await self._post(item)

    async def _ask(self, item: SessionMessage, request_id: int | str) -> None:
        response = await self._post(item)
        failure = http_error_response(response)
        if failure is None:
            return
        self._on_request_failed()
        with suppress(*_GONE):
            await self._incoming_writer.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=failure)))

    async def _post(self, item: SessionMessage) -> httpx2.Response | None:
        """Return the response, None if the connection broke."""
        body = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            return await request_within_origin(self._client, "POST", self._address, json=body)
        except _FAILED as error:
            log.debug("message to an MCP server was not delivered: %r", error)
            return None

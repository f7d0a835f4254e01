"""Opening of a transport to a server: child process or HTTP.

Each transport yields the MCP library's two streams, instrumented: they record which requests were sent, and repair
responses that the library would reject as a whole because of one wrong item.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
import httpx2
from mcp import types
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp.types.jsonrpc import RequestId
from pydantic import TypeAdapter, ValidationError

from bot.domain.servers import HttpKind, HttpTransport, Protocol, ServerConfig, StdioTransport
from bot.mcp import sdk
from bot.mcp.config.checks import AllowedTargets, Resolve, check_start
from bot.mcp.errors import TOO_DEEP, TOO_DEEP_SCHEMA, WITHOUT_ID
from bot.mcp.oauth.tokens import AuthTransport, TokenProvider
from bot.mcp.sdk import ReadStream, TransportStreams, WriteStream
from bot.mcp.server.output import StderrTail, StrayLine
from bot.mcp.transports.http import GuardedTransport, http_client, pool
from bot.mcp.transports.json_rpc import json_rpc_client
from bot.mcp.transports.messages import CUT, canonical_id, unreadable
from bot.mcp.transports.sse import sse_client
from bot.mcp.transports.stdio import child_process
from bot.mcp.transports.streamable import AnswerReader, streamable_client

log = logging.getLogger(__name__)

_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_UNUSED = frozenset({"_meta", "icons"})
_ROLES = ("user", "assistant")
LEFT_OUT = "countersign/leftOut"
"""Key in a repaired listing: the removed tools, with the reason."""
_DEEPEST_SCHEMA = 100
"""Levels of nesting of a tool's arguments, objects and lists alike. Deeper ones are more than models and validators
read.
"""
_MOST_BLOCKS = 10_000
"""Maximum number of content blocks of a result: each is validated in the event loop."""
_LONGEST_NAME = 128
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_TEXTS = ("title", "description", "mimeType")
_LISTINGS = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))
_LISTEN = "subscriptions/listen"
"""Method of a request that is answered at the end of the connection."""


def repair_response(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a listing or of `tools/call` in a form that the library accepts; others unchanged."""
    match method:
        case "tools/list":
            return _listing(result)
        case "tools/call":
            return _outcome(result)
        case "resources/list":
            return _plain_list(result, "resources", "uri", "size")
        case "resources/templates/list":
            return _plain_list(result, "resourceTemplates", "uriTemplate")
        case "prompts/list":
            return _plain_list(result, "prompts", "name", "arguments")
        case _:
            return result


def _listing(result: dict[str, Any]) -> dict[str, Any]:
    listed = result.get("tools")
    listed = [entry for entry in listed if not _is_ui_only(entry)] if isinstance(listed, list) else []
    named = [entry for entry in listed if _has_name(entry)]
    tools = [entry for entry in named if not _is_deep(entry.get("inputSchema"))]
    deep = [entry["name"] for entry in named if _is_deep(entry.get("inputSchema"))]
    left_out = [f"{name[:_LONGEST_NAME]}: {TOO_DEEP_SCHEMA}" for name in deep]
    if len(named) < len(listed):
        left_out.append(f"{len(listed) - len(named)} without a name")
    if left_out:
        log.warning("%d tools without a name or with too deep arguments left out", len(listed) - len(tools))
    fixed = _complete({**result, "tools": [_tool(entry) for entry in tools]})
    return {**fixed, "_meta": {LEFT_OUT: left_out}} if left_out else fixed


def _has_name(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and bool(entry["name"])


def _is_deep(schema: Any) -> bool:
    level = [schema]
    for _ in range(_DEEPEST_SCHEMA):
        containers = [value.values() if isinstance(value, dict) else value for value in level if _is_container(value)]
        if not containers:
            return False
        level = list(chain.from_iterable(containers))
    return any(map(_is_container, level))


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_ui_only(raw: Any) -> bool:
    """Return True for a tool that is for a server's own UI only and not for models (extension
    io.modelcontextprotocol/ui, `visibility`).
    """
    meta = raw.get("_meta") if isinstance(raw, dict) else None
    page = meta.get("ui") if isinstance(meta, dict) else None
    visibility = page.get("visibility") if isinstance(page, dict) else None
    return isinstance(visibility, list) and bool(visibility) and "model" not in visibility


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    """Return a listing with the fields that the newest protocol requires. Older ones ignore them."""
    result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
    if not isinstance(result.get("nextCursor", ""), str):
        del result["nextCursor"]
    return result


def _plain_list(result: dict[str, Any], key: str, identity: str, *others: str) -> dict[str, Any]:
    """Return the resources, templates or prompts that have their required fields, without unused fields."""
    listed = result.get(key)
    items: list[dict[str, Any]] = []
    for raw in listed if isinstance(listed, list) else []:
        if not isinstance(raw, dict) or not isinstance(raw.get(identity), str) or not raw[identity]:
            log.warning("item of %s without %s left out", key, identity)
            continue
        name = raw.get("name")
        item: dict[str, Any] = {identity: raw[identity], "name": name if isinstance(name, str) else raw[identity]}
        item |= {field: raw[field] for field in _TEXTS if field != identity and isinstance(raw.get(field), str)}
        if "size" in others and isinstance(raw.get("size"), int) and not isinstance(raw["size"], bool):
            item["size"] = raw["size"]
        if "arguments" in others:
            item["arguments"] = _prompt_arguments(raw.get("arguments"))
        items.append(item)
    return _complete({**result, key: items})


def _prompt_arguments(given: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": raw["name"],
            "required": raw.get("required") is True,
            "description": raw["description"] if isinstance(raw.get("description"), str) else "",
        }
        for raw in (given if isinstance(given, list) else [])
        if isinstance(raw, dict) and isinstance(raw.get("name"), str) and raw["name"]
    ]


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the used fields of a tool. Icons and others are dropped, because they could only be invalid. An output
    schema is kept if every protocol version allows it and if it can be validated.
    """
    tool: dict[str, Any] = {"name": raw["name"], "inputSchema": _object_schema(raw.get("inputSchema"))}
    tool |= {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
    output = raw.get("outputSchema")
    if isinstance(output, dict) and output.get("type") == "object" and not _is_deep(output):
        tool["outputSchema"] = _object_schema(output)
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
        tool["annotations"] |= {"title": hints["title"]} if isinstance(hints.get("title"), str) else {}
    return tool


def _object_schema(given: Any) -> dict[str, Any]:
    """Return a schema with a root that is valid in every protocol version. The rest is unchanged."""
    if not isinstance(given, dict):
        return dict(_ANY_OBJECT)
    schema: dict[str, Any] = {**given, "type": "object"}
    properties = given.get("properties")
    schema["properties"] = {
        name: value
        for name, value in (properties if isinstance(properties, dict) else {}).items()
        if isinstance(value, dict | bool)
    }
    required = given.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        del schema["required"]
    if not isinstance(given.get("$schema", ""), str):
        del schema["$schema"]
    return schema


def _outcome(result: dict[str, Any]) -> dict[str, Any]:
    match result.get("resultType"):
        case "complete" | None:
            pass
        case "input_required":
            return result
        case unknown:
            # MCP specification 2026-07-28, basic/index: not to be taken for a result. The content is dropped, because
            # the library would parse it.
            return {"resultType": unknown}
    fixed = {
        **result,
        # Clients MUST take a result without the field as complete (MCP specification 2026-07-28, basic).
        "resultType": "complete",
        "content": [_block(raw) for raw in _content(result.get("content"))],
        "isError": result.get("isError") is True,
    }
    if not isinstance(result.get("_meta", {}), dict):
        del fixed["_meta"]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        # Only the newest protocol version accepts other values; all accept an object.
        fixed["structuredContent"] = {"result": structured}
    elif structured is None:
        fixed.pop("structuredContent", None)
    return fixed


def _content(given: Any) -> list[Any]:
    """Return the content as a list. One block or one text alone is taken for its only item."""
    match given:
        case list() if len(given) > _MOST_BLOCKS:
            note = {"type": "text", "text": f"({len(given) - _MOST_BLOCKS} more pieces of content were left out.)"}
            return [*given[:_MOST_BLOCKS], note]
        case list():
            return given
        case None | "":
            return []
        case _:
            return [given]


def _block(block: Any) -> dict[str, Any]:
    """Return a content block with the used fields, or a text that names its unsupported type."""
    audience: list[str] = []
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        block = {key: value for key, value in block.items() if key not in _UNUSED}
        audience = _audience(block.pop("annotations", None))
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            return _for({"type": "text", "text": block["text"]}, audience)  # most pieces are, and may be large
    try:
        known = _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        kind = block.get("type") if isinstance(block, dict) else type(block).__name__
        return {"type": "text", "text": f"[Unsupported content: {str(kind)[:100]}]"}
    return _for(known.model_dump(mode="json", by_alias=True, exclude_none=True), audience)


def _for(block: dict[str, Any], audience: list[str]) -> dict[str, Any]:
    return block | ({"annotations": {"audience": audience}} if audience else {})


def _audience(annotations: Any) -> list[str]:
    """Return the known values of a block's audience."""
    named = annotations.get("audience") if isinstance(annotations, dict) else None
    return [raw for raw in named if raw in _ROLES] if isinstance(named, list) else []


class _Requests:
    """Requests of one connection. Of those that wait for an answer the method is known."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._waiting: dict[RequestId | None, str] = {}
        self._last_id = 0
        self._has_foreign = False

    def start(self, request_id: RequestId, method: str) -> None:
        """Record a request."""
        self._waiting[canonical_id(request_id)] = method
        if isinstance(request_id, int):
            self._last_id = max(self._last_id, request_id)

    def end(self, request_id: RequestId | None) -> str:
        """Record the end of a request. Return its method; empty if it is none that waits for an answer."""
        method = self._waiting.pop(canonical_id(request_id), "")
        if not method and not self._was_sent(request_id):
            level = logging.DEBUG if self._has_foreign else logging.WARNING
            log.log(level, "MCP server %s answered a request that was never sent, answer dropped", self._server)
            self._has_foreign = True
        return method

    @property
    def only(self) -> RequestId | None:
        """Id of the only request that waits for an answer; None if there are several or none."""
        waiting = [request_id for request_id, method in self._waiting.items() if method != _LISTEN]
        return waiting[0] if len(waiting) == 1 else None

    def _was_sent(self, request_id: RequestId | None) -> bool:
        number = canonical_id(request_id)
        return isinstance(number, int) and 0 < number <= self._last_id


@asynccontextmanager
async def instrument(
    transport: AbstractAsyncContextManager[TransportStreams],
    config: ServerConfig,
    on_end: Callable[[], None],
    on_server_request: Callable[[str], None],
) -> AsyncIterator[TransportStreams]:
    """Yield the transport's streams, instrumented. `on_end` is called when the other side closes the connection,
    `on_server_request` with the method of each of its requests.
    """
    async with transport as (incoming, outgoing):
        requests = _Requests(config.name)
        yield (
            _Incoming(incoming, requests, on_end, on_server_request),
            _Outgoing(outgoing, requests, config.protocol),
        )


class _Incoming:
    """Read stream that repairs responses and reports the end."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        requests: _Requests,
        on_end: Callable[[], None],
        on_server_request: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._requests = requests
        self._on_end = on_end
        self._on_server_request = on_server_request

    @property
    def last_context(self) -> Any:
        """Sender's context, on transports that carry one. The name is the library's."""
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
        match item:
            case SessionMessage(message=JSONRPCError(id=None, error=error)):
                return self._without_id(error)
            case SessionMessage(message=JSONRPCError(id=request_id)):
                self._requests.end(request_id)
            case SessionMessage(message=JSONRPCResponse(id=request_id) as response):
                method = self._requests.end(request_id)
                is_cut = response.result.pop(CUT, False)
                if is_cut and method not in _LISTINGS:
                    return unreadable(request_id, TOO_DEEP)
                response.result = repair_response(method, response.result)
            case SessionMessage(message=JSONRPCRequest(method=method)):
                self._on_server_request(method)
        return item

    def _without_id(self, error: ErrorData) -> SessionMessage | Exception:
        """Return an error without an id as the error of the only request. It may still be about something else, such
        as a notification, unless its code says that a message could not be read (JSON-RPC 2.0, response object).
        """
        only = self._requests.only if error.code in (PARSE_ERROR, INVALID_REQUEST) else None
        if only is None:
            return StrayLine(error.message.encode("utf-8", "replace"))
        self._requests.end(only)
        quote = None if error.message == WITHOUT_ID else error.message
        failure = ErrorData(code=INVALID_REQUEST, message=WITHOUT_ID, data=quote)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=only, error=failure))

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
    """Write stream that records the method of requests and marks their context as sent. A set protocol is offered in
    the handshake, where the library offers the newest of the older era.
    """

    def __init__(self, inner: WriteStream[SessionMessage], requests: _Requests, protocol: Protocol) -> None:
        self._inner = inner
        self._requests = requests
        self._protocol = protocol

    async def send(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=request_id, method=method):
                self._requests.start(request_id, method)
                if method == "initialize" and self._protocol.begins_with_handshake:
                    item.message.params = {**(item.message.params or {}), "protocolVersion": self._protocol.value}
                await self._send_request(item)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                self._requests.end((params or {}).get("requestId"))
                await self._inner.send(item)
            case JSONRPCResponse() | JSONRPCError():
                # Answers to the server's elicitations run in the context of their call, whose record they must not
                # change.
                with sdk.record_request():
                    await self._inner.send(item)
            case _:
                await self._inner.send(item)

    async def _send_request(self, item: SessionMessage) -> None:
        attempt = sdk.current_request()
        # Marked before the write, because a cancelled write may have reached the server.
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


def open_transport(
    config: ServerConfig,
    stderr: StderrTail,
    *,
    on_end: Callable[[], None],
    on_request_failed: Callable[[], None],
    on_server_request: Callable[[str], None],
    allowances: AllowedTargets,
    resolve: Resolve,
    token_provider: TokenProvider | None = None,
) -> AbstractAsyncContextManager[TransportStreams]:
    """Open the transport to a server for the block.

    `stderr` receives the process's standard error. `on_end` is called when the other side closes, `on_request_failed`
    when a request fails whose failure the library does not report, `on_server_request` with the method of each request
    of the server. `allowances` limit the servers of admins;
    `token_provider` has the token of a server with OAuth.
    """
    match config.transport:
        case StdioTransport() as process:
            return instrument(_stdio(config, process, stderr, allowances), config, on_end, on_server_request)
        case HttpTransport() as endpoint:
            below = build_network(config, allowances, resolve, token_provider)
            reads = endpoint.kind in (HttpKind.STREAMABLE, HttpKind.AUTO)
            read_answers = partial(AnswerReader, config.name) if reads else None
            client = http_client(endpoint.headers, config.max_read_timeout, below, read_answers)
            streams = _http(endpoint, config, client, on_request_failed)
            return instrument(streams, config, on_end, on_server_request)


def build_network(
    config: ServerConfig, allowances: AllowedTargets, resolve: Resolve, token_provider: TokenProvider | None = None
) -> httpx2.AsyncBaseTransport:
    """Return the network for this server, with its token if it has one."""
    below = pool() if config.from_file else GuardedTransport(allowances, resolve)
    if token_provider is None or not isinstance(config.transport, HttpTransport):
        return below
    return AuthTransport(below, token_provider, config.transport.url)


@asynccontextmanager
async def _stdio(
    config: ServerConfig, process: StdioTransport, stderr: StderrTail, allowances: AllowedTargets
) -> AsyncIterator[TransportStreams]:
    await asyncio.to_thread(check_start, config, allowances.templates())
    command = (process.command, *process.args)
    async with (
        stderr.open() as errors,
        child_process(command, child_environment(process), process.cwd, errors) as streams,
    ):
        errors.close()
        yield streams


def child_environment(process: StdioTransport) -> dict[str, str]:
    """Return the environment of a server's process on top of the library's defaults: the operator's variables, and
    a PATH on which `python` is this interpreter.
    """
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))))
    return {"PATH": path, **process.env}


@asynccontextmanager
async def _http(
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, on_request_failed: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    async with client, _open_kind(endpoint, config, client, on_request_failed) as streams:
        yield streams


def _open_kind(
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, on_request_failed: Callable[[], None]
) -> AbstractAsyncContextManager[TransportStreams]:
    match endpoint.kind:
        case HttpKind.SSE:
            return sse_client(client, endpoint.url, on_request_failed)
        case HttpKind.JSONRPC:
            return json_rpc_client(client, endpoint.url, config)
        case HttpKind.STREAMABLE | HttpKind.AUTO:
            return streamable_client(client, endpoint.url)

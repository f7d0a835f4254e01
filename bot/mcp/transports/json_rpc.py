"""Transport for a server of plain JSON-RPC 2.0, shown as an MCP server with one tool.

MCP requests are answered locally, so nothing is sent before the first call. A call of the tool becomes a request of
the method it names. The methods are unknown: write rules about the tool's argument `method`.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import httpx2
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp.types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, ValidationError

from bot.domain.servers import ServerConfig
from bot.mcp.errors import CONNECTION_BROKE, NOT_RPC, current_request
from bot.mcp.results import error_text
from bot.mcp.review import generic_name
from bot.mcp.sdk import HTTP_ERROR, OutgoingStream, TransportStreams, request_within_origin

log = logging.getLogger(__name__)

_FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_ACCEPTED = {"accept": "application/json"}

Incoming = SessionMessage | Exception


def generic_tool(config: ServerConfig) -> dict[str, Any]:
    """Return the one tool of such a server."""
    return {
        "name": generic_name(config.name),
        "description": (
            f"Call the MCP server '{config.title or config.name}'. Provide the MCP method name and optional parameters."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "method": {"type": "string", "description": "The MCP method to call"},
                "params": {"type": "object", "description": "Optional parameters for the MCP method"},
            },
            "required": ["method"],
        },
    }


@asynccontextmanager
async def json_rpc_client(
    client: httpx2.AsyncClient, url: str, config: ServerConfig
) -> AsyncIterator[TransportStreams]:
    """Exchange messages with the server at `url` as if it were an MCP server."""
    incoming_writer, incoming = anyio.create_memory_object_stream[Incoming](0)
    async with incoming_writer, incoming, anyio.create_task_group() as group:
        outgoing = _Outgoing(client, url, config, group, incoming_writer)
        try:
            yield incoming, outgoing
        finally:
            await outgoing.aclose()
            group.cancel_scope.cancel()


class _Answer(BaseModel):
    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    result: Any = None
    error: ErrorData | None = None

    def fits(self, request_id: str) -> bool:
        """Return True if this is the response to the request. In an error response the id may be null."""
        if self.error is not None:
            return self.id in (request_id, None)
        return self.id == request_id and "result" in self.model_fields_set


class _Outgoing(OutgoingStream):
    """Write stream that answers MCP requests."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        config: ServerConfig,
        group: TaskGroup,
        incoming_writer: MemoryObjectSendStream[Incoming],
    ) -> None:
        super().__init__()
        self._client = client
        self._url = url
        self._config = config
        self._group = group
        self._incoming_writer = incoming_writer
        self._running: dict[str, anyio.CancelScope] = {}

    async def _take(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest() as request:
                self._running[str(request.id)] = scope = anyio.CancelScope()
                self._group.start_soon(self._serve, request, scope)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                if running := self._running.get(str((params or {}).get("requestId"))):
                    running.cancel()

    async def _serve(self, request: JSONRPCRequest, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._answer(request.method, request.params or {})
            finally:
                del self._running[str(request.id)]
            message: JSONRPCError | JSONRPCResponse
            if isinstance(answer, ErrorData):
                message = JSONRPCError(jsonrpc="2.0", id=request.id, error=answer)
            else:
                message = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=answer)
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await self._incoming_writer.send(SessionMessage(message))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | ErrorData:
        match method:
            case "server/discover":
                return {**_FRESH, "supportedVersions": [LATEST_MODERN_VERSION], "capabilities": {"tools": {}}}
            case "tools/list":
                return {**_FRESH, "tools": [generic_tool(self._config)]}
            case "tools/call":
                return await self._call(params.get("arguments") or {})
            case _:
                return ErrorData(code=METHOD_NOT_FOUND, message="Method not found")

    async def _call(self, arguments: Mapping[str, Any]) -> dict[str, Any] | ErrorData:
        """Return the result of a method. JSON-RPC errors are results, because their codes have no meaning in MCP."""
        request_id = uuid.uuid4().hex
        request = {"jsonrpc": "2.0", "id": request_id, "method": arguments.get("method")}
        if arguments.get("params") is not None:
            request["params"] = arguments["params"]
        attempt = current_request()
        try:
            response = await request_within_origin(self._client, "POST", self._url, json=request, headers=_ACCEPTED)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            log.debug("request to an MCP server was not delivered: %r", error)
            return ErrorData(code=CONNECTION_CLOSED, message=attempt.failure or CONNECTION_BROKE)
        if attempt.failure:
            return ErrorData(code=CONNECTION_CLOSED, message=attempt.failure)
        answer: _Answer | None = None
        with suppress(ValidationError):
            answer = _Answer.model_validate_json(response.content)
        match answer if answer is not None and answer.fits(request_id) else None:
            case _Answer(error=ErrorData(code=code, message=message, data=data)):
                attempt.code = code
                log.info("MCP server %s: error %d", self._config.name, code)
                return _tool_result(error_text(MCPError(code, message, data)), failed=True)
            case _Answer(result=result) if response.is_success:
                return _tool_result(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
            case None if response.is_success:
                return ErrorData(code=INTERNAL_ERROR, message=NOT_RPC)
            case _:
                return HTTP_ERROR


def _tool_result(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": failed}

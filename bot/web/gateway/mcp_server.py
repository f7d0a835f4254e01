"""MCP endpoints for other agents: `/mcp` offers the tools of our servers, `/mcp/approvals` approves calls of their own.

Each call is one of `GatewayCalls`. Its request stays open while people decide, and a client with a progress token hears
who is waited for, since some clients give up after five silent minutes. A client that goes away withdraws nothing: the
same call attaches to one that no open request follows. While a request follows it, the same call is another wish.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol
from urllib.parse import quote

from mcp import types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from bot import __version__
from bot.domain.api_clients import ApiClient
from bot.domain.gateway import GatewayRequest, GatewayStatus
from bot.domain.messages import FilePart, ImagePart, ResourceText, ResultPart, StoredFile, TextPart
from bot.domain.tools import Tool
from bot.domain.turns import TurnView
from bot.errors import CountersignError
from bot.i18n import _
from bot.web.application import MCP_APPROVALS_PATH, MCP_PATH
from bot.web.dependencies import WebDependencies
from bot.web.gateway.approvals import TOOL_NAME
from bot.web.gateway.calls import GatewayCall, GatewayCalls
from bot.web.problems import Problem

PROGRESS_SECONDS = 12.0
"""Seconds between two notes to a waiting client: Claude Code looks every 30 s for one of the last 300 s."""
SESSION_IDLE_SECONDS = 1800.0
MOST_SESSIONS = 2_000
_LIST_MILLISECONDS = 30_000
_LONGEST_WORDS = 200
_CACHED: Mapping[CacheableMethod, CacheHint] = {"tools/list": CacheHint(_LIST_MILLISECONDS)}
_APPROVE = "approve"
_APPROVE_TOOL = types.Tool(
    name=_APPROVE,
    title="Ask people for an approval",
    description="Answers whether a tool call of this session may run, and with which arguments.",
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "minLength": 1, "maxLength": 200},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
)
Context = ServerRequestContext[Any, Any]


class _Endpoint(Protocol):
    """One of the endpoints: its tools, and the result of a call."""

    async def tools(self, client: ApiClient) -> Sequence[types.Tool]: ...

    def request(self, client: ApiClient, params: types.CallToolRequestParams) -> GatewayRequest: ...

    async def result(self, call: GatewayCall) -> types.CallToolResult: ...


class McpEndpoint:
    """ASGI application of one endpoint, behind the authentication of the API. `hosts` are those that clients may call
    it by. Its sessions end with `close`.
    """

    def __init__(self, dependencies: WebDependencies, endpoint: _Endpoint, hosts: Sequence[str]) -> None:
        self._calls = GatewayCalls(dependencies)
        self._endpoint = endpoint
        self._waited_for = dependencies.command_dependencies.administration.signed_by
        server: Server[Any] = Server(
            "countersign",
            version=__version__,
            cache_hints=_CACHED,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        # Tracing is not a part of the product, and costs time at every request.
        server.middleware.clear()
        self._manager = StreamableHTTPSessionManager(
            server,
            security_settings=TransportSecuritySettings(
                allowed_hosts=[name for host in hosts for name in (host, f"{host}:*")],
                allowed_origins=[
                    f"{scheme}://{host}{port}" for host in hosts for scheme in ("http", "https") for port in ("", ":*")
                ],
            ),
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_sessions=MOST_SESSIONS,
        )
        self._followed: Counter[str] = Counter()
        """Open requests of each call."""
        self._ready = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. An answer that was sent as a whole counts as delivered."""
        if self._owner is None:
            self._owner = asyncio.create_task(self._own_sessions(), name="mcp-endpoint")
        await self._ready.wait()
        client, requested = scope["state"]["caller"], _Requested()
        # The library compares the owner of a session by this.
        token = AccessToken(token="", client_id=f"{client.author.principal} {client.since}", scopes=[])
        scope = {**scope, "user": AuthenticatedUser(token), "state": {**scope["state"], "requested": requested}}
        response = _Response(receive, send)
        try:
            await self._manager.asgi_app(scope, response.receive, response.send)
        finally:
            self._followed.subtract(requested.followed)
        if response.is_whole:
            for call in requested.answered:
                await self._calls.delivered(call)

    async def close(self) -> None:
        """End all sessions."""
        if self._owner is not None:
            self._owner.cancel()
            with suppress(asyncio.CancelledError):
                await self._owner

    async def _own_sessions(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await asyncio.Event().wait()

    async def _list_tools(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(await self._endpoint.tools(_client(context))))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        client, requested = _client(context), _requested(context)
        key = _header(context, "idempotency-key")
        try:
            request = self._endpoint.request(client, params)
            request = replace(request, idempotency_key=key, origin=_origin(context))
            for wish in count():
                call = await self._calls.submit(client, replace(request, session=str(wish or "")))
                if key or not self._followed[call.id]:
                    break
            self._followed[call.id] += 1
            requested.followed.append(call.id)
            call = await self._settle(context, client, call)
            result = await self._endpoint.result(call)
        except Problem as problem:
            return _error(problem.message, problem.fix)
        except CountersignError as error:
            return _error(error.cause, error.fix)
        requested.answered.append(call)
        return result

    async def _settle(self, context: Context, client: ApiClient, call: GatewayCall) -> GatewayCall:
        """Return the call at its end. The client hears meanwhile of the progress, or who is waited for."""
        said, notes = "", 0

        def has_news(view: TurnView) -> bool:
            return view.turn.status.ended or self._note(view) != said

        while call.status is GatewayStatus.PENDING:
            call = await self._calls.wait(client, call.id, PROGRESS_SECONDS, has_news)
            said, notes = self._note(call.view), notes + 1
            await context.session.report_progress(notes, None, said)
        return call

    def _note(self, view: TurnView) -> str:
        """Return the state of a call that has not ended, for its agent."""
        approval = next((step.approval for step in view.awaiting if step.approval is not None), None)
        if approval is None:
            return next(iter(view.progress.values()), _("The call is running."))
        turn = view.turn
        who = self._waited_for(approval.requirements, turn.conversation, turn.question.agent)
        return _("Waiting for an approval by {who}.", who=who)


class McpEndpoints:
    """ASGI application of both endpoints."""

    def __init__(self, dependencies: WebDependencies, hosts: Sequence[str]) -> None:
        self._by_path = {
            MCP_PATH: McpEndpoint(dependencies, OwnTools(dependencies), hosts),
            MCP_APPROVALS_PATH: McpEndpoint(dependencies, ApproveTool(), hosts),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._by_path[scope["path"]](scope, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        for endpoint in self._by_path.values():
            await endpoint.close()


class OwnTools:
    """The tools of our servers that the token's profile enables and no rule forbids."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._offer = dependencies.offer_tools

    async def tools(self, client: ApiClient) -> Sequence[types.Tool]:
        """Return the tools, by name."""
        return [_offered_tool(tool) for tool in await self._offer(client)]

    def request(self, _client: ApiClient, params: types.CallToolRequestParams) -> GatewayRequest:
        """Return the request of a call."""
        return GatewayRequest(params.name, params.arguments or {})

    async def result(self, call: GatewayCall) -> types.CallToolResult:
        """Return the result of the tool, or the reason why it did not run."""
        result = call.step.result if call.step is not None else None
        if call.status is not GatewayStatus.APPROVED or result is None:
            return _error(call.reason or _("The call was not run."))
        content = [block for part in result.parts if (block := await _content(part, call.view)) is not None]
        structured = result.structured if isinstance(result.structured, dict) else None
        return types.CallToolResult(content=content, structured_content=structured, is_error=result.is_error)


class ApproveTool:
    """The tool `approve`, for `--permission-prompt-tool` of Claude Code: its calls run elsewhere, on the server that is
    called like the token. An answer is one text and nothing else, or Claude Code refuses it.
    """

    async def tools(self, _client: ApiClient) -> Sequence[types.Tool]:
        """Return the tool."""
        return [_APPROVE_TOOL]

    def request(self, client: ApiClient, params: types.CallToolRequestParams) -> GatewayRequest:
        """Return the request of the call that is asked about. Raises Problem for other arguments."""
        match params.arguments:
            case {"tool_name": str(tool), "input": dict(arguments)} if params.name == _APPROVE and re.match(
                TOOL_NAME, tool
            ):
                return GatewayRequest(tool, arguments, client.name)
            case _:
                raise Problem(
                    422, "invalid", _("That is no question about a tool call."), _("send tool_name and input")
                )

    async def result(self, call: GatewayCall) -> types.CallToolResult:
        """Return the decision."""
        if call.status is GatewayStatus.APPROVED:
            decision: Mapping[str, Any] = {"behavior": "allow", "updatedInput": dict(call.arguments)}
        else:
            decision = {"behavior": "deny", "message": call.reason or _("The call was not approved.")}
        text = json.dumps(decision, ensure_ascii=False)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


@dataclass(slots=True)
class _Requested:
    """Calls of one HTTP request: the ids of those that it follows, and those whose answers it has got."""

    followed: list[str] = field(default_factory=list)
    answered: list[GatewayCall] = field(default_factory=list)


class _Response:
    """One response. `is_whole` is True if its end was sent before the client went away."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_gone = False
        self.is_whole = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_gone = self._is_gone or (message["type"] == "http.disconnect" and not self.is_whole)
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.is_whole = not self._is_gone


def _client(context: Context) -> ApiClient:
    client = _state(context)["caller"]
    assert isinstance(client, ApiClient)
    return client


def _requested(context: Context) -> _Requested:
    requested = _state(context)["requested"]
    assert isinstance(requested, _Requested)
    return requested


def _state(context: Context) -> Mapping[str, Any]:
    assert context.request is not None
    state: Mapping[str, Any] = context.request.scope["state"]
    return state


def _header(context: Context, name: str) -> str:
    assert context.request is not None
    return str(context.request.headers.get(name, ""))[:_LONGEST_WORDS]


def _origin(context: Context) -> Mapping[str, Any]:
    """Return the client and its session in its own words. The id of a session is a secret, so it is hashed."""
    info = context.session.client_params.client_info if context.session.client_params is not None else None
    session = _header(context, "mcp-session-id")
    words = {
        "client": f"{info.name} {info.version}"[:_LONGEST_WORDS] if info is not None else "",
        "session": hashlib.sha256(session.encode()).hexdigest()[:12] if session else "",
    }
    return {name: text for name, text in words.items() if text}


def _error(*sentences: str) -> types.CallToolResult:
    text = " ".join(str(sentence).strip() for sentence in sentences if sentence)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def _offered_tool(tool: Tool) -> types.Tool:
    # Without its output schema: a result that was shortened would not fit, and clients refuse it then.
    hints = tool.annotations
    return types.Tool(
        name=tool.name,
        title=tool.title or None,
        description=tool.description or tool.title or tool.original_name,
        input_schema=dict(tool.input_schema),
        annotations=types.ToolAnnotations(
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


async def _content(part: ResultPart, view: TurnView) -> types.ContentBlock | None:
    """Return a part of a result, None for a file without its bytes."""
    match part:
        case ResourceText(text, uri, mime_type):
            contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
            return types.EmbeddedResource(type="resource", resource=contents)
        case TextPart(text):
            return types.TextContent(type="text", text=text)
        case StoredFile(file_id, mime_type, name):
            if view.read is None or not file_id:
                return types.TextContent(type="text", text=_("[The file {name} is not stored.]", name=name))
            data = await view.read(file_id)
        case ImagePart(data, mime_type, name) | FilePart(data, mime_type, name):
            pass
    encoded = base64.b64encode(data).decode("ascii")
    match mime_type.partition("/")[0]:
        case "image":
            return types.ImageContent(type="image", data=encoded, mime_type=mime_type)
        case "audio":
            return types.AudioContent(type="audio", data=encoded, mime_type=mime_type)
        case _:
            resource = types.BlobResourceContents(
                uri=f"file:///{quote(name or 'file')}", blob=encoded, mime_type=mime_type
            )
            return types.EmbeddedResource(type="resource", resource=resource)

"""Tools, resources and prompts for programs: run, read and render; and the log of tool calls.

A tool is run as `/mcp run` does it: in a turn of its own, under the same policy and approval as the model's calls.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import JSONResponse

from bot.admin.command import ForbiddenRejection
from bot.admin.servers.directory import check_arguments
from bot.admin.servers.manual_calls import manual_call
from bot.admin.text_format import MOMENT, code
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Member
from bot.domain.messages import FilePart, ImagePart, StoredFile, TextPart, ToolResult
from bot.domain.servers import BlobContents, Piece, ServerStatus, TextContents
from bot.domain.tools import ToolKind
from bot.domain.turns import ReadFile, StepStatus, ToolStep, TurnView
from bot.errors import NotConnected
from bot.i18n import _
from bot.ports import CallQuery, CallSummary, DirectCall
from bot.rendering.response_models import CallStatus, ResponseModel, call_status, format_time, step_statuses
from bot.web.conversation_ids import format_id
from bot.web.dependencies import WebDependencies
from bot.web.parameters import RequestStreamPlace
from bot.web.routes import MOST_ROWS, RequestModel, Routes, page_offset, parse_moment, route
from bot.web.server_responses import ResponseOptions, ServerSerializer, ToolAnswer
from bot.web.server_scope import CurrentScope, RequestScope, Services, WorkspaceName

WAIT_SECONDS, LONGEST_WAIT = 30.0, 300.0


class Execution(RequestModel):
    """A tool call."""

    server_id: str = Field(description="The server's id, slug or name.")
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    wait_seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = WAIT_SECONDS


class Content(ResponseModel):
    """A part of a tool result: `text`, `image` or `resource`."""

    type: str
    text: str | None = None
    data: str | None = Field(default=None, description="Base64.")
    mime_type: str | None = None
    name: str | None = None


class Executed(ResponseModel):
    """Result of a tool, or its error."""

    content: list[Content]
    is_error: bool
    structured_content: Any = None
    turn_id: str


class Pending(ResponseModel):
    """A call that has not finished: it waits for an approval, or is running."""

    status: str = Field(description="`approval_required` or `running`.")
    turn_id: str
    approval_request_id: str | None
    revision: int | None = Field(description="The arguments to be approved.")
    approve: str | None = Field(description="The address to approve it at.")
    follow: str = Field(description="Address for following it to its end.")


class ReadBody(RequestModel):
    """A resource."""

    server_id: str
    uri: str


class PieceAnswer(ResponseModel):
    """Content from a server."""

    uri: str
    mime_type: str
    text: str | None = None
    size: int | None = Field(default=None, description="Bytes of binary content.")


class ReadAnswer(ResponseModel):
    """Contents of a resource."""

    contents: list[PieceAnswer]


class PromptBody(RequestModel):
    """A prompt with its arguments."""

    server_id: str
    name: str
    arguments: dict[str, str] = Field(default_factory=dict)


class PromptMessage(ResponseModel):
    """One message of a prompt."""

    role: str
    content: Content


class RenderedPrompt(ResponseModel):
    """A rendered prompt."""

    messages: list[PromptMessage]


class OfferedTool(ToolAnswer):
    """A tool with its server."""

    server_id: str


class CallFilter(RequestModel):
    """Filter of calls; all conditions have to match."""

    server: str = Field(default="", max_length=255, description="The server's id or slug.")
    tool: str = Field(default="", max_length=255, description="The server's own name of the tool.")
    status: list[CallStatus] = Field(default=[], description="One or more.")
    asked_by: str = Field(default="", max_length=300, description="PLATFORM:ID of a user.")
    since: str = Field(default="", max_length=100, description=f"{MOMENT}.")
    until: str = Field(default="", max_length=100, description=f"{MOMENT}.")
    workspace: WorkspaceName | None = Field(default=None, description="See `Services.query_scope`.", exclude=True)
    page: int = Field(default=1, ge=1, le=MOST_ROWS)
    size: int = Field(default=20, ge=1, le=100)


class LoggedCall(ResponseModel):
    """A tool call with its outcome, without arguments and result."""

    id: str = Field(description="`RESPONSE:N`, as in a response's `toolCalls`.")
    response_id: str
    conversation_id: str
    workspace: str
    name: str = Field(description="`SERVER.TOOL`, or the name in the model's request if there is no such tool.")
    status: CallStatus
    asked_by: str
    decided_by: str
    created_at: str
    seconds: float | None = Field(description="From its start to its end.")
    error: str | None = Field(description="Why it has no result, shortened.")


class CallList(ResponseModel):
    """A page of calls, newest first."""

    calls: list[LoggedCall]
    total: int
    page: int
    size: int


_LATER: Any = {202: {"model": Pending, "description": "It waits for an approval, or is still running."}}


class ToolRoutes(Routes):
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services, dependencies: WebDependencies) -> None:
        self._services = services
        self._servers = services.dependencies.servers
        self._directory = services.directory
        self._engine = dependencies.engine
        self._subscriptions = dependencies.surface.subscriptions
        self._audit = dependencies.call_audit

    @route("get", "/tools", "All tools of the servers here")
    async def list_tools(self, scope: CurrentScope) -> list[OfferedTool]:
        """List the known tools of every enabled server."""
        serializer = ServerSerializer(self._services.dependencies, self._services.directory, ResponseOptions())
        return [
            OfferedTool(**serializer.tool(tool, scope.conversation).model_dump(by_alias=False), server_id=server.name)
            for server in await self._services.directory.all(scope.conversation)
            if server.status not in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
            for tool in self._services.directory.capabilities(server).tools
        ]

    @route("post", "/tools/execute", "Run a tool", response_model=Executed, responses=_LATER)
    async def execute_tool(
        self, body: Execution, scope: CurrentScope, place: RequestStreamPlace
    ) -> Executed | JSONResponse:
        """Run a tool. Returns its result, or 202 if the call needs an approval or takes longer than `waitSeconds`; it
        continues then, and can be followed.
        """
        server = await self._directory.find_synced(body.server_id, scope.conversation)
        tool = self._directory.find_tool(server, body.tool_name)
        may_wait = body.wait_seconds > 0 and place.take_to_wait()
        # A conversation of its own, so that a call that waits for approval does not block others.
        conversation = replace(scope.conversation, thread=secrets.token_hex(8))
        tool = self._directory.by_server(tool)
        message = manual_call(tool, body.arguments, conversation, scope.author)
        turn_id = (await self._engine.receive(message)).turn_id
        view = await self._subscriptions.wait(
            turn_id,
            self._engine.view,
            body.wait_seconds if may_wait else 0,
            lambda view: view.turn.status.ended or bool(view.awaiting),
        )
        result = await _execution_result(view)
        if isinstance(result, Pending):
            return JSONResponse(result.model_dump(mode="json"), 202, {"Location": result.follow})
        return result

    @route("post", "/resources/read", "Read a resource")
    async def read_resource(self, body: ReadBody, scope: CurrentScope) -> ReadAnswer:
        """Read a resource."""
        server, tool = await self._directory.find_with(ToolKind.READ_RESOURCE, body.server_id, scope.conversation)
        call = DirectCall(tool, {"uri": body.uri}, scope.conversation, scope.author)
        await self._check_rules(call, scope.member)
        pieces = await self._read(call, partial(self._servers.read_resource, server.id, body.uri))
        return ReadAnswer(contents=[_piece(piece) for piece in pieces])

    @route("post", "/prompts/get", "Render a prompt")
    async def get_prompt(self, body: PromptBody, scope: CurrentScope) -> RenderedPrompt:
        """Render a prompt."""
        server, tool = await self._directory.find_with(ToolKind.GET_PROMPT, body.server_id, scope.conversation)
        arguments = {"name": body.name, "arguments": body.arguments}
        call = DirectCall(tool, arguments, scope.conversation, scope.author)
        await self._check_rules(call, scope.member)
        check_arguments(self._directory.find_prompt(server, body.name), body.arguments)
        render = partial(self._servers.get_prompt, server.id, body.name, body.arguments)
        return RenderedPrompt(messages=_messages(await self._read(call, render)))

    async def _read(self, call: DirectCall, read: Callable[[], Awaitable[Sequence[Piece]]]) -> Sequence[Piece]:
        """Read without a turn, so without an approval. The audit has it like any call."""
        status, began, is_sent = StepStatus.FAILED, time.monotonic(), True
        try:
            pieces = await read()
            status = StepStatus.DONE
        except NotConnected:
            is_sent = False
            raise
        except asyncio.CancelledError:
            status = StepStatus.CANCELLED
            raise
        finally:
            await self._audit.record_call(call, status, time.monotonic() - began if is_sent else None)
        return pieces

    async def _check_rules(self, call: DirectCall, member: Member) -> None:
        """Raise CommandRejected if a rule forbids the call or wants an approval, which no direct read can get."""
        administration, name = self._services.dependencies.administration, code(call.tool.name, _("a tool"))
        result = administration.rules(call.conversation).judge(call.tool, call.arguments, member.author, member).stored
        if result.policy is ApprovalPolicy.ALWAYS_DENY:
            await self._audit.record_forbidden(call, result.rule)
            raise ForbiddenRejection(_("A policy forbids {tool}.", tool=name))
        if result.policy is ApprovalPolicy.ASK_USER:
            raise ForbiddenRejection(_("A policy wants an approval of {tool}: `tools/execute` asks.", tool=name))

    @route("get", "/tool-calls")
    async def list_tool_calls(self, scope: CurrentScope, wanted: Annotated[CallFilter, Query()]) -> CallList:
        """List calls of the workspace, or of all workspaces for a token without one. Newest first."""
        offset = page_offset(wanted.page, wanted.size, _("filter by time"))
        query = _call_query(scope, wanted, self._services.dependencies.clock())
        calls, total = await self._services.dependencies.stores.archive.calls(query, wanted.size, offset)
        shown = [_logged_call(scope, call) for call in calls]
        return CallList(calls=shown, total=total, page=wanted.page, size=wanted.size)


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.build(dependencies.command_dependencies)
    return ToolRoutes(services, dependencies).mount("/api/mcp", "tools", services.query_scope)


async def _execution_result(view: TurnView) -> Executed | Pending:
    """Return the result of a manual call, or its pending state."""
    turn = view.turn
    approval = next((step.approval for step in view.awaiting if step.approval is not None), None)
    if not turn.status.ended:
        return Pending(
            status="approval_required" if approval else "running",
            turn_id=turn.id,
            approval_request_id=approval.id if approval else None,
            revision=approval.revision if approval else None,
            approve=f"/api/responses/approval/{approval.id}" if approval else None,
            follow=f"/api/responses/{turn.id}",
        )
    step = next((step for step in reversed(view.steps) if isinstance(step, ToolStep)), None)
    result = step.result if step is not None else None
    if result is None:
        failure = turn.failure or _("The call was not run.")
        return Executed(content=[Content(type="text", text=failure)], is_error=True, turn_id=turn.id)
    return Executed(
        content=await _contents(result, view.read),
        is_error=result.is_error,
        structured_content=result.structured,
        turn_id=turn.id,
    )


async def _contents(result: ToolResult, read: ReadFile | None) -> list[Content]:
    contents = []
    for part in result.parts:
        match part:
            case TextPart(text):
                contents.append(Content(type="text", text=text))
            case ImagePart(data, mime_type, name):
                contents.append(Content(type="image", data=_base64(data), mime_type=mime_type, name=name or None))
            case FilePart(data, mime_type, name):
                contents.append(Content(type="resource", data=_base64(data), mime_type=mime_type, name=name))
            case StoredFile(file_id, mime_type, name):
                content_type = "image" if part.is_image else "resource"
                encoded = _base64(await read(file_id)) if read is not None and file_id else None
                contents.append(Content(type=content_type, data=encoded, mime_type=mime_type, name=name or None))
    return contents


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _piece(piece: Piece) -> PieceAnswer:
    match piece:
        case TextContents(heading, text, mime_type):
            return PieceAnswer(uri=heading, mime_type=mime_type or "text/plain", text=text)
        case BlobContents(heading, mime_type, size):
            return PieceAnswer(uri=heading, mime_type=mime_type or "application/octet-stream", size=size)


def _messages(pieces: Sequence[Piece]) -> list[PromptMessage]:
    return [
        PromptMessage(role=piece.heading, content=Content(type="text", text=piece.text))
        if isinstance(piece, TextContents)
        else PromptMessage(role=piece.heading, content=Content(type="resource", mime_type=piece.mime_type))
        for piece in pieces
    ]


def _call_query(scope: RequestScope, wanted: CallFilter, now: float) -> CallQuery:
    return CallQuery(
        scope.workspace,
        wanted.server,
        wanted.tool,
        tuple(stored for shown in wanted.status for stored in step_statuses(shown)),
        wanted.asked_by,
        parse_moment("since", wanted.since, now) if wanted.since else None,
        parse_moment("until", wanted.until, now) if wanted.until else None,
    )


def _logged_call(scope: RequestScope, call: CallSummary) -> LoggedCall:
    return LoggedCall(
        id=f"{call.turn_id}:{call.n}",
        response_id=call.turn_id,
        conversation_id=format_id(scope.caller, call.conversation),
        workspace=call.conversation.workspace_key,
        name=call.name,
        status=call_status(StepStatus(call.status)),
        asked_by=call.asked_by,
        decided_by=call.decided_by,
        created_at=format_time(call.at),
        seconds=call.seconds,
        error=call.error or None,
    )

"""Log of tool calls for programs: `/mcp log` with filters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from bot.commands.text_format import MOMENT
from bot.domain.turns import StepStatus
from bot.i18n import _
from bot.ports import CallQuery, CallSummary
from bot.rendering.response_model import ResponseModel, format_time
from bot.rendering.turn_schemas import CallStatus, call_status, step_statuses
from bot.web.conversation_ids import format_id
from bot.web.problems import Problem
from bot.web.routes import RequestModel, WebDependencies, api_router, parse_moment
from bot.web.server_scope import CurrentScope, RequestScope, Services, WorkspaceName

MOST_ROWS = 10_000
"""Highest offset in a list."""


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


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the route."""
    services = Services.build(dependencies.command_dependencies)
    router = api_router(prefix="/api/mcp", tags=["tools"], dependencies=[Depends(services.query_scope)])
    archive = dependencies.command_dependencies.archive

    @router.get("/tool-calls", response_model=CallList)
    async def list_tool_calls(scope: CurrentScope, wanted: Annotated[CallFilter, Query()]) -> CallList:
        """List calls of the workspace, or of all workspaces for a token without one. Newest first."""
        offset = (wanted.page - 1) * wanted.size
        if offset + wanted.size > MOST_ROWS:
            text = _("A list ends after {rows} rows.", rows=MOST_ROWS)
            raise Problem(422, "invalid", text, _("filter by time"), {"page": _("Too far.")})
        query = _query(scope, wanted, dependencies.clock())
        calls, total = await archive.calls(query, wanted.size, offset)
        shown = [_shape(scope, call) for call in calls]
        return CallList(calls=shown, total=total, page=wanted.page, size=wanted.size)

    return router


def _query(scope: RequestScope, wanted: CallFilter, now: float) -> CallQuery:
    return CallQuery(
        scope.workspace,
        wanted.server,
        wanted.tool,
        tuple(stored for shown in wanted.status for stored in step_statuses(shown)),
        wanted.asked_by,
        parse_moment("since", wanted.since, now) if wanted.since else None,
        parse_moment("until", wanted.until, now) if wanted.until else None,
    )


def _shape(scope: RequestScope, call: CallSummary) -> LoggedCall:
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

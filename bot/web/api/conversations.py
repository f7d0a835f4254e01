"""Conversations over HTTP: a token reads its own, an admin's token all of its workspace.

A conversation of a chat platform can be read and deleted here, not continued. A conversation created without a message
stays empty until its first response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.conversations import ConversationKey
from bot.i18n import _
from bot.ports import ConversationSummary, ReportingStore
from bot.rendering.response_models import (
    ConversationStatus,
    MessageShape,
    ResponseModel,
    ToolCallShape,
    calls_of,
    format_time,
    messages_of,
)
from bot.web.conversation_ids import format_id, key_prefixes, may_see, no_such_conversation, own_key, parse_id
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem
from bot.web.routes import MOST_ROWS, RequestModel, api_router, page_offset

"""Highest offset in a list."""
MOST_RESPONSES = 1_000
"""Responses of one conversation that are returned, latest first."""

ConversationId = Annotated[str, Path(alias="conversationId", max_length=500)]
Workspace = Annotated[str, Query(max_length=200, description="PLATFORM:ID; the token's own if empty.")]


class NewConversation(RequestModel):
    """A new, empty conversation."""

    conversation_id: str | int | None = Field(default=None, description="One is made without it.")
    title: str = Field(default="", max_length=255)
    workspace: str = Field(default="", description="PLATFORM:ID; the token's own if empty.")


class ConversationShape(ResponseModel):
    """A conversation in a list."""

    id: str
    title: str
    status: ConversationStatus
    platform: str
    workspace: str
    responses: int = Field(description="How many questions were asked in it.")
    started_by: str
    created_at: str
    updated_at: str


class ConversationDetail(ConversationShape):
    """A conversation with its messages and tool calls."""

    messages: list[MessageShape]
    tool_calls: list[ToolCallShape]


class ConversationList(ResponseModel):
    """A page of conversations, latest first."""

    conversations: list[ConversationShape]
    total: int
    page: int
    size: int


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes to list, create, read and delete conversations."""
    router = api_router(tags=["conversations"])
    archive = dependencies.command_dependencies.stores.archive

    @router.get("/api/conversations", response_model=ConversationList)
    async def list_conversations(
        caller: MemberCaller,
        page: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1,
        size: Annotated[int, Query(ge=1, le=100)] = 20,
        workspace: Workspace = "",
        own: Annotated[bool, Query(description="Only the caller's own, for admins too.")] = False,
    ) -> ConversationList:
        """List the caller's conversations in a workspace; for admins, all of their workspace. Latest first."""
        summaries, total = await _page(archive, _key_prefixes(caller, workspace, own=own), page, size)
        entries = [_shape(caller, summary) for summary in summaries]
        return ConversationList(conversations=entries, total=total, page=page, size=size)

    @router.post("/api/conversations", response_model=ConversationShape, status_code=201)
    async def create_conversation(body: NewConversation, caller: MemberCaller, response: Response) -> ConversationShape:
        """Create an empty conversation with a title. 409 if the id is in use."""
        name = "" if body.conversation_id is None else str(body.conversation_id)
        key = own_key(caller, body.workspace, name)
        if not await archive.create(key, body.title):
            raise Problem(
                409, "conflict", _("There is a conversation of that id."), _("take another one, or ask in it")
            )
        summary = await archive.summary(key)
        if summary is None:
            raise no_such_conversation()
        response.headers["Location"] = f"/api/conversations/{format_id(caller, key)}"
        return _shape(caller, summary)

    @router.get("/api/conversations/{conversationId}", response_model=ConversationDetail)
    async def read_conversation(
        conversation_id: ConversationId, caller: MemberCaller, workspace: Workspace = ""
    ) -> ConversationDetail:
        """Return one conversation with the messages and tool calls of its latest responses."""
        key = _visible(caller, conversation_id, workspace)
        summary = await archive.summary(key)
        if summary is None:
            raise no_such_conversation()
        latest = await dependencies.engine.recent_turns(key, MOST_RESPONSES)
        views = [view for view in latest if not view.turn.content_deleted]
        return ConversationDetail(
            **dict(_shape(caller, summary)),
            messages=[message for view in views for message in messages_of(view)],
            tool_calls=[call for view in views for call in calls_of(view)],
        )

    @router.delete("/api/conversations/{conversationId}", status_code=204)
    async def delete_conversation(
        conversation_id: ConversationId, caller: MemberCaller, workspace: Workspace = ""
    ) -> None:
        """Delete a conversation with all its data except the audit. 409 while a turn runs or waits in it."""
        key = _visible(caller, conversation_id, workspace)
        if await archive.delete(key, caller.author):
            return
        if await archive.summary(key) is None:
            raise no_such_conversation()
        raise Problem(
            409, "not_at_rest", _("Something runs or waits in this conversation."), _("stop its last response first")
        )

    return router


async def _page(
    archive: ReportingStore, prefixes: Sequence[str], page: int, size: int
) -> tuple[Sequence[ConversationSummary], int]:
    """Return a page of the conversations with these key prefixes, and their total number."""
    offset = page_offset(page, size, _("name a workspace"))
    pages = [await archive.conversations(prefix, "", offset + size, 0) for prefix in prefixes]
    summaries = sorted((row for rows, _count in pages for row in rows), key=lambda summary: -summary.updated_at)
    return summaries[offset : offset + size], sum(count for _rows, count in pages)


def _visible(caller: ApiClient, name: str, workspace: str) -> ConversationKey:
    key = parse_id(caller, name, workspace)
    if not may_see(caller, key):
        raise no_such_conversation()
    return key


def _key_prefixes(caller: ApiClient, workspace: str, *, own: bool) -> Sequence[str]:
    if own or not caller.may(ApiRole.ADMIN):
        return [str(own_key(caller, workspace, "-")).removesuffix("-")]
    if not workspace:
        return key_prefixes(caller)
    return key_prefixes(ApiClient(caller.name, caller.role, own_key(caller, workspace, "-").workspace_key))


def _shape(caller: ApiClient, summary: ConversationSummary) -> ConversationShape:
    return ConversationShape(
        id=format_id(caller, summary.key),
        title=summary.title,
        status=ConversationStatus(summary.state),
        platform=summary.key.platform,
        workspace=summary.key.workspace_key,
        responses=summary.turns,
        started_by=summary.started_by,
        created_at=format_time(summary.created_at),
        updated_at=format_time(summary.updated_at),
    )

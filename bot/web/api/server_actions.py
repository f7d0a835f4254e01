"""Actions on MCP servers: connect, verify, sync, review of changed tools, a stream of the status, reload of the file.

The same routes serve all workspaces and one workspace. The event stream compares states in memory and queries the
database only after a change. It ends when the server is removed, the client disconnects or the process stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from bot.admin.command import NotFoundRejection
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.servers.review import UnreviewedTool
from bot.domain.conversations import ConversationKey
from bot.domain.pins import combined_digest
from bot.domain.servers import ServerEnablement, ServerSnapshot, ServerStatus, SyncStatus
from bot.errors import NotFound, ServerTrouble
from bot.examination import Check, CheckStatus
from bot.i18n import _, english
from bot.ports import ServerAdmin
from bot.rendering.response_models import ResponseModel
from bot.web.dependencies import WebDependencies
from bot.web.parameters import RequestStreamPlace
from bot.web.problems import Problem
from bot.web.routes import EventStream, RequestModel, Routes, ServerEvent, route
from bot.web.server_responses import CapabilitiesAnswer, Moment, RequestedOptions, ResponseOptions, ServerSerializer
from bot.web.server_scope import CurrentScope, Services

# -------------------- events

POLL_SECONDS = 0.25


async def stream_status(
    servers: ServerAdmin,
    directory: ServerDirectory,
    server: VisibleServer,
    conversation: ConversationKey,
    serializer: ServerSerializer,
) -> AsyncGenerator[ServerEvent, None]:
    """Yield the status as an event, now and after each change."""
    current = _snapshot(servers, server.id)
    yield _event("status_update", server, serializer)
    while True:
        await asyncio.sleep(POLL_SECONDS)
        before, current = current, _snapshot(servers, server.id)
        if before == current:
            continue
        try:
            server = await directory.find(server.id, conversation)
        except NotFoundRejection:
            yield ServerEvent("server_removed", {"id": server.id, "serverId": server.name})
            return
        if _connection_state(before) != _connection_state(current):
            yield _event("connection_change", server, serializer)
        if _was_synced(before, current):
            yield _event("capabilities_synced", server, serializer)


def _event(name: str, server: VisibleServer, serializer: ServerSerializer) -> ServerEvent:
    return ServerEvent(name, serializer.summary(server).model_dump(mode="json"))


def _snapshot(servers: ServerAdmin, server_id: str) -> ServerSnapshot | None:
    try:
        return servers.snapshot(server_id)
    except NotFound:
        return None


def _connection_state(snapshot: ServerSnapshot | None) -> tuple[object, ...]:
    return () if snapshot is None else (snapshot.status, snapshot.problem, snapshot.config, snapshot.server_version)


def _was_synced(before: ServerSnapshot | None, after: ServerSnapshot | None) -> bool:
    if after is None or after.status in _OFF or after.sync not in (SyncStatus.SYNCED, SyncStatus.SYNC_FAILED):
        return False
    return before is None or (before.sync, before.synced_at) != (after.sync, after.synced_at)


_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
_STREAM: Any = {
    "content": {EventStream.media_type: {"schema": {"type": "string"}}},
    "description": "Events `status_update` (at once), `connection_change`, `capabilities_synced` and "
    "`server_removed`, each with the server as in the list; comments while nothing happens.",
}


class ConnectionAnswer(ResponseModel):
    """Status of a server after an action."""

    connected: bool
    status: str
    last_error: str | None


class ConnectedAnswer(ConnectionAnswer):
    """Status of a server, with the sign-in link if it needs one."""

    sign_in_url: str | None = Field(
        default=None,
        description="Address for signing the bot in with a browser within ten minutes, if the server needs it.",
    )


class CheckAnswer(ResponseModel):
    """Result of one check."""

    name: str
    finding: str = Field(description="`ok`, `warning`, `failed` or `skipped`.")
    detail: str
    fix: str
    seconds: float | None


class VerifyAnswer(ResponseModel):
    """Result of all checks of a server."""

    ok: bool
    status: str
    latency_ms: int | None = Field(description="Duration of all checks.")
    era: str | None = Field(description="Negotiated version of the protocol.")
    error: str | None
    fix: str | None
    checks: list[CheckAnswer] = Field(description="Every check with `deep=true`; else those with a problem.")


class SyncAnswer(ResponseModel):
    """Counts of a server's capabilities after a sync, and its changed tools."""

    sync_status: str
    last_synced_at: Moment
    tool_count: int
    resource_count: int
    prompt_count: int
    new: list[str]
    changed: list[str]
    gone: list[str]


class ServerActions(Routes):
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._servers = services.dependencies.servers
        self._directory = services.directory

    @route("post", "/connect", "Connect to a server now")
    async def connect_server(self, ref: str, options: RequestedOptions, scope: CurrentScope) -> ConnectedAnswer:
        """Connect a server that is not connected. A disconnected server reconnects automatically from now on."""
        server = await self._directory.find(ref, scope.conversation)
        if not await self._services.servers.let_connect(server, scope.member):
            raise _off_problem(server)
        state, sign_in_url = await self._servers.connect(server.id), None
        problem = state.problem
        if state.status is not ServerStatus.CONNECTED:
            try:
                sign_in_url = await self._services.sign_ins.address(server, scope.member, scope.conversation)
            except ServerTrouble as trouble:
                problem = str(trouble)
        return ConnectedAnswer(
            connected=state.status is ServerStatus.CONNECTED,
            status=options.status(state.status),
            last_error=problem or None,
            sign_in_url=sign_in_url,
        )

    @route("post", "/disconnect", "Leave a server alone until it is connected again")
    async def disconnect_server(self, ref: str, options: RequestedOptions, scope: CurrentScope) -> ConnectionAnswer:
        """Close the connection, which stays closed until the next request to connect."""
        server = await self._directory.find(ref, scope.conversation)
        record = self._directory.record_of(server, scope.member)
        if record.enablement is ServerEnablement.ON:
            await self._services.servers.set_enablement(record, ServerEnablement.DISCONNECTED, scope.author)
        current = await self._directory.find(server.id, scope.conversation)
        return ConnectionAnswer(connected=False, status=options.status(current.status), last_error=None)

    @route("post", "/verify", "Whether a server can be used")
    async def verify_server(
        self,
        ref: str,
        options: RequestedOptions,
        scope: CurrentScope,
        *,
        deep: Annotated[bool, Query(description="Return the result of every check.")] = False,
    ) -> VerifyAnswer:
        """Check a server from its address to its tools, and connect if all checks pass."""
        server = await self._directory.find(ref, scope.conversation)
        if server.status in _OFF:
            raise _off_problem(server)
        async with aclosing(self._servers.diagnose(server.id)) as results:
            checks = [check async for check in results]
        if not any(check.finding is CheckStatus.BROKEN for check in checks):
            await self._servers.connect(server.id)
        return _verify_answer(await self._directory.find(server.id, scope.conversation), checks, options, deep=deep)

    @route("post", "/sync", "Ask a server for everything it offers")
    async def sync_server(self, ref: str, options: RequestedOptions, scope: CurrentScope) -> SyncAnswer:
        """Fetch and store tools, resources and prompts."""
        server = await self._directory.find(ref, scope.conversation)
        if server.status in _OFF:
            raise _off_problem(server)
        fetched = await self._services.servers.fetch(server)
        synced, capabilities = await self._directory.find(server.id, scope.conversation), fetched.capabilities
        return SyncAnswer(
            sync_status=synced.sync.name,
            last_synced_at=options.moment(synced.state.synced_at if synced.state else None),
            tool_count=len(capabilities.tools),
            resource_count=len(capabilities.resources) + len(capabilities.templates),
            prompt_count=len(capabilities.prompts),
            new=list(fetched.new),
            changed=list(fetched.changed),
            gone=list(fetched.gone),
        )

    @route("get", "/capabilities", "Capabilities of a server")
    async def show_capabilities(self, ref: str, options: RequestedOptions, scope: CurrentScope) -> CapabilitiesAnswer:
        """Return the known tools, resources and prompts; a server without any is synced first."""
        server = await self._services.directory.find_synced(ref, scope.conversation)
        synced = await self._directory.find(server.id, scope.conversation)
        return self._serializer(options).capabilities(synced, scope.conversation)

    @route(
        "get",
        "/status/stream",
        "How a server stands, as it changes",
        response_class=EventStream,
        responses={200: _STREAM},
    )
    async def watch_server(
        self, ref: str, options: RequestedOptions, scope: CurrentScope, place: RequestStreamPlace
    ) -> EventStream:
        """Stream the status as server-sent events."""
        place.take()
        server = await self._directory.find(ref, scope.conversation)
        place.follow(server.id)
        events = stream_status(self._servers, self._directory, server, scope.conversation, self._serializer(options))
        return EventStream(events)

    def _serializer(self, options: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._services.dependencies, self._directory, options)


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes, for all workspaces and for one."""
    services = Services.build(dependencies.command_dependencies)
    router = services.server_routes({"/{ref}": ServerActions(services), "/{ref}/review": ReviewRoutes(services)})
    router.routes.extend(CommonRoutes(services).mount("/api/mcp", "servers", services.query_scope).routes)
    return router


def _verify_answer(server: VisibleServer, checks: list[Check], options: ResponseOptions, *, deep: bool) -> VerifyAnswer:
    broken = next((check for check in checks if check.finding is CheckStatus.BROKEN), None)
    durations = [check.seconds for check in checks if check.seconds is not None]
    problem = "" if server.status is ServerStatus.CONNECTED else server.problem or _("It is not connected.")
    return VerifyAnswer(
        ok=broken is None and not problem,
        status=options.status(server.status),
        latency_ms=round(1000 * sum(durations)) if durations else None,
        era=(server.state.protocol if server.state else "") or None,
        error=broken.detail if broken else problem or None,
        fix=(broken.fix if broken else "") or None,
        checks=[
            CheckAnswer(**{**asdict(check), "name": english(check.name)})
            for check in checks
            if deep or check.finding in (CheckStatus.BROKEN, CheckStatus.DOUBTFUL)
        ],
    )


def _off_problem(server: VisibleServer) -> Problem:
    if server.status is ServerStatus.DISABLED:
        return Problem(409, "disabled", _("The server is disabled."), _('enable it: PUT {"enabled": true}'))
    return Problem(409, "disconnected", _("The server is disconnected."), _("connect it: POST …/connect"))


class DefinitionDiff(ResponseModel):
    """Difference between a definition and its pin; null where one of them is missing."""

    part: str
    before: str | None
    after: str | None


class WaitingTool(ResponseModel):
    """A tool without an approved definition."""

    name: str
    review: str = Field(description="`new`, `changed` or `flagged`.")
    flags: list[str] = Field(description="Suspicious parts, in a few words each.")
    differences: list[DefinitionDiff]
    definition: str = Field(description="Digest of the definition; an approval names it.")
    pinned_by: str | None
    pinned_at: Moment


class ReviewAnswer(ResponseModel):
    """Unreviewed tools of a server."""

    server_id: str
    tools: list[WaitingTool]
    definition: str | None = Field(description="Digest of all of them; null without unreviewed tools.")


class ApprovalBody(RequestModel):
    """Definitions to approve."""

    definition: str = Field(description="Digest that was reviewed: of `tool`, or of all unreviewed tools.")
    tool: str = Field(default="", description="One tool alone, by the server's own name for it.")


class Approved(ResponseModel):
    """Offered tools after an approval."""

    approved: list[str]


class ReviewRoutes(Routes):
    """The routes, over the services of `/mcp review`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @route("get", "", "Tools that wait for a review")
    async def show_review(self, ref: str, options: RequestedOptions, scope: CurrentScope) -> ReviewAnswer:
        """Return the unreviewed tools and their differences from the pins."""
        server = await self._services.directory.find_synced(ref, scope.conversation)
        tools = await self._services.review.unreviewed_tools(server.id)
        return ReviewAnswer(
            server_id=server.name,
            tools=[_waiting_tool(tool, options) for tool in tools],
            definition=combined_digest(tool.tool for tool in tools) if tools else None,
        )

    @route("post", "", "Approve tools as they were shown")
    async def approve_tools(self, ref: str, body: ApprovalBody, scope: CurrentScope) -> Approved:
        """Approve tools in the reviewed version."""
        server = await self._services.directory.find(ref, scope.conversation)
        approved = await self._services.review.approve(server, body.tool, body.definition, scope.member)
        if not approved:
            raise Problem(
                409,
                "conflict",
                _("What waits is not what was looked at any more. Nothing was approved."),
                _("look again"),
            )
        return Approved(approved=[approved_tool.tool.original_name for approved_tool in approved])


def _waiting_tool(unreviewed: UnreviewedTool, options: ResponseOptions) -> WaitingTool:
    pin = unreviewed.pin
    return WaitingTool(
        name=unreviewed.tool.original_name,
        review=unreviewed.review.value,
        flags=list(unreviewed.tool.flags),
        differences=[
            DefinitionDiff(part=difference.name, before=difference.before, after=difference.after)
            for difference in unreviewed.alterations
        ],
        definition=unreviewed.tool.definition,
        pinned_by=pin.pinned_by if pin else None,
        pinned_at=options.moment(pin.pinned_at if pin else None),
    )


# -------------------- all servers


class FileDifference(ResponseModel):
    """Difference between the operator's file and the running configuration."""

    added: list[str]
    changed: dict[str, str] = Field(description="Changed fields by server name, without values.")
    removed: list[str]
    problems: list[str]
    applied: bool


class Instruction(ResponseModel):
    """Instructions from one server."""

    server_id: str
    name: str
    system_instruction: str
    response_instruction: str
    auto_context_tool: str


class Instructions(ResponseModel):
    """Instructions from all connected servers."""

    instructions: str = Field(description="Every `systemInstruction`, as the model gets them.")
    servers: list[Instruction]


class CommonRoutes(Routes):
    """The routes about all servers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @route("get", "/instructions", "Instructions of the servers for the model")
    async def list_instructions(self, scope: CurrentScope) -> Instructions:
        """Return the instructions for the model. An unusable server contributes none."""
        entries = [
            Instruction(
                server_id=server.name,
                name=server.config.title or server.name,
                system_instruction=server.config.system_instruction,
                response_instruction=server.config.response_instruction,
                auto_context_tool=server.config.auto_context_tool,
            )
            for server in await self._services.directory.all(scope.conversation)
            if server.status in (ServerStatus.CONNECTED, ServerStatus.IDLE)
        ]
        joined = "\n\n".join(entry.system_instruction for entry in entries if entry.system_instruction)
        return Instructions(instructions=joined, servers=entries)

    @route("post", "/reload", "Read the operator's file again")
    async def reload_file(
        self,
        scope: CurrentScope,
        *,
        dry_run: Annotated[bool, Query(alias="dryRun", description="Return the changes, apply none.")] = False,
    ) -> FileDifference:
        """Apply servers and rules from the operator's file as it is now."""
        difference = await (
            self._services.dependencies.administration.difference()
            if dry_run
            else self._services.servers.reload(scope.member)
        )
        fields = {**asdict(difference), "changed": dict(difference.changed)}
        return FileDifference(**fields, applied=not dry_run)

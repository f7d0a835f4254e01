"""Actions on MCP servers: connect, verify, sync, review of changed tools, a stream of the status, reload of the file.

The same routes serve all workspaces and one workspace. The event stream compares states in memory and queries the
database only after a change. It ends when the server is removed, the client disconnects or the process stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from bot.commands.argument_parser import NotFoundRejection
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.tool_review import UnreviewedTool
from bot.domain.conversations import ConversationKey
from bot.domain.health import Check, CheckStatus
from bot.domain.pins import combined_digest
from bot.domain.servers import ServerEnablement, ServerSnapshot, ServerStatus, SyncStatus
from bot.errors import ServerTrouble
from bot.ports import ServerAdmin
from bot.web.limits import RequestStreamPlace
from bot.web.problems import Problem
from bot.web.routes import RequestModel, ResponseModel, WebDependencies, api_router
from bot.web.server_responses import AskedManner, CapabilitiesAnswer, Moment, ResponseOptions, ServerSerializer
from bot.web.server_scope import AtHere, ServerScope, Services
from bot.web.sse import EventStream, ServerEvent

# -------------------- events

LOOK_SECONDS = 0.25


async def stream_status(
    servers: ServerAdmin,
    directory: ServerDirectory,
    server: VisibleServer,
    conversation: ConversationKey,
    writer: ServerSerializer,
) -> AsyncGenerator[ServerEvent, None]:
    """Yield the status as an event, now and after each change."""
    last = _state(servers, server.id)
    yield _event("status_update", server, writer)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        before, last = last, _state(servers, server.id)
        if before == last:
            continue
        try:
            server = await directory.find(server.id, conversation)
        except NotFoundRejection:
            yield ServerEvent("server_removed", {"id": server.id, "serverId": server.name})
            return
        if _stands(before) != _stands(last):
            yield _event("connection_change", server, writer)
        if _was_asked(before, last):
            yield _event("capabilities_synced", server, writer)


def _event(name: str, server: VisibleServer, writer: ServerSerializer) -> ServerEvent:
    return ServerEvent(name, writer.listed(server).model_dump(mode="json"))


def _state(servers: ServerAdmin, server_id: str) -> ServerSnapshot | None:
    return next((state for state in servers.servers() if state.config.id == server_id), None)


def _stands(state: ServerSnapshot | None) -> tuple[object, ...]:
    """Return the parts of a state about the connection and the definition."""
    return () if state is None else (state.status, state.problem, state.config, state.server_version)


def _was_asked(before: ServerSnapshot | None, state: ServerSnapshot | None) -> bool:
    """Return True if a sync was attempted between two states."""
    if state is None or state.status in _OFF or state.sync not in (SyncStatus.SYNCED, SyncStatus.SYNC_FAILED):
        return False
    return before is None or (before.sync, before.synced_at) != (state.sync, state.synced_at)


_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
_WATCHED = (
    "Events `status_update` (at once), `connection_change`, `capabilities_synced` and `server_removed`, each with the "
    "server as in the list; comments while nothing happens."
)


class ConnectionAnswer(ResponseModel):
    """Status of a server after an action."""

    connected: bool
    status: str
    last_error: str | None


class ConnectedAnswer(ConnectionAnswer):
    """Status of a server, with the sign-in link if it needs one."""

    sign_in_url: str | None = Field(
        default=None,
        description="Where a person signs the bot in, in a browser, if the server waits for that: within ten minutes.",
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
    latency_ms: int | None = Field(description="How long all looks took together.")
    era: str | None = Field(description="The version of the protocol that was agreed on.")
    error: str | None
    fix: str | None
    checks: list[CheckAnswer] = Field(description="Every look, with `deep=true`; else those that found something.")


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


class ServerActions:
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._servers = services.parts.servers
        self._directory = services.directory

    async def connected(self, ref: str, manner: AskedManner, here: AtHere) -> ConnectedAnswer:
        """Connect a server that is not connected. A disconnected server reconnects automatically from now on."""
        seen = await self._directory.find(ref, here.conversation)
        if not await self._services.keeping.let_connect(seen, here.member):
            raise _switched_off(seen)
        state, sign_in_url = await self._servers.connect(seen.id), None
        problem = state.problem
        if state.status is not ServerStatus.CONNECTED:
            try:
                sign_in_url = await self._services.signing_in.address(seen, here.member, here.conversation)
            except ServerTrouble as trouble:
                problem = str(trouble)
        return ConnectedAnswer(
            connected=state.status is ServerStatus.CONNECTED,
            status=manner.status(state.status),
            last_error=problem or None,
            sign_in_url=sign_in_url,
        )

    async def disconnected(self, ref: str, manner: AskedManner, here: AtHere) -> ConnectionAnswer:
        """Close the connection, which stays closed until the next request to connect."""
        seen = await self._directory.find(ref, here.conversation)
        record = self._directory.record_of(seen, here.member)
        if record.standing is ServerEnablement.ON:
            await self._services.keeping.set_enablement(record, ServerEnablement.DISCONNECTED, here.author)
        present = await self._directory.find(seen.id, here.conversation)
        return ConnectionAnswer(connected=False, status=manner.status(present.status), last_error=None)

    async def verified(
        self,
        ref: str,
        manner: AskedManner,
        here: AtHere,
        *,
        deep: Annotated[bool, Query(description="Say of every look what it found.")] = False,
    ) -> VerifyAnswer:
        """Check a server from its address to its tools, and connect if all checks pass."""
        seen = await self._directory.find(ref, here.conversation)
        if seen.status in _OFF:
            raise _switched_off(seen)
        async with aclosing(self._servers.diagnose(seen.id)) as looks:
            checks = [check async for check in looks]
        if not any(check.finding is CheckStatus.BROKEN for check in checks):
            await self._servers.connect(seen.id)
        return _verified(await self._directory.find(seen.id, here.conversation), checks, manner, deep=deep)

    async def synced(self, ref: str, manner: AskedManner, here: AtHere) -> SyncAnswer:
        """Fetch and store tools, resources and prompts."""
        seen = await self._directory.find(ref, here.conversation)
        if seen.status in _OFF:
            raise _switched_off(seen)
        fetched = await self._services.keeping.fetch(seen)
        present, known = await self._directory.find(seen.id, here.conversation), fetched.capabilities
        return SyncAnswer(
            sync_status=present.sync.name,
            last_synced_at=manner.moment(present.state.synced_at if present.state else None),
            tool_count=len(known.tools),
            resource_count=len(known.resources) + len(known.templates),
            prompt_count=len(known.prompts),
            new=list(fetched.new),
            changed=list(fetched.changed),
            gone=list(fetched.gone),
        )

    async def offered(self, ref: str, manner: AskedManner, here: AtHere) -> CapabilitiesAnswer:
        """Return the known tools, resources and prompts; a server without any is synced first."""
        seen = await self._services.directory.find_synced(ref, here.conversation)
        present = await self._directory.find(seen.id, here.conversation)
        return self._writer(manner).capabilities(present, here.conversation)

    async def watched(self, ref: str, manner: AskedManner, here: AtHere, place: RequestStreamPlace) -> EventStream:
        """Stream the status as server-sent events."""
        place.take()
        seen = await self._directory.find(ref, here.conversation)
        place.follow(seen.id)
        events = stream_status(self._servers, self._directory, seen, here.conversation, self._writer(manner))
        return EventStream(events)

    def _writer(self, manner: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._services.parts, self._directory, manner)


def routes(parts: WebDependencies) -> APIRouter:
    """Return the routes, for all workspaces and for one."""
    services = Services.of(parts.command_parts)
    router = api_router()
    for scope in services.server_scopes():
        router.routes.extend(_action_routes(scope, services).routes)
        router.routes.extend(_review_routes(scope, services).routes)
    router.routes.extend(_common_routes(services).routes)
    return router


def _action_routes(scope: ServerScope, services: Services) -> APIRouter:
    router = api_router(f"{scope.path}/{{ref}}", tags=["servers"], dependencies=[Depends(scope.dependency)])
    actions = ServerActions(services)
    posts = (
        ("connect", "Connect to a server now", actions.connected),
        ("disconnect", "Leave a server alone until it is connected again", actions.disconnected),
        ("verify", "Whether a server can be used", actions.verified),
        ("sync", "Ask a server for everything it offers", actions.synced),
    )
    for verb, summary, action in posts:
        router.post(f"/{verb}", name=f"{scope.name}{verb}_server", summary=summary)(action)
    router.get("/capabilities", name=f"{scope.name}show_capabilities", summary="What a server offers")(actions.offered)
    router.get(
        "/status/stream",
        name=f"{scope.name}watch_server",
        summary="How a server stands, as it changes",
        response_class=EventStream,
        responses={200: {"content": {EventStream.media_type: {"schema": {"type": "string"}}}, "description": _WATCHED}},
    )(actions.watched)
    return router


def _verified(server: VisibleServer, checks: list[Check], manner: ResponseOptions, *, deep: bool) -> VerifyAnswer:
    broken = next((check for check in checks if check.finding is CheckStatus.BROKEN), None)
    times = [check.seconds for check in checks if check.seconds is not None]
    problem = "" if server.status is ServerStatus.CONNECTED else server.problem or "It is not connected."
    return VerifyAnswer(
        ok=broken is None and not problem,
        status=manner.status(server.status),
        latency_ms=round(1000 * sum(times)) if times else None,
        era=(server.state.protocol if server.state else "") or None,
        error=broken.detail if broken else problem or None,
        fix=(broken.fix if broken else "") or None,
        checks=[
            CheckAnswer(
                name=each.name, finding=each.finding.value, detail=each.detail, fix=each.fix, seconds=each.seconds
            )
            for each in checks
            if deep or each.finding in (CheckStatus.BROKEN, CheckStatus.DOUBTFUL)
        ],
    )


def _switched_off(server: VisibleServer) -> Problem:
    if server.status is ServerStatus.DISABLED:
        return Problem(409, "disabled", "The server is disabled.", 'enable it: PUT {"enabled": true}')
    return Problem(409, "disconnected", "The server is disconnected.", "connect it: POST …/connect")


class DefinitionDiff(ResponseModel):
    """Difference between a definition and its pin; null where one of them is missing."""

    part: str
    before: str | None
    after: str | None


class WaitingTool(ResponseModel):
    """A tool whose definition is not approved."""

    name: str
    review: str = Field(description="`new`, `changed` or `flagged`.")
    flags: list[str] = Field(description="What to look at, in a few words each.")
    differences: list[DefinitionDiff]
    definition: str = Field(description="Its digest: approving names what was looked at.")
    pinned_by: str | None
    pinned_at: Moment


class ReviewAnswer(ResponseModel):
    """Unreviewed tools of a server."""

    server_id: str
    tools: list[WaitingTool]
    definition: str | None = Field(description="The digest of all of them together; null if nothing waits.")


class ApprovalBody(RequestModel):
    """Definitions to approve."""

    definition: str = Field(description="The digest of what was looked at: of `tool`, or of everything that waits.")
    tool: str = Field(default="", description="One tool alone, by the server's own name for it.")


class Approved(ResponseModel):
    """Offered tools after an approval."""

    approved: list[str]


class ReviewRoutes:
    """The routes, over the services of `/mcp review`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def shown(self, ref: str, manner: AskedManner, here: AtHere) -> ReviewAnswer:
        """Return the unreviewed tools and their differences from the pins."""
        seen = await self._services.directory.find_synced(ref, here.conversation)
        waiting = await self._services.reviewing.waiting(seen.id)
        return ReviewAnswer(
            server_id=seen.name,
            tools=[_waiting(each, manner) for each in waiting],
            definition=combined_digest(each.tool for each in waiting) if waiting else None,
        )

    async def approved(self, ref: str, body: ApprovalBody, here: AtHere) -> Approved:
        """Approve tools in the reviewed version."""
        seen = await self._services.directory.find(ref, here.conversation)
        found = await self._services.reviewing.approve(seen, body.tool, body.definition, here.member)
        if not found:
            raise Problem(
                409, "conflict", "What waits is not what was looked at any more. Nothing was approved.", "look again"
            )
        return Approved(approved=[each.tool.original_name for each in found])


def _review_routes(scope: ServerScope, services: Services) -> APIRouter:
    router = api_router(f"{scope.path}/{{ref}}/review", tags=["servers"], dependencies=[Depends(scope.dependency)])
    reviews = ReviewRoutes(services)
    router.get("", name=f"{scope.name}show_review", summary="Tools that wait for a review")(reviews.shown)
    router.post("", name=f"{scope.name}approve_tools", summary="Approve tools as they were shown")(reviews.approved)
    return router


def _waiting(waiting: UnreviewedTool, manner: ResponseOptions) -> WaitingTool:
    pin = waiting.pin
    return WaitingTool(
        name=waiting.tool.original_name,
        review=waiting.review.value,
        flags=list(waiting.tool.flags),
        differences=[
            DefinitionDiff(part=alteration.part, before=alteration.before, after=alteration.after)
            for alteration in waiting.alterations
        ],
        definition=waiting.tool.definition,
        pinned_by=pin.pinned_by if pin else None,
        pinned_at=manner.moment(pin.pinned_at if pin else None),
    )


# -------------------- all servers


class FileDifference(ResponseModel):
    """Difference between the operator's file and the running configuration."""

    added: list[str]
    changed: dict[str, str] = Field(description="By name, what is different; values are not shown.")
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


def _common_routes(services: Services) -> APIRouter:
    router = api_router("/api/mcp", tags=["servers"], dependencies=[Depends(services.asked)])

    @router.get("/instructions", summary="What the model is told of the servers")
    async def list_instructions(here: AtHere) -> Instructions:
        """Return the instructions for the model. An unusable server contributes none."""
        entries = [
            Instruction(
                server_id=seen.name,
                name=seen.config.title or seen.name,
                system_instruction=seen.config.system_instruction,
                response_instruction=seen.config.response_instruction,
                auto_context_tool=seen.config.auto_context_tool,
            )
            for seen in await services.directory.all(here.conversation)
            if seen.status in (ServerStatus.CONNECTED, ServerStatus.IDLE)
        ]
        joined = "\n\n".join(entry.system_instruction for entry in entries if entry.system_instruction)
        return Instructions(instructions=joined, servers=entries)

    @router.post("/reload", summary="Read the operator's file again")
    async def reload_file(
        here: AtHere,
        *,
        dry_run: Annotated[bool, Query(alias="dryRun", description="Say what would change, change nothing.")] = False,
    ) -> FileDifference:
        """Apply servers and rules from the operator's file as it is now."""
        found = await (services.parts.administration.difference() if dry_run else services.keeping.reload(here.member))
        return FileDifference(
            added=list(found.added),
            changed=dict(found.changed),
            removed=list(found.removed),
            problems=list(found.problems),
            applied=not dry_run,
        )

    return router

"""What can be done with a server: connect, disconnect, verify, sync; what it offers; and how it stands, as it changes.

The same routes serve every workspace and one alone, as in `bot.web.servers.routes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from bot.commands.rejections import NotFoundRejection
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.domain.checks import Check, CheckStatus
from bot.domain.conversations import ConversationKey
from bot.domain.servers import ServerEnablement, ServerSnapshot, ServerStatus, SyncStatus
from bot.errors import ServerTrouble
from bot.ports import ServerAdmin
from bot.web.caller_limits import RequestStreamPlace
from bot.web.problems import Problem
from bot.web.routes import api_router
from bot.web.schemas import ResponseModel
from bot.web.servers.dependencies import AtHere, FindHere, Services
from bot.web.servers.response_options import AskedManner, Moment, ResponseOptions
from bot.web.servers.responses import CapabilitiesAnswer, ServerSerializer
from bot.web.sse import EventStream, ServerEvent

# -------------------- events
# How one server stands, as events: what `/mcp show` says, whenever it would say something else.
#
# The connections are looked at in memory; nothing is asked of the database or of the server as long as all is quiet.
# The events end when the server is removed; the stream that they are sent in ends when nobody listens or the program
# leaves.

LOOK_SECONDS = 0.25


async def stream_status(
    servers: ServerAdmin,
    directory: ServerDirectory,
    seen: VisibleServer,
    where: ConversationKey,
    writer: ServerSerializer,
) -> AsyncGenerator[ServerEvent, None]:
    """The events, the first one at once."""
    last = _state(servers, seen.id)
    yield _event("status_update", seen, writer)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        before, last = last, _state(servers, seen.id)
        if before == last:
            continue
        try:
            seen = await directory.find(seen.id, where)
        except NotFoundRejection:
            yield ServerEvent("server_removed", {"id": seen.id, "serverId": seen.name})
            return
        if _stands(before) != _stands(last):
            yield _event("connection_change", seen, writer)
        if _was_asked(before, last):
            yield _event("capabilities_synced", seen, writer)


def _event(name: str, seen: VisibleServer, writer: ServerSerializer) -> ServerEvent:
    return ServerEvent(name, writer.listed(seen).model_dump(mode="json"))


def _state(servers: ServerAdmin, server_id: str) -> ServerSnapshot | None:
    return next((state for state in servers.servers() if state.config.id == server_id), None)


def _stands(state: ServerSnapshot | None) -> tuple[object, ...]:
    """What of a state is about the connection, and about how the server is defined."""
    return () if state is None else (state.status, state.problem, state.config, state.server_version)


def _was_asked(before: ServerSnapshot | None, state: ServerSnapshot | None) -> bool:
    """Whether the server was asked for what it offers, well or badly."""
    if state is None or state.status in _OFF or state.sync not in (SyncStatus.SYNCED, SyncStatus.SYNC_FAILED):
        return False
    return before is None or (before.sync, before.synced_at) != (state.sync, state.synced_at)


_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
_WATCHED = (
    "Events `status_update` (at once), `connection_change`, `capabilities_synced` and `server_removed`, each with the "
    "server as in the list; comments while nothing happens."
)


class ConnectionAnswer(ResponseModel):
    """How a server stands after it was to be connected to, or left alone."""

    connected: bool
    status: str
    last_error: str | None


class ConnectedAnswer(ConnectionAnswer):
    """The same, and the way on where it waits for a person."""

    sign_in_url: str | None = Field(
        default=None,
        description="Where a person signs the bot in, in a browser, if the server waits for that: within ten minutes.",
    )


class CheckAnswer(ResponseModel):
    """One look."""

    name: str
    finding: str = Field(description="`ok`, `warning`, `failed` or `skipped`.")
    detail: str
    fix: str
    seconds: float | None


class VerifyAnswer(ResponseModel):
    """Whether a server can be used."""

    ok: bool
    status: str
    latency_ms: int | None = Field(description="How long all looks took together.")
    era: str | None = Field(description="The version of the protocol that was agreed on.")
    error: str | None
    fix: str | None
    checks: list[CheckAnswer] = Field(description="Every look, with `deep=true`; else those that found something.")


class SyncAnswer(ResponseModel):
    """What a server offers now, in numbers, and which of its tools are different from before."""

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
        """Connect, or find that it is connected. One that was disconnected connects by itself again from now on."""
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
        """Close the connection; it stays closed until somebody asks for it."""
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
        """Look at everything from its address to its tools, and connect if nothing is wrong."""
        seen = await self._directory.find(ref, here.conversation)
        if seen.status in _OFF:
            raise _switched_off(seen)
        async with aclosing(self._servers.diagnose(seen.id)) as looks:
            checks = [check async for check in looks]
        if not any(check.finding is CheckStatus.BROKEN for check in checks):
            await self._servers.connect(seen.id)
        return _verified(await self._directory.find(seen.id, here.conversation), checks, manner, deep=deep)

    async def synced(self, ref: str, manner: AskedManner, here: AtHere) -> SyncAnswer:
        """Ask for tools, resources and prompts, and keep what comes."""
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
        """Tools, resources and prompts as they are known; a server that was never asked is asked now."""
        seen = await self._services.calls.found(ref, here.conversation)
        present = await self._directory.find(seen.id, here.conversation)
        return self._writer(manner).capabilities(present, here.conversation)

    async def watched(self, ref: str, manner: AskedManner, here: AtHere, place: RequestStreamPlace) -> EventStream:
        """Server-sent events, as long as somebody listens."""
        place.take()
        seen = await self._directory.find(ref, here.conversation)
        place.follow(seen.id)
        events = stream_status(self._servers, self._directory, seen, here.conversation, self._writer(manner))
        return EventStream(events)

    def _writer(self, manner: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._services.parts, self._directory, manner)


def server_action_routes(services: Services, find_here: FindHere, prefix: str, *, named: str = "") -> APIRouter:
    """The routes, below `prefix`. `named` begins their names."""
    router = api_router(f"{prefix}/{{ref}}", tags=["servers"], dependencies=[Depends(find_here)])
    actions = ServerActions(services)
    posts = (
        ("connect", "Connect to a server now", actions.connected),
        ("disconnect", "Leave a server alone until it is connected again", actions.disconnected),
        ("verify", "Whether a server can be used", actions.verified),
        ("sync", "Ask a server for everything it offers", actions.synced),
    )
    for verb, summary, action in posts:
        router.post(f"/{verb}", name=f"{named}{verb}_server", summary=summary)(action)
    router.get("/capabilities", name=f"{named}show_capabilities", summary="What a server offers")(actions.offered)
    router.get(
        "/status/stream",
        name=f"{named}watch_server",
        summary="How a server stands, as it changes",
        response_class=EventStream,
        responses={200: {"content": {EventStream.media_type: {"schema": {"type": "string"}}}, "description": _WATCHED}},
    )(actions.watched)
    return router


def _verified(seen: VisibleServer, checks: list[Check], manner: ResponseOptions, *, deep: bool) -> VerifyAnswer:
    broken = next((check for check in checks if check.finding is CheckStatus.BROKEN), None)
    times = [check.seconds for check in checks if check.seconds is not None]
    problem = "" if seen.status is ServerStatus.CONNECTED else seen.problem or "It is not connected."
    return VerifyAnswer(
        ok=broken is None and not problem,
        status=manner.status(seen.status),
        latency_ms=round(1000 * sum(times)) if times else None,
        era=(seen.state.protocol if seen.state else "") or None,
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


def _switched_off(seen: VisibleServer) -> Problem:
    if seen.status is ServerStatus.DISABLED:
        return Problem(409, "disabled", "It is disabled: nobody may use it.", 'enable it: PUT {"enabled": true}')
    return Problem(409, "disconnected", "It is disconnected: there is nobody to ask.", "connect it: POST …/connect")

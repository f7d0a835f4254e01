"""Routes to list, add, read, change and remove servers, the same for all workspaces and for one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from bot.commands.server_checks import ServerRequest
from bot.commands.server_definition import ParsedDefinition
from bot.commands.server_directory import VisibleServer, name_in_use
from bot.commands.server_fields import is_slug
from bot.commands.server_service import InvalidServer, VersionConflict
from bot.commands.text_format import POLICY_CHOICES, parse_policy
from bot.domain.approvals import ApprovalPolicy
from bot.domain.servers import ServerEnablement, ServerRecord
from bot.web.problems import Problem
from bot.web.routes import api_router
from bot.web.servers.dependencies import AtHere, FindHere, RequestScope, Services
from bot.web.servers.requests import ParsedServer, ServerBody, given
from bot.web.servers.responses import (
    AskedManner,
    ResponseOptions,
    ServerAnswer,
    ServerDetails,
    ServerSerializer,
    wanted_standing,
)
from bot.web.servers.versions import IfMatch, check, overtaken, tag

CONNECTING_SECONDS = 45.0
"""Seconds that a response waits for a connection attempt, which continues after that."""
_INVALID = "Some fields cannot be used. Nothing was saved."


class ServerRoutes:
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parts = services.parts

    async def listed(self, manner: AskedManner, here: AtHere) -> list[ServerAnswer]:
        """List the servers of this scope and the global ones."""
        writer = self._writer(manner)
        return [writer.listed(seen) for seen in await self._services.directory.all(here.conversation)]

    async def added(
        self,
        body: ServerBody,
        response: Response,
        manner: AskedManner,
        here: AtHere,
        *,
        upsert: Annotated[bool, Query(description="Change the one of that name, if there is one.")] = False,
        connect: Annotated[bool, Query(description="Connect to it before answering.")] = True,
    ) -> ServerAnswer:
        """Add a server: 201; with `upsert`, change an existing one: 200. Waits up to 45 seconds for the connection."""
        present = await self._existing(body, here)
        if present is not None and not upsert:
            raise Problem(
                409,
                "conflict",
                "There is a server of that name.",
                "choose another name, or send ?upsert=true to change that one",
                {"serverId" if body.server_id else "name": "It is taken."},
            )
        if present is not None:
            await self._change(present, body, here, None)
            response.status_code, ref = 200, present.id
        else:
            record = await self._add(body, here)
            if connect and record.standing is ServerEnablement.ON:
                await self._connected(record)
            ref = record.id
        seen = await self._find(ref, here)
        _tell_version(response, seen)
        response.headers["Location"] = f"{here.servers}/{seen.id}"
        return self._writer(manner).listed(seen)

    async def shown(self, ref: str, response: Response, manner: AskedManner, here: AtHere) -> ServerDetails:
        """Return one server by its id, slug or name, with its definition; `***` stands for secrets."""
        seen = await self._find(ref, here)
        _tell_version(response, seen)
        return self._writer(manner).details(seen)

    async def changed(
        self,
        ref: str,
        body: ServerBody,
        response: Response,
        manner: AskedManner,
        here: AtHere,
        *,
        if_match: IfMatch = None,
    ) -> ServerDetails:
        """Change the fields in the body; `***` keeps a secret."""
        seen = await self._find(ref, here)
        await self._change(seen, body, here, if_match)
        present = await self._find(seen.id, here)
        _tell_version(response, present)
        return self._writer(manner).details(present)

    async def removed(self, ref: str, here: AtHere, if_match: IfMatch = None) -> None:
        """Delete a server with its secrets and rules."""
        await self._remove(await self._find(ref, here), here, if_match)

    def _writer(self, manner: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._parts, self._services.directory, manner)

    async def _find(self, ref: str, here: RequestScope) -> VisibleServer:
        return await self._services.directory.find(ref, here.conversation)

    async def _existing(self, body: ServerBody, here: RequestScope) -> VisibleServer | None:
        servers = await self._services.directory.all(here.conversation)
        for name in filter(None, (body.server_id, body.name)):
            found = name_in_use(servers, name)
            if found is not None:
                return found
        return None

    async def _add(self, body: ServerBody, here: RequestScope) -> ServerRecord:
        read = given(body)
        name = body.server_id or body.name or ""
        if body.server_id and not is_slug(body.server_id):
            read.errors["serverId"] = "Lower-case letters, digits and dashes, at most 64 of them."
        if is_slug(name) and body.name == name:
            read.fields.pop("title", None)
        policy = _policy(body, read)
        draft = await self._services.drafting.new(_wish(read, here, name))
        self._admit(draft)
        _check(read, draft)
        kept = await self._services.keeping.add(draft, policy, here.author)
        if isinstance(kept, InvalidServer):
            raise _taken(read, kept)
        record = kept.record
        if body.enabled is False:
            record = await self._services.keeping.set_enablement(record, ServerEnablement.DISABLED, here.author)
        return record

    async def _change(self, server: VisibleServer, body: ServerBody, here: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, here.member)
        check(record, body.version, if_match)
        read = given(body)
        if body.policy is not None:
            read.errors["policy"] = "It is for new servers: PUT /api/mcp/approval-policies changes what holds."
        if body.server_id is not None:
            read.fields["name"] = body.server_id
        if body.name == record.config.name and not record.config.title:
            read.fields.pop("title", None)
        draft = await self._services.drafting.changed(record, _wish(read, here))
        self._admit(draft)
        _check(read, draft)
        kept = await self._services.keeping.change(record, draft, here.author)
        match kept:
            case InvalidServer():
                raise _taken(read, kept)
            case VersionConflict(present):
                raise overtaken(present, 409 if if_match is None else 412)
        standing = wanted_standing(enabled=body.enabled, record=kept.record)
        if standing is not None:
            await self._services.keeping.set_enablement(kept.record, standing, here.author)

    async def _remove(self, server: VisibleServer, here: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, here.member)
        check(record, None, if_match)
        late = await self._services.keeping.remove(record, here.author)
        if late is not None:
            raise overtaken(late.record, 409 if if_match is None else 412)

    async def _connected(self, record: ServerRecord) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECTING_SECONDS):
                await self._parts.servers.connect(record.id)

    def _admit(self, draft: ParsedDefinition) -> None:
        if not self._services.drafting.is_name_allowed(draft.record.config.name):
            raise Problem(
                403, "name_not_allowed", "The operator does not allow a server of this name.", "choose an allowed name"
            )


def server_routes(services: Services, find_here: FindHere, prefix: str, *, named: str = "") -> APIRouter:
    """Return the routes below `prefix`. `named` is the prefix of their names, which are unique."""
    router = api_router(prefix, tags=["servers"], dependencies=[Depends(find_here)])
    all_of_them = ServerRoutes(services)
    there: dict[int | str, dict[str, Any]] = {
        200: {"model": ServerAnswer, "description": "It was there, and has been changed (`upsert`)."}
    }
    router.get("", name=f"{named}list_servers", summary="Every server and how it stands")(all_of_them.listed)
    router.post(
        "", name=f"{named}add_server", summary="A new server, connected to at once", status_code=201, responses=there
    )(all_of_them.added)
    router.get("/{ref}", name=f"{named}show_server", summary="One server in full")(all_of_them.shown)
    router.put("/{ref}", name=f"{named}change_server", summary="Change a server")(all_of_them.changed)
    router.delete("/{ref}", name=f"{named}remove_server", summary="Delete a server", status_code=204)(
        all_of_them.removed
    )
    return router


def _tell_version(response: Response, server: VisibleServer) -> None:
    if server.record is not None:
        response.headers["ETag"] = tag(server.record.version)


def _wish(read: ParsedServer, here: RequestScope, name: str = "") -> ServerRequest:
    return ServerRequest(
        read.fields,
        here.member,
        here.conversation,
        name,
        here.everywhere,
        read.argv,
        read.hidden,
        read.values,
    )


def _policy(body: ServerBody, read: ParsedServer) -> ApprovalPolicy | None:
    policy = parse_policy(body.policy or "")
    if body.policy is not None and policy is None:
        words = ", ".join((*(each.value for each in ApprovalPolicy), *POLICY_CHOICES))
        read.errors["policy"] = f"One of {words}."
    return policy


def _check(read: ParsedServer, draft: ParsedDefinition) -> None:
    wrong = read.wrong(draft.errors)
    if wrong:
        raise Problem(422, "invalid", _INVALID, "correct the fields that are named", wrong)


def _taken(read: ParsedServer, faulty: InvalidServer) -> Problem:
    return Problem(409, "conflict", "There is a server of that name.", "choose another name", read.wrong(faulty.errors))

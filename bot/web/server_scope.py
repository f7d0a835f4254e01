"""Dependencies of the routes about servers, rules and profiles: services of `/mcp`, scope of a request, versions.

A version in a request has to be the current one. In a body it is `version`, and a mismatch is a conflict (409). In the
header it is `If-Match`, and a mismatch is a failed precondition (412, RFC 9110 section 13.1.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import AfterValidator, Field

from bot.admin.dependencies import CommandDependencies
from bot.admin.policies.verbs import PolicyService
from bot.admin.profiles.fields import ProfileService
from bot.admin.servers.control import ServerService
from bot.admin.servers.directory import ServerDirectory
from bot.admin.servers.review import ToolReview
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.servers.validation import ServerValidator
from bot.admin.text_format import format_moment
from bot.domain.api_clients import ApiClient
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Profile
from bot.domain.servers import EVERYWHERE, ServerRecord
from bot.i18n import _, format_time_zone, gettext_lazy
from bot.web.authentication import ensure_workspace
from bot.web.parameters import AdminCaller
from bot.web.problems import Problem
from bot.web.routes import Routes, api_router

WORKSPACE = r"^[a-z][a-z-]{0,40}:[A-Za-z0-9._~@+-]{1,200}$"
"""Format of a workspace: `slack:T1`, `discord:1`, `api:default`. It needs no escaping in addresses."""
WORKSPACE_FORM = gettext_lazy("A workspace is PLATFORM:ID, for example slack:T1.")
"""The format in an error message."""
OFF = gettext_lazy("MCP is switched off (MCP_ENABLED=false), so there are no servers and no tools.")


def _check_workspace(workspace: str) -> str:
    if not re.fullmatch(WORKSPACE, workspace):
        raise ValueError(str(WORKSPACE_FORM))
    return workspace


WorkspaceName = Annotated[str, AfterValidator(_check_workspace), Field(json_schema_extra={"pattern": WORKSPACE})]
"""Workspace in a request."""


@dataclass(frozen=True, slots=True)
class RequestScope:
    """Scope of a request: its API client and workspace. New records belong to `workspace`; records of EVERYWHERE are
    visible in every workspace. `servers` is the path of the servers of this scope.
    """

    caller: ApiClient
    conversation: ConversationKey
    workspace: str
    servers: str = "/api/mcp/servers"

    @property
    def member(self) -> Member:
        """Member of the API client."""
        return self.caller.member

    @property
    def author(self) -> Author:
        """Author for audit records."""
        return self.caller.author

    @property
    def everywhere(self) -> bool:
        """True if the scope is all workspaces."""
        return self.workspace == EVERYWHERE


@dataclass(frozen=True, slots=True)
class Services:
    """Services with shared dependencies."""

    dependencies: CommandDependencies
    directory: ServerDirectory
    validator: ServerValidator
    servers: ServerService
    sign_ins: SignInSteps
    review: ToolReview
    policies: PolicyService
    profiles: ProfileService

    @classmethod
    def build(cls, dependencies: CommandDependencies) -> Services:
        """Build the services."""
        directory = ServerDirectory(dependencies)
        return cls(
            dependencies,
            directory,
            ServerValidator(dependencies, directory),
            ServerService(dependencies, directory),
            SignInSteps(dependencies, directory),
            ToolReview(dependencies),
            PolicyService(dependencies, directory),
            ProfileService(dependencies),
        )

    def server_routes(self, routes: Mapping[str, Routes]) -> APIRouter:
        """Return routes by their path below that of the servers, for all workspaces and for one."""
        router = api_router()
        for scope, path, name in (
            (self.global_scope, "/api/mcp/servers", ""),
            (self.workspace_scope, "/api/workspaces/{workspace}/mcp-servers", "workspace_"),
        ):
            for below, routes_there in routes.items():
                router.routes.extend(routes_there.mount(f"{path}{below}", "servers", scope, name).routes)
        return router

    async def global_scope(self, request: Request, caller: AdminCaller) -> RequestScope:
        """Return the scope of all workspaces, or of the token's own. Raises Problem."""
        return _keep_scope(request, self.scope_in(caller, caller.workspace))

    async def workspace_scope(
        self,
        request: Request,
        caller: AdminCaller,
        workspace: Annotated[WorkspaceName, Path(description="Such as `slack:T1` or `api:default`.")],
    ) -> RequestScope:
        """Return the scope of the workspace in the path. Raises Problem."""
        scope = self.scope_in(caller, ensure_workspace(caller, workspace))
        return _keep_scope(request, replace(scope, servers=f"/api/workspaces/{workspace}/mcp-servers"))

    async def query_scope(
        self,
        request: Request,
        caller: AdminCaller,
        workspace: Annotated[
            WorkspaceName | None, Query(description="Such as `slack:T1`; without it, as the token goes.")
        ] = None,
    ) -> RequestScope:
        """Return the scope of the workspace in the query, if there is one. Raises Problem."""
        return _keep_scope(
            request,
            self.scope_in(caller, caller.workspace if workspace is None else ensure_workspace(caller, workspace)),
        )

    def scope_in(self, caller: ApiClient, workspace: str) -> RequestScope:
        """Return the scope of one workspace that the token covers; rights in others do not apply. Raises Problem."""
        if not self.dependencies.servers.enabled:
            raise Problem(503, "mcp_disabled", OFF, _("set MCP_ENABLED=true and start again"))
        client_there = replace(caller, workspace=workspace)
        return RequestScope(client_there, client_there.place(), workspace)


def _keep_scope(request: Request, scope: RequestScope) -> RequestScope:
    request.state.scope = scope
    return scope


async def _current_scope(request: Request) -> RequestScope:
    return cast("RequestScope", getattr(request.state, "scope", None))


CurrentScope = Annotated[RequestScope, Depends(_current_scope)]
"""Scope of a request, from the router's dependency."""


IfMatch = Annotated[str | None, Header(description="A version as in `ETag`: nothing is done if it is another by now.")]
_TAG = re.compile(r'(?:W/)?"?(\d{1,18})"?')


def format_etag(version: int) -> str:
    """Format a version as an `ETag`."""
    return f'"{version}"'


def check_version(present: ServerRecord | Profile, version: int | None, if_match: str | None) -> None:
    """Raise Problem if the version in the request is not the current one. The message names the last editor."""
    if if_match is not None and if_match.strip() != "*":
        wanted = {match[1] for match in map(_TAG.fullmatch, map(str.strip, if_match.split(","))) if match}
        if str(present.version) not in wanted:
            raise version_conflict(present, if_match)
    if version is not None and version != present.version:
        raise version_conflict(present)


def version_conflict(present: ServerRecord | Profile, if_match: str | None = None) -> Problem:
    """Return the problem for a record that was changed meanwhile: 412 for a request with `If-Match`."""
    time = format_moment(present.updated_at)
    user = present.updated_by or _("somebody")
    message = (
        _(
            "It was changed by {user} at {time} {zone}: it has version {version} now. Nothing was saved.",
            user=user,
            time=time,
            zone=format_time_zone(),
            version=present.version,
        )
        if time
        else _(
            "It was changed by {user}: it has version {version} now. Nothing was saved.",
            user=user,
            version=present.version,
        )
    )
    return Problem(
        *((409, "conflict") if if_match is None else (412, "changed")),
        message,
        _("read it again, and send the change with that version"),
        {"version": str(present.version)},
        headers={"ETag": format_etag(present.version)},
    )

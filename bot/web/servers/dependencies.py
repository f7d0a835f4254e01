"""Dependencies of the routes about servers, rules and profiles: the services of `/mcp`, and the scope of a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator, Field

from bot.commands.call_builder import CallBuilder
from bot.commands.dependencies import CommandDependencies
from bot.commands.policies import PolicyService
from bot.commands.profile_fields import ProfileService
from bot.commands.server_checks import ServerValidator
from bot.commands.server_directory import ServerDirectory
from bot.commands.server_service import ServerService
from bot.commands.sign_in import SignInSteps
from bot.commands.tool_review import ToolReview
from bot.domain.api_clients import ApiClient
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.servers import EVERYWHERE
from bot.web.authentication import AdminCaller, ensure_workspace
from bot.web.problems import Problem

WORKSPACE = r"^[a-z][a-z-]{0,40}:[A-Za-z0-9._~@+-]{1,200}$"
"""Format of a workspace: `slack:T1`, `discord:1`, `api:default`. It needs no escaping in addresses."""
WORKSPACE_FORM = "a workspace is PLATFORM:ID, for example slack:T1"
"""The format in an error message."""
OFF = "MCP is switched off (MCP_ENABLED=false), so there are no servers and no tools."


def _written(workspace: str) -> str:
    if not re.fullmatch(WORKSPACE, workspace):
        raise ValueError(WORKSPACE_FORM)
    return workspace


WorkspaceName = Annotated[str, AfterValidator(_written), Field(json_schema_extra={"pattern": WORKSPACE})]
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

    parts: CommandDependencies
    directory: ServerDirectory
    drafting: ServerValidator
    keeping: ServerService
    calls: CallBuilder
    signing_in: SignInSteps
    reviewing: ToolReview
    policies: PolicyService
    profiles: ProfileService

    @classmethod
    def of(cls, parts: CommandDependencies) -> Services:
        """Build the services."""
        directory = ServerDirectory(parts)
        return cls(
            parts,
            directory,
            ServerValidator(parts, directory),
            ServerService(parts, directory),
            CallBuilder(parts, directory),
            SignInSteps(parts, directory),
            ToolReview(parts),
            PolicyService(parts, directory),
            ProfileService(parts),
        )

    async def globally(self, request: Request, caller: AdminCaller) -> RequestScope:
        """Return the scope of all workspaces, or of the token's own. Raises Problem."""
        return _kept(request, self.at(caller, caller.workspace))

    async def in_workspace(
        self,
        request: Request,
        caller: AdminCaller,
        workspace: Annotated[WorkspaceName, Path(description="Such as `slack:T1` or `api:default`.")],
    ) -> RequestScope:
        """Return the scope of the workspace in the path. Raises Problem."""
        here = self.at(caller, ensure_workspace(caller, workspace))
        return _kept(request, replace(here, servers=f"/api/workspaces/{workspace}/mcp-servers"))

    async def asked(
        self,
        request: Request,
        caller: AdminCaller,
        workspace: Annotated[
            WorkspaceName | None, Query(description="Such as `slack:T1`; without it, as the token goes.")
        ] = None,
    ) -> RequestScope:
        """Return the scope of the workspace in the query, if there is one. Raises Problem."""
        return _kept(
            request, self.at(caller, caller.workspace if workspace is None else ensure_workspace(caller, workspace))
        )

    def at(self, caller: ApiClient, workspace: str) -> RequestScope:
        """Return the scope of one workspace that the token covers; rights in others do not apply. Raises Problem."""
        if not self.parts.servers.enabled:
            raise Problem(503, "mcp_disabled", OFF, "set MCP_ENABLED=true and start again")
        there = replace(caller, workspace=workspace)
        return RequestScope(there, there.place(), workspace)


FindHere = Callable[..., Awaitable[RequestScope]]
"""One of the three scope functions as a dependency of a router."""


def _kept(request: Request, here: RequestScope) -> RequestScope:
    request.state.here = here
    return here


async def _found(request: Request) -> RequestScope:
    """Return the scope from the router's dependency. If it could not be parsed, the framework rejects the request
    before the route.
    """
    return cast("RequestScope", getattr(request.state, "here", None))


AtHere = Annotated[RequestScope, Depends(_found)]
"""Scope of a request, from the router's dependency."""

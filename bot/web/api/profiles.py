"""Profiles: the bot's name, instructions and allowed servers in a workspace."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field

from bot.commands.argument_parser import NotFoundRejection
from bot.commands.profiles import Outdated, parse_profile, profile_values
from bot.commands.server_directory import VisibleServer
from bot.domain.profiles import Profile
from bot.web.problems import Problem
from bot.web.routes import RequestModel, ResponseModel, WebDependencies, api_router
from bot.web.server_responses import AskedManner, Moment, ResponseOptions
from bot.web.server_scope import AtHere, IfMatch, RequestScope, Services, check, overtaken, tag

_FIELDS = {"servers": "enabledMcpServerIds"}
"""Field names of this API that differ from those of `/profile`."""
AgentId = Annotated[str, Path(description="The profile's id or name.")]


class AgentBody(RequestModel):
    """A profile. Absent fields stay unchanged."""

    name: str | None = None
    enabled_mcp_server_ids: list[str] | None = Field(
        default=None, description="Ids, slugs or names. Of what is not there, nothing is changed; `*` enables all."
    )
    tools: list[str] | None = Field(default=None, description="`SERVER.TOOL`: the only ones of that server.")
    persona: str | None = None
    model: str | None = None
    policies: list[str] | None = Field(default=None, description="`SERVER=ask`, `SERVER.TOOL=deny`, or a rule as JSON.")
    approvers: list[str] | None = None
    version: int | None = Field(default=None, ge=0)


class AgentAnswer(ResponseModel):
    """A profile."""

    id: str
    name: str
    enabled_mcp_server_ids: list[str] | None = Field(description="Null where every server is enabled.")
    tools: list[str]
    persona: str
    model: str
    policies: list[str]
    approvers: list[str]
    workspace: str | None = Field(description="Whose it is; null for every workspace's.")
    bound_to: list[str] = Field(description="Where it holds: `slack:T1`, `slack:T1:C1`.")
    version: int
    updated_at: Moment
    updated_by: str | None


class ProfileRoutes:
    """The routes, over the services of `/profile`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def listed(self, manner: AskedManner, here: AtHere) -> list[AgentAnswer]:
        """List the profiles of the workspace and the global ones."""
        servers = await self._services.directory.all(here.conversation)
        bound = await self._bound(here)
        return [
            _answer(profile, servers, bound, manner) for profile in await self._services.profiles.all(here.conversation)
        ]

    async def shown(self, agent: AgentId, response: Response, manner: AskedManner, here: AtHere) -> AgentAnswer:
        """Return one profile."""
        return await self._answered(await self._find(agent, here), response, manner, here)

    async def put(
        self,
        agent: AgentId,
        body: AgentBody,
        response: Response,
        manner: AskedManner,
        here: AtHere,
        *,
        if_match: IfMatch = None,
    ) -> AgentAnswer:
        """Change a profile, or create it with everything enabled by default."""
        profiles = self._services.profiles
        present = await profiles.named(agent, here.conversation)
        profile = present or profiles.blank(agent, here.workspace)
        profiles.may_change(profile, here.member)
        if present is not None:
            check(present, body.version, if_match)
        elif body.version or if_match is not None:
            raise Problem(
                412 if if_match else 409, "conflict", "There is no such profile yet.", "leave out the version"
            )
        servers = await self._services.directory.all(here.conversation)
        fields = {"name": agent} if present is None else {}
        drafted, errors = parse_profile(profile, {**fields, **_fields(body)}, servers)
        other = await profiles.named(drafted.name, here.conversation)
        if other is not None and other.id != profile.id:
            raise Problem(
                409, "conflict", "There is a profile of that name.", "choose another", {"name": "It is taken."}
            )
        if errors:
            wrong = {_FIELDS.get(name, name): error for name, error in errors.items()}
            raise Problem(422, "invalid", "Some fields cannot be used. Nothing was saved.", "correct them", wrong)
        kept = await profiles.save(drafted, here.author)
        if isinstance(kept, Outdated):
            raise overtaken(await self._find(profile.id, here), 409 if if_match is None else 412)
        if present is None:
            response.status_code = 201
            response.headers["Location"] = f"/api/workspaces/{here.workspace}/agents/{kept.id}"
        return await self._answered(kept, response, manner, here)

    async def deleted(self, agent: AgentId, here: AtHere, if_match: IfMatch = None) -> None:
        """Delete a profile and its bindings."""
        profile = await self._find(agent, here)
        self._services.profiles.may_change(profile, here.member)
        check(profile, None, if_match)
        await self._services.profiles.delete(profile, here.author)

    async def _find(self, name: str, here: RequestScope) -> Profile:
        profile = await self._services.profiles.named(name, here.conversation)
        if profile is None:
            raise NotFoundRejection("There is no profile of that id or name in this workspace.")
        return profile

    async def _answered(
        self, profile: Profile, response: Response, manner: ResponseOptions, here: RequestScope
    ) -> AgentAnswer:
        response.headers["ETag"] = tag(profile.version)
        servers = await self._services.directory.all(here.conversation)
        return _answer(profile, servers, await self._bound(here), manner)

    async def _bound(self, here: RequestScope) -> dict[str, list[str]]:
        """Return the conversations that profiles of this workspace are bound to, by profile."""
        found: dict[str, list[str]] = {}
        for binding in await self._services.parts.profiles.bindings():
            if f"{binding.place}:".startswith(f"{here.workspace}:"):
                found.setdefault(binding.profile, []).append(binding.place)
        return found


def routes(parts: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.of(parts.command_parts)
    router = api_router(
        prefix="/api/workspaces/{workspace}/agents", tags=["profiles"], dependencies=[Depends(services.in_workspace)]
    )
    profiles = ProfileRoutes(services)
    router.get("", name="list_agents", summary="Every profile of a workspace")(profiles.listed)
    router.get("/{agent}", name="show_agent", summary="One profile")(profiles.shown)
    router.put(
        "/{agent}",
        name="put_agent",
        summary="Which servers a profile may use, and who it is",
        responses={201: {"model": AgentAnswer, "description": "It has been made."}},
    )(profiles.put)
    router.delete("/{agent}", name="delete_agent", summary="Delete a profile", status_code=204)(profiles.deleted)
    return router


def _fields(body: AgentBody) -> dict[str, str]:
    """Return the given fields in the form of `/profile set`."""
    lists = {
        "servers": body.enabled_mcp_server_ids,
        "tools": body.tools,
        "policies": body.policies,
        "approvers": body.approvers,
    }
    texts = {"name": body.name, "persona": body.persona, "model": body.model}
    return {
        **{name: "\n".join(lines) for name, lines in lists.items() if lines is not None},
        **{name: text for name, text in texts.items() if text is not None},
    }


def _answer(
    profile: Profile, servers: list[VisibleServer], bound: dict[str, list[str]], manner: ResponseOptions
) -> AgentAnswer:
    values = profile_values(profile, servers)
    return AgentAnswer(
        id=profile.id,
        name=profile.name,
        enabled_mcp_server_ids=None if profile.servers is None else sorted(profile.servers),
        tools=values["tools"].splitlines(),
        persona=profile.persona,
        model=profile.model,
        policies=values["policies"].splitlines(),
        approvers=sorted(profile.approvers),
        workspace=profile.workspace or None,
        bound_to=sorted(bound.get(profile.id, [])),
        version=profile.version,
        updated_at=manner.moment(profile.updated_at),
        updated_by=profile.updated_by or None,
    )

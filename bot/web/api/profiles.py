"""Profiles: the bot's name, instructions and allowed servers in a workspace; the agents among them, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from bot.admin.command import NotFoundRejection
from bot.admin.dependencies import Administration
from bot.admin.profiles.fields import PROFILE, Outdated, parse_profile, profile_values
from bot.admin.servers.directory import VisibleServer
from bot.domain.profiles import Binding, Profile
from bot.i18n import _
from bot.rendering.response_models import ResponseModel
from bot.web.conversation_ids import own_conversation
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem, invalid_fields
from bot.web.routes import RequestModel, Routes, route
from bot.web.server_responses import Moment, RequestedOptions, ResponseOptions
from bot.web.server_scope import (
    CurrentScope,
    IfMatch,
    RequestScope,
    Services,
    check_version,
    format_etag,
    version_conflict,
)

AgentId = Annotated[str, Path(description="The profile's id or name.")]


_REQUEST: Any = {
    field.name: (field.json | None, Field(default=None, description=field.about)) for field in PROFILE.fields
}
_RESPONSE: Any = {field.name: field.json for field in PROFILE.fields}


class AgentBody(create_model("AgentFields", __base__=RequestModel, **_REQUEST)):  # type: ignore[misc]
    """A profile. Absent fields stay unchanged."""

    version: int | None = Field(default=None, ge=0)


class AgentAnswer(create_model("AgentFields", __base__=ResponseModel, **_RESPONSE)):  # type: ignore[misc]
    """A profile."""

    id: str
    enabled_mcp_server_ids: list[str] | None = Field(description="Null where every server is enabled.")
    workspace: str | None = Field(description="Its workspace; null for every workspace.")
    bound_to: list[str] = Field(description="Where it holds: `slack:T1`, `slack:T1:C1`.")
    asked_by_name_in: list[str] = Field(description="Where it answers to its name, in the same form.")
    version: int
    updated_at: Moment
    updated_by: str | None


class Agent(ResponseModel):
    """A profile that answers to its name."""

    id: str
    name: str
    about: str = Field(description="Its purpose, in a sentence; may be empty.")
    default: bool = Field(description="True for the one that answers without a name, too.")


_MADE: Any = {201: {"model": AgentAnswer, "description": "It has been made."}}


class ProfileRoutes(Routes):
    """The routes, over the services of `/profile`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @route("get", "", "Every profile of a workspace")
    async def list_agents(self, options: RequestedOptions, scope: CurrentScope) -> list[AgentAnswer]:
        """List the profiles of the workspace and the global ones."""
        servers = await self._services.directory.all(scope.conversation)
        bindings = await self._bindings(scope)
        return [
            _answer(profile, servers, bindings, options)
            for profile in await self._services.profiles.all(scope.conversation)
        ]

    @route("get", "/{agent}", "One profile")
    async def show_agent(
        self, agent: AgentId, response: Response, options: RequestedOptions, scope: CurrentScope
    ) -> AgentAnswer:
        """Return one profile."""
        return await self._respond(await self._find(agent, scope), response, options, scope)

    @route("put", "/{agent}", "Set the servers, tools and instructions of a profile", responses=_MADE)
    async def put_agent(
        self,
        agent: AgentId,
        body: AgentBody,
        response: Response,
        options: RequestedOptions,
        scope: CurrentScope,
        *,
        if_match: IfMatch = None,
    ) -> AgentAnswer:
        """Change a profile, or create it with everything enabled by default."""
        profiles = self._services.profiles
        existing = await profiles.find_or_none(agent, scope.conversation)
        profile = existing or profiles.blank(agent, scope.workspace)
        profiles.may_change(profile, scope.member)
        if existing is not None:
            check_version(existing, body.version, if_match)
        elif body.version or if_match is not None:
            raise Problem(
                412 if if_match else 409, "conflict", _("There is no such profile yet."), _("leave out the version")
            )
        servers = await self._services.directory.all(scope.conversation)
        fields = {"name": agent} if existing is None else {}
        draft, errors = parse_profile(profile, {**fields, **_fields(body)}, servers)
        if errors:
            names = {row.key: to_camel(row.name) for row in PROFILE.fields}
            raise invalid_fields(
                {names[name]: error for name, error in errors.items()},
                _("Some fields cannot be used. Nothing was saved."),
                _("correct them"),
            )
        saved = await profiles.save(draft, scope.author)
        if isinstance(saved, Outdated):
            raise version_conflict(await self._find(profile.id, scope), if_match)
        if existing is None:
            response.status_code = 201
            response.headers["Location"] = f"/api/workspaces/{scope.workspace}/agents/{saved.id}"
        return await self._respond(saved, response, options, scope)

    @route("delete", "/{agent}", "Delete a profile", status_code=204)
    async def delete_agent(self, agent: AgentId, scope: CurrentScope, if_match: IfMatch = None) -> None:
        """Delete a profile and its bindings."""
        profile = await self._find(agent, scope)
        self._services.profiles.may_change(profile, scope.member)
        check_version(profile, None, if_match)
        await self._services.profiles.delete(profile, scope.author)

    async def _find(self, name: str, scope: RequestScope) -> Profile:
        profile = await self._services.profiles.find_or_none(name, scope.conversation)
        if profile is None:
            raise NotFoundRejection(_("There is no profile of that id or name in this workspace."))
        return profile

    async def _respond(
        self, profile: Profile, response: Response, options: ResponseOptions, scope: RequestScope
    ) -> AgentAnswer:
        response.headers["ETag"] = format_etag(profile.version)
        servers = await self._services.directory.all(scope.conversation)
        return _answer(profile, servers, await self._bindings(scope), options)

    async def _bindings(self, scope: RequestScope) -> Sequence[Binding]:
        bindings = await self._services.dependencies.stores.profiles.bindings()
        return [binding for binding in bindings if f"{binding.place}:".startswith(f"{scope.workspace}:")]


class CallableAgents(Routes):
    """The route of agents that can be asked."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration

    @route("get", "/api/agents", "Agents that can be asked by name", response_model=list[Agent])
    async def list_callable_agents(
        self,
        caller: MemberCaller,
        conversation_id: Annotated[str, Query(alias="conversationId", max_length=500)] = "",
        workspace: Annotated[str, Query(max_length=200, description="PLATFORM:ID; the token's own if empty.")] = "",
    ) -> list[Agent]:
        """List the agents that this token may ask in its own conversations of a workspace."""
        conversation = own_conversation(caller, workspace, conversation_id or "-")
        default = self._administration.rules(conversation).profile
        return [
            Agent(id=profile.id, name=profile.name, about=profile.about, default=profile.id == default.id)
            for profile in self._administration.rule_book.agent_profiles(conversation)
        ]


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.build(dependencies.command_dependencies)
    router = ProfileRoutes(services).mount("/api/workspaces/{workspace}/agents", "profiles", services.workspace_scope)
    router.routes.extend(CallableAgents(services.dependencies.administration).mount("", "agents").routes)
    return router


def _fields(body: AgentBody) -> dict[str, str]:
    """Return the given fields in the form of `/profile set`."""
    given = {field: getattr(body, field.name) for field in PROFILE.fields}
    return {
        field.key: "\n".join(value) if field.lines else str(value or "")
        for field, value in given.items()
        if value is not None
    }


def _answer(
    profile: Profile, servers: list[VisibleServer], bindings: Sequence[Binding], options: ResponseOptions
) -> AgentAnswer:
    values = profile_values(profile, servers)
    own = [binding for binding in bindings if binding.profile == profile.id]
    fields = {
        field.name: values[field.key].splitlines() if field.lines else getattr(profile, field.key)
        for field in PROFILE.fields
    }
    fields["enabled_mcp_server_ids"] = None if profile.servers is None else sorted(profile.servers)
    return AgentAnswer(
        **fields,
        id=profile.id,
        workspace=profile.workspace or None,
        bound_to=sorted(binding.place for binding in own if not binding.by_name),
        asked_by_name_in=sorted(binding.place for binding in own if binding.by_name),
        version=profile.version,
        updated_at=options.moment(profile.updated_at),
        updated_by=profile.updated_by or None,
    )

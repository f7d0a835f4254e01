"""Rules of admins: `/api/mcp/approval-policies`. A rule is a server, a tool and a policy, or a full rule in the policy
syntax.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from bot.admin.command import NotFoundRejection
from bot.admin.servers.directory import VisibleServer
from bot.domain.policies import ANY, Rule, RuleError, describe_rule, parse_rule, rule_to_table
from bot.i18n import _
from bot.rendering.response_models import ResponseModel
from bot.web.dependencies import WebDependencies
from bot.web.problems import invalid_fields
from bot.web.routes import RequestModel, Routes, route
from bot.web.server_responses import Moment, RequestedOptions, ResponseOptions
from bot.web.server_scope import CurrentScope, Services

_FIELDS = {"server": "serverId", "server_id": "serverId", "tool": "toolName", "policy": "policy"}
"""Field names of a request body by the key of a rule."""


class PolicyBody(RequestModel):
    """Policy for a tool."""

    server_id: str = Field(default=ANY, description="A server's id, slug or name; `*` for all of them.")
    tool_name: str = Field(
        default=ANY, description="The server's own name for it, or a pattern; `*` for all its tools."
    )
    policy: str = Field(description="ALWAYS_ALLOW, ASK_USER, ALWAYS_DENY or AUTO.")
    profile: str = Field(default="", description="Only where this profile holds.")
    rule: dict[str, Any] = Field(
        default_factory=dict,
        description="Conditions and terms, by the keys of the policy file: `except`, `arguments`, `annotations`, `in`, "
        "`asker`, `approvers`, `four_eyes`, `quorum`, `expires`, `on_timeout`, `remind`, `deliver`, `escalate`.",
    )


class PolicyAnswer(ResponseModel):
    """A rule."""

    id: str
    server_id: str | None = Field(description="The id of the server it is about; null for a pattern or all.")
    server: str = Field(description="The server's slug, a pattern, or `*`.")
    tool_name: str
    policy: str
    rule: dict[str, Any] = Field(description="All of it, by the keys of the policy file.")
    words: str = Field(description="All of it in a line.")
    workspace: str | None = Field(description="Where it holds; null for every workspace.")
    managed_in: str = Field(description="`file` for the operator's own, `database`, or `profile`.")
    set_by: str | None
    set_at: Moment


class PolicyRoutes(Routes):
    """The routes, over the services of `/mcp policy`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @route("get", "", "Rules that allow, ask and forbid")
    async def list_policies(
        self,
        options: RequestedOptions,
        scope: CurrentScope,
        *,
        effective: Annotated[bool, Query(description="With the operator's and the profile's that hold here.")] = False,
    ) -> list[PolicyAnswer]:
        """List the rules of admins for this scope, or all rules that apply in it."""
        rules = await self._services.policies.rules(scope.conversation)
        if effective:
            rules = list(self._services.dependencies.administration.rules(scope.conversation).all)
        servers = await self._services.directory.all(scope.conversation)
        return [_answer(rule, servers, options) for rule in rules]

    @route("put", "", "Set the policy of a tool")
    async def set_policy(self, body: PolicyBody, options: RequestedOptions, scope: CurrentScope) -> PolicyAnswer:
        """Save a rule. It replaces the rule about the same calls."""
        policies = self._services.policies
        server = await policies.server(body.server_id, scope.conversation)
        tool = ANY if body.tool_name in ("", ANY) else await policies.tool(server, body.tool_name)
        profile = await policies.profile(body.profile, scope.conversation)
        fields = {"policy": body.policy}
        fields |= {"server_id": server.id} if server else {}
        fields |= {"tool": tool} if tool != ANY else {}
        fields |= {"profile": profile} if profile else {}
        saved, _before = await policies.set(
            replace(_parse_rule({**body.rule, **fields}), workspace=scope.workspace), scope.author
        )
        return _answer(saved, [server] if server else [], options)

    @route("delete", "", "Take a rule back", status_code=204)
    async def clear_policy(
        self,
        scope: CurrentScope,
        *,
        rule_id: Annotated[str | None, Query(alias="id", description="The rule's id.")] = None,
        server_id: Annotated[
            str | None, Query(alias="serverId", description="Instead: a server, or `*` for all.")
        ] = None,
        tool_name: Annotated[
            str | None, Query(alias="toolName", description="With `serverId`: one tool alone, or a pattern.")
        ] = None,
    ) -> None:
        """Delete a rule. The next matching rule applies again."""
        rules = await self._services.policies.rules(scope.conversation)
        if rule_id is not None:
            rule = next((candidate for candidate in rules if candidate.id == rule_id), None)
        elif server_id is not None:
            server = await self._services.policies.server(server_id, scope.conversation)
            tool = "" if tool_name in (None, ANY) else tool_name or ""
            _tool, rule = self._services.policies.about(rules, server, tool, scope.member)
        else:
            missing = {"serverId": _("It is missing.")}
            raise invalid_fields(missing, _("Which rule?"), _("send ?id=… or ?serverId=…&toolName=…"))
        if rule is None or not await self._services.policies.clear(rule, scope.member):
            raise NotFoundRejection(_("There is no such rule. Nothing was changed."))


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.build(dependencies.command_dependencies)
    return PolicyRoutes(services).mount("/api/mcp/approval-policies", "policies", services.query_scope)


def _parse_rule(table: dict[str, Any]) -> Rule:
    try:
        return parse_rule(table)
    except RuleError as error:
        key = error.key.partition(".")[0]
        field = _FIELDS.get(key, f"rule.{error.key}")
        fields = {field: _("It {problem}.", problem=error.problem)}
        raise invalid_fields(fields, _("The rule cannot be used. Nothing was saved."), _("correct it")) from error


def _answer(rule: Rule, servers: list[VisibleServer], options: ResponseOptions) -> PolicyAnswer:
    slug = next((server.name for server in servers if server.id == rule.server_id), rule.server_id)
    return PolicyAnswer(
        id=rule.id,
        server_id=rule.server_id or None,
        server=slug if rule.server_id else rule.server,
        tool_name=rule.tool,
        policy=rule.policy.value,
        rule=rule_to_table(rule),
        words=describe_rule(rule, slug),
        workspace=rule.workspace or None,
        managed_in="file" if rule.of_file else "database" if rule.at else "profile",
        set_by=rule.by or None,
        set_at=options.moment(rule.at),
    )

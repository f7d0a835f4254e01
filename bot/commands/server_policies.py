"""`/mcp policy list`, `set`, `clear`: what admins say of servers and tools, beside the operator's file."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.commands.command import Deed, Request
from bot.commands.directory import Directory, Seen
from bot.commands.paging import cut, page_of
from bot.commands.parameters import A_SERVER, A_TOOL, POLICY, SERVER
from bot.commands.parts import CommandParts
from bot.commands.phrases import POLICY_SAID, POLICY_WORDS, ago, code, did_you_mean, named, policy_meant
from bot.commands.refusals import Refusal
from bot.commands.server_listing import risk
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Action, Reply, Table, Verb
from bot.domain.profiles import EVERY_TOOL, PolicyRule
from bot.domain.tools import Tool


class ServerPolicies:
    """Lists, sets and clears rules."""

    def __init__(self, parts: CommandParts, directory: Directory) -> None:
        self._parts = parts
        self._directory = directory

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """The verbs."""
        shown = Verb(
            "policy list", "what runs, what asks and what never runs", (A_SERVER,), aliases=("policy", "policies")
        )
        made = Verb("policy set", "what happens when the model asks for a tool", (SERVER, A_TOOL, POLICY))
        undone = Verb("policy clear", "take an admin's word back", (SERVER, A_TOOL), aliases=("policy remove",))
        return Deed(shown, self._list), Deed(made, self._set), Deed(undone, self._clear)

    async def _list(self, request: Request) -> AsyncIterator[Reply]:
        name = request.arguments.one("server")
        if name:
            servers = [await self._directory.find(name, request.conversation)]
        else:
            servers = await self._directory.all(request.conversation)
        rules = {(rule.server, rule.tool): rule for rule in await self._parts.policies.rules()}
        rows = [row for seen in servers for row in self._rows(seen, rules, request)]
        if not rows:
            yield Reply("No tools are known and nobody has said anything of their servers. `/mcp list` says why.")
            return
        words = ("mcp", "policy", "list", *((servers[0].name,) if name else ()))
        yield Reply(
            f"Policies · {len(rows)}",
            Table(("server", "tool", "risk", "policy", "set by an admin"), tuple(cut(rows, request.arguments.page))),
            page=page_of(request.arguments.page, len(rows), words),
        )

    def _rows(self, seen: Seen, rules: dict[tuple[str, str], PolicyRule], request: Request) -> list[tuple[str, ...]]:
        policy_of = self._parts.administration.policy_of
        tools = self._directory.capabilities(seen).tools
        rows = [self._general(seen, rules)] if (seen.id, EVERY_TOOL) in rules else []
        for tool in tools:
            holds = POLICY_WORDS[policy_of(tool, request.conversation)]
            rows.append((seen.name, tool.original_name, risk(tool), holds, self._said(rules, seen, tool.original_name)))
        known = {tool.original_name for tool in tools} | {EVERY_TOOL}
        for server, name in rules:
            if server == seen.id and name not in known:
                rows.append((seen.name, name, "not offered now", "", self._said(rules, seen, name)))
        return rows

    def _general(self, seen: Seen, rules: dict[tuple[str, str], PolicyRule]) -> tuple[str, ...]:
        return (
            seen.name,
            "(all others)",
            "",
            POLICY_WORDS[rules[seen.id, EVERY_TOOL].policy],
            self._said(rules, seen, ""),
        )

    def _said(self, rules: dict[tuple[str, str], PolicyRule], seen: Seen, tool: str) -> str:
        rule = rules.get((seen.id, tool))
        if rule is None:
            return ""
        return f"{POLICY_SAID[rule.policy]}, {ago(rule.at, self._parts.clock())} by {rule.by or 'somebody'}"

    async def _set(self, request: Request) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        policy = policy_meant(request.arguments.one("policy")) or ApprovalPolicy.ASK_USER
        given = request.arguments.one("tool")
        if given:
            await self._directory.wake([seen])
        tool = self._tool_name(seen, given) if given else EVERY_TOOL
        before = await self._rule(seen, tool)
        rule = PolicyRule(seen.id, tool, policy, request.author.principal, self._parts.clock())
        await self._parts.policies.set_rule(rule, request.author)
        await self._parts.administration.refresh()
        yield Reply(
            f"{_about(seen, tool)}: {POLICY_SAID[policy]}.{self._overruled(seen, tool, policy, request)}",
            actions=(_undo(seen, tool, before),),
        )

    async def _clear(self, request: Request) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        given = request.arguments.one("tool")
        names = [rule.tool for rule in await self._parts.policies.rules() if rule.server == seen.id]
        tool = given if given in names else self._tool_name(seen, given) if given else EVERY_TOOL
        before = await self._rule(seen, tool)
        if not await self._parts.policies.clear_rule(seen.id, tool, request.author):
            yield Reply(f"Nobody has said anything of {_about(seen, tool)}. Nothing was changed.", failed=True)
            return
        await self._parts.administration.refresh()
        yield Reply(
            f"{_about(seen, tool)}: back to what holds without it.",
            actions=(_undo(seen, tool, before),) if before is not None else (),
        )

    async def _rule(self, seen: Seen, tool: str) -> PolicyRule | None:
        rules = await self._parts.policies.rules()
        return next((rule for rule in rules if (rule.server, rule.tool) == (seen.id, tool)), None)

    def _tool_name(self, seen: Seen, name: str) -> str:
        tools = self._directory.capabilities(seen).tools
        found = next((tool for tool in tools if name in (tool.original_name, tool.name)), None)
        if found is None:
            hint = did_you_mean(name, (tool.original_name for tool in tools))
            raise Refusal(f"{named(seen.config)} has no tool of that name.{hint} `/mcp tools` lists them.")
        return found.original_name

    def _overruled(self, seen: Seen, name: str, policy: ApprovalPolicy, request: Request) -> str:
        """Where the file, the profile or a tool's own rule says something else that counts more."""
        tools: list[Tool] = [
            tool for tool in self._directory.capabilities(seen).tools if name in (EVERY_TOOL, tool.original_name)
        ]
        policy_of = self._parts.administration.policy_of
        others = sum(policy_of(tool, request.conversation) is not policy for tool in tools)
        if not others:
            return ""
        if name:
            return " A stricter word of the operator's file or the profile still counts."
        return f" {others} of its {len(tools)} tools have a word of their own that still counts."


def _about(seen: Seen, tool: str) -> str:
    return f"{named(seen.config)}, {code(tool, 'the tool')}" if tool else f"{named(seen.config)}, all its tools"


def _undo(seen: Seen, tool: str, before: PolicyRule | None) -> Action:
    place = (seen.name, tool) if tool else (seen.name,)
    if before is None:
        return Action("Undo", ("mcp", "policy", "clear", *place))
    return Action("Undo", ("mcp", "policy", "set", *place, POLICY_SAID[before.policy]))

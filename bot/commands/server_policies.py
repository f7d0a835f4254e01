"""`/mcp policy list`, `set`, `clear`: the rules of admins, together with those of the operator's file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.paging import cut, page_of
from bot.commands.parameters import A_SERVER, A_TOOL, POLICY
from bot.commands.policy_options import CONDITIONS, TERMS, given_rule, options_of, shown_id
from bot.commands.policy_service import PolicyService, bare
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_listing import risk
from bot.commands.text_format import POLICY_SAID, POLICY_WORDS, code, format_ago, parse_policy, server_label
from bot.domain.approval_requirements import NO_TERMS
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import CompletionSource, Parameter, Reply, ReplyAction, Table, Verb
from bot.domain.policies import ANY, Rule, is_for_server, is_for_tool, is_pattern
from bot.domain.policy_syntax import describe_rule
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.engine.unused_rules import undeliverable_targets

MOST_RULES = 30
"""Rules listed besides the table."""
_SERVERS = Parameter(
    "server",
    "the server's name, id or title; * for all",
    required=True,
    completes=CompletionSource.SERVERS,
    metavar="NAME",
)
_SERVER_OR_RULE = Parameter(
    "server",
    "a rule's id; or a server, or * for all",
    required=True,
    completes=CompletionSource.SERVERS,
    metavar="NAME",
)


class ServerPolicies:
    """Verbs of `/mcp policy`."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._keeping = PolicyService(parts, directory)

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        shown = Verb(
            "policy list", "what runs, what asks and what never runs", (A_SERVER,), aliases=("policy", "policies")
        )
        made = Verb(
            "policy set", "what happens when the model asks for a tool", (_SERVERS, A_TOOL, POLICY, *CONDITIONS, *TERMS)
        )
        undone = Verb(
            "policy clear", "take an admin's rule back", (_SERVER_OR_RULE, A_TOOL), aliases=("policy remove",)
        )
        return VerbHandler(shown, self._list), VerbHandler(made, self._set), VerbHandler(undone, self._clear)

    # Listing

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        name = request.arguments.one("server")
        if name:
            servers = [await self._directory.find(name, request.conversation)]
        else:
            servers = await self._directory.all(request.conversation)
        rules = await self._keeping.rules(request.conversation)
        rows = [row for seen in servers for row in self._rows(seen, rules, request)]
        others = self._other_rules(servers, request, whole=not name)
        if not rows and not others:
            yield Reply("No tools are loaded yet, and no server has a policy. `/mcp list` says why.")
            return
        spoken = ("mcp", "policy", "list", *((servers[0].name,) if name else ()))
        yield Reply(
            f"Policies · {len(rows)}",
            Table(("server", "tool", "risk", "policy", "set by an admin"), tuple(cut(rows, request.arguments.page))),
            tuple(others),
            page=page_of(request.arguments.page, len(rows), spoken),
        )

    def _rows(self, seen: VisibleServer, rules: Sequence[Rule], request: CommandContext) -> list[tuple[str, ...]]:
        """Return the policy of each tool, with the rules about this server that depend only on the tool's name."""
        plain = [rule for rule in rules if rule.plain and rule.server_id == seen.id]
        tools = self._directory.capabilities(seen).tools
        policy_of = self._parts.administration.policy_of
        rows = [self._general(seen, rule) for rule in plain if rule.tool == ANY]
        for tool in tools:
            said = ", ".join(self._said(rule) for rule in plain if rule.tool == tool.original_name)
            holds = POLICY_WORDS[policy_of(tool, request.conversation)]
            rows.append((seen.name, tool.original_name, risk(tool), holds, said))
        known = {tool.original_name for tool in tools} | {ANY}
        for rule in plain:
            if rule.tool not in known:
                about = "pattern" if is_pattern(rule.tool) else "not offered now"
                rows.append((seen.name, rule.tool, about, "", self._said(rule)))
        return rows

    def _general(self, seen: VisibleServer, rule: Rule) -> tuple[str, ...]:
        about = f"(all but {', '.join(sorted(rule.but))})" if rule.but else "(all its tools)"
        return seen.name, about, "", POLICY_WORDS[rule.policy], self._said(rule)

    def _said(self, rule: Rule) -> str:
        terms = "" if rule.terms == NO_TERMS else ", on terms"
        return (
            f"{POLICY_SAID[rule.policy]}{terms}, {format_ago(rule.at, self._parts.clock())} by {rule.by or 'somebody'}"
        )

    def _other_rules(
        self, servers: Sequence[VisibleServer], request: CommandContext, *, whole: bool
    ) -> list[tuple[str, str]]:
        """Return rules with conditions, requirements or patterns from all sources, each with its id, and rules of the
        file about unknown servers.
        """
        ids = {seen.id for seen in servers}
        found = [
            rule
            for rule in self._parts.administration.rules_in(request.conversation)
            if (whole or not rule.server_id or rule.server_id in ids)
            and (not _in_the_table(rule) or (not rule.server_id and self._idle(servers, rule, whole=whole)))
        ]
        told = [
            (
                rule.id or "a rule",
                f"{describe_rule(rule, self._name(servers, rule))}{self._idle(servers, rule, whole=whole)}",
            )
            for rule in found[:MOST_RULES]
        ]
        left = len(found) - len(told)
        return [*told, *([("more", f"{left} rules; name a server to see its own")] if left else [])]

    def _idle(self, servers: Sequence[VisibleServer], rule: Rule, *, whole: bool) -> str:
        known = [tool for seen in servers for tool in self._directory.capabilities(seen).tools]
        return "" if not whole or not known or _named_tools(rule, known) else " (fits no tool that is known now)"

    # Setting and clearing

    async def _set(self, request: CommandContext) -> AsyncIterator[Reply]:
        arguments = request.arguments
        seen = await self._keeping.server(arguments.one("server"), request.conversation)
        policy = parse_policy(arguments.one("policy")) or ApprovalPolicy.ASK_USER
        tool = await self._keeping.tool(seen, arguments.one("tool"))
        profile = await self._keeping.profile(arguments.one("profile"), request.conversation)
        home = EVERYWHERE if self._parts.rights.everywhere(request.member) else request.conversation.workspace_key
        base = Rule(policy, server_id=seen.id if seen else "", tool=tool, profile=profile, workspace=home)
        ruled = await self._keeping.set(given_rule(base, arguments, request.conversation), request.author)
        kept = ruled.rule
        slug = seen.name if seen else ""
        yield Reply(
            f"{_about(seen, tool)}: {POLICY_SAID[policy]}.{await self._overruled(seen, kept, request)}{_unsent(kept)}",
            details=()
            if kept.plain and kept.terms == NO_TERMS and not kept.but
            else ((kept.id, describe_rule(kept, slug)),),
            actions=(_undo(kept, slug, ruled.before),),
        )

    async def _clear(self, request: CommandContext) -> AsyncIterator[Reply]:
        wanted = request.arguments.one("server")
        rules = await self._keeping.rules(request.conversation)
        rule = next((each for each in rules if each.id == wanted), None)
        if rule is None:
            seen = await self._keeping.server(wanted, request.conversation)
            tool, rule = self._keeping.about(rules, seen, request.arguments.one("tool"), request.member)
            about = _about(seen, tool)
        else:
            seen = next(
                (each for each in await self._directory.all(request.conversation) if each.id == rule.server_id), None
            )
            about = shown_id(rule)
        if rule is None or not await self._keeping.clear(rule, request.member):
            yield Reply(f"There is no rule about {about}. Nothing was changed.", failed=True)
            return
        yield Reply(
            f"{about}: back to what holds without it.",
            actions=(ReplyAction("Undo", ("mcp", "policy", "set", *options_of(rule, seen.name if seen else ""))),),
        )

    async def _overruled(self, seen: VisibleServer | None, rule: Rule, request: CommandContext) -> str:
        """Return warnings about rules with a higher priority, and about a rule without matching tools."""
        servers = [seen] if seen else await self._directory.all(request.conversation)
        tools = [tool for server in servers for tool in self._directory.capabilities(server).tools]
        fitting = _named_tools(rule, tools)
        if tools and not fitting:
            return " It fits no tool that is known now."
        if not bare(rule):
            return ""
        policy_of = self._parts.administration.policy_of
        wanted = (rule.policy, ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_ALLOW)
        allowed = wanted if rule.policy is ApprovalPolicy.AUTO else wanted[:1]
        others = sum(policy_of(tool, request.conversation) not in allowed for tool in fitting)
        if not others:
            return ""
        if rule.tool != ANY:
            return " Another rule counts more: `/mcp policy explain` says which."
        return f" For {others} of {len(fitting)} tools another rule counts more: `/mcp policy explain` says which."

    def _name(self, servers: Sequence[VisibleServer], rule: Rule) -> str:
        return next((seen.name for seen in servers if seen.id == rule.server_id), "")


def _unsent(rule: Rule) -> str:
    """Return the warning about a card that cannot be sent."""
    return (
        " Groups and roles cannot be written to, so the card stays in the thread."
        if undeliverable_targets(rule)
        else ""
    )


def _about(seen: VisibleServer | None, tool: str) -> str:
    server = server_label(seen.config) if seen else "Every server"
    if tool == ANY:
        return f"{server}, all its tools"
    return f"{server}, {code(tool, 'these tools' if is_pattern(tool) else 'the tool')}"


def _named_tools(rule: Rule, tools: Sequence[Tool]) -> list[Tool]:
    return [tool for tool in tools if is_for_server(rule, tool) and is_for_tool(rule, tool)]


def _in_the_table(rule: Rule) -> bool:
    """Return True if the table shows the rule: it depends on the tool alone, and has no requirements."""
    by_name = bool(rule.server_id) or not is_pattern(rule.server)
    return (
        by_name
        and bare(rule)
        and rule.terms == NO_TERMS
        and (rule.plain or rule.tool == ANY or not is_pattern(rule.tool))
    )


def _undo(rule: Rule, slug: str, before: Rule | None) -> ReplyAction:
    if before is not None:
        return ReplyAction("Undo", ("mcp", "policy", "set", *options_of(before, slug)))
    if rule.plain and slug:
        return ReplyAction("Undo", ("mcp", "policy", "clear", slug, *(() if rule.tool == ANY else (rule.tool,))))
    return ReplyAction("Undo", ("mcp", "policy", "clear", rule.id))

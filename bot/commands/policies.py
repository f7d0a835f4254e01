"""`/mcp policy list`, `set`, `clear`: the rules of admins, together with those of the operator's file.

`PolicyService` is shared with the HTTP API. `bot.domain.policy_syntax` defines the values of a rule.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.commands.argument_parser import (
    A_SERVER,
    A_TOOL,
    POLICY,
    Arguments,
    CommandRejected,
    ForbiddenRejection,
    NotFoundRejection,
)
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_listing import risk
from bot.commands.text_format import (
    POLICY_SAID,
    POLICY_WORDS,
    code,
    cut,
    did_you_mean,
    format_ago,
    page_of,
    parse_policy,
    server_label,
)
from bot.domain.approval_requirements import APPROVERS, NO_TERMS, THREAD, OnTimeout
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Reply, ReplyAction, Table, Verb
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import ANNOTATIONS, ANY, Rule, as_pattern, is_for_server, is_for_tool, is_pattern
from bot.domain.policy_syntax import RuleError, describe_rule, format_duration, parse_rule, rule_to_table
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.engine.policy.rules import undeliverable_targets

_OPTION = ParameterKind.OPTION
CONDITIONS = (
    Parameter("except", "a tool it is not about after all", _OPTION, repeated=True, metavar="TOOL"),
    Parameter("argument", "only with this argument", _OPTION, repeated=True, metavar="PATH=PATTERN"),
    Parameter("annotation", "only with this hint", _OPTION, repeated=True, metavar=f"{'|'.join(ANNOTATIONS)}=yes|no"),
    Parameter("in", "only in this channel", _OPTION, repeated=True, metavar="CHANNEL"),
    Parameter("profile", "only where this profile holds", _OPTION, completes=CompletionSource.PROFILES, metavar="NAME"),
    Parameter("asker", "only if one of these asks", _OPTION, repeated=True, metavar="PLATFORM:ID|members|guests"),
)
TERMS = (
    Parameter("approver", "who may sign", _OPTION, repeated=True, metavar="PLATFORM:ID|members|asker"),
    Parameter("four-eyes", "neither the asker nor an editor may approve", ParameterKind.FLAG),
    Parameter("quorum", "number of approvals that a call needs", _OPTION, metavar="N"),
    Parameter("expires", "time until an approval expires", _OPTION, metavar="30m|2h|1d"),
    Parameter("on-timeout", "what then", _OPTION, choices=tuple(each.value for each in OnTimeout)),
    Parameter("remind", "remind the approvers after half of that time", ParameterKind.FLAG),
    Parameter("deliver", "where the card goes", _OPTION, repeated=True, metavar="thread|approvers|CHANNEL"),
)
_SWITCH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def given_rule(base: Rule, arguments: Arguments, conversation: ConversationKey) -> Rule:
    """Return `base` with the conditions and requirements of the options. Raises CommandRejected, which names the
    invalid options.
    """
    table: dict[str, Any] = {**rule_to_table(base)}
    if arguments.given("except"):
        table["except"] = list(arguments.many("except"))
    if arguments.given("argument"):
        table["arguments"] = _pairs(arguments.many("argument"), "argument")
    if arguments.given("annotation"):
        table["annotations"] = {
            name.replace("-", "_"): _SWITCH.get(value.lower(), value)
            for name, value in _pairs(arguments.many("annotation"), "annotation").items()
        }
    if arguments.given("in"):
        table["in"] = [_place(channel, conversation) for channel in arguments.many("in")]
    if arguments.given("asker"):
        table["asker"] = list(arguments.many("asker"))
    try:
        return replace(parse_rule({**table, **_given_terms(arguments, conversation)}), workspace=base.workspace)
    except RuleError as error:
        option = _OPTIONS.get(error.key.partition(".")[0], error.key.partition(".")[0])
        raise CommandRejected(f"`--{option}` cannot be used: {error.problem}.") from error


def options_of(rule: Rule, slug: str) -> tuple[str, ...]:
    """Return the options of `/mcp policy set` for this rule."""
    words = [slug or ANY, *(() if rule.tool == ANY else (rule.tool,)), POLICY_SAID[rule.policy]]
    words += _repeated("except", sorted(rule.excluded_tools))
    words += _repeated("argument", [f"{path}={pattern}" for path, pattern in sorted(rule.arguments.items())])
    hints = sorted(rule.annotations.items())
    words += _repeated("annotation", [f"{name}={'yes' if value else 'no'}" for name, value in hints])
    words += _repeated("in", sorted(rule.places))
    words += _repeated("profile", [rule.profile] if rule.profile else [])
    words += _repeated("asker", sorted(rule.askers))
    terms = rule.terms
    words += _repeated("approver", sorted(terms.approvers[0]) if terms.approvers else [])
    words += ["--four-eyes"] if terms.four_eyes else []
    words += ["--quorum", str(terms.quorum)] if terms.quorum > 1 else []
    words += ["--expires", format_duration(terms.expires)] if terms.expires is not None else []
    words += ["--on-timeout", terms.on_timeout.value] if terms.on_timeout else []
    words += ["--remind"] if terms.remind else []
    words += _repeated("deliver", sorted(terms.deliver))
    return tuple(words)


_OPTIONS = {
    "arguments": "argument",
    "annotations": "annotation",
    "approvers": "approver",
    "four_eyes": "four-eyes",
    "on_timeout": "on-timeout",
}


def _given_terms(arguments: Arguments, conversation: ConversationKey) -> Mapping[str, Any]:
    terms: dict[str, Any] = {}
    if arguments.given("approver"):
        terms["approvers"] = list(arguments.many("approver"))
    for option, key in (("four-eyes", "four_eyes"), ("remind", "remind")):
        if arguments.given(option):
            terms[key] = True
    if arguments.given("quorum"):
        text = arguments.one("quorum")
        terms["quorum"] = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if arguments.given("expires"):
        terms["expires"] = arguments.one("expires")
    if arguments.given("on-timeout"):
        terms["on_timeout"] = arguments.one("on-timeout")
    if arguments.given("deliver"):
        places = arguments.many("deliver")
        terms["deliver"] = [place if place in (THREAD, APPROVERS) else _place(place, conversation) for place in places]
    return terms


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if not all(name.strip() and assigned for name, assigned, _ in pairs):
        raise CommandRejected(f"`--{option}` is written NAME=VALUE.")
    return {name.strip(): value for name, _, value in pairs}


def _place(channel: str, conversation: ConversationKey) -> str:
    """Parse a channel id of this workspace, or a full key."""
    if ":" in channel:
        return channel
    key = ConversationKey(conversation.platform, conversation.workspace, channel.lstrip("#"), "")
    return str(key).rpartition(":")[0]


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (f"--{option}", value)]


def shown_id(rule: Rule) -> str:
    """Format a rule's id in Markdown."""
    return code(rule.id, "the rule")


@dataclass(frozen=True, slots=True)
class RuleSaved:
    """A saved rule, and the rule that it replaced."""

    rule: Rule
    before: Rule | None


class PolicyService:
    """Finds, saves and deletes rules, and applies changes to this process."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory

    async def rules(self, conversation: ConversationKey) -> list[Rule]:
        """Return the admins' rules that apply in a conversation."""
        return [
            rule
            for rule in await self._parts.policies.rules()
            if rule.workspace in (EVERYWHERE, conversation.workspace_key)
        ]

    async def server(self, name: str, conversation: ConversationKey) -> VisibleServer | None:
        """Return the server by its exact name, None for all servers. Patterns are not accepted, because a rule follows
        its server when it is renamed. Raises CommandRejected.
        """
        if name == ANY:
            return None
        if is_pattern(name):
            raise CommandRejected(
                "A rule here is about one server, or about all: `*`. Other patterns are for the file."
            )
        return await self._directory.find(name, conversation)

    async def profile(self, name: str, conversation: ConversationKey) -> str:
        """Return the id of a profile by its name or id; empty without a name. Raises NotFoundRejection."""
        if not name:
            return ""
        for profile in await self._parts.profiles.profiles():
            if profile.workspace in (EVERYWHERE, conversation.workspace_key) and name.strip().lower() in (
                profile.name.lower(),
                profile.id,
            ):
                return profile.id
        raise NotFoundRejection("There is no profile of that name. `/profile list` lists them.")

    async def tool(self, server: VisibleServer | None, name: str) -> str:
        """Return the pattern of a tool by its name, syncing the server if its tools are unknown; a pattern unchanged;
        ANY without a name. Raises NotFoundRejection.
        """
        if name and server:
            await self._directory.connect([server])
        return self.tool_name(server, name) if name else ANY

    def tool_name(self, server: VisibleServer | None, name: str) -> str:
        """Return the pattern of a known tool, or the given pattern. Raises NotFoundRejection."""
        tools = self._directory.capabilities(server).tools if server else ()
        found = next((tool for tool in tools if name in (tool.original_name, tool.name)), None)
        if found is not None:
            return as_pattern(found.original_name)
        if server is None or is_pattern(name):
            return name
        hint = did_you_mean(name, (tool.original_name for tool in tools))
        raise NotFoundRejection(
            f"{server_label(server.config)} has no tool of that name.{hint} `/mcp tools` lists them."
        )

    async def set(self, rule: Rule, by: Author) -> RuleSaved:
        """Save a rule. It replaces the rule of its workspace about the same calls. Raises NotFound."""
        before = next((each for each in await self._parts.policies.rules() if _same(each, rule)), None)
        kept = await self._parts.policies.set_rule(rule, by)
        await self._parts.administration.refresh()
        return RuleSaved(kept, before)

    def about(
        self, rules: Sequence[Rule], server: VisibleServer | None, name: str, member: Member
    ) -> tuple[str, Rule | None]:
        """Return the tool pattern, and the rule about this server and tool alone, preferring one that the member may
        change. Raises NotFoundRejection.
        """
        found = [rule for rule in rules if rule.server_id == (server.id if server else "") and bare(rule)]
        tool = name if name in {each.tool for each in found} else self.tool_name(server, name) if name else ANY
        fitting = [each for each in found if each.tool == tool]
        mine = [each for each in fitting if self._may_change(each, member)]
        return tool, next(iter(mine or fitting), None)

    async def clear(self, rule: Rule, member: Member) -> bool:
        """Delete a rule. Return False if it is missing. Raises ForbiddenRejection."""
        if not self._may_change(rule, member):
            raise ForbiddenRejection(f"{shown_id(rule)} holds in every workspace. Only the operator can change it.")
        cleared = await self._parts.policies.clear_rule(rule.id, member.author)
        if cleared:
            await self._parts.administration.refresh()
        return cleared

    def _may_change(self, rule: Rule, member: Member) -> bool:
        return rule.workspace != EVERYWHERE or self._parts.rights.everywhere(member)


def bare(rule: Rule) -> bool:
    """Return True if the rule has no conditions besides server and tool."""
    return rule.conditions[3:] == Rule(rule.policy).conditions[3:]


def _same(rule: Rule, other: Rule) -> bool:
    return rule.workspace == other.workspace and rule.conditions == other.conditions


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
        listing = Verb(
            "policy list", "what runs, what asks and what never runs", (A_SERVER,), aliases=("policy", "policies")
        )
        setting = Verb(
            "policy set", "what happens when the model asks for a tool", (_SERVERS, A_TOOL, POLICY, *CONDITIONS, *TERMS)
        )
        clearing = Verb(
            "policy clear", "take an admin's rule back", (_SERVER_OR_RULE, A_TOOL), aliases=("policy remove",)
        )
        return VerbHandler(listing, self._list), VerbHandler(setting, self._set), VerbHandler(clearing, self._clear)

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

    def _rows(self, server: VisibleServer, rules: Sequence[Rule], request: CommandContext) -> list[tuple[str, ...]]:
        """Return the policy of each tool, with the rules about this server that depend only on the tool's name."""
        plain = [rule for rule in rules if rule.plain and rule.server_id == server.id]
        tools = self._directory.capabilities(server).tools
        policy_of = self._parts.administration.policy_of
        rows = [self._general(server, rule) for rule in plain if rule.tool == ANY]
        for tool in tools:
            said = ", ".join(self._said(rule) for rule in plain if rule.tool == tool.original_name)
            holds = POLICY_WORDS[policy_of(tool, request.conversation)]
            rows.append((server.name, tool.original_name, risk(tool), holds, said))
        known = {tool.original_name for tool in tools} | {ANY}
        for rule in plain:
            if rule.tool not in known:
                about = "pattern" if is_pattern(rule.tool) else "not offered now"
                rows.append((server.name, rule.tool, about, "", self._said(rule)))
        return rows

    def _general(self, server: VisibleServer, rule: Rule) -> tuple[str, ...]:
        about = f"(all but {', '.join(sorted(rule.excluded_tools))})" if rule.excluded_tools else "(all its tools)"
        return server.name, about, "", POLICY_WORDS[rule.policy], self._said(rule)

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
        rule = ruled.rule
        slug = seen.name if seen else ""
        yield Reply(
            f"{_about(seen, tool)}: {POLICY_SAID[policy]}.{await self._overruled(seen, rule, request)}{_unsent(rule)}",
            details=()
            if rule.plain and rule.terms == NO_TERMS and not rule.excluded_tools
            else ((rule.id, describe_rule(rule, slug)),),
            actions=(_undo(rule, slug, ruled.before),),
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

"""`/mcp policy list`, `set`, `clear`: the rules of admins, together with those of the operator's file.

`PolicyService` is shared with the HTTP API. `bot.domain.policies` defines the values of a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.admin.command import (
    A_SERVER,
    A_TOOL,
    POLICY,
    Arguments,
    CommandContext,
    CommandRejected,
    ForbiddenRejection,
    NotFoundRejection,
    verb,
)
from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.directory import ServerDirectory, ServerVerbs, VisibleServer
from bot.admin.servers.listing import risk
from bot.admin.text_format import (
    POLICY_SAID,
    POLICY_WORDS,
    code,
    format_ago,
    page_of,
    page_rows,
    parse_policy,
    sentences,
    server_label,
)
from bot.domain.approvals import NO_REQUIREMENTS, ApprovalPolicy
from bot.domain.commands import CompletionSource, Parameter, Reply, ReplyAction, Table
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import (
    ANY,
    FIELDS,
    OPTIONS,
    Rule,
    RuleError,
    as_pattern,
    describe_rule,
    is_for_server,
    is_for_tool,
    is_pattern,
    option_words,
    parse_rule,
    rule_to_table,
)
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.engine.policy.rules import undeliverable_targets
from bot.i18n import _, format_enumeration, gettext_lazy

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


def given_rule(base: Rule, arguments: Arguments, conversation: ConversationKey) -> Rule:
    """Return `base` with the conditions and requirements of the options. Raises CommandRejected, which names the
    invalid options.
    """
    table = rule_to_table(base)
    try:
        for row in FIELDS:
            if row.given is not None and arguments.has(row.option):
                value = row.given(arguments.get_all(row.option), conversation)
                table |= {} if value is None else {row.key: value}
        return replace(parse_rule(table), workspace=base.workspace)
    except RuleError as error:
        key = error.key.partition(".")[0]
        option = next((row.option for row in FIELDS if row.key == key and row.option), key)
        raise CommandRejected(
            _("`--{option}` cannot be used: {problem}.", option=option, problem=error.problem)
        ) from error
    except ValueError as error:
        raise CommandRejected(str(error)) from error


def options_of(rule: Rule, slug: str) -> tuple[str, ...]:
    """Return the options of `/mcp policy set` for this rule."""
    return (slug or ANY, *(() if rule.tool == ANY else (rule.tool,)), POLICY_SAID[rule.policy], *option_words(rule))


def rule_label(rule: Rule) -> str:
    """Format a rule's id in Markdown."""
    return code(rule.id, _("the rule"))


class PolicyService:
    """Finds, saves and deletes rules, and applies changes to this process."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    async def rules(self, conversation: ConversationKey) -> list[Rule]:
        """Return the admins' rules that apply in a conversation."""
        return [
            rule
            for rule in await self._dependencies.stores.policies.rules()
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
                _("A rule here is about one server, or about all: `*`. Other patterns are for the file.")
            )
        return await self._directory.find(name, conversation)

    async def profile(self, name: str, conversation: ConversationKey) -> str:
        """Return the id of a profile by its name or id; empty without a name. Raises NotFoundRejection."""
        if not name:
            return ""
        for profile in await self._dependencies.stores.profiles.profiles():
            if profile.workspace in (EVERYWHERE, conversation.workspace_key) and name.strip().lower() in (
                profile.name.lower(),
                profile.id,
            ):
                return profile.id
        raise NotFoundRejection(_("There is no profile of that name. `/profile list` lists them."))

    async def tool(self, server: VisibleServer | None, name: str) -> str:
        """Return the pattern of a tool by its name, syncing the server if its tools are unknown; a pattern unchanged;
        ANY without a name. Raises NotFoundRejection.
        """
        if name and server:
            await self._directory.connect([server])
        return self.tool_name(server, name) if name else ANY

    def tool_name(self, server: VisibleServer | None, name: str) -> str:
        """Return the pattern of a known tool, or the given pattern. Raises NotFoundRejection."""
        if server is None:
            return name
        try:
            return as_pattern(self._directory.find_tool(server, name).original_name)
        except NotFoundRejection:
            if is_pattern(name):
                return name
            raise

    async def set(self, rule: Rule, by: Author) -> tuple[Rule, Rule | None]:
        """Save a rule in place of that of its workspace about the same calls. Return both. Raises NotFound."""
        rules = await self._dependencies.stores.policies.rules()
        same = (old for old in rules if (old.workspace, old.conditions) == (rule.workspace, rule.conditions))
        before = next(same, None)
        saved = await self._dependencies.stores.policies.set_rule(rule, by)
        await self._dependencies.administration.refresh()
        return saved, before

    def about(
        self, rules: Sequence[Rule], server: VisibleServer | None, name: str, member: Member
    ) -> tuple[str, Rule | None]:
        """Return the tool pattern, and the rule about this server and tool alone, preferring one that the member may
        change. Raises NotFoundRejection.
        """
        bare_rules = [rule for rule in rules if rule.server_id == (server.id if server else "") and is_bare(rule)]
        tool = name if name in {rule.tool for rule in bare_rules} else self.tool_name(server, name) if name else ANY
        matches = [rule for rule in bare_rules if rule.tool == tool]
        editable = [rule for rule in matches if self._may_change(rule, member)]
        return tool, next(iter(editable or matches), None)

    async def clear(self, rule: Rule, member: Member) -> bool:
        """Delete a rule. Return False if it is missing. Raises ForbiddenRejection."""
        if not self._may_change(rule, member):
            raise ForbiddenRejection(
                _("{rule} holds in every workspace. Only the operator can change it.", rule=rule_label(rule))
            )
        cleared = await self._dependencies.stores.policies.clear_rule(rule.id, member.author)
        if cleared:
            await self._dependencies.administration.refresh()
        return cleared

    def _may_change(self, rule: Rule, member: Member) -> bool:
        return rule.workspace != EVERYWHERE or self._dependencies.rights.administers_everywhere(member)


def is_bare(rule: Rule) -> bool:
    """Return True if the rule has no conditions besides server and tool."""
    return not any(rule.further_conditions)


class ServerPolicies(ServerVerbs):
    """Verbs of `/mcp policy`."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        super().__init__(dependencies, directory)
        self._service = PolicyService(dependencies, directory)

    # Listing

    @verb("policy list", "tools that run, ask and never run", (A_SERVER,), aliases=("policy", "policies"), reads=True)
    async def _list(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        if name:
            servers = [await self._directory.find(name, request.conversation)]
        else:
            servers = await self._directory.all(request.conversation)
        rules = await self._service.rules(request.conversation)
        rows = [row for server in servers for row in self._rows(server, rules, request)]
        others = self._other_rules(servers, request, all_servers=not name)
        if not rows and not others:
            return Reply(_("No tools are loaded yet, and no server has a policy. `/mcp list` says why."))
        command = ("mcp", "policy", "list", *((servers[0].name,) if name else ()))
        page = page_rows(rows, request.arguments.page)
        # The row of a whole server names no tool, and has no risk.
        opens = tuple(("mcp", "policy", "set", row[0], *((row[1],) if row[2] else ())) for row in page)
        return Reply(
            _("Policies · {count}", count=len(rows)),
            Table(("server", "tool", "risk", "policy", "set by"), tuple(page), opens),
            tuple(others),
            page=page_of(request.arguments.page, len(rows), command),
        )

    def _rows(self, server: VisibleServer, rules: Sequence[Rule], request: CommandContext) -> list[tuple[str, ...]]:
        """Return the policy of each tool, with the rules about this server that depend only on the tool's name."""
        plain = [rule for rule in rules if rule.plain and rule.server_id == server.id]
        tools = self._directory.callable_tools(server)
        in_force = self._dependencies.administration.rules(request.conversation)
        rows = [self._general(server, rule) for rule in plain if rule.tool == ANY]
        for tool in tools:
            setting = format_enumeration(self._setting(rule) for rule in plain if rule.tool == tool.original_name)
            judged = in_force.judge(tool)
            source = judged.stored.rule if judged.rule is not None and judged.rule.of_file else ""
            holds = POLICY_WORDS[judged.stored.policy]
            rows.append((server.name, tool.original_name, risk(tool), holds, setting or source))
        known = {tool.original_name for tool in tools} | {ANY}
        for rule in plain:
            if rule.tool not in known:
                about = _("pattern") if is_pattern(rule.tool) else _("not offered now")
                rows.append((server.name, rule.tool, about, "", self._setting(rule)))
        return rows

    def _general(self, server: VisibleServer, rule: Rule) -> tuple[str, ...]:
        about = (
            _("(all but {tools})", tools=", ".join(sorted(rule.excluded_tools)))
            if rule.excluded_tools
            else _("(all its tools)")
        )
        return server.name, about, "", POLICY_WORDS[rule.policy], self._setting(rule)

    def _setting(self, rule: Rule) -> str:
        values = {
            "policy": POLICY_SAID[rule.policy],
            "when": format_ago(rule.at, self._dependencies.clock()),
            "who": rule.by or _("somebody"),
        }
        if rule.requirements == NO_REQUIREMENTS:
            return _("{policy}, {when} by {who}", **values)
        return _("{policy}, on terms, {when} by {who}", **values)

    def _other_rules(
        self, servers: Sequence[VisibleServer], request: CommandContext, *, all_servers: bool
    ) -> list[tuple[str, str]]:
        """Return rules with conditions, requirements or patterns from all sources, each with its id, and rules of the
        file about unknown servers.
        """
        ids = {server.id for server in servers}
        rules = [
            rule
            for rule in self._dependencies.administration.rules(request.conversation).all
            if (all_servers or not rule.server_id or rule.server_id in ids)
            and (not _in_the_table(rule) or (not rule.server_id and self._idle(servers, rule, all_servers=all_servers)))
        ]
        facts = [
            (
                rule.id or _("a rule"),
                sentences(
                    describe_rule(rule, self._name(servers, rule)), self._idle(servers, rule, all_servers=all_servers)
                ),
            )
            for rule in rules[:MOST_RULES]
        ]
        omitted = len(rules) - len(facts)
        return [
            *facts,
            *(
                [(gettext_lazy("more"), _("{count} rules; name a server to see its own", count=omitted))]
                if omitted
                else []
            ),
        ]

    def _idle(self, servers: Sequence[VisibleServer], rule: Rule, *, all_servers: bool) -> str:
        known = [tool for server in servers for tool in self._directory.callable_tools(server)]
        return (
            "" if not all_servers or not known or _named_tools(rule, known) else _("(fits no tool that is known now)")
        )

    # Setting and clearing

    @verb("policy set", "policy when the model requests a tool", (_SERVERS, A_TOOL, POLICY, *OPTIONS))
    async def _set(self, request: CommandContext) -> Reply:
        arguments = request.arguments
        server = await self._service.server(arguments.get("server"), request.conversation)
        policy = parse_policy(arguments.get("policy")) or ApprovalPolicy.ASK_USER
        tool = await self._service.tool(server, arguments.get("tool"))
        profile = await self._service.profile(arguments.get("profile"), request.conversation)
        workspace = self._dependencies.rights.workspace_for(request.member, request.conversation)
        base = Rule(policy, server_id=server.id if server else "", tool=tool, profile=profile, workspace=workspace)
        given = given_rule(base, arguments, request.conversation)
        rule, before = await self._service.set(given, request.author)
        slug = server.name if server else ""
        warnings = (await self._warnings(server, rule, request), _undeliverable_warning(rule))
        return Reply(
            sentences(_("{calls}: {policy}.", calls=_about(server, tool), policy=POLICY_SAID[policy]), *warnings),
            details=()
            if rule.plain and rule.requirements == NO_REQUIREMENTS and not rule.excluded_tools
            else ((rule.id, describe_rule(rule, slug)),),
            actions=(_undo(rule, slug, before),),
        )

    @verb("policy clear", "take an admin's rule back", (_SERVER_OR_RULE, A_TOOL), aliases=("policy remove",))
    async def _clear(self, request: CommandContext) -> Reply:
        wanted = request.arguments.get("server")
        rules = await self._service.rules(request.conversation)
        rule = next((candidate for candidate in rules if candidate.id == wanted), None)
        if rule is None:
            server = await self._service.server(wanted, request.conversation)
            tool, rule = self._service.about(rules, server, request.arguments.get("tool"), request.member)
            about = _about(server, tool)
        else:
            server = next(
                (
                    candidate
                    for candidate in await self._directory.all(request.conversation)
                    if candidate.id == rule.server_id
                ),
                None,
            )
            about = rule_label(rule)
        if rule is None or not await self._service.clear(rule, request.member):
            return Reply(_("There is no rule about {calls}. Nothing was changed.", calls=about), failed=True)
        return Reply(
            _("{calls}: back to what holds without it.", calls=about),
            actions=(
                ReplyAction(_("Undo"), ("mcp", "policy", "set", *options_of(rule, server.name if server else ""))),
            ),
        )

    async def _warnings(self, server: VisibleServer | None, rule: Rule, request: CommandContext) -> str:
        """Return warnings about rules with a higher priority, and about a rule without matching tools."""
        servers = [server] if server else await self._directory.all(request.conversation)
        tools = [tool for server in servers for tool in self._directory.callable_tools(server)]
        fitting = _named_tools(rule, tools)
        if tools and not fitting:
            return _("It fits no tool that is known now.")
        if not is_bare(rule):
            return ""
        policy_of = self._dependencies.administration.rules(request.conversation).policy_of
        wanted = (rule.policy, ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_ALLOW)
        allowed = wanted if rule.policy is ApprovalPolicy.AUTO else wanted[:1]
        others = sum(policy_of(tool) not in allowed for tool in fitting)
        if not others:
            return ""
        if rule.tool != ANY:
            return _("Another rule counts more: `/mcp policy explain` says which.")
        return _(
            "For {count} of {total} tools another rule counts more: `/mcp policy explain` says which.",
            count=others,
            total=len(fitting),
        )

    def _name(self, servers: Sequence[VisibleServer], rule: Rule) -> str:
        return next((server.name for server in servers if server.id == rule.server_id), "")


def _undeliverable_warning(rule: Rule) -> str:
    """Return the warning about a card that cannot be sent."""
    return (
        _("All members cannot be written to, so the card stays in the thread.") if undeliverable_targets(rule) else ""
    )


def _about(server: VisibleServer | None, tool: str) -> str:
    label = server_label(server.config) if server else _("Every server")
    if tool == ANY:
        return _("{server}, all its tools", server=label)
    return format_enumeration((label, code(tool, _("these tools") if is_pattern(tool) else _("the tool"))))


def _named_tools(rule: Rule, tools: Sequence[Tool]) -> list[Tool]:
    return [tool for tool in tools if is_for_server(rule, tool) and is_for_tool(rule, tool)]


def _in_the_table(rule: Rule) -> bool:
    """Return True if the table shows the rule: it depends on the tool alone, and has no requirements."""
    by_name = bool(rule.server_id) or not is_pattern(rule.server)
    return (
        by_name
        and is_bare(rule)
        and rule.requirements == NO_REQUIREMENTS
        and (rule.plain or rule.tool == ANY or not is_pattern(rule.tool))
    )


def _undo(rule: Rule, slug: str, before: Rule | None) -> ReplyAction:
    if before is not None:
        return ReplyAction(_("Undo"), ("mcp", "policy", "set", *options_of(before, slug)))
    if rule.plain and slug:
        return ReplyAction(_("Undo"), ("mcp", "policy", "clear", slug, *(() if rule.tool == ANY else (rule.tool,))))
    return ReplyAction(_("Undo"), ("mcp", "policy", "clear", rule.id))

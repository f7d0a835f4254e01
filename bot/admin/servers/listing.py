"""`/mcp list`, `show`, `tools`. Addresses and references are for admins."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

from bot.admin.command import (
    A_SERVER,
    SERVER,
    Answers,
    Arguments,
    CommandContext,
    CommandRejected,
    Verbs,
    option,
    verb,
)
from bot.admin.dependencies import CommandDependencies
from bot.admin.profiles.verbs import enable_action, is_off_here, off_for
from bot.admin.servers.definition import command_line, plain_values_of
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.servers.review import refused_tools, withheld_tools
from bot.admin.servers.sign_in import SignInSteps, oauth_text
from bot.admin.text_format import (
    POLICY_SAID,
    POLICY_WORDS,
    code,
    did_you_mean,
    format_ago,
    format_change,
    known_facts,
    page_of,
    page_rows,
    sentences,
    server_label,
    shorten,
    status_word,
)
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import (
    ActionStyle,
    CompletionSource,
    Parameter,
    Reply,
    ReplyAction,
    ReplyFile,
    RequiredRole,
    RowChoice,
    Table,
)
from bot.domain.conversations import ConversationKey
from bot.domain.pins import count_definitions
from bot.domain.policies import Rule, as_pattern
from bot.domain.server_settings import SETTINGS
from bot.domain.servers import (
    EVERYWHERE,
    AuthenticationKind,
    HttpKind,
    HttpTransport,
    OAuthTerms,
    ServerConfig,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
    SessionScope,
    SessionSnapshot,
    StdioTransport,
    SyncStatus,
)
from bot.domain.tools import Risk, Tool, ToolKind, count_risks
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext

_SHOWN_SESSIONS = 5
MARKS = {
    ServerStatus.CONNECTED: "●",
    ServerStatus.CONNECTING: "◌",
    ServerStatus.PENDING: "○",
    ServerStatus.IDLE: "○",
    ServerStatus.FAILED: "✗",
    ServerStatus.AUTH_REQUIRED: "✗",
    ServerStatus.DISCONNECTED: "○",
    ServerStatus.DISABLED: "○",
}
_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
_NAMED = 5
_LONGEST_REASON = 120
_FILTERS = (
    Parameter("words", "part of the name or title", repeated=True),
    option("state", "such as failed", metavar="STATE"),
)
_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
"""Statuses of servers with known tools that are not usable."""
_CHOICES = (ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_DENY)
_POLICIES = {
    ApprovalPolicy.ALWAYS_ALLOW: gettext_lazy("always allow"),
    ApprovalPolicy.ASK_USER: gettext_lazy("ask"),
    ApprovalPolicy.ALWAYS_DENY: gettext_lazy("always deny"),
    ApprovalPolicy.AUTO: gettext_lazy("auto"),
}
_RISKS = {
    Risk.READS: gettext_lazy("reads"),
    Risk.WRITES: gettext_lazy("writes"),
    Risk.DESTRUCTIVE: gettext_lazy("destructive"),
    Risk.UNKNOWN: gettext_lazy("may read or write: unknown"),
}
_TRANSPORT_NAMES = {
    HttpKind.STREAMABLE: "streamable HTTP",
    HttpKind.SSE: "HTTP+SSE",
    HttpKind.AUTO: "HTTP (auto)",
    HttpKind.JSONRPC: "JSON-RPC over HTTP",
}


# -------------------- server details


def server_details(record: ServerRecord, now: float) -> list[tuple[str, str]]:
    """Return the definition of an admin's server as plain text without secrets. `now` is in epoch seconds."""
    authentication, signs_in = record.authentication, ""
    is_local = isinstance(record.config.transport, StdioTransport)
    match authentication.kind:
        case AuthenticationKind.BASIC:
            signs_in = "basic"
        case AuthenticationKind.HEADER | AuthenticationKind.API_KEY:
            signs_in = _("{kind}, in {header}", kind=authentication.kind.value, header=authentication.header)
        case AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS as kind:
            signs_in = oauth_text(
                OAuthTerms(kind, authentication.client_id, scope=authentication.scope, issuer=authentication.issuer)
            )
        case AuthenticationKind.NONE:
            signs_in = _("none")
    secrets = [
        (
            gettext_lazy("secret {slot}", slot=slot),
            _("missing: it is still to be entered")
            if slot in record.missing
            else _("set")
            if str(reference) == "stored"
            else str(reference),
        )
        for slot, reference in sorted(record.secrets.items())
    ]
    return [
        (gettext_lazy("sign-in"), signs_in),
        *(
            (
                gettext_lazy("variable {name}", name=name) if is_local else gettext_lazy("header {name}", name=name),
                value,
            )
            for name, value in plain_values_of(record.config.transport)
        ),
        *secrets,
        (gettext_lazy("connects"), _("at the start") if record.config.auto_connect else _("when needed")),
        (gettext_lazy("for"), _("every workspace") if record.config.workspace == EVERYWHERE else _("this workspace")),
        (
            gettext_lazy("added"),
            _("{when} by {who}", when=format_ago(record.created_at, now), who=record.created_by or _("somebody")),
        ),
        (
            gettext_lazy("changed"),
            format_change(record.updated_at, record.updated_by, now) if record.version > 1 else "",
        ),
        (gettext_lazy("version"), str(record.version)),
    ]


def time_limits(config: ServerConfig) -> str:
    """Format the time limits of a server on one line."""
    connecting, first = (config.connect_seconds(known=known) for known in (True, False))
    limits = [
        _("{seconds} s to connect", seconds=f"{connecting:g}")
        if first == connecting
        else _("{seconds} s to connect ({first} s the first time)", seconds=f"{connecting:g}", first=f"{first:g}"),
        _("{seconds} s a call", seconds=f"{config.tool_timeout:g}"),
        *(
            _("{seconds} s for {tool}", seconds=f"{seconds:g}", tool=tool)
            for tool, seconds in config.tool_timeouts.items()
        ),
        _("{seconds} s with progress", seconds=f"{config.tool_timeout_max:g}"),
    ]
    return format_enumeration(limits)


def sessions_text(config: ServerConfig, sessions: Sequence[SessionSnapshot], now: float) -> str:
    """Format the sessions of a server on one line: how many are open in this process, and since when they are idle.
    Their users are not for everyone. Empty if all share one.
    """
    if config.sessions is SessionScope.SHARED:
        return ""
    values = {"count": len(sessions), "most": config.max_sessions}
    counted = (
        _("one per person, {count} of {most} open in this process", **values)
        if config.sessions is SessionScope.PERSON
        else _("one per conversation, {count} of {most} open in this process", **values)
    )
    opened = min((session.started_at for session in sessions), default=0.0)
    oldest = _("the oldest opened {when}", when=format_ago(opened, now)) if opened else ""
    running = sum(session.idle_since is None for session in sessions)
    idle = sorted(session.idle_since for session in sessions if session.idle_since is not None)
    unused = (
        _(
            "idle ones last used {times}",
            times=format_enumeration(format_ago(since, now) for since in idle[:_SHOWN_SESSIONS]),
        )
        if idle
        else ""
    )
    if len(idle) > _SHOWN_SESSIONS:
        unused = _("{first} and {count} later", first=unused, count=len(idle) - _SHOWN_SESSIONS)
    return format_enumeration(
        filter(None, (counted, oldest, _("{count} running a call", count=running) if running else "", unused))
    )


class ServerListing(Verbs):
    """Verbs that show servers and their capabilities."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._sign_in_steps = sign_in_steps

    @verb(
        "list",
        "every server and how it stands",
        _FILTERS,
        who=RequiredRole.EVERYONE,
        aliases=("ls", "servers", "status"),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply | Answers:
        return self._reply_until_settled(self._list_reply, request)

    @verb(
        "show",
        "one server in full",
        (SERVER,),
        who=RequiredRole.EVERYONE,
        aliases=("info", "get", "describe"),
        reads=True,
    )
    async def _show(self, request: CommandContext) -> Reply | Answers:
        return self._reply_until_settled(self._show_reply, request)

    @verb(
        "tools",
        "the tools, and which of them ask first",
        (A_SERVER, Parameter("tool", "one tool with its arguments", completes=CompletionSource.TOOLS)),
        who=RequiredRole.EVERYONE,
        aliases=("tool",),
        reads=True,
    )
    async def _tools(self, request: CommandContext) -> AsyncIterator[Reply]:
        """Yield a reply at once, and another one after servers without capabilities were synced."""
        if request.arguments.get("tool"):
            yield await self._tool_reply(request)
            return
        servers = await self._requested_servers(request)
        yield self._tools_reply(request, servers)
        if await self._directory.connect(servers):
            yield self._tools_reply(request, await self._requested_servers(request))

    async def _tool_reply(self, request: CommandContext) -> Reply:
        server = await self._directory.find_synced(request.arguments.get("server"), request.conversation)
        tool = self._directory.find_tool(server, request.arguments.get("tool"))
        administers = self._dependencies.rights.administers(request.member)
        subject = (server.name, tool.original_name)
        return Reply(
            _("Tool {tool} of {server}", tool=code(tool.original_name, ""), server=server_label(server.config)),
            _arguments_table(tool),
            details=known_facts(
                (gettext_lazy("title"), tool.title),
                (gettext_lazy("description"), tool.description),
                (gettext_lazy("risk"), risk(tool)),
                (gettext_lazy("policy"), self._tool_state(server, tool, self._waiting([server]), request)),
            ),
            actions=(
                ReplyAction(_("Explain the policy"), ("mcp", "policy", "explain", *subject)),
                ReplyAction(_("Change the policy"), ("mcp", "policy", "set", *subject)),
            )
            if administers
            else (),
            document=ReplyFile(
                "schema.json", json.dumps(tool.input_schema, indent=2, ensure_ascii=False), "application/json"
            ),
        )

    async def _reply_until_settled(
        self, answer: Callable[[CommandContext, list[VisibleServer]], Awaitable[Reply]], request: CommandContext
    ) -> AsyncIterator[Reply]:
        """Yield a reply at once, and another one after connecting servers have settled."""
        servers = await self._requested_servers(request)
        yield await answer(request, servers)
        if any(server.status is ServerStatus.CONNECTING for server in servers):
            await self._dependencies.servers.wait_ready()
            yield await answer(request, await self._requested_servers(request))

    async def _requested_servers(self, request: CommandContext) -> list[VisibleServer]:
        name = request.arguments.get("server")
        if name:
            return [await self._directory.find(name, request.conversation)]
        return await self._directory.all(request.conversation)

    async def _list_reply(self, request: CommandContext, servers: list[VisibleServer]) -> Reply:
        administers = self._dependencies.rights.administers(request.member)
        adding = (
            ReplyAction(_("Add server"), ("mcp", "add"), ActionStyle.PRIMARY),
            ReplyAction(_("Paste JSON"), ("mcp", "import")),
        )
        add = adding if administers else ()
        if not servers:
            how = (
                _("Try `/mcp add`, or put one in `{file}`.", file=self._dependencies.operator.file)
                if administers
                else _("Ask {who} for one.", who=self._dependencies.rights.who)
            )
            return Reply(sentences(_("No servers yet."), how), actions=add)
        servers = sorted(filter(_filter(request.arguments), servers), key=lambda server: server.status not in _TROUBLE)
        if not servers:
            return Reply(_("No server fits that. `/mcp list` lists them all."), failed=True)
        state = request.arguments.get("state")
        filters = (*request.arguments.get_all("words"), *(("--state", state) if state else ()))
        page = page_rows(servers, request.arguments.page)
        rows = tuple(self._row(server, request.conversation) for server in page)
        trouble = sum(server.status in _TROUBLE for server in servers)
        notes = [(server.name, self._note(server, request)) for server in page]
        servers_by_note: dict[str, list[str]] = {}
        for name, note in notes:
            servers_by_note.setdefault(note, []).append(name)
        details = [(", ".join(names), note) for note, names in servers_by_note.items() if note]
        off = [server for server in page if self._is_off_here(server, request.conversation)]
        states = [server.state for server in servers if server.state]
        checked_at = max((max(state.synced_at or 0.0, state.connected_at or 0.0) for state in states), default=0.0)
        details.append((gettext_lazy("checked"), format_ago(checked_at, self._dependencies.clock())))
        files = ", ".join(server.name for server in servers if server.record is None)
        details += [(gettext_lazy("managed in {file}", file=self._file(request)), files)] if files else []
        rejection = self._dependencies.administration.files_rejection if administers else ""
        details += [(gettext_lazy("older files in use"), rejection)] if rejection else []
        return Reply(
            _("MCP servers · {count} · {trouble} in trouble", count=len(servers), trouble=trouble)
            if trouble
            else _("MCP servers · {count}", count=len(servers)),
            Table(
                ("server", "state", "transport", "tools", "policy"),
                rows,
                tuple(("mcp", "show", server.name) for server in page),
            ),
            tuple(details),
            actions=(
                *add,
                *(await self._next_steps(page) if administers else ()),
                *((enable_action(server.name) for server in off) if administers else ()),
            ),
            page=page_of(request.arguments.page, len(servers), ("mcp", "list", *filters)),
        )

    async def _next_steps(self, servers: Sequence[VisibleServer]) -> list[ReplyAction]:
        to_sign_in = await asyncio.gather(*(self._sign_in_steps.steps(server.config) for server in servers))
        steps: list[ReplyAction] = []
        for server, sign_in in zip(servers, to_sign_in, strict=True):
            is_off = server.record is not None and server.status in (*_OFF, *_TROUBLE)
            steps += sign_in or ([_next_step(server)] if is_off else [])
        return steps

    def _row(self, server: VisibleServer, conversation: ConversationKey) -> tuple[str, ...]:
        tools = self._directory.capabilities(server).tools
        return (
            f"{MARKS[server.status]} {server.name}",
            status_word(server.status),
            transport_word(server.config),
            _tool_count(server, tools),
            self._policies(tools, conversation),
        )

    def _note(self, server: VisibleServer, request: CommandContext) -> str:
        """Return the problem of a server with its fix, or the pending review."""
        sync_failed = server.sync is SyncStatus.SYNC_FAILED
        sync_problem = _("its tools could not be asked for; what is known stays") if sync_failed else ""
        return (
            self._problem(server, request)
            or sync_problem
            or self._review_note(server)
            or self._off_note(server, request)
            or _idle_note(server)
        )

    def _off_note(self, server: VisibleServer, request: CommandContext) -> str:
        """Return the profiles of this place that may not use a server which is off here."""
        if not self._is_off_here(server, request.conversation):
            return ""
        names = ", ".join(off_for(self._dependencies.administration, server.id, request.conversation))
        if not self._dependencies.rights.administers(request.member):
            return _("off for {profiles}", profiles=names)
        return _("off for {profiles}: /profile enable {server}", profiles=names, server=server.name)

    def _is_off_here(self, server: VisibleServer, conversation: ConversationKey) -> bool:
        return is_off_here(self._dependencies.administration, server.id, conversation)

    def _problem(self, server: VisibleServer, request: CommandContext) -> str:
        if not server.problem or self._dependencies.rights.administers(request.member):
            return server.problem
        return _("only administrators are shown what is wrong")

    def _file(self, request: CommandContext) -> str:
        is_admin = self._dependencies.rights.administers(request.member)
        return self._dependencies.operator.file if is_admin else _("the operator's file")

    def _review_note(self, server: VisibleServer) -> str:
        """Return the number of withheld tools."""
        waiting = withheld_tools(self._dependencies.servers, server.id)
        if not waiting:
            return ""
        command = f"/mcp review {server.name}"
        if any(tool.kind is ToolKind.INSTRUCTIONS for tool in waiting):
            definitions = count_definitions(waiting)
            return _("{definitions} wait for review: {command}", definitions=definitions, command=command)

        return ngettext(
            "{n} waits for review: {command}", "{n} wait for review: {command}", len(waiting), command=command
        )

    def _instructions(self, server: VisibleServer) -> str:
        """Return the known facts about the server's own instructions."""
        if not server.config.use_instructions:
            return ""
        instructions = self._directory.capabilities(server).instructions
        if instructions is None:
            return _("to be used, and none are known")
        withheld = withheld_tools(self._dependencies.servers, server.id)
        if any(tool.kind is ToolKind.INSTRUCTIONS for tool in withheld):
            return _("not used, because they wait for review: /mcp review {server}", server=server.name)
        return _("used: {description}", description=instructions.description)

    def _policies(self, tools: Sequence[Tool], conversation: ConversationKey) -> str:
        """Return the policy of a server's tools in one word, or the count of each."""
        counts = Counter(
            POLICY_WORDS[self._dependencies.administration.rules(conversation).policy_of(tool)] for tool in tools
        )
        if len(counts) <= 1:
            return next(iter(counts), "")
        return format_enumeration(f"{count} {word}" for word, count in counts.most_common())

    async def _show_reply(self, request: CommandContext, servers: list[VisibleServer]) -> Reply:
        (server,) = servers
        administers = self._dependencies.rights.administers(request.member)
        facts = self._facts(server, request)
        if not administers:
            facts.append((gettext_lazy("transport"), transport_word(server.config)))
            return Reply(_("MCP server {server}", server=server_label(server.config)), details=known_facts(*facts))
        facts += [
            (gettext_lazy("by a browser"), self._sign_in_steps.hint(server)),
            *await self._sign_in_steps.details(server),
        ]
        details = known_facts(*facts, *self._inner_facts(server))
        off = self._is_off_here(server, request.conversation)
        enable = (enable_action(server.name),) if off else ()
        steps = (*enable, *await self._sign_in_steps.steps(server.config), *_steps(server))
        return Reply(_("MCP server {server}", server=server_label(server.config)), details=details, actions=steps)

    def _facts(self, server: VisibleServer, request: CommandContext) -> list[tuple[str, str]]:
        tools = self._directory.capabilities(server).tools
        state = server.state or ServerSnapshot(server.config, ServerStatus.PENDING)
        now, conversation = self._dependencies.clock(), request.conversation
        synced = status_word(server.sync)
        if state.synced_at:
            synced = f"{synced}, {format_ago(state.synced_at, now)}"
        return [
            (gettext_lazy("title"), server.config.title),
            (gettext_lazy("description"), server.config.description),
            (gettext_lazy("state"), _idle_note(server) or status_word(server.status)),
            (gettext_lazy("problem"), self._problem(server, request)),
            (gettext_lazy("protocol"), state.protocol),
            (gettext_lazy("server version"), state.server_version),
            (gettext_lazy("connected"), format_ago(state.connected_at, now) if state.connected_at else ""),
            (gettext_lazy("last used"), format_ago(state.last_used_at, now) if state.last_used_at else ""),
            (gettext_lazy("tools"), _tool_count(server, tools)),
            (gettext_lazy("sessions"), sessions_text(server.config, state.sessions, now)),
            (gettext_lazy("off for"), ", ".join(off_for(self._dependencies.administration, server.id, conversation))),
            (gettext_lazy("review"), self._review_note(server)),
            (gettext_lazy("not offered"), _left_out_note(server)),
            (gettext_lazy("what is known"), synced if server.sync is not SyncStatus.NEVER_SYNCED else ""),
            (gettext_lazy("trusted"), _("yes") if server.config.trusted else _("no: its hints lower no risk")),
            (gettext_lazy("managed in"), self._file(request) if server.record is None else _("chat")),
        ]

    def _inner_facts(self, server: VisibleServer) -> list[tuple[str, str]]:
        config = server.config
        facts = endpoint_facts(config)
        if config.sign_in is not None:
            facts.append((gettext_lazy("sign-in"), oauth_text(config.sign_in)))
        if server.record is not None:
            facts += server_details(server.record, self._dependencies.clock())
        special = {
            "tool_timeout": time_limits(config),
            "use_instructions": self._instructions(server),
            "fallback_group": config.fallback_group
            and _("{group}, place {number}", group=config.fallback_group, number=config.fallback_order),
        }
        return [
            *facts,
            *(
                (setting.fact, special.get(setting.key) or setting.description(config))
                for setting in SETTINGS
                if setting.fact
            ),
            (gettext_lazy("folders it may list"), ", ".join(config.roots)),
            (gettext_lazy("id"), config.id),
        ]

    def _tools_reply(self, request: CommandContext, servers: list[VisibleServer]) -> Reply:
        tools = [(server, tool) for server in servers for tool in self._directory.capabilities(server).tools]
        left_out = tuple(
            (gettext_lazy("not offered"), f"{server.name}: {note}")
            for server in servers
            if (note := _left_out_note(server))
        )

        if not tools:
            return Reply(_("No tools are offered now. `/mcp list` says why."), details=left_out)
        waiting = self._waiting(servers)
        page = page_rows(tools, request.arguments.page)
        rows = tuple(
            (tool.name, risk(tool), self._tool_state(server, tool, waiting, request), _summary(tool))
            for server, tool in page
        )
        opens = tuple(("mcp", "tools", server.name, tool.original_name) for server, tool in page)
        settings = tuple(
            self._policy_choice(server, tool, request)
            for server, tool in page
            if self._dependencies.rights.administers(request.member)
        )
        named = (servers[0].name,) if request.arguments.get("server") else ()
        reviews = tuple((gettext_lazy("review"), note) for server in servers if (note := self._review_note(server)))
        return Reply(
            _("Tools · {count}", count=len(tools)),
            Table(("tool", "risk", "policy", "what it does"), rows, opens, settings),
            (*reviews, *left_out),
            page=page_of(request.arguments.page, len(tools), ("mcp", "tools", *named)),
        )

    def _waiting(self, servers: Sequence[VisibleServer]) -> Collection[str]:
        """Return the names of the tools that wait for a review."""
        return {tool.name for server in servers for tool in withheld_tools(self._dependencies.servers, server.id)}

    def _policy_choice(self, server: VisibleServer, tool: Tool, request: CommandContext) -> RowChoice:
        """Return the choice of an admin's rule about this tool alone, with the rule that wins over it."""
        judged = self._dependencies.administration.rules(request.conversation).judge(tool)
        matching = (judged.rule, *(rule for rule, _why in judged.passed))
        own = next((rule for rule in matching if rule is not None and _is_about(rule, tool)), None)
        words, subject = ("mcp", "policy"), (server.name, tool.original_name)
        policies = [*_CHOICES, *([ApprovalPolicy.AUTO] if own and own.policy is ApprovalPolicy.AUTO else [])]
        choices: list[tuple[str, tuple[str, ...]]] = [
            (str(_POLICIES[policy]), (*words, "set", *subject, POLICY_SAID[policy])) for policy in policies
        ]
        if own:
            choices.append((_("as the other rules say"), (*words, "clear", *subject)))
        rule = judged.rule
        decided = {
            "rule": _("a rule of {who}", who=rule.by) if rule and rule.by else judged.stored.rule or _("the default"),
            "policy": _POLICIES[judged.stored.policy],
        }
        note = _("{rule} decides: {policy}.", **decided)
        return RowChoice(
            _("Policy of {tool}", tool=tool.original_name),
            tuple(choices),
            str(_POLICIES[own.policy if own else judged.stored.policy]),
            column=2,
            note="" if own and own is rule else sentences(note, judged.stored.why if judged.passed else ""),
        )

    def _tool_state(self, server: VisibleServer, tool: Tool, waiting: Collection[str], request: CommandContext) -> str:
        """Return the policy or state of a tool in one or two words."""
        if server.status in _OFF:
            return status_word(server.status)
        if tool.name in waiting:
            return _("waits for review")
        if any(tool.name == each.name for each in refused_tools(self._dependencies.servers, server.id)):
            return _("refused")
        if not self._dependencies.administration.rules(request.conversation).profile.enables(tool):
            return _("off here")
        return POLICY_WORDS[self._dependencies.administration.rules(request.conversation).policy_of(tool)]


def _filter(arguments: Arguments) -> Callable[[VisibleServer], bool]:
    """Return the condition for the servers that a list is about. Raises CommandRejected."""
    words, state = [word.lower() for word in arguments.get_all("words")], arguments.get("state").lower()
    names = {status: {status.value, str(status.label).lower()} for status in ServerStatus}
    if state and not any(state in known for known in names.values()):
        one_of = _("`--state` is one of {states}.", states=", ".join(f"`{status}`" for status in names))
        raise CommandRejected(sentences(one_of, did_you_mean(state, names)))

    def fits(server: VisibleServer) -> bool:
        text = f"{server.name} {server.config.title}".lower()
        return all(word in text for word in words) and (not state or state in names[server.status])

    return fits


def _left_out_note(server: VisibleServer) -> str:
    """Return the listed tools that cannot be offered, with the reasons."""
    reasons = server.state.left_out if server.state else ()
    text = "; ".join(shorten(reason, _LONGEST_REASON) for reason in reasons[:_NAMED])
    more = len(reasons) - _NAMED
    return _("{reasons} and {count} more", reasons=text, count=more) if more > 0 else text


def transport_word(config: ServerConfig) -> str:
    """Return the name of the transport."""
    match config.transport:
        case StdioTransport():
            return "stdio"
        case HttpTransport(kind=kind):
            return _TRANSPORT_NAMES[kind]


def endpoint_facts(config: ServerConfig) -> list[tuple[str, str]]:
    """Return the address or command line of a server, for admins."""
    match config.transport:
        case StdioTransport(cwd=cwd, launch=launch):
            template = [(gettext_lazy("launch template"), launch.template)] if launch else []
            return [*template, (gettext_lazy("command"), command_line(config)), (gettext_lazy("folder"), cwd or "")]
        case HttpTransport(url):
            return [(gettext_lazy("address"), url)]


def risk(tool: Tool) -> str:
    """Return the risk of a tool in one word."""
    return str(_RISKS[tool.risk])


def _tool_count(server: VisibleServer, tools: Sequence[Tool]) -> str:
    count = max(len(tools), server.state.tool_count if server.state else 0)
    risks = count_risks(tools)
    return f"{count} ({risks})" if risks else str(count)


def _next_step(server: VisibleServer) -> ReplyAction:
    match server.status:
        case ServerStatus.DISABLED:
            return ReplyAction(_("Enable {server}", server=server.name), ("mcp", "enable", server.name))
        case ServerStatus.DISCONNECTED:
            return ReplyAction(_("Connect {server}", server=server.name), ("mcp", "connect", server.name))
        case _:
            return ReplyAction(_("Find out about {server}", server=server.name), ("mcp", "doctor", server.name))


def _idle_note(server: VisibleServer) -> str:
    """Return the reason why a working server is not connected; empty for all others."""
    return _("idle: it starts when one of its tools is used") if server.status is ServerStatus.IDLE else ""


def _steps(server: VisibleServer) -> tuple[ReplyAction, ...]:
    verify = ReplyAction(_("Verify"), ("mcp", "verify", server.name))
    if server.record is None:
        return (verify,)
    disabled = server.status is ServerStatus.DISABLED
    switch = (_("Enable"), "enable") if disabled else (_("Disable"), "disable")
    return (
        verify,
        ReplyAction(_("Edit"), ("mcp", "edit", server.name)),
        ReplyAction(switch[0], ("mcp", switch[1], server.name)),
        ReplyAction(_("Remove"), ("mcp", "remove", server.name), ActionStyle.DANGER),
    )


def _is_about(rule: Rule, tool: Tool) -> bool:
    """Return True for an admin's rule about this tool alone, which the choice of its policy sets."""
    return rule.plain and not rule.of_file and rule.tool == as_pattern(tool.original_name) and not rule.excluded_tools


def _arguments_table(tool: Tool) -> Table | None:
    """Return the arguments of a tool; a schema of a server may be anything."""
    required = tool.input_schema.get("required")
    needed = required if isinstance(required, list) else ()
    rows = []
    for name, schema in tool.properties.items():
        about = schema if isinstance(schema, Mapping) else {}
        kind = about.get("type", "")
        texts = (kind if isinstance(kind, str) else json.dumps(kind), str(about.get("description", "")))
        rows.append((str(name), texts[0], _("yes") if name in needed else _("no"), texts[1]))
    return Table(("argument", "type", "required", "what it is"), tuple(rows)) if rows else None


def _summary(tool: Tool) -> str:
    lines = tool.description.strip().splitlines()
    return shorten(tool.title or (lines[0] if lines else ""))

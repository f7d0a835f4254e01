"""`/mcp list`, `show`, `tools`. Addresses and references are for admins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from bot.commands.argument_parser import A_SERVER, SERVER
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_definition import command_line, plain_values_of
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.sign_in import SignInSteps, oauth_text
from bot.commands.text_format import POLICY_WORDS, format_ago, page_of, page_rows, server_label, shorten
from bot.commands.tool_review import withheld_tools
from bot.domain.commands import ActionStyle, Reply, ReplyAction, RequiredRole, Table, Verb
from bot.domain.conversations import ConversationKey
from bot.domain.pins import count_definitions
from bot.domain.servers import (
    EVERYWHERE,
    AuthenticationKind,
    HttpKind,
    HttpTransport,
    OAuthTerms,
    Protocol,
    ServerConfig,
    ServerRecord,
    ServerStatus,
    SessionScope,
    SessionSnapshot,
    StdioTransport,
    SyncStatus,
    TemplateLaunch,
)
from bot.domain.tools import Tool, ToolKind

# -------------------- server details


def server_details(record: ServerRecord, now: float) -> list[tuple[str, str]]:
    """Return the definition of an admin's server as plain text without secrets. `now` is in epoch seconds."""
    authentication, signs_in = record.authentication, ""
    match authentication.kind:
        case AuthenticationKind.BASIC:
            signs_in = "basic"
        case AuthenticationKind.HEADER | AuthenticationKind.API_KEY:
            signs_in = f"{authentication.kind.value}, in {authentication.header}"
        case AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS as kind:
            signs_in = oauth_text(OAuthTerms(kind, authentication.client_id, scope=authentication.scope))
        case AuthenticationKind.NONE:
            signs_in = "none"
    secrets = [
        (
            f"secret {slot}",
            "missing: it is still to be entered" if slot in record.missing else _secret_place(str(reference)),
        )
        for slot, reference in sorted(record.secrets.items())
    ]
    named = "variable" if isinstance(record.config.transport, StdioTransport) else "header"
    return [
        ("sign-in", signs_in),
        *((f"{named} {name}", value) for name, value in plain_values_of(record.config.transport)),
        *secrets,
        ("connects", "at the start" if record.config.auto_connect else "when needed"),
        ("for", "every workspace" if record.config.workspace == EVERYWHERE else "this workspace"),
        ("added", f"{format_ago(record.created_at, now)} by {record.created_by or 'somebody'}"),
        ("changed", f"{format_ago(record.updated_at, now)} by {record.updated_by}" if record.version > 1 else ""),
        ("version", str(record.version)),
    ]


def time_limits(config: ServerConfig) -> str:
    """Format the time limits of a server on one line."""
    single = "".join(f", {seconds:g} s for {tool}" for tool, seconds in config.tool_timeouts.items())
    longest = f"{config.tool_timeout_max:g} s with progress"
    connecting, first = (config.connect_seconds(known=known) for known in (True, False))
    at_first = "" if first == connecting else f" ({first:g} s the first time)"
    return f"{connecting:g} s to connect{at_first}, {config.tool_timeout:g} s a call{single}, {longest}"


def connection_facts(config: ServerConfig) -> list[tuple[str, str]]:
    """Return the settings of a server that are not the usual ones."""
    usual = ServerConfig(config.name, config.transport)
    retries = f"{config.connect_retries} within the time to connect" if config.connect_retries else ""
    group = f"{config.fallback_group}, place {config.fallback_order}" if config.fallback_group else ""
    return [
        ("reconnects", "" if config.reconnect is None else "yes" if config.reconnect else "no"),
        ("further attempts", retries),
        ("output limit", f"{config.output_limit:,} characters" if config.output_limit != usual.output_limit else ""),
        ("fallback group", group),
        ("tool names", config.tool_names.value if config.tool_names != usual.tool_names else ""),
    ]


def sessions_text(config: ServerConfig, sessions: Sequence[SessionSnapshot], now: float) -> str:
    """Format the sessions of a server on one line: how many are open in this process, and since when they are idle.
    Their users are not for everyone. Empty if all share one.
    """
    if config.sessions is SessionScope.SHARED:
        return ""
    counted = f"one per {config.sessions.value}, {len(sessions)} of {config.max_sessions} open in this process"
    running = sum(session.idle_since is None for session in sessions)
    idle = sorted(session.idle_since for session in sessions if session.idle_since is not None)
    unused = (
        f"idle ones last used {', '.join(format_ago(since, now) for since in idle[:_SHOWN_SESSIONS])}" if idle else ""
    )
    more = f" and {len(idle) - _SHOWN_SESSIONS} later" if len(idle) > _SHOWN_SESSIONS else ""
    return ", ".join(filter(None, (counted, f"{running} running a call" if running else "", unused + more)))


def _secret_place(reference: str) -> str:
    return "set" if reference == "stored" else reference


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
_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
"""Statuses of servers with known tools that are not usable."""


class ServerListing:
    """Verbs that show servers and their capabilities."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._sign_in_steps = sign_in_steps

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs for all users."""
        everyone = RequiredRole.EVERYONE
        return (
            VerbHandler(
                Verb("list", "every server and how it stands", (), everyone, ("ls", "servers", "status")), self._list
            ),
            VerbHandler(
                Verb("show", "one server in full", (SERVER,), everyone, ("info", "get", "describe")), self._show
            ),
            VerbHandler(
                Verb("tools", "the tools, and which of them ask first", (A_SERVER,), everyone, ("tool",)), self._tools
            ),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        async for reply in self._reply_until_settled(self._list_reply, request):
            yield reply

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        async for reply in self._reply_until_settled(self._show_reply, request):
            yield reply

    async def _tools(self, request: CommandContext) -> AsyncIterator[Reply]:
        async for reply in self._reply_until_synced(self._tools_reply, request):
            yield reply

    async def _reply_until_synced(
        self, answer: Callable[[CommandContext, list[VisibleServer]], Reply], request: CommandContext
    ) -> AsyncIterator[Reply]:
        """Reply at once, and again after servers without capabilities were synced."""
        servers = await self._requested_servers(request)
        yield answer(request, servers)
        if await self._directory.connect(servers):
            yield answer(request, await self._requested_servers(request))

    async def _reply_until_settled(
        self, answer: Callable[[CommandContext, list[VisibleServer]], Awaitable[Reply]], request: CommandContext
    ) -> AsyncIterator[Reply]:
        """Reply at once, and again after connecting servers have settled."""
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
        add = (ReplyAction("Add a server", ("mcp", "add"), ActionStyle.PRIMARY),) if administers else ()
        if not servers:
            file = f"put one in `{self._dependencies.file}` and use `/mcp reload`"
            how = f"Try `/mcp add`, or {file}." if administers else f"Ask {self._dependencies.rights.who} for one."
            return Reply(f"No servers yet. {how}", actions=add)
        page = page_rows(servers, request.arguments.page)
        rows = tuple(self._row(server, request.conversation) for server in page)
        trouble = sum(server.status in _TROUBLE for server in servers)
        notes = [(server.name, self._note(server, request)) for server in page]
        details = [(name, note) for name, note in notes if note]
        details += [
            (
                "checked",
                format_ago(max((_checked_at(server) for server in servers), default=0.0), self._dependencies.clock()),
            )
        ]
        files = ", ".join(server.name for server in servers if server.record is None)
        details += [(f"managed in {self._dependencies.file}", files)] if files else []
        return Reply(
            f"MCP servers · {len(servers)}" + (f" · {trouble} in trouble" if trouble else ""),
            Table(("server", "state", "transport", "tools", "policy"), rows),
            tuple(details),
            actions=(*add, *(await self._next_steps(page) if administers else ())),
            page=page_of(request.arguments.page, len(servers), ("mcp", "list")),
        )

    async def _next_steps(self, servers: Sequence[VisibleServer]) -> list[ReplyAction]:
        to_sign_in = await asyncio.gather(*(self._sign_in_steps.steps(server.config) for server in servers))
        steps: list[ReplyAction] = []
        for server, sign_in in zip(servers, to_sign_in, strict=True):
            steps += sign_in or ([_next_step(server)] if _is_off(server) else [])
        return steps

    def _row(self, server: VisibleServer, conversation: ConversationKey) -> tuple[str, ...]:
        tools = self._directory.capabilities(server).tools
        count = max(len(tools), server.state.tool_count if server.state else 0)
        writes = sum(not tool.read_only for tool in tools)
        return (
            f"{MARKS[server.status]} {server.name}",
            server.status.value,
            transport_word(server.config),
            f"{count} ({writes} write)" if writes else str(count),
            self._policies(tools, conversation),
        )

    def _note(self, server: VisibleServer, request: CommandContext) -> str:
        """Return the problem of a server with its fix, or the pending review."""
        return self._problem(server, request) or _sync_problem(server) or self._review_note(server)

    def _problem(self, server: VisibleServer, request: CommandContext) -> str:
        """Return the problem of a server, for admins: it may name addresses and references."""
        if not server.problem or self._dependencies.rights.administers(request.member):
            return server.problem
        return "only administrators are shown what is wrong"

    def _review_note(self, server: VisibleServer) -> str:
        """Return the number of withheld tools."""
        waiting = withheld_tools(self._dependencies.servers, server.id)
        if not waiting:
            return ""
        text = count_definitions(waiting).removesuffix(" tools").removesuffix(" tool")
        return f"{text} {'waits' if text == '1' else 'wait'} for review: /mcp review {server.name}"

    def _instructions(self, server: VisibleServer) -> str:
        """Return the known facts about the server's own instructions."""
        if not server.config.use_instructions:
            return ""
        instructions = self._directory.capabilities(server).instructions
        if instructions is None:
            return "to be used, and none are known"
        withheld = withheld_tools(self._dependencies.servers, server.id)
        if any(tool.kind is ToolKind.INSTRUCTIONS for tool in withheld):
            return f"not used, because they wait for review: /mcp review {server.name}"
        return f"used: {instructions.description}"

    def _policies(self, tools: Sequence[Tool], conversation: ConversationKey) -> str:
        """Return the policy of a server's tools in one word, or the count of each."""
        counts = Counter(
            POLICY_WORDS[self._dependencies.administration.policy_of(tool, conversation)] for tool in tools
        )
        if len(counts) <= 1:
            return next(iter(counts), "")
        return ", ".join(f"{count} {word}" for word, count in counts.most_common())

    async def _show_reply(self, request: CommandContext, servers: list[VisibleServer]) -> Reply:
        (server,) = servers
        administers = self._dependencies.rights.administers(request.member)
        facts = self._facts(server, request)
        if not administers:
            details = tuple((name, value) for name, value in (*facts, *_outer_facts(server.config)) if value)
            return Reply(f"MCP server {server_label(server.config)}", details=details)
        facts += [("by a browser", self._sign_in_steps.hint(server)), *await self._sign_in_steps.details(server)]
        details = tuple((name, value) for name, value in (*facts, *self._inner_facts(server)) if value)
        steps = (*await self._sign_in_steps.steps(server.config), *_steps(server))
        return Reply(f"MCP server {server_label(server.config)}", details=details, actions=steps)

    def _facts(self, server: VisibleServer, request: CommandContext) -> list[tuple[str, str]]:
        tools = self._directory.capabilities(server).tools
        state, now = server.state, self._dependencies.clock()
        count = max(len(tools), state.tool_count if state else 0)
        writes = sum(not tool.read_only for tool in tools)
        synced = (
            f"{server.sync.value}, {format_ago(state.synced_at, now)}"
            if state and state.synced_at
            else server.sync.value
        )
        return [
            ("title", server.config.title),
            ("description", server.config.description),
            ("state", server.status.value),
            ("problem", self._problem(server, request)),
            ("protocol", state.protocol if state else ""),
            ("server version", state.server_version if state else ""),
            ("connected", format_ago(state.connected_at, now) if state and state.connected_at else ""),
            ("tools", f"{count} ({writes} write)" if writes else str(count)),
            ("sessions", sessions_text(server.config, state.sessions if state else (), now)),
            ("review", self._review_note(server)),
            ("not offered", _left_out_note(server)),
            ("what is known", synced if server.sync is not SyncStatus.NEVER_SYNCED else ""),
            ("trusted", "yes" if server.config.trusted else "no: its hints lower no risk"),
            ("managed in", self._dependencies.file if server.record is None else "chat"),
        ]

    def _inner_facts(self, server: VisibleServer) -> list[tuple[str, str]]:
        config = server.config
        facts = endpoint_facts(config)
        if config.sign_in is not None:
            facts.append(("sign-in", oauth_text(config.sign_in)))
        if server.record is not None:
            facts += server_details(server.record, self._dependencies.clock())
        return [
            *facts,
            ("system instruction", config.system_instruction),
            ("response instruction", config.response_instruction),
            ("instructions of the server", self._instructions(server)),
            ("auto context tool", config.auto_context_tool),
            ("protocol, as set", "" if config.protocol is Protocol.AUTO else config.protocol.value),
            ("folders it may list", ", ".join(config.roots)),
            ("time limits", time_limits(config)),
            *connection_facts(config),
            ("id", config.id),
        ]

    def _tools_reply(self, request: CommandContext, servers: list[VisibleServer]) -> Reply:
        tools = [(server, tool) for server in servers for tool in self._directory.capabilities(server).tools]
        left_out = tuple(
            ("not offered", f"{server.name}: {note}") for server in servers if (note := _left_out_note(server))
        )
        if not tools:
            return Reply("No tools are offered now. `/mcp list` says why.", details=left_out)
        waiting = {tool.name for server in servers for tool in withheld_tools(self._dependencies.servers, server.id)}
        rows = tuple(
            (tool.name, risk(tool), self._tool_state(server, tool, waiting, request), _summary(tool))
            for server, tool in page_rows(tools, request.arguments.page)
        )
        reviews = tuple(("review", note) for server in servers if (note := self._review_note(server)))
        return Reply(
            f"Tools · {len(tools)}",
            Table(("tool", "risk", "policy", "what it does"), rows),
            (*reviews, *left_out),
            page=page_of(request.arguments.page, len(tools), _command_words("tools", request, servers)),
        )

    def _tool_state(self, server: VisibleServer, tool: Tool, waiting: Collection[str], request: CommandContext) -> str:
        """Return the policy or state of a tool in one or two words."""
        if server.status in _OFF:
            return str(server.status)
        if tool.name in waiting:
            return "waits for review"
        return POLICY_WORDS[self._dependencies.administration.policy_of(tool, request.conversation)]


def _left_out_note(server: VisibleServer) -> str:
    """Return the listed tools that cannot be offered, with the reasons."""
    reasons = server.state.left_out if server.state else ()
    more = f" and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
    return "; ".join(shorten(reason, _LONGEST_REASON) for reason in reasons[:_NAMED]) + more


def transport_word(config: ServerConfig) -> str:
    """Return the name of the transport."""
    match config.transport:
        case StdioTransport():
            return "stdio"
        case HttpTransport(kind=kind):
            return _TRANSPORT_NAMES[kind]


_TRANSPORT_NAMES = {
    HttpKind.STREAMABLE: "streamable HTTP",
    HttpKind.SSE: "HTTP+SSE",
    HttpKind.AUTO: "HTTP (auto)",
    HttpKind.JSONRPC: "JSON-RPC over HTTP",
}


def endpoint_facts(config: ServerConfig) -> list[tuple[str, str]]:
    """Return the address or command line of a server, for admins."""
    match config.transport:
        case StdioTransport(cwd=cwd, launch=TemplateLaunch(template)):
            return [("launch template", template), ("command", command_line(config)), ("folder", cwd or "")]
        case StdioTransport(command, args, _, cwd):
            return [("command", " ".join((command, *args))), ("folder", cwd or "")]
        case HttpTransport(url):
            return [("address", url)]


def risk(tool: Tool) -> str:
    """Return the risk of a tool in one word."""
    if tool.read_only:
        return "reads"
    return "destructive" if tool.destructive else "writes"


def _outer_facts(config: ServerConfig) -> list[tuple[str, str]]:
    return [("transport", transport_word(config))]


def _sync_problem(server: VisibleServer) -> str:
    return "its tools could not be asked for; what is known stays" if server.sync is SyncStatus.SYNC_FAILED else ""


def _checked_at(server: VisibleServer) -> float:
    state = server.state
    return max(state.synced_at or 0.0, state.connected_at or 0.0) if state else 0.0


def _is_off(server: VisibleServer) -> bool:
    return server.record is not None and server.status in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED, *_TROUBLE)


def _next_step(server: VisibleServer) -> ReplyAction:
    match server.status:
        case ServerStatus.DISABLED:
            return ReplyAction(f"Enable {server.name}", ("mcp", "enable", server.name))
        case ServerStatus.DISCONNECTED:
            return ReplyAction(f"Connect {server.name}", ("mcp", "connect", server.name))
        case _:
            return ReplyAction(f"Find out about {server.name}", ("mcp", "doctor", server.name))


def _steps(server: VisibleServer) -> tuple[ReplyAction, ...]:
    verify = ReplyAction("Verify", ("mcp", "verify", server.name))
    if server.record is None:
        return (verify,)
    disabled = server.status is ServerStatus.DISABLED
    switch = ("Enable", "enable") if disabled else ("Disable", "disable")
    return (
        verify,
        ReplyAction("Edit", ("mcp", "edit", server.name)),
        ReplyAction(switch[0], ("mcp", switch[1], server.name)),
        ReplyAction("Remove", ("mcp", "remove", server.name), ActionStyle.DANGER),
    )


def _command_words(verb: str, request: CommandContext, servers: list[VisibleServer]) -> tuple[str, ...]:
    return ("mcp", verb, servers[0].name) if request.arguments.get("server") else ("mcp", verb)


def _summary(tool: Tool) -> str:
    lines = tool.description.strip().splitlines()
    return shorten(tool.title or (lines[0] if lines else ""))


def _short(text: str) -> str:
    return shorten(text)

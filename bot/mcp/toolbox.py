"""MCP servers as one toolbox: the ports `Toolbox` and `ServerAdmin`.

It manages the configured servers, offers their tools and routes each call to its server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bot.domain.messages import ToolCall
from bot.domain.metrics import CacheUsed
from bot.domain.pins import ReviewPolicy
from bot.domain.secrets import SecretSpan
from bot.domain.servers import (
    EVERYWHERE,
    CompletionTarget,
    ConnectPolicy,
    DesiredServer,
    Piece,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerSnapshot,
    ServerStatus,
)
from bot.domain.tools import (
    INVALID_ARGUMENTS,
    ArgumentError,
    CallNotSent,
    CallReturned,
    ServerGuidance,
    Tool,
    ToolKind,
    ToolOutcome,
    ToolSet,
)
from bot.errors import NotFound, ServerTrouble
from bot.examination import Check
from bot.i18n import gettext_lazy, join_lazy, ngettext_lazy
from bot.mcp.argument_validation import group_by_argument, validate
from bot.mcp.doctor import RefusedBy, diagnose, never_refused
from bot.mcp.errors import cause_and_fix, error_message
from bot.mcp.oauth.tokens import TokenProviders
from bot.mcp.redaction import redacted_snapshot
from bot.mcp.registry import ManagedServer, ServerRegistry, choose_tools, named_by_server, stand_in
from bot.mcp.resource_tools import request_tools, template_error
from bot.mcp.results import failed_result
from bot.mcp.review import is_distinctive
from bot.mcp.server.connection import Connection
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.ports import CallContext

log = logging.getLogger(__name__)

LIBRARY_LOGGERS = ("mcp", "client")
"""Names of the MCP library's loggers."""

_TARGET = logging.getLogger(f"{__name__}.mcp")
_GENTLE_SECONDS = 15.0
_REPORT_SECONDS = 5.0
"""Seconds for the delivery of queued results. Together with the forced end of processes, closing takes less than
half a minute.
"""


class _DemotingHandler(logging.Handler):
    """Handler that demotes log records to DEBUG, redacted and shortened, without traceback. Whole messages are
    dropped.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        if not _TARGET.isEnabledFor(logging.DEBUG):
            return
        from bot.mcp.sdk import WHOLE_MESSAGES  # noqa: PLC0415 - a chat without connections never loads the library

        text = record.getMessage()
        if not text.startswith(WHOLE_MESSAGES):
            # Redact before the cut, because a part of a secret would not be recognized.
            _TARGET.debug("%s: %.500s", record.name, self._redact(text))


def contain_library_logs(redact: Callable[[str], str]) -> None:
    """Turn every log line of the MCP library into a redacted debug line. The library logs tracebacks for stray
    output, and whole messages. A second call replaces `redact`.
    """
    for name in LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        for handler in [item for item in logger.handlers if isinstance(item, _DemotingHandler)]:
            logger.removeHandler(handler)
        logger.addHandler(_DemotingHandler(redact))
        logger.propagate = False


class McpToolbox:
    """Toolbox of all managed servers.

    `entries` are the first servers; `reconcile` replaces them. `shared` are the dependencies of all connections; it has
    the secrets of every server. `first_wait`: seconds from the start in which an offer waits for first connections.
    `bearers` have the tokens of servers with OAuth. With `enabled=False` no server is started and no tool is offered. A
    server whose tools were listed less than `known_for` seconds ago is connected when it is used, not at the start.
    `refused` returns the reasons why models rejected a tool, by model.
    """

    def __init__(
        self,
        entries: Sequence[DesiredServer] = (),
        shared: ConnectionDependencies | None = None,
        *,
        enabled: bool = True,
        policy: ConnectPolicy = ConnectPolicy.AUTO,
        known_for: float = 0.0,
        first_wait: float = 10.0,
        bearers: TokenProviders | None = None,
        refused: RefusedBy = never_refused,
    ) -> None:
        self.enabled = enabled
        self._first_wait = first_wait
        self._first_wait_ends = 0.0
        self._closed = False
        self._shared = replace(shared or ConnectionDependencies(), names_beside=self._names_beside)
        if bearers is not None:
            self._shared = replace(self._shared, token_provider=bearers.provider_for)
        self._bearers = bearers
        self._servers = ServerRegistry(self._shared, policy, known_for)
        self._refused = refused
        if enabled:
            self._servers.reconcile(entries, _GENTLE_SECONDS)

    async def start(self) -> None:
        """Start connecting to the enabled servers, and return at once."""
        contain_library_logs(self._shared.secrets)
        self._first_wait_ends = asyncio.get_running_loop().time() + self._first_wait
        self._shared.sync_notifier.start()
        self._servers.start()

    async def close(self, limit: float = _GENTLE_SECONDS) -> None:
        """Close all connections and processes concurrently, gracefully for `limit` seconds. Later calls are
        CallNotSent.
        """
        self._closed = True
        await self._servers.close(limit)
        if self._bearers is not None:
            await self._bearers.close(min(limit, _REPORT_SECONDS))
        await self._shared.sync_notifier.close(min(limit, _REPORT_SECONDS))

    async def reconcile(self, entries: Sequence[DesiredServer]) -> None:
        """Manage exactly these servers. Returns at once; the next offers wait for new servers as after the start."""
        if not self.enabled or self._closed:
            return
        before = {managed.connection for managed in self._servers}
        self._servers.reconcile(entries, _GENTLE_SECONDS)
        if self._first_wait_ends and any(managed.connection not in before for managed in self._servers):
            self._first_wait_ends = asyncio.get_running_loop().time() + self._first_wait

    async def wait_ready(self) -> None:
        """Wait for the first attempt of each server, but only in the first seconds after the start."""
        if asyncio.get_running_loop().time() >= self._first_wait_ends:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._first_wait_ends):
                for managed in self._servers:
                    if managed.connection is not None:
                        await managed.connection.first_attempt_done()

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        """Return the tools of a workspace's servers and the global ones, by name, and a sentence for each
        unavailable server. Waits in the first seconds after the start, and for an attempt at a server that has failed
        before its tools were known.
        """
        await self.wait_ready()
        servers = self._in_workspace(workspace)
        connections = [managed.connection for managed in servers if managed.connection is not None]
        if unseen := [connection for connection in connections if connection.is_unseen]:
            await asyncio.gather(*(connection.look_again() for connection in unseen))
        tools, collisions = choose_tools(servers)
        names, groups = {tool.name for tool in tools}, self._fallback_groups
        for connection in connections:
            name, is_known = connection.config.name, connection.tracker.is_callable
            self._shared.observe(CacheUsed(name, "hit" if is_known else "miss"))
        by_server = (named_by_server(managed.config, tool, groups) for managed in servers for tool in managed.tools)
        return ToolSet(
            tools=tools,
            guidance=tuple(_guidance(servers, tools)),
            absent=(*self._absent(servers), *_collision_texts(servers, collisions)),
            unavailable=frozenset(managed.config.name for managed in servers if self._is_unavailable(managed)),
            withheld=frozenset(tool.name for managed in servers for tool in managed.withheld_definitions)
            - {*names, ToolKind.INSTRUCTIONS},
            excluded=frozenset(tool.name for managed in servers if managed.excluded for tool in managed.known) - names,
            requests=_requests(servers, names, groups),
            by_server=tuple(tool for tool in by_server if tool.name not in names),
        )

    async def confirm(self, server_id: str, context: CallContext) -> str:
        """Make sure that the server's tools are up to date in the session for this context. Return the reason if that
        fails, else an empty text.
        """
        managed = self._servers.get(server_id)
        return "" if managed is None or managed.sessions is None else await managed.sessions.confirm(context)

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. Invalid arguments are reported to the model and not sent."""
        managed = self._servers.get(tool.server_id)
        if managed is None:
            return CallNotSent(gettext_lazy("MCP server {server} not found.", server=tool.server))
        if managed.sessions is None:
            return CallNotSent(managed.problem or gettext_lazy("Server {server} is disabled.", server=tool.server))
        if reason := self.argument_error(tool, call):
            return CallReturned(failed_result(call.id, reason))
        outcome = await managed.sessions.call(tool, call, context)
        if isinstance(outcome, CallNotSent) and (other := stand_in(self._in_workspace(managed.config.workspace), tool)):
            # It is not sent there: policies and approvals are for one server.
            hint = gettext_lazy(
                "Server {server} has the same tool. Call it again to use that one.", server=other.server
            )
            return replace(outcome, reason=join_lazy(outcome.reason, hint))
        return outcome

    def argument_error(self, tool: Tool, call: ToolCall) -> str:
        """Return the error for invalid arguments, redacted; empty if they are valid or cannot be checked."""
        errors = validate(tool.input_schema, call.arguments)
        if not errors:
            return template_error(tool, call)
        listed = "\n".join(f"- {item}" for item in errors)
        text = join_lazy(INVALID_ARGUMENTS, f"Correct them and call it again:\n{listed}")
        managed = self._servers.get(tool.server_id)
        return text if managed is None else managed.redact(text)

    def validate(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        """Return the values that do not match a schema."""
        return group_by_argument(schema, values)

    def secret_spans(self, server_id: str, text: str) -> Sequence[SecretSpan]:
        """Return the positions of this server's secrets in a text, in order, without those that are easy to guess."""
        managed = self._servers.get(server_id)
        return () if managed is None else managed.redact.spans(text)

    def snapshot(self, server: str) -> ServerSnapshot:
        """Return one server, redacted. Raises NotFound."""
        managed = self._find(server)
        return _redact_snapshot(managed, self._collisions(managed.config.workspace))

    def servers(self) -> Sequence[ServerSnapshot]:
        """Return every server by name, redacted. One with an unreadable definition has no command and no address."""
        workspaces = {managed.config.workspace for managed in self._servers}
        collisions = {workspace: self._collisions(workspace) for workspace in workspaces}
        return [_redact_snapshot(managed, collisions[managed.config.workspace]) for managed in self._servers]

    def definition(self, server: str) -> ServerConfig:
        """Return a managed server with its secrets, which must not be shown. Raises NotFound."""
        return self._find(server).config

    def capabilities(self, server: str) -> ServerCapabilities:
        """Return a server's cached capabilities. Raises NotFound."""
        managed = self._find(server)
        return (managed.entry.synced if managed.connection is None else managed.connection.tracker.synced).capabilities

    @property
    def review(self) -> ReviewPolicy:
        """Policy for tools without a pinned definition."""
        return self._shared.review

    def by_server(self, tool: Tool) -> Tool:
        """Return a tool under a name that reaches it at its own server."""
        managed = self._servers.get(tool.server_id)
        return tool if managed is None else named_by_server(managed.config, tool, self._fallback_groups)

    def requests(self, server: str) -> Sequence[Tool]:
        """Return the resources and prompts of a server as tools. Raises NotFound."""
        tools = request_tools(self._find(server).config, self.capabilities(server))
        return [self.by_server(tool) for tool in tools]

    def unpinned_tools(self, server: str) -> Sequence[Tool]:
        """Return the tools that wait for a review. Raises NotFound."""
        return self._find(server).unpinned

    def refused_tools(self, server: str) -> Sequence[Tool]:
        """Return the tools with a refused definition. Raises NotFound."""
        return self._find(server).refused

    def is_pinned(self, tool: Tool) -> bool:
        """Return True if this definition is pinned."""
        managed = self._servers.get(tool.server_id)
        return (
            managed is not None
            and managed.connection is not None
            and managed.connection.tracker.pinning.is_pinned(tool)
        )

    async def connect(self, server: str) -> ServerSnapshot:
        """Connect now, unless it is connected. Return the new snapshot. Raises NotFound."""
        managed = self._find(server)
        if managed.connection is not None:
            managed.connection.tracker.calls.reset()
            await managed.connection.connect()
        # A removed one keeps its last state.
        managed = self._servers.get(server) or managed
        return _redact_snapshot(managed, self._collisions(managed.config.workspace))

    async def sync(self, server: str) -> ServerCapabilities:
        """Fetch all capabilities of a server and store them. Raises NotFound and ServerTrouble."""
        return await self._connection(server).sync()

    async def sync_all(self) -> None:
        """Sync all connected servers concurrently. Failures are recorded."""
        connections = [managed.connection for managed in self._servers if managed.status is ServerStatus.CONNECTED]

        async def sync(connection: Connection) -> None:
            with suppress(ServerTrouble):
                await connection.sync()

        await asyncio.gather(*(sync(connection) for connection in connections if connection is not None))

    def diagnose(self, server: str) -> AsyncGenerator[Check, None]:
        """Yield the checks of a managed server, with its tools and recent calls. Raises NotFound at once."""
        managed = self._find(server)
        return diagnose(
            managed, self._shared, self._collisions(managed.config.workspace).get(managed.config.id, ()), self._refused
        )

    async def read_resource(self, server: str, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises NotFound and ServerTrouble."""
        return await self._connection(server).read_resource(uri)

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Get a prompt. Raises NotFound and ServerTrouble."""
        return await self._connection(server).get_prompt(name, arguments)

    async def complete(self, server: str, of: CompletionTarget, given: Mapping[str, str]) -> Sequence[str]:
        """Return the server's suggestions for a value; none without an answer in time. Raises NotFound."""
        return await self._connection(server).complete(of, given)

    @property
    def _fallback_groups(self) -> frozenset[str]:
        return frozenset(managed.config.fallback_group for managed in self._servers if managed.config.fallback_group)

    def _in_workspace(self, workspace: str) -> list[ManagedServer]:
        return [managed for managed in self._servers if managed.config.workspace in (EVERYWHERE, workspace)]

    def _names_beside(self, config: ServerConfig) -> frozenset[str]:
        """Return the distinctive tool names of other servers in the same workspace."""
        return frozenset(
            name
            for managed in self._servers
            if managed.config.id != config.id and managed.config.workspace in (EVERYWHERE, config.workspace)
            for tool in managed.known
            for name in (tool.name, tool.original_name)
            if is_distinctive(name)
        )

    def _collisions(self, workspace: str) -> Mapping[str, Sequence[str]]:
        """Return the tools that are not offered because of their names, with the reason, by the id of their server."""
        return choose_tools(self._in_workspace(workspace))[1]

    def _find(self, server: str) -> ManagedServer:
        managed = self._servers.get(server)
        if managed is None:
            raise NotFound(
                gettext_lazy("There is no such MCP server."), gettext_lazy("List the servers to see which there are.")
            )
        return managed

    def _connection(self, server: str) -> Connection:
        managed = self._find(server)
        if managed.connection is None:
            disabled = gettext_lazy("Server {server} is disabled.", server=managed.config.name)
            raise error_message(managed.problem or cause_and_fix(disabled, gettext_lazy("enable it first")))
        return managed.connection

    @staticmethod
    def _is_unavailable(managed: ManagedServer) -> bool:
        return managed.entry.enablement is not ServerEnablement.DISABLED and not managed.is_callable

    def _absent(self, servers: Iterable[ManagedServer]) -> Iterable[str]:
        for managed in servers:
            name = managed.config.name
            if managed.withheld_definitions:
                yield _withheld_text(name, managed.withheld_definitions)
            if not self._is_unavailable(managed):
                continue
            match managed.status:
                case ServerStatus.DISCONNECTED if self._closed:
                    yield gettext_lazy("Server {server} is closed, because the program is ending.", server=name)
                case ServerStatus.DISCONNECTED:
                    cause = gettext_lazy("Server {server} is disconnected.", server=name)
                    yield cause_and_fix(cause, gettext_lazy("an admin can connect it again"))
                case ServerStatus.PENDING if not managed.started:
                    cause = gettext_lazy("Server {server} has not been connected yet.", server=name)
                    yield cause_and_fix(cause, gettext_lazy("an admin can connect it"))
                case _:
                    cause = gettext_lazy("Server {server} is still connecting.", server=name)
                    yield managed.snapshot.own_problem or cause_and_fix(cause, gettext_lazy("ask again in a moment"))


def _redact_snapshot(managed: ManagedServer, collisions: Mapping[str, Sequence[str]]) -> ServerSnapshot:
    snapshot = managed.snapshot
    left_out = (*snapshot.left_out, *collisions.get(managed.config.id, ()))
    return redacted_snapshot(replace(snapshot, left_out=left_out), managed.redact)


def _withheld_text(server: str, withheld: Sequence[Tool]) -> str:
    """Return the number of withheld tools, without their names: those are unreviewed text of the server."""
    tools = sum(tool.kind is not ToolKind.INSTRUCTIONS for tool in withheld)
    fix = gettext_lazy("/mcp review {server}", server=server)
    if not tools:
        cause = gettext_lazy(
            "The instructions of server {server} wait for an admin's review, because they are new or changed.",
            server=server,
        )
    elif tools == len(withheld):
        cause = ngettext_lazy(
            "A tool of server {server} waits for an admin's review, because it is new or changed.",
            "{n} tools of server {server} wait for an admin's review, because they are new or changed.",
            tools,
            server=server,
        )
    else:
        cause = ngettext_lazy(
            "{n} tool and the instructions of server {server} wait for an admin's review, because they are new or "
            "changed.",
            "{n} tools and the instructions of server {server} wait for an admin's review, because they are new or "
            "changed.",
            tools,
            server=server,
        )
    return cause_and_fix(cause, fix).as_clause()


def _requests(servers: Iterable[ManagedServer], names: Collection[str], groups: Collection[str]) -> tuple[Tool, ...]:
    """Return the resources and prompts of all servers that can be used now. A tool of that name comes first."""
    offered: dict[str, Tool] = {}
    for managed in servers:
        if managed.connection is not None and managed.connection.tracker.is_callable:
            for tool in request_tools(managed.config, managed.connection.tracker.synced.capabilities):
                named = named_by_server(managed.config, tool, groups)
                offered.setdefault(named.name, named)
    return tuple(offered[name] for name in sorted(offered.keys() - set(names)))


def _collision_texts(servers: Iterable[ManagedServer], collisions: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Return the number of tools that are not offered, without their names: those are text of the server."""
    for managed in servers:
        if count := len(collisions.get(managed.config.id, ())):
            cause = ngettext_lazy(
                "A tool of server {server} has the name of another server's.",
                "{n} tools of server {server} have names of another server's.",
                count,
                server=managed.config.name,
            )
            fix = gettext_lazy("/mcp show {server}, or tool_names = prefixed", server=managed.config.name)
            yield cause_and_fix(cause, fix).as_clause()


def _guidance(servers: Iterable[ManagedServer], offered: Iterable[Tool]) -> Iterable[ServerGuidance]:
    names = {(tool.server_id, tool.original_name): tool.name for tool in offered}
    for managed in servers:
        config = managed.config
        if managed.connection is None or not managed.connection.tracker.is_callable:
            continue
        context_tool = names.get((config.id, config.auto_context_tool), "")
        guidance = ServerGuidance(
            config.name,
            config.system_instruction,
            config.response_instruction,
            context_tool,
            config.description,
            managed.connection.tracker.pinning.instructions,
        )
        if guidance != ServerGuidance(config.name):
            yield guidance

"""Registry of the managed servers, its updates, and the choice among tools of the same name.

An unchanged server keeps its connection. A changed one gets a new connection, and a task of the registry closes the
old one.

Servers of one fallback group stand in for each other: of those that have the tool the first that is up offers it. The
tool names that server, so that policies, cards and the audit are about the one that gets the call. Between other
servers an equal name is a collision: the second one's tool is not offered. Shared servers come before those of a
workspace, and those of the operator's file before those of admins.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.domain.pins import WAITING, ReviewStatus, first_pins, review_status
from bot.domain.servers import (
    EVERYWHERE,
    ConnectPolicy,
    DesiredServer,
    ServerConfig,
    ServerEnablement,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
    ToolNaming,
)
from bot.domain.tools import Tool, ToolKind
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import check_definition, definition_fingerprint
from bot.mcp.errors import InvalidDefinition
from bot.mcp.redaction import Redaction
from bot.mcp.review import name_at_server, offered_name
from bot.mcp.server.connection import Connection
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.session_pool import SessionPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagedServer:
    """One managed server and its secrets. It has no sessions if it is disabled or invalid. `excluded` is True if
    its definition is invalid or not permitted.
    """

    entry: DesiredServer
    problem: str
    redact: Redaction
    sessions: SessionPool | None
    excluded: bool = False

    @property
    def connection(self) -> Connection | None:
        """The server's own connection."""
        return None if self.sessions is None else self.sessions.own

    @property
    def started(self) -> bool:
        """True after the first use of the server."""
        return self.connection is not None and self.connection.started

    @property
    def config(self) -> ServerConfig:
        """Definition of the server."""
        return self.entry.config

    @property
    def status(self) -> ServerStatus:
        """Current status."""
        if self.connection is not None:
            return self.connection.tracker.status
        return ServerStatus.DISABLED if self.entry.enablement is ServerEnablement.DISABLED else ServerStatus.FAILED

    @property
    def snapshot(self) -> ServerSnapshot:
        """Current snapshot of the server."""
        if self.sessions is not None:
            return self.sessions.snapshot
        known = self.entry.synced
        return ServerSnapshot(
            self.config,
            self.status,
            self.problem,
            own_problem=self.problem,
            tool_count=len(known.capabilities.tools),
            sync=known.status,
            synced_at=known.at,
            left_out=known.capabilities.left_out,
        )

    @property
    def is_callable(self) -> bool:
        """True if its tools may be called."""
        return self.connection is not None and self.connection.tracker.is_callable

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that may be called now, in the server's order, without those that wait for a review."""
        return self.connection.tracker.pinning.offered if self.connection is not None and self.is_callable else ()

    @property
    def withheld_definitions(self) -> tuple[Tool, ...]:
        """Everything that waits for an admin's review and could be called else, the instructions included."""
        if self.connection is None or not self.is_callable:
            return ()
        return self.connection.tracker.pinning.withheld_definitions

    @property
    def is_up(self) -> bool:
        """True if its tools may be called and nothing has failed since the last connection."""
        return self.connection is not None and self.connection.tracker.is_up

    @property
    def known(self) -> tuple[Tool, ...]:
        """All known tools."""
        synced = self.entry.synced if self.connection is None else self.connection.tracker.synced
        return synced.capabilities.tools

    @property
    def unpinned(self) -> tuple[Tool, ...]:
        """Tools, and instructions, that wait for a review."""
        if self.connection is not None:
            return self.connection.tracker.pinning.unpinned_tools
        return self._synced_as(*WAITING)

    @property
    def refused(self) -> tuple[Tool, ...]:
        """Tools, and instructions, with a refused definition."""
        if self.connection is not None:
            return self.connection.tracker.pinning.refused_tools
        return self._synced_as(ReviewStatus.REFUSED)

    def _synced_as(self, *statuses: ReviewStatus) -> tuple[Tool, ...]:
        definitions = self.entry.synced.capabilities.definitions
        pinned = first_pins(definitions) if self.entry.pinned is None else self.entry.pinned
        return tuple(tool for tool in definitions if review_status(tool, pinned) in statuses)


class ServerRegistry:
    """Managed servers by id. No connection is made before `start`. With ConnectPolicy.AUTO, servers whose tools were
    listed less than `known_for` seconds ago connect when they are used.
    """

    def __init__(self, shared: ConnectionDependencies, policy: ConnectPolicy, known_for: float = 0.0) -> None:
        self._shared = shared
        self._policy = policy
        self._known_for = known_for
        self._servers: dict[str, ManagedServer] = {}
        self._disconnecting: dict[SessionPool, asyncio.Task[None]] = {}
        self._started = False

    def __iter__(self) -> Iterator[ManagedServer]:
        return iter(tuple(self._servers.values()))

    def get(self, server_id: str) -> ManagedServer | None:
        """Return the server with this id, or None."""
        return self._servers.get(server_id)

    def start(self) -> None:
        """Connect to the enabled servers that connect before their first use, and to new ones from now on."""
        self._started = True
        for managed in self:
            self._start_connection(managed)

    def reconcile(self, entries: Sequence[DesiredServer], limit: float) -> None:
        """Manage exactly these servers. Removed ones are closed gracefully for `limit` seconds."""
        ordered = sorted(entries, key=lambda entry: (entry.config.name, entry.config.id))
        wanted = {entry.config.id: entry for entry in ordered}
        for server_id in self._servers.keys() - wanted.keys():
            self._disconnect(self._servers.pop(server_id), limit)
        for server_id, entry in wanted.items():
            before = self._servers.get(server_id)
            if before is None or before.sessions is None or not _same(before, entry):
                managed = self._create(entry)
            else:
                before.sessions.take_synced(entry.synced, entry.pinned)
                before.sessions.learn_sign_in(entry.signed_in)
                managed = replace(before, entry=entry)
            self._servers[server_id] = managed
            if before is not None and before.redact is not managed.redact:
                self._disconnect(before, limit)
            if self._started:
                self._start_connection(managed, used=before is not None and before.started)
        self._servers = {server_id: self._servers[server_id] for server_id in wanted}

    async def close(self, limit: float) -> None:
        """Close all connections concurrently, those of removed servers included."""
        present = [managed.sessions for managed in self if managed.sessions is not None]
        await asyncio.gather(*(sessions.close(limit) for sessions in (*present, *self._disconnecting)))
        if self._disconnecting:
            await asyncio.wait(self._disconnecting.values())

    def _create(self, entry: DesiredServer) -> ManagedServer:
        redact = self._shared.secrets.open(entry)
        problem, excluded = redact.clean(entry.problem), False
        try:
            check_definition(entry.config, self._shared.allowances)
        except InvalidDefinition as unusable:
            problem = problem or unusable.problem_of(entry.config.name)
            excluded = True
        if problem or entry.enablement is ServerEnablement.DISABLED:
            return ManagedServer(entry, problem, redact, None, excluded)
        disconnected = entry.enablement is ServerEnablement.DISCONNECTED
        sessions = SessionPool(
            entry.config, self._shared, redact, entry.synced, entry.pinned, disconnected=disconnected
        )
        return ManagedServer(entry, "", redact, sessions)

    def _start_connection(self, managed: ManagedServer, *, used: bool = False) -> None:
        """Connect to an enabled server that connects before its first use, or that was `used` before it changed."""
        wanted = (
            used
            or self._policy is ConnectPolicy.EAGER
            or (
                self._policy is ConnectPolicy.AUTO
                and managed.config.auto_connect
                and not (self._known_for and _known_age(managed.entry) < self._known_for)
            )
        )
        if wanted and managed.entry.enablement is ServerEnablement.ON and managed.connection is not None:
            managed.connection.start()

    def _disconnect(self, managed: ManagedServer, limit: float) -> None:
        sessions = managed.sessions
        self._shared.sync_notifier.drop_result(managed.config.id)
        if sessions is None:
            self._shared.secrets.close(managed.config.id, managed.redact)
            return
        # Also one that is unused yet, because a caller may hold it.
        sessions.detach()

        def forget(_task: asyncio.Task[None]) -> None:
            # Calls that were running may have shown its secrets until now.
            self._disconnecting.pop(sessions, None)
            self._shared.secrets.close(managed.config.id, managed.redact)

        task = asyncio.create_task(sessions.disconnect(limit), name=f"mcp:leaving:{managed.config.name}")
        self._disconnecting[sessions] = task
        task.add_done_callback(forget)


def _known_age(entry: DesiredServer) -> float:
    """Return the age in seconds of the server's stored tools; infinite if they may be those of an earlier definition,
    or if connecting may need a sign-in.
    """
    known, config = entry.synced, entry.config
    waits_for_person = config.sign_in is not None and not entry.signed_in
    is_other = known.capabilities.definition != definition_fingerprint(config)
    if known.at is None or known.status is not SyncStatus.SYNCED or waits_for_person or is_other:
        return math.inf
    # A time in the future is of a clock that was wrong.
    age = time.time() - known.at
    return age if age >= 0 else math.inf


def _same(before: ManagedServer, entry: DesiredServer) -> bool:
    """Return True if the connection may stay. A manual connection stays when the server is then enabled."""
    if entry.problem or before.config != entry.config:
        return False
    if before.entry.enablement is entry.enablement:
        return True
    is_connected_by_hand = before.entry.enablement is ServerEnablement.DISCONNECTED and before.started
    return is_connected_by_hand and entry.enablement is ServerEnablement.ON


# -------------------- tools of the same name


def choose_tools(servers: Iterable[ManagedServer]) -> tuple[tuple[Tool, ...], Mapping[str, Sequence[str]]]:
    """Return the tools to offer of servers that can be used now, sorted by name, so that equal tools give equal
    prompts; and the tools that are not because of a collision, by the id of their server, with the reason.
    """
    candidates: list[tuple[ManagedServer, Tool]] = []
    for group in _groups(managed for managed in servers if managed.tools):
        chosen: dict[str, tuple[ManagedServer, Tool]] = {}
        for managed in group:
            for tool in managed.tools:
                chosen.setdefault(tool.name, (managed, tool))
        candidates += chosen.values()
    # By its own server: joining a group gives no server the precedence of another member.
    candidates.sort(key=lambda candidate: _precedence(candidate[0]))
    offered: dict[str, Tool] = {}
    collisions: dict[str, list[str]] = {}
    for _, tool in candidates:
        if (first := offered.setdefault(tool.name, tool)) is not tool:
            reason = gettext_lazy(
                "{tool}: server {server} has a tool that the model knows as {name}",
                tool=tool.original_name,
                server=first.server,
                name=tool.name,
            )
            collisions.setdefault(tool.server_id, []).append(reason)
    return tuple(offered[name] for name in sorted(offered)), collisions


def named_by_server(config: ServerConfig, tool: Tool, groups: Collection[str]) -> Tool:
    """Return a tool of this server under a name that no other server's tool has: the name with its server, with digits
    if one of the fallback groups is called like the server.
    """
    if config.name in groups:
        return replace(tool, name=name_at_server(config.name, tool.original_name))
    if tool.kind is not ToolKind.CALL or not (config.fallback_group or config.tool_names is ToolNaming.PLAIN):
        return tool
    return replace(tool, name=offered_name(config.name, tool.original_name))


def stand_in(servers: Iterable[ManagedServer], tool: Tool) -> Tool | None:
    """Return the same tool of another server in the tool's fallback group that is up, or None."""
    for group in _groups(servers):
        if any(managed.config.id == tool.server_id for managed in group):
            others = (managed for managed in group if managed.config.id != tool.server_id and managed.is_up)
            return next((other for managed in others for other in managed.tools if other.name == tool.name), None)
    return None


def _groups(servers: Iterable[ManagedServer]) -> Sequence[Sequence[ManagedServer]]:
    """Return the servers of each fallback group, the one to be used first, and each other server alone."""
    groups: dict[str, list[ManagedServer]] = {}
    for managed in servers:
        # The id of a server has another form than the name of a group.
        groups.setdefault(managed.config.fallback_group or f"server {managed.config.id}", []).append(managed)
    for group in groups.values():
        group.sort(key=lambda managed: (not managed.is_up, managed.config.fallback_order, _precedence(managed)))
    return list(groups.values())


def _precedence(managed: ManagedServer) -> tuple[bool, bool, str, str]:
    config = managed.config
    return (config.workspace != EVERYWHERE, not config.from_file, config.name, config.id)

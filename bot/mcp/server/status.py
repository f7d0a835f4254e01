"""Status and capabilities of one server.

The `connection` and its `session` write them; each change wakes the waiting tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.domain.capabilities import ServerCapabilities
from bot.domain.metrics import MetricSink, SessionChanged, SessionEvent, null_sink
from bot.domain.pins import Pinned
from bot.domain.servers import CachedCapabilities, ServerConfig, ServerSnapshot, ServerStatus, SyncStatus
from bot.domain.tools import Tool
from bot.mcp.errors import Problem
from bot.mcp.review import ToolPinning
from bot.mcp.server.capabilities import apply_definition
from bot.mcp.server.output import NoiseCounter, ServerLog
from bot.mcp.server.retry import CircuitBreaker

log = logging.getLogger(__name__)

OnSynced = Callable[[str, ServerCapabilities], Awaitable[None]]
OnSyncFailed = Callable[[str, str], Awaitable[None]]
_LONGEST = 30.0
_OUT = frozenset((ServerStatus.AUTH_REQUIRED, ServerStatus.DISCONNECTED))


class SyncNotifier:
    """Notifier that delivers the newest result of each server, one server after the other. A failed delivery is
    logged.
    """

    def __init__(self, on_synced: OnSynced | None = None, on_sync_failed: OnSyncFailed | None = None) -> None:
        self._on_synced = on_synced
        self._on_sync_failed = on_sync_failed
        self._waiting: dict[str, ServerCapabilities | str] = {}
        self._news = asyncio.Event()
        self._ending = False
        self._teller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the delivery task."""
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell_all(), name="mcp:reports")

    def synced(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Queue the capabilities of a server."""
        self._put(server_id, capabilities)

    def sync_failed(self, server_id: str, problem: str) -> None:
        """Queue a failed sync of a server."""
        self._put(server_id, problem)

    def forget(self, server_id: str) -> None:
        """Drop the queued result of a removed or changed server."""
        self._waiting.pop(server_id, None)

    async def close(self, limit: float) -> None:
        """Deliver the queued results, at most `limit` seconds."""
        self._ending = True
        self._news.set()
        if self._teller is None:
            return
        done, _ = await asyncio.wait({self._teller}, timeout=limit)
        if not done:
            self._teller.cancel()
            await asyncio.wait({self._teller})

    def _put(self, server_id: str, report: ServerCapabilities | str) -> None:
        self._waiting[server_id] = report
        self._news.set()

    async def _tell_all(self) -> None:
        while True:
            while self._waiting:
                server_id = next(iter(self._waiting))
                await self._tell(server_id, self._waiting.pop(server_id))
            if self._ending:
                return
            self._news.clear()
            await self._news.wait()

    async def _tell(self, server_id: str, report: ServerCapabilities | str) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                if isinstance(report, str):
                    if self._on_sync_failed is not None:
                        await self._on_sync_failed(server_id, report)
                elif self._on_synced is not None:
                    await self._on_synced(server_id, report)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connections go on
            log.warning("capabilities of MCP server %s were not stored: %s", server_id, type(error).__name__)


class ServerStatusTracker:
    """Status of one server. `synced` are its cached capabilities. A `disconnected` server stays so until an admin
    connects it. `left_out` are reasons why tools cannot be offered.
    """

    def __init__(
        self,
        config: ServerConfig,
        synced: CachedCapabilities,
        reports: SyncNotifier,
        pinning: ToolPinning,
        breaker: CircuitBreaker,
        *,
        junk: NoiseCounter,
        words: ServerLog,
        disconnected: bool,
        observe: MetricSink = null_sink,
    ) -> None:
        self.config = config
        self.left_out: tuple[str, ...] = ()
        self.pinning = pinning
        self.breaker = breaker
        self.junk = junk
        self.words = words
        self._synced = _with_definition(synced, config)
        pinning.know(self._synced.capabilities.tools)
        at_rest = ServerStatus.IDLE if self.known else ServerStatus.PENDING
        self._state = ServerSnapshot(config, ServerStatus.DISCONNECTED if disconnected else at_rest)
        self._reports = reports
        self._observe = observe
        self._silent = False
        self._withdrawn = disconnected
        self._changed = asyncio.Event()

    @property
    def state(self) -> ServerSnapshot:
        """Current snapshot of the server."""
        known = self._synced.capabilities
        return replace(
            self._state,
            sync=self._synced.status,
            synced_at=self._synced.at,
            tool_count=len(known.tools),
            server_version=known.server_version,
            protocol=known.protocol,
        )

    @property
    def status(self) -> ServerStatus:
        """Status word."""
        return self._state.status

    @property
    def problem(self) -> str:
        """Sentence with cause and fix; empty without a problem."""
        return self._state.problem

    @property
    def synced(self) -> CachedCapabilities:
        """Cached capabilities and their time."""
        return self._synced

    @property
    def known(self) -> bool:
        """True if the capabilities have been fetched at least once."""
        return self._synced.at is not None

    @property
    def connect_limit(self) -> float:
        """Current connect timeout in seconds."""
        return self.config.connect_seconds(known=self.known)

    @property
    def is_callable(self) -> bool:
        """True if its tools may be called: the server is connected, or its tools are known and a connection may be
        made.

        A failed server stays callable and is connected by the call, so that the offered tools do not change too
        often. With an open circuit breaker it is not callable.
        """
        if self.status is ServerStatus.CONNECTED:
            return True
        return self.known and not self._withdrawn and not self.breaker.left

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that may be called, in the server's order, without those that wait for a review."""
        return self.pinning.offered if self.is_callable else ()

    @property
    def withheld(self) -> frozenset[str]:
        """Names of tools that wait for an admin's review."""
        return self.pinning.withheld if self.is_callable else frozenset()

    def rejection_reason(self, tool: Tool) -> str:
        """Return the reason why an offered tool must not be called now; empty if there is none."""
        listed = self._synced.capabilities.tools
        now = next((entry for entry in listed if entry.original_name == tool.original_name), tool)
        if now.name in self.pinning.withheld:
            return f"{tool.name} is new or has changed, and an admin has to review it first."
        if now != tool and now.definition != tool.definition:
            return f"{tool.name} has changed since it was asked for. Ask for it once more."
        return ""

    async def change(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def detach(self) -> None:
        """Stop reporting, because the server is removed or replaced."""
        self._silent = True
        self.notify()

    def update_cache(self, synced: CachedCapabilities) -> None:
        """Take over capabilities that another process has synced. Those of a live connection take precedence."""
        if self.status is ServerStatus.CONNECTED or (synced.at or 0.0) <= (self._synced.at or 0.0):
            return
        self._synced = _with_definition(synced, self.config)
        self.pinning.compare(self._synced.capabilities.tools)
        if self.status is ServerStatus.PENDING:
            self._become(ServerSnapshot(self.config, ServerStatus.IDLE))

    def learn_pins(self, pinned: Pinned | None) -> bool:
        """Take over the pins. Return True if offered tools are withheld now."""
        fewer = self.pinning.learn(pinned)
        self.notify()
        return fewer

    def mark_connecting(self) -> None:
        """Record the start of an attempt to connect."""
        self._become(replace(self._state, status=ServerStatus.CONNECTING))

    def listed(self, capabilities: ServerCapabilities) -> None:
        """Record the connection and its tools. Other capabilities stay."""
        self._synced = replace(self._synced, capabilities=capabilities)
        self.pinning.compare(capabilities.tools)
        wanted = self.config.auto_context_tool
        if wanted and all(tool.original_name != wanted for tool in capabilities.tools):
            log.warning("MCP server %s has no tool %s for its auto_context_tool", self.config.name, wanted)
        since = self._state.connected_at if self.status is ServerStatus.CONNECTED else time.time()
        self._withdrawn = False
        self.breaker.works()
        self._become(
            ServerSnapshot(
                self.config,
                ServerStatus.CONNECTED,
                protocol=capabilities.protocol,
                tool_count=len(capabilities.tools),
                connected_at=since,
            )
        )

    def syncing(self) -> None:
        """Record the start of a sync."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCING)

    def sync_succeeded(self, capabilities: ServerCapabilities) -> None:
        """Record all capabilities."""
        self._synced = CachedCapabilities(SyncStatus.SYNCED, capabilities, time.time())
        if not self._silent:
            self._reports.synced(self.config.id, capabilities)
        self.notify()

    def sync_confirmed(self) -> None:
        """Record a sync without changes."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCED, at=time.time())
        self.notify()

    def sync_failed(self, problem: str) -> None:
        """Record a failed sync."""
        self._synced = replace(self._synced, status=SyncStatus.SYNC_FAILED, problem=problem)
        if not self._silent:
            self._reports.sync_failed(self.config.id, problem)
        self.notify()

    def failed(self, status: ServerStatus, problem: Problem) -> None:
        """Record the end of a connection, or a failed attempt."""
        self._become(ServerSnapshot(self.config, status, problem.text, own_problem=problem.own))

    def mark_idle(self) -> None:
        """Record the end of an idle connection; the next use connects again."""
        self._become(ServerSnapshot(self.config, ServerStatus.IDLE))

    def ended(self) -> None:
        """Record that the connection was closed by request."""
        self._become(ServerSnapshot(self.config, ServerStatus.DISCONNECTED))

    def _become(self, state: ServerSnapshot) -> None:
        before, self._state = self._state, state
        if state.status in _OUT:
            self._withdrawn = True
        if (before.status, before.problem, before.tool_count) != (state.status, state.problem, state.tool_count):
            _log(before, state)
        if (event := _session_event(before.status, state.status)) is not None:
            self._observe(SessionChanged(self.config.name, event))
        self.notify()


def _with_definition(synced: CachedCapabilities, config: ServerConfig) -> CachedCapabilities:
    """Return the cached capabilities with the current definition of the server applied."""
    tools = tuple(apply_definition(tool, config) for tool in synced.capabilities.tools)
    return replace(synced, capabilities=replace(synced.capabilities, tools=tools))


def _session_event(before: ServerStatus, after: ServerStatus) -> SessionEvent | None:
    """Return the session event of a status change, or None."""
    connected = before is ServerStatus.CONNECTED
    match after:
        case ServerStatus.CONNECTED if not connected:
            return "created"
        case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
            return "error"
        case ServerStatus.DISCONNECTED | ServerStatus.IDLE if connected:
            return "closed"
        case _:
            return None


def _log(before: ServerSnapshot, state: ServerSnapshot) -> None:
    match state.status:
        case ServerStatus.CONNECTED:
            log.info("MCP server %s: connected, tools: %d, %s", state.config.name, state.tool_count, state.protocol)
        case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED if state.problem != before.problem:
            log.warning("MCP server %s: %s", state.config.name, state.problem)
        case _:
            log.debug("MCP server %s: %s", state.config.name, state.status)

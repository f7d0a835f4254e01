"""How one server stands and what is known of its offers.

Written by its `connection` and `session`, read by the toolbox. What changes wakes whoever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from bot.domain.capabilities import ServerCapabilities
from bot.domain.metrics import MetricSink, SessionChanged, SessionEvent, null_sink
from bot.domain.pins import Pinned
from bot.domain.servers import CachedCapabilities, ServerConfig, ServerSnapshot, ServerStatus, SyncStatus
from bot.domain.tools import Tool
from bot.mcp.capability_fetch import apply_definition
from bot.mcp.circuit_breaker import CircuitBreaker
from bot.mcp.errors import Problem
from bot.mcp.protocol_noise import NoiseCounter
from bot.mcp.server_log import ServerLog
from bot.mcp.sync_notifier import SyncNotifier
from bot.mcp.tool_pinning import ToolPinning

log = logging.getLogger(__name__)

_OUT = frozenset((ServerStatus.AUTH_REQUIRED, ServerStatus.DISCONNECTED))


class ServerStatusTracker:
    """One server's condition. `synced` is what was stored of it. A `disconnected` server stays so until somebody
    connects it. `left_out` is what of its tools cannot be offered, in a few words each.
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
        self._synced = _as_defined(synced, config)
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
        """How the server stands now."""
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
        """The word for it."""
        return self._state.status

    @property
    def problem(self) -> str:
        """A sentence with cause and fix, empty while all is well."""
        return self._state.problem

    @property
    def synced(self) -> CachedCapabilities:
        """What is known of the server's offers, and since when."""
        return self._synced

    @property
    def known(self) -> bool:
        """The server has once said what it offers."""
        return self._synced.at is not None

    @property
    def connect_limit(self) -> float:
        """How long, in seconds, connecting may take now."""
        return self.config.connect_seconds(known=self.known)

    @property
    def is_callable(self) -> bool:
        """Its tools may be called: it is connected, or its tools are known and nothing speaks against connecting. One
        that has failed is connected to by the call, so that what the model is offered does not come and go; one that
        keeps failing offers nothing.
        """
        if self.status is ServerStatus.CONNECTED:
            return True
        return self.known and not self._withdrawn and not self.breaker.left

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools while they may be called, in its own order, without those that wait for an admin."""
        return self.pinning.offered if self.is_callable else ()

    @property
    def withheld(self) -> frozenset[str]:
        """The names of tools that could be called if they did not wait for an admin."""
        return self.pinning.withheld if self.is_callable else frozenset()

    def rejection_reason(self, tool: Tool) -> str:
        """Why a tool that was offered must not be called as it is listed now; empty if nothing is against it."""
        listed = self._synced.capabilities.tools
        now = next((each for each in listed if each.original_name == tool.original_name), tool)
        if now.name in self.pinning.withheld:
            return f"{tool.name} is new or has changed, and an admin has to review it first."
        if now != tool and now.definition != tool.definition:
            return f"{tool.name} has changed since it was asked for. Ask for it once more."
        return ""

    async def change(self) -> None:
        """Wait until something is different."""
        await self._changed.wait()

    def notify(self) -> None:
        """Let everybody who waits look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def detach(self) -> None:
        """Report nothing any more: the server is gone, or another one now."""
        self._silent = True
        self.notify()

    def update_cache(self, synced: CachedCapabilities) -> None:
        """Somebody else has asked the server. What a live connection knows counts more."""
        if self.status is ServerStatus.CONNECTED or (synced.at or 0.0) <= (self._synced.at or 0.0):
            return
        self._synced = _as_defined(synced, self.config)
        self.pinning.compare(self._synced.capabilities.tools)
        if self.status is ServerStatus.PENDING:
            self._become(ServerSnapshot(self.config, ServerStatus.IDLE))

    def learn_pins(self, pinned: Pinned | None) -> bool:
        """An admin may have pinned other definitions; whether tools are withheld now that were offered."""
        fewer = self.pinning.learn(pinned)
        self.notify()
        return fewer

    def mark_connecting(self) -> None:
        """It is being connected to."""
        self._become(replace(self._state, status=ServerStatus.CONNECTING))

    def listed(self, capabilities: ServerCapabilities) -> None:
        """It is connected and its tools are known; the rest is as it was."""
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
        """Everything is being asked for."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCING)

    def sync_succeeded(self, capabilities: ServerCapabilities) -> None:
        """Everything is known."""
        self._synced = CachedCapabilities(SyncStatus.SYNCED, capabilities, time.time())
        if not self._silent:
            self._reports.synced(self.config.id, capabilities)
        self.notify()

    def sync_confirmed(self) -> None:
        """Everything was asked for again, and is as it was."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCED, at=time.time())
        self.notify()

    def sync_failed(self, problem: str) -> None:
        """It could not be found out."""
        self._synced = replace(self._synced, status=SyncStatus.SYNC_FAILED, problem=problem)
        if not self._silent:
            self._reports.sync_failed(self.config.id, problem)
        self.notify()

    def failed(self, status: ServerStatus, problem: Problem) -> None:
        """A connection ended, or could not be made."""
        self._become(ServerSnapshot(self.config, status, problem.text, own_problem=problem.own))

    def mark_idle(self) -> None:
        """It was connected, nobody has used it for long, and the next use connects it."""
        self._become(ServerSnapshot(self.config, ServerStatus.IDLE))

    def ended(self) -> None:
        """Nobody keeps it connected any more."""
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


def _as_defined(synced: CachedCapabilities, config: ServerConfig) -> CachedCapabilities:
    """What was stored of a server, as it is defined now."""
    tools = tuple(apply_definition(tool, config) for tool in synced.capabilities.tools)
    return replace(synced, capabilities=replace(synced.capabilities, tools=tools))


def _session_event(before: ServerStatus, after: ServerStatus) -> SessionEvent | None:
    """What has become of a session, if anything has."""
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

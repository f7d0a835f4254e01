"""Services of administration: stores, connections, rules and commands, kept in line with the database.

The runtime uses them for turns; `countersign servers` and the doctor use them without an engine.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.app.links import build_link_service
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import UsableSecrets, secret_box
from bot.commands.dependencies import CommandDependencies, Rights
from bot.commands.registry import CommandRegistry
from bot.domain.api_clients import OPERATOR_PRINCIPAL
from bot.domain.conversations import Member
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.servers import ConnectPolicy
from bot.domain.turns import TurnLimits
from bot.engine.policy.rules import Approvers, RuleBook
from bot.engine.prompt.tool_selection import RefusedTools
from bot.engine.usage import UsageLimiter
from bot.logs import redact_logs
from bot.mcp.hosts import read_hosts
from bot.settings import Settings, read_environment

if TYPE_CHECKING:
    from bot.app.config_reload import ConfigReloader
    from bot.app.stores import Stores
    from bot.mcp.oauth import TokenProviders
    from bot.mcp.redaction import KnownSecrets
    from bot.mcp.toolbox import McpToolbox
    from bot.storage.database import Database
    from bot.storage.turn_log import SqlTurnLog


from collections import Counter
from collections.abc import Awaitable, Collection, Iterable
from time import monotonic

from bot.domain.health import Health, ListenerStatus, ServersHealth
from bot.domain.metrics import CacheUsed, MetricEvent, ProcessCounters, SessionChanged
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.errors import DatabaseError, DatabaseUnwritable
from bot.mcp.server.retry import ConnectionTiming
from bot.ports import Listener

# -------------------- health

DATABASE_SECONDS = 2.0
FRESH_SECONDS = 1.0
"""Shortest time in seconds between two database checks."""
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)


@dataclass(frozen=True, slots=True)
class _DatabaseHealth:
    """Result of the last database check."""

    answers: bool
    unwritable: str = ""
    fix: str = ""


class HealthCheck:
    """Health check of the process. `ask` writes a small row to the database (`Database.check_writable`), `servers`
    returns the state of the MCP servers, `watch` adds listeners.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        servers: Callable[[], Iterable[ServerSnapshot]],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ask = ask
        self._servers = servers
        self._clock = clock
        self._listeners: dict[str, Listener] = {}
        self._checkpoints_fail: Callable[[], bool] = lambda: False
        self._asking = asyncio.Lock()
        self._answer = _DatabaseHealth(answers=False)
        self._asked_at = -FRESH_SECONDS

    def watch(self, platform: str, listener: Listener) -> None:
        """Include a platform's listener."""
        self._listeners[platform] = listener

    def watch_checkpoints(self, fail: Callable[[], bool]) -> None:
        """Include the checkpoints of the audit; `fail` returns True while they cannot be written."""
        self._checkpoints_fail = fail

    async def look(self) -> Health:
        """Return the current health within a few seconds. Never raises."""
        platforms: dict[str, ListenerStatus] = {name: await each.listening() for name, each in self._listeners.items()}
        database = await self._database_health()
        return Health(
            database.answers,
            platforms,
            _counted(self._servers()),
            unwritable=database.unwritable,
            fix=database.fix,
            checkpoints_fail=self._checkpoints_fail(),
        )

    async def _database_health(self) -> _DatabaseHealth:
        async with self._asking:
            if self._clock() - self._asked_at >= FRESH_SECONDS:
                self._answer = await self._asked_now()
                self._asked_at = self._clock()
            return self._answer

    async def _asked_now(self) -> _DatabaseHealth:
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                await self._ask()
        except DatabaseUnwritable as error:
            return _DatabaseHealth(answers=True, unwritable=error.reason, fix=error.fix)
        except (DatabaseError, TimeoutError) as error:
            log.debug("database check failed: %s", error or "no answer")
            return _DatabaseHealth(answers=False)
        return _DatabaseHealth(answers=True)


def _counted(states: Iterable[ServerSnapshot]) -> ServersHealth:
    stands = [state.status for state in states]
    return ServersHealth(
        total=len(stands),
        connected=stands.count(ServerStatus.CONNECTED),
        errors=sum(status in _IN_TROUBLE for status in stands),
    )


# -------------------- session counters


class SessionCounters:
    """Counters of MCP sessions in this process, for `/mcp stats`. Every event is passed on to `observe`."""

    def __init__(self, observe: MetricSink) -> None:
        self._observe = observe
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._cache: Counter[tuple[str, str]] = Counter()

    def observe(self, measurement: MetricEvent) -> None:
        """Count an event of a server; pass every event on."""
        match measurement:
            case SessionChanged(server, event):
                self._sessions[server, event] += 1
            case CacheUsed(server, event):
                self._cache[server, event] += 1
            case _:
                pass
        self._observe(measurement)

    def of(self, servers: Collection[str]) -> ProcessCounters:
        """Return the counters of these servers, given by slug."""
        return ProcessCounters(_summed(self._sessions, servers), _summed(self._cache, servers))


def _summed(counts: Counter[tuple[str, str]], servers: Collection[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (server, event), count in counts.items():
        if server in servers:
            found[event] += count
    return found


# -------------------- connection timing


def connection_timing(settings: Settings) -> ConnectionTiming:
    """Return the reconnect and idle times of all connections."""
    pacing = ConnectionTiming(
        first_pause=settings.mcp_reconnection_initial_delay_ms / 1_000,
        factor=settings.mcp_reconnection_multiplier,
        longest_pause=settings.mcp_reconnection_max_delay_ms / 1_000,
        tries=settings.mcp_reconnection_max_attempts,
        idle_after=settings.mcp_session_idle_timeout,
        quiet_after=settings.mcp_healthcheck_interval,
    )
    return pacing if settings.mcp_reconnection_enabled else pacing.without_reconnecting()


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppServices:
    """Services of administration and the components derived from them."""

    toolbox: McpToolbox
    rules: RuleBook
    administration: ConfigReloader
    commands: CommandRegistry
    command_parts: CommandDependencies
    stores: Stores
    rights: Rights
    health: HealthCheck
    refused: RefusedTools
    spending: UsageLimiter
    takes_writes: Callable[[], bool]


@asynccontextmanager
async def open_services(
    settings: Settings,
    files: OperatorFiles,
    database: Database,
    *,
    operator: str,
    connect: ConnectPolicy,
    observe: MetricSink = null_sink,
) -> AsyncIterator[AppServices]:
    """Build the services, apply the stored configuration, and connect the servers in `connect`. Raises
    CountersignError.
    """
    stores, toolboxes, administrations, logs_of_turns = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.app.stores", "bot.mcp.toolbox", "bot.app.config_reload", "bot.storage.turn_log")
        )
    )
    # Not in parallel with the toolbox: two threads that import the MCP library at once may each see a partial
    # module.
    signing_in = await asyncio.to_thread(importlib.import_module, "bot.app.sign_ins")
    signatories = Approvers(settings.admins, settings.approvers, operator)
    kept: Stores = stores.build_stores(
        database,
        secret_box(settings),
        UsableSecrets(settings, read_environment()),
        lambda: administration.files.secret_grants,
        TurnLimits(settings.max_running_turns_per_user, settings.max_queued_turns_per_user),
    )
    secrets: KnownSecrets = toolboxes.KnownSecrets(settings.secrets)
    redact_logs(secrets)
    allowances = toolboxes.AllowedTargets(
        settings.mcp_allowed_hosts,
        settings.mcp_allowed_commands,
        lambda: administration.files.launches.templates,
        settings.mcp_allowed_servers,
    )
    bearers: TokenProviders = signing_in.token_providers(kept, secrets, allowances)
    tally, refused = SessionCounters(observe), RefusedTools()
    toolbox: McpToolbox = toolboxes.McpToolbox(
        enabled=settings.mcp_enabled,
        policy=connect,
        secrets=secrets,
        allowances=allowances,
        on_synced=kept.servers.save_capabilities,
        on_sync_failed=kept.servers.save_sync_failure,
        observe=tally.observe,
        review=settings.mcp_review,
        pacing=connection_timing(settings),
        bearers=bearers,
        refused=refused.reasons,
    )
    rules = RuleBook(files.policies, signatories, toolbox.reviewed, read_hosts)
    administration: ConfigReloader = administrations.ConfigReloader(
        kept.servers,
        kept.pins,
        kept.policies,
        kept.profiles,
        toolbox,
        rules,
        files,
        lambda: read_operator_files(settings),
        allowances,
        kept.sign_ins,
    )
    turn_log: SqlTurnLog = logs_of_turns.SqlTurnLog(database)
    health = HealthCheck(database.check_writable, toolbox.servers)

    def operates(member: Member) -> bool:
        return bool(operator) and member.author.principal == operator

    spending = UsageLimiter(files.limits, kept.usage, files.prices.currency)
    linking = build_link_service(settings, kept.links)

    def vouches(member: Member) -> bool:
        return operates(member) or member.author.principal == OPERATOR_PRINCIPAL

    rights = Rights(signatories.administers, operates, vouches, _who(signatories))
    parts = CommandDependencies(
        servers=toolbox,
        administration=administration,
        rights=rights,
        server_store=kept.servers,
        pins=kept.pins,
        policies=kept.policies,
        profiles=kept.profiles,
        archive=kept.archive,
        grants=kept.grants,
        recent_turns=turn_log.recent_turns,
        health=health.look,
        process_counters=tally.of,
        usage=kept.usage,
        usage_limits=spending.statuses,
        file=str(settings.mcp_servers_file),
        admits=allowances.admits,
        links=linking,
        sign_ins=signing_in.build_sign_ins(linking, toolbox, bearers),
        templates=allowances.templates,
    )
    async with AsyncExitStack() as stack:
        await administration.refresh()
        await toolbox.start()
        stack.push_async_callback(toolbox.close)
        yield AppServices(
            toolbox,
            rules,
            administration,
            CommandRegistry(parts),
            parts,
            kept,
            rights,
            health,
            refused,
            spending,
            lambda: database.takes_writes,
        )


def _who(signatories: Approvers) -> str:
    """Return the text that names the admins for users who are not."""
    return ", ".join(sorted(signatories.admins)) or "an administrator"

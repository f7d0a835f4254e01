"""Everything that is administered, built and kept at what is on disk: stores, connections, rules, commands.

The house needs it for turns, and `countersign servers` and the doctor need it without any.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.app.connection_timing import connection_timing
from bot.app.health import HealthCheck
from bot.app.links import build_link_service
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import UsableSecrets, secret_box
from bot.app.session_counters import SessionCounters
from bot.commands.dependencies import CommandDependencies, Rights
from bot.commands.registry import CommandRegistry
from bot.domain.api_clients import OPERATOR_PRINCIPAL
from bot.domain.conversations import Member
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.servers import ConnectPolicy
from bot.domain.turns import TurnLimits
from bot.engine.policy import Approvers
from bot.engine.rules import RuleBook
from bot.engine.tool_selection import RefusedTools
from bot.engine.usage_limits import UsageLimiter
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

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppServices:
    """What administering takes, and what follows from it."""

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
    """Build it, take over what is on disk, and let the servers connect that `connect` says. Raises CountersignError."""
    stores, toolboxes, administrations, logs_of_turns = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.app.stores", "bot.mcp.toolbox", "bot.app.config_reload", "bot.storage.turn_log")
        )
    )
    # Not beside the toolbox: two threads that load the MCP library at once may each find half of it.
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
        recent=turn_log.recent_turns,
        health=health.look,
        since_start=tally.of,
        usage=kept.usage,
        balances=spending.statuses,
        file=str(settings.mcp_servers_file),
        admits=allowances.admits,
        linking=linking,
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
    """Whom people turn to who may not administer."""
    return ", ".join(sorted(signatories.admins)) or "an administrator"

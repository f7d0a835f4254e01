"""The engine with all of its components, built in order, run, and closed in reverse order.

    `open_services`  turn log and stores → secrets → toolbox → rules → commands, without an engine
    `open_runtime`   database → services → models → engine → background loops

`bot.app.service` adds platforms and the web to a runtime, for `countersign run`; `countersign chat` opens one with the
terminal as its surface. Components get plain values and each other. This module loads the libraries of the database and
of MCP: a process that has something to show at once imports it in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from bot.admin.dependencies import AdminStores, CommandDependencies, OperatorTerms, Rights, RunningProcess
from bot.admin.registry import CommandRegistry
from bot.app.audit import latest_report
from bot.app.components import AppServices, Runtime
from bot.app.config_reload import ConfigReloader
from bot.app.database import open_checkpointed_database
from bot.app.models import select_model
from bot.app.operations import operations_tasks
from bot.app.operator_files import OperatorFiles
from bot.app.process import HealthCheck, SessionCounters, name_of_this_process
from bot.app.slack import is_named_in as is_slack_name_in
from bot.app.slack import (
    serves_installations,
)
from bot.app.stores import Stores, turn_limits
from bot.app.web import build_console_links, build_link_service
from bot.chat.delivery import ChannelMessages
from bot.domain.api_clients import OPERATOR_PRINCIPAL
from bot.domain.completions import ModelLimits
from bot.domain.conversations import HTTP, Member
from bot.domain.locales import Locale
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.servers import ConnectPolicy
from bot.domain.usage import PriceList
from bot.engine.approvals import ApproverNotices
from bot.engine.engine import Engine
from bot.engine.faults import FaultReporter
from bot.engine.locales import LocaleResolver
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import RuleBook
from bot.engine.prompt.builder import RefusedTools, ToolSelection
from bot.engine.prompt.history import HistoryBudget
from bot.engine.prompt.messages import PlatformHint, SystemPrompt, today_in
from bot.engine.scheduler import (
    WITHOUT_CONTENT_DAYS,
    Job,
    Scheduler,
    locale_retention,
    quota_cleanup,
    retention,
    usage_retention,
)
from bot.engine.surfaces import Surfaces
from bot.engine.turn_runner import TurnSettings
from bot.engine.usage import UsageLimiter
from bot.i18n import gettext_lazy
from bot.llm.models import ModelChoice, Models
from bot.llm.static_embeddings import load_embedder
from bot.logs import redact_logs
from bot.machine import find_proxy
from bot.mcp.config.catalog import Catalog, PublicRegistry
from bot.mcp.config.checks import AllowedPrograms, AllowedTargets, resolve_host
from bot.mcp.hosts import read_hosts
from bot.mcp.oauth.http import OAuthDependencies
from bot.mcp.oauth.tokens import TokenProviders
from bot.mcp.redaction import KnownSecrets
from bot.mcp.resource_tools import fill_address
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.retry import ConnectionTiming, RetryTiming
from bot.mcp.server.status import SyncNotifier
from bot.mcp.toolbox import McpToolbox
from bot.mcp.transports.http import GuardedTransport
from bot.ports import Surface, TurnLog
from bot.ports.models import EmbedTexts
from bot.rendering.deceptive_text import disguises
from bot.settings import Settings
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.database import Database
from bot.storage.lock_file import FileUse
from bot.storage.turn_log.log import SqlTurnLog

log = logging.getLogger(__name__)

KEPT_LANGUAGE_DAYS = 90.0
"""Days for which the language of a user's client is kept without a use."""
_NEW_OBJECTS = 10_000
"""Objects made and kept until the garbage collector looks at them. A turn makes about 400 of them."""

_AFTER_START = 2.0
"""Seconds until the libraries of models are loaded: the program is ready by then, and rarely has a message."""

WatchLog = Callable[[TurnLog], TurnLog]
Notify = Callable[[str], None]
"""Show a line to the users of this process."""


def notify_nobody(_line: str) -> None:
    """Discard the line, which is in the log."""


PLATFORM_HINTS = {
    "slack": PlatformHint(
        "Your words are read in Slack. Write Markdown: it is drawn there with headings, lists, quotes, code and "
        "tables. Pictures are not drawn. Keep tables narrow and one to an answer.",
        shared=True,
        direct_prefix="D",  # docs.slack.dev, conversations
    ),
    # A direct conversation has no mark in its key, so the user is named there too.
    "discord": PlatformHint(
        "Your words are read in Discord. Write Markdown: it is drawn there with headings, lists, quotes and code. A "
        "small table becomes columns of letters, a wide one a list. Pictures are not drawn. Keep lines and answers "
        "short.",
        shared=True,
    ),
    "console": PlatformHint(
        "Your words are read in a terminal. Write Markdown: it is drawn there, tables and code included."
    ),
    HTTP: PlatformHint("Your words are read by a program, which may draw Markdown."),
}


@asynccontextmanager
async def open_services(
    settings: Settings,
    files: OperatorFiles,
    database: Database,
    *,
    operator: str,
    connect: ConnectPolicy,
    known_for: float = 0.0,
    observe: MetricSink = null_sink,
    use: FileUse | None = None,
    notify: Notify = notify_nobody,
) -> AsyncIterator[AppServices]:
    """Build the services, apply the stored configuration, and connect the servers in `connect`, without those whose
    tools were listed less than `known_for` seconds ago. Commands in a shell and the doctor use them without an engine.
    `use` names the claims on turns. `notify` takes a line about each change of the operator's files. Raises
    CountersignError.
    """
    # The functions that read `reloader` are called only after it is built.
    stores = Stores(settings, database, lambda: reloader.files.secret_grants)
    turn_log = _build_turn_log(database, settings, files.prices, use)
    secrets = KnownSecrets(settings.secrets)
    redact_logs(secrets)
    programs = AllowedPrograms(settings.mcp_allowed_commands, settings.mcp_allowed_commands_file)
    targets = AllowedTargets(
        settings.mcp_allowed_hosts,
        programs,
        lambda: reloader.files.launches.templates,
        settings.mcp_allowed_servers,
        settings.mcp_proxy,
    )
    tokens = TokenProviders(OAuthDependencies(stores.sign_ins, stores.leases, secrets, targets))
    counters, refused = SessionCounters(observe), RefusedTools()
    shared = ConnectionDependencies(
        secrets=secrets,
        allowances=targets,
        sync_notifier=SyncNotifier(stores.servers.save_capabilities, stores.servers.save_sync_failure),
        observe=counters.observe,
        review=settings.mcp_review,
        timing=connection_timing(settings),
    )
    toolbox = McpToolbox(
        shared=shared,
        enabled=settings.mcp_enabled,
        policy=connect,
        known_for=known_for,
        bearers=tokens,
        refused=refused.reasons,
    )
    approvers = Approvers(settings.admins, settings.approvers, operator)
    rules = RuleBook(
        files.policies,
        approvers,
        toolbox.is_pinned,
        read_hosts,
        fill_address,
        is_named_in=is_slack_name_in,
        default_profile=settings.mcp_servers_enabled.default_profile,
        disguises=disguises,
    )
    health = HealthCheck(database.check_writable, toolbox.servers, needs_servers=settings.ready_needs_servers)
    faults = FaultReporter(stores.faults, name_of_this_process())
    limiter = UsageLimiter(files.limits, stores.usage, files.prices.currency, on_checked=faults.report_limit)

    def use_files(files: OperatorFiles) -> None:
        turn_log.replace_prices(files.prices)
        limiter.replace_limits(files.limits, files.prices.currency)

    reloader = ConfigReloader(
        stores,
        toolbox,
        rules,
        allowances=targets,
        programs=programs,
        settings=settings,
        files=files,
        on_files=use_files,
        notify=notify,
    )
    rules.follow = reloader.follow
    health.files_are_older = lambda: reloader.rejected is not None
    rights = _rights(approvers, operator, settings)
    links = build_link_service(settings, stores.links)
    console = build_console_links(settings, stores.links)
    sign_ins = None
    if links is not None:  # the callback of a sign-in needs a public address
        from bot.mcp.oauth.client import ClientIdentity  # noqa: PLC0415 - it loads the MCP library
        from bot.mcp.oauth.sign_ins import OAuthSignIns  # noqa: PLC0415 - it loads the MCP library

        sign_ins = OAuthSignIns(toolbox, tokens, partial(ClientIdentity.from_address, links.address))
    dependencies = CommandDependencies(
        servers=toolbox,
        administration=reloader,
        rights=rights,
        stores=AdminStores(
            stores.servers,
            stores.pins,
            stores.policies,
            stores.profiles,
            stores.grants,
            stores.usage,
            stores.locales,
            stores.reporting,
            stores.sessions,
            stores.tokens,
            stores.installations,
        ),
        operator=OperatorTerms(
            _catalog(settings, targets),
            str(settings.mcp_servers_file),
            targets.allows_slug,
            targets.templates,
            settings.mcp_servers_enabled,
        ),
        process=RunningProcess(
            turn_log.recent_turns,
            health.check,
            counters.counters_of,
            limiter.statuses,
            partial(latest_report, settings, database),
        ),
        links=links,
        console=console,
        sign_ins=sign_ins,
    )
    default = Locale(settings.language, settings.time_zone)
    locales = LocaleResolver(default, lambda conversation: rules.rules(conversation).profile, stores.locales)
    async with AsyncExitStack() as stack:
        await reloader.refresh()
        await toolbox.start()
        stack.push_async_callback(toolbox.close)
        yield AppServices(
            turn_log=turn_log,
            toolbox=toolbox,
            rules=rules,
            administration=reloader,
            commands=CommandRegistry(dependencies),
            command_dependencies=dependencies,
            stores=stores,
            health=health,
            refused=refused,
            usage_limiter=limiter,
            faults=faults,
            locales=locales,
        )


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    files: OperatorFiles,
    model: ModelChoice,
    surfaces: list[Surface],
    *,
    use: FileUse | None = None,
    operator: str = "",
    known_for: float = 0.0,
    watch_log: WatchLog = lambda turn_log: turn_log,
    observe: MetricSink = null_sink,
    channels: Mapping[str, ChannelMessages] | None = None,
    notify: Notify = notify_nobody,
) -> AsyncIterator[Runtime]:
    """Build the components and run them while the block runs. `use` is the use of a SQLite file, which others may use
    once its schema is there; None if no other process can.

    `watch_log` may wrap the turn log; `observe` receives metrics; `channels` are the platforms on which the bot posts
    by itself, by name. None means no operations channel. `known_for`: see `open_services`. `notify` takes a line about
    each change of the operator's files. Raises CountersignError.
    """
    files.warn(settings)
    for name in files.unpriced_models(model.names):
        log.warning("%s has no price in %s: limits on money do not count it", name, settings.prices_file)
    async with AsyncExitStack() as stack:
        database, checkpoints = await stack.enter_async_context(
            open_checkpointed_database(settings, migrate=settings.auto_migrate and (use is None or use.is_alone))
        )
        database.observe = observe
        if not await asyncio.to_thread(database.audit_keys.prepare):
            log.warning("audit has no key, only checkpoints show rewritten rows: set AUDIT_KEY")
        if use is not None:
            await asyncio.to_thread(use.share)
        services = await stack.enter_async_context(
            open_services(
                settings,
                files,
                database,
                operator=operator,
                connect=settings.mcp_connect_policy,
                known_for=known_for,
                observe=observe,
                use=use,
                notify=notify,
            )
        )
        services.health.checkpoints_fail = lambda: checkpoints.is_failing
        models = Models(model, lambda name: select_model(settings, name), observe, model_limits(settings))
        stack.push_async_callback(models.close)
        # Built now, so that a mistake is reported before the first message.
        await models.get("")
        embed: EmbedTexts | None = None
        if (folder := settings.tool_search_embeddings) is not None:
            embed = await asyncio.to_thread(load_embedder, folder, "TOOL_SEARCH_EMBEDDINGS")
        if isinstance(read_address(settings.database_url), SqliteFile):
            await services.turn_log.adopt_orphans(use.is_alive if use is not None else lambda _owner: False)
        turn_log = watch_log(services.turn_log)
        jobs = [
            retention(turn_log, settings.retention_days or WITHOUT_CONTENT_DAYS),
            usage_retention(services.stores.usage, settings.usage_retention_days),
            quota_cleanup(services.stores.quotas),
            locale_retention(services.stores.locales, KEPT_LANGUAGE_DAYS),
        ]
        if settings.mcp_sync_interval is not None:
            jobs.append(Job("sync", settings.mcp_sync_interval, services.toolbox.sync_all))
        engine = Engine(
            turn_log,
            models,
            services.toolbox,
            surfaces,
            rules=services.rules,
            settings=TurnSettings(
                approval_seconds=settings.mcp_approval_timeout,
                approval_notice=settings.approval_notice,
                instructions=SystemPrompt(
                    lambda: services.administration.files.system_prompt, PLATFORM_HINTS, today_in
                ),
                memory=HistoryBudget(settings.history_tokens, settings.history_tool_steps),
                taint=settings.taint_mode,
                max_tool_rounds=settings.max_tool_rounds,
                keeps_content=settings.keeps_content,
            ),
            tools=ToolSelection(
                settings.tool_search, settings.tool_names_tokens, refused=services.refused, embed=embed
            ),
            on_change=services.administration.wake,
            observe=observe,
            allow=services.usage_limiter.check,
        )
        stack.enter_context(_spared_collections())
        notices = ApproverNotices(turn_log, Surfaces(surfaces), services.rules, services.locales)
        await stack.enter_async_context(_run_in_background(checkpoints.run(), "audit checkpoints"))
        await stack.enter_async_context(_run_in_background(services.administration.run(), "administration"))
        if channels is not None:
            for name, work in operations_tasks(settings, services, database, channels, models.unparsed):
                await stack.enter_async_context(_run_in_background(work, name))
        running = await stack.enter_async_context(_run_in_background(engine.run(), "engine"))
        await stack.enter_async_context(_run_in_background(Scheduler(turn_log, jobs).run(), "schedule"))
        await stack.enter_async_context(_run_in_background(notices.run(), "notices"))
        await stack.enter_async_context(_run_in_background(_prepare(models), "model library"))
        yield Runtime(engine, services.commands, turn_log, services, running)


# -------------------- details of the services and the runtime


async def _prepare(models: Models) -> None:
    """Load the libraries of models, and spare the garbage collector these, too."""
    await models.prepare(_AFTER_START)
    gc.freeze()


@contextmanager
def _spared_collections() -> Iterator[None]:
    """Spare the garbage collector what exists now, and let it run more rarely.

    Most of it stays until the end. To look through it again and again took a twelfth of the CPU of turns.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def model_limits(settings: Settings) -> ModelLimits:
    """Return the time limits of models' replies."""
    return ModelLimits(
        first_seconds=settings.model_first_timeout,
        idle_seconds=settings.model_idle_timeout,
        total_seconds=settings.model_total_timeout,
    )


def connection_timing(settings: Settings) -> ConnectionTiming:
    """Return the reconnect and idle times of all connections."""
    retries = RetryTiming(
        first_pause=settings.mcp_reconnection_initial_delay_ms / 1_000,
        factor=settings.mcp_reconnection_multiplier,
        longest_pause=settings.mcp_reconnection_max_delay_ms / 1_000,
        tries=settings.mcp_reconnection_max_attempts,
    )
    timing = ConnectionTiming(
        retries, idle_after=settings.mcp_session_idle_timeout, quiet_after=settings.mcp_healthcheck_interval
    )
    return timing if settings.mcp_reconnection_enabled else timing.without_reconnecting()


def _catalog(settings: Settings, targets: AllowedTargets) -> Catalog:
    if settings.mcp_registry_url is None:
        return Catalog()
    registry = PublicRegistry(settings.mcp_registry_url, lambda: GuardedTransport(targets, resolve_host, find_proxy))
    return Catalog(registry.search)


def _rights(approvers: Approvers, operator: str, settings: Settings) -> Rights:
    """Return the rights that commands check. `operator` is the principal of the user at this terminal, or empty."""

    def operates(member: Member) -> bool:
        return bool(operator) and member.author.principal == operator

    def vouches(member: Member) -> bool:
        return operates(member) or member.author.principal == OPERATOR_PRINCIPAL

    def is_of_one_workspace(member: Member) -> bool:
        return member.author.platform == HTTP or (member.author.platform == "slack" and has_workspaces)

    has_workspaces = serves_installations(settings)
    # Of several workspaces, none is told of the admins of the others.
    admins = ", ".join(() if has_workspaces else sorted(approvers.admins)) or gettext_lazy("an administrator")
    return Rights(approvers.administers, operates, vouches, admins, is_of_one_workspace)


def _build_turn_log(database: Database, settings: Settings, prices: PriceList, use: FileUse | None) -> SqlTurnLog:
    limits = turn_limits(settings)
    match read_address(settings.database_url):
        case SqliteFile():
            return SqlTurnLog(database, prices=prices, limits=limits, name=use.name if use is not None else "")
        case PostgresServer() as server:
            from bot.storage.postgresql import listen  # noqa: PLC0415 - loads psycopg, which SQLite does not need

            return SqlTurnLog(database, functools.partial(listen, server), prices=prices, limits=limits)


@asynccontextmanager
async def _run_in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` while the block runs. An error is logged, and ends only this task."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(error, Exception):
            log.error("the %s failed", name, exc_info=error)

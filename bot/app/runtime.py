"""The runtime: everything that turns need, built and running: database, turn log, models, toolbox, engine, commands."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.app.database import open_checkpointed_database
from bot.app.models import ModelChoice, Models, select_model
from bot.app.operator_files import OperatorFiles
from bot.app.services import AppServices, open_services
from bot.commands.registry import CommandRegistry
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import TurnLimits
from bot.domain.usage import PriceList
from bot.engine.engine import Engine
from bot.engine.prompt.context import SystemPrompt, local_today
from bot.engine.prompt.history import HistoryBudget
from bot.engine.scheduler import Job, retention, tidying, usage_retention
from bot.errors import CountersignError
from bot.ports import Surface, TurnLog
from bot.settings import Settings
from bot.storage.address import PostgresServer, SqliteFile, read_address

if TYPE_CHECKING:
    from bot.storage.database import Database
    from bot.storage.turn_log import SqlTurnLog


from bot.domain.conversations import HTTP, ConversationKey
from bot.engine.prompt.context import PlatformHint

# -------------------- platform hints

_SLACK = (
    "Your words are read in Slack. Write Markdown: it is drawn there with headings, lists, quotes, code and tables. "
    "Pictures are not drawn. Keep tables narrow and one to an answer."
)
_DISCORD = (
    "Your words are read in Discord. Write Markdown: it is drawn there with headings, lists, quotes and code. A small "
    "table becomes columns of letters, a wide one a list. Pictures are not drawn. Keep lines and answers short."
)
_CONSOLE = "Your words are read in a terminal. Write Markdown: it is drawn there, tables and code included."
_DIRECT = "D"
"""First letter of ids of direct conversations (docs.slack.dev, conversations)."""


def platform_hint(conversation: ConversationKey) -> PlatformHint:
    """Return the platform's markup and True for several users per conversation. A direct conversation of Discord has no
    mark in its key, so the user is named there too.
    """
    match conversation.platform:
        case "slack":
            return PlatformHint(_SLACK, shared=not conversation.channel.startswith(_DIRECT))
        case "discord":
            return PlatformHint(_DISCORD, shared=True)
        case "console":
            return PlatformHint(_CONSOLE)
        case platform if platform == HTTP:
            return PlatformHint("Your words are read by a program, which may draw Markdown.")
        case _:
            return PlatformHint()


log = logging.getLogger(__name__)

WatchLog = Callable[[TurnLog], TurnLog]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Components that platforms use. `services` is for other modules of the composition root."""

    engine: Engine
    commands: CommandRegistry
    turn_log: TurnLog
    services: AppServices
    running: asyncio.Task[None]

    async def run_until(self, leaving: asyncio.Event) -> None:
        """Wait until `leaving` is set. Raises CountersignError if the engine fails before that."""
        waiting = asyncio.create_task(leaving.wait(), name="leaving")
        try:
            await asyncio.wait({waiting, self.running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self.running.done():
            # Without the engine no message is answered: ending is better than appearing healthy.
            raise CountersignError("The engine broke down.", "see the log for the reason, and start again")


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    files: OperatorFiles,
    model: ModelChoice,
    surfaces: list[Surface],
    *,
    operator: str = "",
    watch_log: WatchLog = lambda turn_log: turn_log,
    observe: MetricSink = null_sink,
) -> AsyncIterator[Runtime]:
    """Build the components and run them while the block runs. The caller holds the database lock.

    `watch_log` may wrap the turn log; `observe` receives metrics. Raises CountersignError.
    """
    files.warn(settings)
    for name in files.unpriced(model.names):
        log.warning("%s has no price in %s: limits on money do not count it", name, settings.prices_file)
    async with AsyncExitStack() as stack:
        database, checkpoints = await stack.enter_async_context(
            open_checkpointed_database(settings, migrate=settings.auto_migrate)
        )
        database.observe = observe
        if not await asyncio.to_thread(database.audit_keys.prepare):
            log.warning("audit has no key, only checkpoints show rewritten rows: set AUDIT_KEY")
        services = await stack.enter_async_context(
            open_services(
                settings, files, database, operator=operator, connect=settings.mcp_connect_policy, observe=observe
            )
        )
        services.health.watch_checkpoints(lambda: checkpoints.is_failing)
        models = Models(model, lambda name: select_model(settings, name), observe)
        stack.push_async_callback(models.close)
        # Built now, so that a mistake is reported before the first message.
        await models.get("")
        turn_log = watch_log(await _turn_log(database, settings, files.prices))
        jobs = [
            retention(turn_log, settings.retention_days),
            usage_retention(services.stores.usage, settings.usage_retention_days),
            tidying(services.stores.quotas),
        ]
        if settings.mcp_sync_interval is not None:
            jobs.append(Job("sync", settings.mcp_sync_interval, services.toolbox.sync_all))
        engine = Engine(
            turn_log,
            models,
            services.toolbox,
            surfaces,
            rules=services.rules,
            approval_seconds=settings.mcp_approval_timeout,
            instructions=SystemPrompt(files.system_prompt, platform_hint, local_today),
            memory=HistoryBudget(settings.history_tokens, settings.history_tool_steps),
            taint=settings.taint_mode,
            refused=services.refused,
            tool_search=settings.tool_search,
            jobs=jobs,
            on_change=services.administration.wake,
            observe=observe,
            allow=services.spending.check,
        )
        await stack.enter_async_context(_kept_running(checkpoints.run(), "audit checkpoints"))
        await stack.enter_async_context(_kept_running(services.administration.run(), "administration"))
        running = await stack.enter_async_context(_kept_running(engine.run(), "engine"))
        yield Runtime(engine, services.commands, turn_log, services, running)


async def _turn_log(database: Database, settings: Settings, prices: PriceList) -> TurnLog:
    limits = TurnLimits(settings.max_running_turns_per_user, settings.max_queued_turns_per_user)
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.turn_log")
    match read_address(settings.database_url):
        case SqliteFile():
            in_file: SqlTurnLog = module.SqlTurnLog(database, prices=prices, limits=limits)
            await in_file.adopt_orphans()
            return in_file
        case PostgresServer() as server:
            pg_listen = await asyncio.to_thread(importlib.import_module, "bot.storage.pg_listen")
            listen = functools.partial(pg_listen.listen, server)
            on_server: SqlTurnLog = module.SqlTurnLog(database, listen, prices=prices, limits=limits)
            return on_server


@asynccontextmanager
async def _kept_running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        (ending,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ending, Exception):
            log.error("the %s failed", name, exc_info=ending)

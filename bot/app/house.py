"""Everything that turns need, built and running: database, turn log, model, toolbox, engine, commands."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.app.database import fitting_database
from bot.app.models import ModelChoice
from bot.app.operator_files import OperatorFiles
from bot.commands.mcp import McpCommands
from bot.commands.registry import CommandRegistry
from bot.engine.admission import Admission
from bot.engine.engine import Engine
from bot.engine.policy import Signatories
from bot.engine.schedule import retention
from bot.errors import CountersignError
from bot.ports import Surface, TurnLog
from bot.settings import Settings
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.tools.config_file import ServersFile

if TYPE_CHECKING:
    from bot.storage.database import Database
    from bot.storage.turn_log import SqlTurnLog
    from bot.tools.toolbox import McpToolbox

log = logging.getLogger(__name__)

WatchLog = Callable[[TurnLog], TurnLog]


@dataclass(frozen=True, slots=True)
class House:
    """The parts that platforms talk to."""

    engine: Engine
    commands: CommandRegistry
    turn_log: TurnLog
    running: asyncio.Task[None]

    async def until(self, leaving: asyncio.Event) -> None:
        """Wait until it is time to leave. Raises CountersignError if the engine breaks down before that."""
        waiting = asyncio.create_task(leaving.wait(), name="leaving")
        try:
            await asyncio.wait({waiting, self.running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self.running.done():
            # Nobody would be answered any more: better to end than to look alive.
            raise CountersignError("The engine broke down.", "see the log for the reason, and start again")


@asynccontextmanager
async def opened_house(
    settings: Settings,
    files: OperatorFiles,
    model: ModelChoice,
    surfaces: list[Surface],
    *,
    operator: str = "",
    watch_log: WatchLog = lambda turn_log: turn_log,
) -> AsyncIterator[House]:
    """Build the parts and keep them running. The caller holds the database.

    `watch_log` may put something between the engine and the turn log. Raises CountersignError.
    """
    policies = files.policies
    for name in files.strangers():
        log.warning(
            "%s has policies for %r, which is no enabled server of %s",
            settings.policy_file,
            name,
            settings.mcp_servers_file,
        )
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(fitting_database(settings, migrate=settings.auto_migrate))
        toolbox = await stack.enter_async_context(_connected_toolbox(files.servers, enabled=settings.mcp_enabled))
        language_model = await asyncio.to_thread(model.create)
        stack.push_async_callback(language_model.close)
        turn_log = watch_log(await _turn_log(database, settings.database_url))
        signatories = Signatories(settings.admins, settings.approvers, operator)
        engine = Engine(
            turn_log,
            language_model,
            toolbox,
            surfaces,
            admission=Admission(policies, settings.mcp_approval_timeout),
            signatories=signatories,
            system_prompt=files.system_prompt,
            jobs=[retention(turn_log, settings.retention_days)],
        )
        commands = McpCommands(
            toolbox, lambda tool: policies.of(tool.server, tool.original_name), signatories.administers
        )
        running = await stack.enter_async_context(_kept_running(engine))
        yield House(engine, CommandRegistry(commands), turn_log, running)


@asynccontextmanager
async def _connected_toolbox(found: ServersFile, *, enabled: bool) -> AsyncIterator[McpToolbox]:
    module = await asyncio.to_thread(importlib.import_module, "bot.tools.toolbox")
    for warning in found.warnings:
        log.warning(warning)
    toolbox: McpToolbox = module.McpToolbox(found.servers, found.problems, enabled=enabled, secrets=found.secrets)
    await toolbox.start()
    try:
        yield toolbox
    finally:
        await toolbox.close()


async def _turn_log(database: Database, url: str) -> TurnLog:
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.turn_log")
    match read_address(url):
        case SqliteFile():
            in_file: SqlTurnLog = module.SqlTurnLog(database)
            await in_file.adopt_orphans()
            return in_file
        case PostgresServer() as server:
            doorbell = await asyncio.to_thread(importlib.import_module, "bot.storage.doorbell")
            on_server: SqlTurnLog = module.SqlTurnLog(database, functools.partial(doorbell.listen, server))
            return on_server


@asynccontextmanager
async def _kept_running(engine: Engine) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(engine.run(), name="engine")
    try:
        yield task
    finally:
        task.cancel()
        (ending,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ending, Exception):
            log.error("the engine failed", exc_info=ending)

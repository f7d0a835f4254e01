"""Everything that turns need, built and running: database, turn log, model, toolbox, engine, commands."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.app.models import ModelChoice
from bot.commands.mcp import McpCommands
from bot.commands.registry import CommandRegistry
from bot.engine.admission import Admission
from bot.engine.engine import Engine
from bot.engine.policy import Policies, Signatories, read_policies
from bot.errors import SettingsError
from bot.ports import Surface, TurnLog
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.database import Database
    from bot.tools.toolbox import McpToolbox

log = logging.getLogger(__name__)

WatchLog = Callable[[TurnLog], TurnLog]


@dataclass(frozen=True, slots=True)
class House:
    """The parts that platforms talk to."""

    engine: Engine
    commands: CommandRegistry
    turn_log: TurnLog


@asynccontextmanager
async def opened_house(
    settings: Settings,
    model: ModelChoice,
    surfaces: list[Surface],
    *,
    operator: str = "",
    watch_log: WatchLog = lambda turn_log: turn_log,
) -> AsyncIterator[House]:
    """Build the parts and keep them running. The caller holds the lock file.

    `watch_log` may put something between the engine and the turn log. Raises CountersignError.
    """
    policies = read_policy_file(settings)
    system_prompt = read_system_prompt(settings.system_prompt_file)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened_database(settings))
        toolbox = await stack.enter_async_context(connected_toolbox(settings))
        language_model = await asyncio.to_thread(model.create)
        stack.push_async_callback(language_model.close)
        turn_log = watch_log(await _adopted_log(database))
        signatories = Signatories(settings.admins, settings.approvers, operator)
        engine = Engine(
            turn_log,
            language_model,
            toolbox,
            surfaces,
            admission=Admission(policies, settings.mcp_approval_timeout),
            signatories=signatories,
            system_prompt=system_prompt,
        )
        commands = McpCommands(
            toolbox, lambda tool: policies.of(tool.server, tool.original_name), signatories.administers
        )
        await stack.enter_async_context(_kept_running(engine))
        yield House(engine, CommandRegistry(commands), turn_log)


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database and bring it to this release's schema. Raises DatabaseError."""
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.database")
    schema = await asyncio.to_thread(importlib.import_module, "bot.storage.schema")
    database: Database = await asyncio.to_thread(module.open_sqlite, settings.database_url)
    try:
        if settings.auto_migrate:
            await schema.upgrade(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def connected_toolbox(settings: Settings) -> AsyncIterator[McpToolbox]:
    """Begin to connect to every server of the operator's file. Raises SettingsError."""
    config_file = await asyncio.to_thread(importlib.import_module, "bot.tools.config_file")
    module = await asyncio.to_thread(importlib.import_module, "bot.tools.toolbox")
    found = config_file.read_servers(settings.mcp_servers_file, os.environ)
    for warning in found.warnings:
        log.warning(warning)
    toolbox: McpToolbox = module.McpToolbox(
        found.servers, found.problems, enabled=settings.mcp_enabled, secrets=found.secrets
    )
    await toolbox.start()
    try:
        yield toolbox
    finally:
        await toolbox.close()


def read_policy_file(settings: Settings) -> Policies:
    """The operator's policies; a missing file means none. Raises SettingsError."""
    path = settings.policy_file
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        table = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "correct the file") from error
    return read_policies(table, settings.mcp_approval_default_policy, str(path))


def read_system_prompt(path: Path) -> str:
    """What the model is told; a missing file means nothing beyond what servers add. Raises SettingsError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "correct the file or SYSTEM_PROMPT_FILE") from error


async def _adopted_log(database: Database) -> TurnLog:
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.turn_log")
    turn_log = module.SqlTurnLog(database)
    await turn_log.adopt_orphans()
    adopted: TurnLog = turn_log
    return adopted


@asynccontextmanager
async def _kept_running(engine: Engine) -> AsyncIterator[None]:
    task = asyncio.create_task(engine.run(), name="engine")
    try:
        yield
    finally:
        task.cancel()
        (ending,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ending, Exception):
            log.error("the engine failed", exc_info=ending)

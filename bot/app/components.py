"""Components that the composition root builds, for its modules."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.errors import CountersignError

if TYPE_CHECKING:
    from bot.admin.dependencies import CommandDependencies
    from bot.admin.registry import CommandRegistry
    from bot.app.config_reload import ConfigReloader
    from bot.app.process import HealthCheck
    from bot.app.stores import Stores
    from bot.engine.engine import Engine
    from bot.engine.faults import FaultReporter
    from bot.engine.locales import LocaleResolver
    from bot.engine.policy.rules import RuleBook
    from bot.engine.prompt.builder import RefusedTools
    from bot.engine.usage import UsageLimiter
    from bot.mcp.toolbox import McpToolbox
    from bot.ports import TurnLog
    from bot.storage.turn_log.log import SqlTurnLog


@dataclass(frozen=True, slots=True)
class AppServices:
    """Services of administration and the components derived from them."""

    turn_log: SqlTurnLog
    toolbox: McpToolbox
    rules: RuleBook
    administration: ConfigReloader
    commands: CommandRegistry
    command_dependencies: CommandDependencies
    stores: Stores
    health: HealthCheck
    refused: RefusedTools
    usage_limiter: UsageLimiter
    faults: FaultReporter
    locales: LocaleResolver


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

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import InboundMessage
from bot.domain.turns import Claim, Receipt
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook, ServerPolicy
from bot.engine.prompt.messages import SystemPrompt
from bot.storage.database import Database
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, RecordingSurface, ScriptedModel
from tests.migrated import migrated


@dataclass
class EngineHarness:
    """An engine on a real database. The model, the toolbox, the surface and the clock are fakes."""

    database: Database
    log: SqlTurnLog
    clock: list[float]
    model: ScriptedModel = field(default_factory=ScriptedModel)
    toolbox: FakeToolbox = field(default_factory=FakeToolbox)
    surface: RecordingSurface = field(default_factory=RecordingSurface)
    policies: dict[str, ApprovalPolicy] = field(default_factory=dict)
    approval_seconds: float | None = 1800.0
    pauses: list[float] = field(default_factory=list)
    rules: RuleBook | None = None
    """Replacement for the rules made of `policies`."""

    def engine(self, **changes: object) -> Engine:
        """Return a new engine, as after a restart."""
        servers: dict[str, dict[str, ApprovalPolicy]] = {}
        for name, policy in self.policies.items():
            server, _, tool = name.partition("__")
            servers.setdefault(server, {})[tool] = policy
        policies = Policies(servers={server: ServerPolicy(tools) for server, tools in servers.items()})

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(min(seconds, 0.01))

        settings: dict[str, object] = {
            "rules": self.rules or RuleBook(policies, Approvers(admins=frozenset({"test:ana"}))),
            "approval_seconds": self.approval_seconds,
            "instructions": SystemPrompt("Be useful."),
            "pause": pause,
            **changes,
        }
        return Engine(self.log, self.model, self.toolbox, [self.surface], **settings)  # type: ignore[arg-type]

    def hold_up_taking_in(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Hold up `enqueue_and_claim`. The first event is set once the message is on disk. The call returns after the
        test sets the second.
        """
        on_disk, go_on = asyncio.Event(), asyncio.Event()
        take_in = self.log.enqueue_and_claim

        async def slow(received: InboundMessage) -> tuple[Receipt, Claim | None]:
            found = await take_in(received)
            on_disk.set()
            await go_on.wait()
            return found

        self.log.enqueue_and_claim = slow  # type: ignore[method-assign, assignment]
        return on_disk, go_on

    def allow(self, *names: str) -> None:
        self.policies.update(dict.fromkeys(names, ApprovalPolicy.ALWAYS_ALLOW))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EngineHarness]:
    clock = [1_000_000.0]
    read: Callable[[], float] = lambda: clock[0]  # noqa: E731
    database = open_sqlite(await migrated(tmp_path / "turns.db"), clock=read)
    yield EngineHarness(database, SqlTurnLog(database), clock)
    await database.close()

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest

from bot.domain.approvals import Approval, ApprovalPolicy
from bot.domain.conversations import InboundMessage
from bot.domain.tools import ToolSearch
from bot.domain.turns import Claim, Receipt, TurnView
from bot.engine.approvals import ApproverNotices
from bot.engine.engine import Engine
from bot.engine.locales import LocaleResolver
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook, ServerPolicy
from bot.engine.prompt.builder import ToolSelection
from bot.engine.prompt.messages import SystemPrompt
from bot.engine.surfaces import Surfaces
from bot.engine.turn_runner import TurnSettings
from bot.storage.database import Database
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, RecordingSurface, ScriptedModel, message, running
from tests.migrated import create_database


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
    notices: ApproverNotices = field(init=False)

    async def pause_briefly(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))

    def engine(self, **changes: object) -> Engine:
        """Return a new engine, as after a restart, and replace `notices`, which the test runs."""
        servers: dict[str, dict[str, ApprovalPolicy]] = {}
        for name, policy in self.policies.items():
            server, _, tool = name.partition("__")
            servers.setdefault(server, {})[tool] = policy
        policies = Policies(servers={server: ServerPolicy(tools) for server, tools in servers.items()})
        rules = self.rules or RuleBook(policies, Approvers(admins=frozenset({"test:ana"})))
        self.notices = ApproverNotices(
            self.log, Surfaces([self.surface]), rules, LocaleResolver(), pause=self.pause_briefly
        )
        names = {field.name for field in fields(TurnSettings)} & changes.keys()
        chosen: dict[str, object] = {name: changes.pop(name) for name in names}
        usual = TurnSettings(approval_seconds=self.approval_seconds, instructions=SystemPrompt("Be useful."))
        others: dict[str, object] = {
            "rules": rules,
            "tools": ToolSelection(
                changes.pop("tool_search", ToolSearch.AUTO),  # type: ignore[arg-type]
                refused=changes.pop("refused", None),  # type: ignore[arg-type]
            ),
            "settings": replace(usual, **chosen),  # type: ignore[arg-type]
            "pause": self.pause_briefly,
            **changes,
        }
        return Engine(self.log, self.model, self.toolbox, [self.surface], **others)  # type: ignore[arg-type]

    async def run_turn(self, text: str, **changes: object) -> TurnView:
        """Return the last view of a message's turn, run by an engine of its own."""
        engine = self.engine(**changes)
        async with running(engine):
            return await self.surface.wait_for_end((await engine.receive(message(text))).turn_id)

    async def pending(self) -> Approval:
        """Return the first approval that a call awaits, once a view shows one."""
        view = await self.surface.wait_for(lambda view: bool(view.awaiting))
        approval = view.awaiting[0].approval
        assert approval is not None
        return approval

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
    database = open_sqlite(await create_database(tmp_path / "turns.db"), clock=read)
    yield EngineHarness(database, SqlTurnLog(database), clock)
    await database.close()

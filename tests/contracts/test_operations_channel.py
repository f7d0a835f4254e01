"""The operations channel on every chat platform: one message for each fault, also across processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.chat.operations_channel import GRACE_SECONDS, LEASE_SECONDS, REFUSED_SECONDS, OperationsChannel
from bot.domain.conversations import ConversationKey
from bot.domain.health import Fault, FaultKind
from bot.engine.locales import LocaleResolver
from bot.storage.coordination import QUIET_SECONDS, SqlFaultStore, SqlLeases
from tests.fakes.faults import Lost
from tests.platforms.workspaces import Posted, Workspace, open_workspace
from tests.turn_log_harness import SqliteHarness, sqlite_harness

HOLD = 90.0
WEATHER = Fault(
    "server:weather",
    FaultKind.SERVER_FAILED,
    "MCP server weather has failed",
    "MCP server weather recovered",
    "It refuses connections.",
    "start it",
    "/mcp show weather",
    "docs/server-repair.md",
)


class Operations:
    """Processes with one database and one workspace."""

    def __init__(self, workspace: Workspace, harness: SqliteHarness) -> None:
        self.workspace, self.harness = workspace, harness
        self.store, self.leases = SqlFaultStore(harness.database), SqlLeases(harness.database)
        self.channel = workspace.fake.channel("operations", workspace.priya)
        self.seconds = 0.0

    def process(self, name: str) -> OperationsChannel:
        """Return the operations channel of a new process."""
        messages: Any = self.workspace.another_process()
        where = ConversationKey(self.workspace.platform, "", self.channel.id, "")
        return OperationsChannel(
            self.store, self.leases, messages, where, name, locales=LocaleResolver(), clock=lambda: self.seconds
        )

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.harness.time += seconds
        self.workspace.fake.clock.advance(seconds)

    @property
    def posted_messages(self) -> list[Posted]:
        return self.workspace.public_messages(self.channel)


@pytest.fixture(params=["slack", "discord", "plain"])
async def operations(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Operations]:
    async with open_workspace(request.param) as workspace:
        harness = await sqlite_harness(tmp_path)
        harness.time = workspace.fake.clock.now()
        yield Operations(workspace, harness)
        await harness.close()


async def test_a_fault_is_one_message_that_is_edited_when_it_is_over(operations: Operations) -> None:
    process = operations.process("one")
    await operations.store.report(WEATHER, "one", HOLD)
    await process.update()
    (message,) = operations.posted_messages
    for text in ("weather has failed", "It refuses connections.", "Fix: start it.", "/mcp show weather"):
        assert text in message.content
    operations.advance(240)
    await operations.store.withdraw(WEATHER.key, "one")
    await process.update()
    (message,) = operations.posted_messages
    assert "MCP server weather recovered" in message.content
    assert "After 4 min" in message.content
    assert "It refuses" not in message.content


async def test_of_several_processes_one_posts(operations: Operations) -> None:
    processes = [operations.process(name) for name in ("one", "two", "three")]
    await operations.store.report(WEATHER, "one", HOLD)
    for process in processes:
        await process.update()
    assert len(operations.posted_messages) == 1


async def test_another_process_goes_on_with_the_message_of_a_dead_one(operations: Operations) -> None:
    await operations.store.report(WEATHER, "one", HOLD)
    await operations.process("one").update()
    operations.advance(LEASE_SECONDS + 1)
    await operations.store.withdraw(WEATHER.key, "one")
    await operations.process("two").update()
    (message,) = operations.posted_messages
    assert "recovered" in message.content


async def test_a_post_without_a_response_is_found_by_the_next_process(operations: Operations) -> None:
    await operations.store.report(WEATHER, "one", HOLD)
    operations.workspace.fail(operations.workspace.post, Lost())
    await operations.process("one").update()
    operations.advance(LEASE_SECONDS + 1)
    await operations.process("two").update()
    assert len(operations.posted_messages) == 1


async def test_a_flapping_server_is_one_message_an_hour_that_counts(operations: Operations) -> None:
    process = operations.process("one")
    for _ in range(5):
        await operations.store.report(WEATHER, "one", HOLD)
        await process.update()
        operations.advance(60)
        await operations.store.withdraw(WEATHER.key, "one")
        await process.update()
        operations.advance(60)
    (message,) = operations.posted_messages
    assert "5 times since" in message.content
    operations.advance(QUIET_SECONDS)
    await operations.store.report(WEATHER, "one", HOLD)
    await process.update()
    assert len(operations.posted_messages) == 2


async def test_a_fault_that_ended_before_its_post_is_not_posted(operations: Operations) -> None:
    await operations.store.report(WEATHER, "one", HOLD)
    await operations.store.withdraw(WEATHER.key, "one")
    await operations.process("one").update()
    assert operations.posted_messages == []


async def test_faults_of_a_vanished_process_are_over_once_its_successor_has_reported(operations: Operations) -> None:
    await operations.store.report(WEATHER, "one", HOLD)
    await operations.process("one").update()
    operations.advance(HOLD + LEASE_SECONDS)
    successor = operations.process("two")
    await successor.update()
    (message,) = operations.posted_messages
    assert "has failed" in message.content
    operations.advance(GRACE_SECONDS)
    await successor.update()
    (message,) = operations.posted_messages
    assert "recovered" in message.content


async def test_a_channel_that_takes_nothing_is_logged_once_and_tried_again(
    operations: Operations, caplog: pytest.LogCaptureFixture
) -> None:
    process = operations.process("one")
    operations.workspace.close(operations.channel)
    await operations.store.report(replace(WEATHER, cause="secret-free"), "one", 9 * REFUSED_SECONDS)
    for _ in range(3):
        await process.update()
        operations.advance(REFUSED_SECONDS + 1)
    assert operations.posted_messages == []
    (line,) = [record.getMessage() for record in caplog.records if "OPS_CHANNEL" in record.getMessage()]
    assert operations.channel.id in line

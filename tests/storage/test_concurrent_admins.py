"""Two admins' transactions on PostgreSQL at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable
from typing import TypeVar

import pytest
import sqlalchemy as sa

from bot.domain.approvals import ApprovalPolicy
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import EVERYWHERE, HttpTransport, ServerCapabilities, ServerConfig, ServerRecord
from bot.domain.tools import Tool
from bot.domain.turns import Wakeup, WakeupKind
from bot.errors import Conflict, CountersignError, NotFound
from bot.storage import reporting
from bot.storage.admin.policies import SqlPolicyStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.database import prefix_bounds
from bot.storage.encryption import generate_key, make_box
from bot.storage.postgresql import PostgresDatabase, listen
from tests.audit_check import audit_findings
from tests.fakes.parts import ANA, BEN, until
from tests.rules import plain
from tests.storage.test_concurrent_turns import overlapping
from tests.turn_log_harness import PostgresHarness

T = TypeVar("T")

BOX = make_box(generate_key())
OFFER = ServerCapabilities(tools=(Tool("s__run", "s", "run"),))
STORED = SecretReference(SecretSource.STORED)


pytestmark = pytest.mark.usefixtures("no_deadlocks")


@pytest.fixture
def servers(harness: PostgresHarness) -> SqlServerStore:
    return SqlServerStore(harness.database, BOX, {})


def record(name: str = "weather", workspace: str = "test:w") -> ServerRecord:
    config = ServerConfig(name, HttpTransport("https://x.example/mcp"), id=f"{name}-{workspace}", workspace=workspace)
    return ServerRecord(config, secrets={"auth": STORED})


def described_server(known: ServerRecord, description: str) -> ServerRecord:
    return dataclasses.replace(known, config=dataclasses.replace(known.config, description=description))


async def outcome(work: Awaitable[T]) -> T | CountersignError:
    """Return the result, or the error."""
    try:
        return await work
    except CountersignError as error:
        return error


async def test_of_two_changes_at_once_one_holds_and_the_other_hears_of_it(
    harness: PostgresHarness, servers: SqlServerStore
) -> None:
    added = await servers.add(record(), {"auth": "old"}, ANA)
    first = servers.change(described_server(added, "one"), {"auth": "one"}, ANA, changes={"description": "one"})
    second = servers.change(described_server(added, "two"), {"auth": "two"}, BEN, changes={"description": "two"})
    results = await overlapping(harness, outcome(first), "commit", outcome(second))
    assert isinstance(results[0], ServerRecord)
    assert isinstance(results[1], Conflict)
    assert "changed meanwhile by test:ana" in str(results[1])
    assert await servers.records() == [results[0]]
    assert await servers.read_secrets(results[0]) == {"auth": "one"}
    assert await audit_findings(harness.database) == []


@pytest.mark.parametrize("other", ["test:w", EVERYWHERE])
async def test_of_two_servers_added_under_one_name_at_once_one_is_refused(
    harness: PostgresHarness, servers: SqlServerStore, other: str
) -> None:
    mine, theirs = record(), dataclasses.replace(
        record(), config=dataclasses.replace(record().config, id="other", workspace=other, title="Other")
    )  # fmt: skip
    adding = [outcome(servers.add(each, {"auth": "x"}, ANA)) for each in (mine, theirs)]
    results = await overlapping(harness, adding[0], "commit", adding[1])
    assert isinstance(results[0], ServerRecord)
    assert isinstance(results[1], Conflict)
    assert results[1].field == "name"


async def test_a_server_removed_while_it_is_changed_is_gone(harness: PostgresHarness, servers: SqlServerStore) -> None:
    added = await servers.add(record(), {"auth": "x"}, ANA)
    change = servers.change(described_server(added, "one"), {"auth": "y"}, BEN, changes={})
    results = await overlapping(
        harness, outcome(servers.remove(added.id, added.version, ANA)), "commit", outcome(change)
    )
    assert results[0] is None
    assert isinstance(results[1], NotFound)
    assert harness.ask("select count(*) from mcp_secrets") == 0


@pytest.mark.parametrize("known", [False, True])
async def test_a_sync_that_ends_while_its_server_is_removed_leaves_nothing_behind(
    harness: PostgresHarness, servers: SqlServerStore, *, known: bool
) -> None:
    added = await servers.add(record(), {"auth": "x"}, ANA)
    if known:
        await servers.save_capabilities(added.id, OFFER)
    removing = servers.remove(added.id, added.version, ANA)
    await overlapping(harness, removing, "commit", servers.save_capabilities(added.id, OFFER))
    assert await servers.cached_capabilities() == {}
    again = await servers.add(record(), {"auth": "x"}, ANA)
    removing = servers.remove(again.id, again.version, ANA)
    await overlapping(harness, servers.save_capabilities(again.id, OFFER), "commit", removing)
    assert await servers.cached_capabilities() == {}


async def test_a_policy_set_while_its_server_is_removed_is_refused(
    harness: PostgresHarness, servers: SqlServerStore
) -> None:
    added = await servers.add(record(), {"auth": "x"}, ANA)
    rule = plain(added.id, "run", ApprovalPolicy.ALWAYS_ALLOW)
    setting = SqlPolicyStore(harness.database).set_rule(rule, BEN)
    results = await overlapping(harness, servers.remove(added.id, 1, ANA), "commit", outcome(setting))
    assert isinstance(results[1], NotFound)
    assert harness.ask("select count(*) from policy_rules") == 0


async def test_a_change_that_is_taken_back_is_tried_again_and_done_once(
    harness: PostgresHarness, servers: SqlServerStore
) -> None:
    """The server ends the connection just before the commit: the outcome is unknown."""
    added = await servers.add(record(), {"auth": "x"}, ANA)
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle in transaction'"
    )

    async def cut() -> int:
        return int(harness.ask(kill))

    change = servers.change(described_server(added, "one"), {"auth": "one"}, ANA, changes={})
    changed, cuts = await overlapping(harness, change, "commit", cut())
    assert cuts == 1
    assert await servers.records() == [changed]
    assert changed.version == 2
    assert harness.ask("select count(*) from audit where kind = 'changed server'") == 1


async def test_every_change_is_heard_in_other_processes(harness: PostgresHarness, servers: SqlServerStore) -> None:
    assert isinstance(harness.database, PostgresDatabase)
    heard: list[Wakeup] = []
    listening = asyncio.create_task(listen(harness.database.address, heard.append))
    await until(lambda: len(heard) == 1)
    added = await servers.add(record(), {"auth": "x"}, ANA)
    await servers.save_capabilities(added.id, OFFER)
    await servers.save_capabilities(added.id, OFFER)
    await servers.remove(added.id, added.version, ANA)
    await until(lambda: len(heard) == 4)
    assert heard[1:] == [Wakeup(WakeupKind.CONFIG_CHANGED)] * 3
    listening.cancel()
    await asyncio.wait({listening})


async def test_conversations_are_looked_for_with_an_index(harness: PostgresHarness) -> None:
    fill = sa.text(
        "insert into conversations (key, last_seq, created_at, updated_at)"
        " select 'test:w' || n || ':hall:1', 1, 0, 0 from generate_series(1, 5000) n"
    )
    look = reporting._count_of_workspace.params(prefix_bounds("key_prefix", "test:w77:"))

    def plan(connection: sa.Connection) -> str:
        connection.execute(fill)
        connection.execute(sa.text("analyze conversations"))
        assert connection.execute(look).scalar_one() == 1
        words = look.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        return str(connection.exec_driver_sql(f"explain {words}").all())

    assert "conversations_key_prefix" in await harness.database.run(plan)

"""Contract of the store of pinned definitions (`bot.ports.PinStore`), on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.pins import Pin, review_status
from bot.domain.servers import HttpTransport, ServerCapabilities, ServerConfig, ServerRecord
from bot.domain.tools import Annotations, Tool
from bot.errors import NotFound
from bot.ports import PinStore
from bot.storage.admin.capabilities import SqlPinStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.encryption import SecretBox
from bot.storage.reporting import SqlReporting
from tests.contracts.test_stores import Forgetful, execute
from tests.fakes.parts import ANA, BEN
from tests.turn_log_harness import START, Harness

FILE = "file:weather"
TOOL = Tool(
    "weather__forecast",
    "weather",
    "forecast",
    "Forecast",
    "Tells the weather.",
    {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [None, 1.5, "x"]}}},
    {"type": "object"},
    Annotations(read_only=True),
    server_id=FILE,
)
OTHER = replace(TOOL, original_name="alerts")
ODD = replace(TOOL, original_name="odd", flags=("it is odd",))
CHANGED = replace(TOOL, description="Tells the weather, and more.")


@pytest.fixture
def servers(harness: Harness) -> SqlServerStore:
    return SqlServerStore(harness.database, SecretBox(), {})


@pytest.fixture
def pins(harness: Harness) -> PinStore:
    return SqlPinStore(harness.database)


def offer(*tools: Tool) -> ServerCapabilities:
    return ServerCapabilities(tools)


def definitions(*tools: Tool) -> dict[str, str]:
    return {tool.original_name: tool.definition for tool in tools}


async def audit_entries(harness: Harness) -> list[AuditEntry]:
    page, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=("pinned tools", "refused tools")), 100, 0)
    return list(page)


async def test_the_first_sync_pins_all_definitions_except_flagged_ones(
    harness: Harness, servers: SqlServerStore, pins: PinStore
) -> None:
    assert await pins.pinned_definitions() == {}
    await servers.save_capabilities(FILE, offer(TOOL, OTHER, ODD))
    assert await pins.pinned_definitions() == {FILE: definitions(TOOL, OTHER)}
    found = await pins.pins_of(FILE)
    assert [each.tool for each in found] == ["alerts", "forecast"]
    assert found[1] == Pin(FILE, "forecast", TOOL.definition, TOOL, "countersign", START)
    assert found[1].pinned_tool is not None
    assert found[1].pinned_tool.definition == TOOL.definition
    assert await audit_entries(harness) == []


async def test_later_syncs_pin_nothing(servers: SqlServerStore, pins: PinStore) -> None:
    await servers.save_capabilities(FILE, offer(TOOL))
    revision = await servers.revision()
    await servers.save_capabilities(FILE, offer(CHANGED, OTHER))
    assert await pins.pinned_definitions() == {FILE: definitions(TOOL)}
    assert await servers.revision() == revision + 1


async def test_a_server_without_tools_was_not_looked_at_yet(servers: SqlServerStore, pins: PinStore) -> None:
    await servers.save_capabilities(FILE, offer())
    assert await pins.pinned_definitions() == {}
    await servers.save_capabilities(FILE, offer(TOOL))
    assert await pins.pinned_definitions() == {FILE: definitions(TOOL)}


async def test_a_server_of_which_everything_is_flagged_was_looked_at(servers: SqlServerStore, pins: PinStore) -> None:
    await servers.save_capabilities(FILE, offer(ODD))
    assert await pins.pinned_definitions() == {FILE: {}}
    await servers.save_capabilities(FILE, offer(TOOL))
    assert await pins.pinned_definitions() == {FILE: {}}


async def test_of_two_first_syncs_at_once_one_counts(servers: SqlServerStore, pins: PinStore) -> None:
    await asyncio.gather(
        servers.save_capabilities(FILE, offer(TOOL, OTHER)), servers.save_capabilities(FILE, offer(CHANGED))
    )
    assert (await pins.pinned_definitions())[FILE] in (definitions(TOOL, OTHER), definitions(CHANGED))


async def test_a_pin_of_an_admin_replaces_the_earlier_one_and_is_in_the_audit(
    harness: Harness, servers: SqlServerStore, pins: PinStore
) -> None:
    await servers.save_capabilities(FILE, offer(TOOL, OTHER, ODD))
    before = await servers.revision()
    harness.time = START + 60
    await pins.pin(FILE, [CHANGED, ODD, OTHER], BEN)
    assert await pins.pinned_definitions() == {FILE: definitions(CHANGED, ODD, OTHER)}
    by_tool = {pin.tool: pin for pin in await pins.pins_of(FILE)}
    assert by_tool["forecast"] == Pin(FILE, "forecast", CHANGED.definition, CHANGED, BEN.principal, START + 60)
    assert by_tool["alerts"].pinned_by == "countersign"
    (entry,) = await audit_entries(harness)
    assert (entry.actor, entry.subject, entry.facts["server"]) == (BEN.principal, FILE, "weather")
    assert entry.facts["changes"] == {
        "forecast": f"{TOOL.definition} → {CHANGED.definition}",
        "odd": f"nothing → {ODD.definition}",
    }
    assert await servers.revision() == before + 1


async def test_pinning_a_pinned_definition_changes_nothing(
    harness: Harness, servers: SqlServerStore, pins: PinStore
) -> None:
    await servers.save_capabilities(FILE, offer(TOOL))
    before = await servers.revision()
    await pins.pin(FILE, [TOOL], BEN)
    assert (await servers.revision(), await audit_entries(harness)) == (before, [])
    assert [pin.pinned_by for pin in await pins.pins_of(FILE)] == ["countersign"]


async def test_a_refusal_leaves_the_pin_and_goes_with_an_approval_of_its_definition(
    harness: Harness, servers: SqlServerStore, pins: PinStore
) -> None:
    await servers.save_capabilities(FILE, offer(TOOL))
    await pins.refuse(FILE, [CHANGED, ODD], BEN)
    await pins.refuse(FILE, [CHANGED], ANA)
    pinned = (await pins.pinned_definitions())[FILE]
    assert pinned.items() >= definitions(TOOL).items()
    assert [review_status(tool, pinned) for tool in (TOOL, CHANGED, ODD)] == ["pinned", "refused", "refused"]
    (entry,) = await audit_entries(harness)
    assert (entry.kind, entry.actor, entry.facts["server"]) == ("refused tools", BEN.principal, "weather")
    assert entry.facts["changes"] == definitions(CHANGED, ODD)
    await pins.pin(FILE, [CHANGED], BEN)
    pinned = (await pins.pinned_definitions())[FILE]
    assert [review_status(tool, pinned) for tool in (TOOL, CHANGED, ODD)] == ["changed", "pinned", "refused"]
    with pytest.raises(NotFound):
        await pins.refuse("d1", [CHANGED], ANA)


async def test_pins_go_with_their_server_and_none_are_left_behind(servers: SqlServerStore, pins: PinStore) -> None:
    record = await servers.add(ServerRecord(ServerConfig("desk", HttpTransport("https://d.example"), id="d1")), {}, ANA)
    await servers.save_capabilities("d1", offer(TOOL))
    await servers.save_capabilities(FILE, offer(TOOL))
    await servers.remove("d1", record.version, ANA)
    assert list(await pins.pinned_definitions()) == [FILE]
    with pytest.raises(NotFound):
        await pins.pin("d1", [CHANGED], ANA)
    await servers.save_capabilities("d1", offer(TOOL))
    assert list(await pins.pinned_definitions()) == [FILE]


async def test_a_pin_that_cannot_be_read_still_holds(harness: Harness, servers: SqlServerStore, pins: PinStore) -> None:
    await servers.save_capabilities(FILE, offer(TOOL))
    await execute(harness, "update tool_pins set body = '{}'")
    (pin,) = await pins.pins_of(FILE)
    assert (pin.definition, pin.pinned_tool) == (TOOL.definition, None)
    await servers.save_capabilities(FILE, offer(CHANGED))
    assert await pins.pinned_definitions() == {FILE: definitions(TOOL)}


async def test_a_pin_whose_commit_gave_no_answer_is_made_once(harness: Harness, servers: SqlServerStore) -> None:
    forgetful: Any = Forgetful(harness.database)
    await SqlServerStore(forgetful, SecretBox(), {}).save_capabilities(FILE, offer(TOOL))
    await SqlPinStore(forgetful).pin(FILE, [CHANGED], BEN)
    assert await SqlPinStore(forgetful).pinned_definitions() == {FILE: definitions(CHANGED)}
    assert len(await audit_entries(harness)) == 1


async def test_names_of_tools_may_be_anything(harness: Harness, servers: SqlServerStore, pins: PinStore) -> None:
    weird = replace(TOOL, original_name="a\u202e 💡 'b' → c")
    await servers.save_capabilities(FILE, offer(weird))
    assert await pins.pinned_definitions() == {FILE: definitions(weird)}
    rows = await harness.database.run(
        lambda connection: connection.execute(sa.text("select count(*) from tool_pins")).scalar()
    )
    assert rows == 2

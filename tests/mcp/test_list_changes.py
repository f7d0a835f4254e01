"""Frequent notifications of servers, and lines that are not part of the protocol."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bot.domain.characters import visible
from bot.domain.servers import DesiredServer, ServerCapabilities
from bot.examination import CheckStatus
from bot.mcp.server.output import StrayLine, StrayLineCounter
from tests.mcp.toolboxes import call, connected_toolbox, faster, raw, tool_by_name, tools_of, until

PACING = faster(apart=5.0, quiet_after=None)


class Clock:
    """Real time plus an offset that the test increases."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def script(record: Path, *listings: list[str], lines: int = 1_000) -> dict[str, Any]:
    return {
        "era": "legacy",
        "listings": [[{"tools": [tool(name) for name in names]}] for names in listings],
        "calls": {"flood": {"do": "flood", "with": "changes", "lines": lines}, "change": {"do": "change"}},
        "record": str(record),
    }


def lists(record: Path) -> int:
    return record.read_text().count('"tools/list"')


async def wait_for_listings(record: Path, count: int) -> None:
    """Wait for `count` listings, and check that no other follows within ten times the pause."""
    await until(lambda: lists(record) == count)
    await asyncio.sleep(10 * PACING.waits.settle)
    assert lists(record) == count


async def test_a_thousand_announcements_are_two_lists_at_once_and_one_more_after_five_seconds(tmp_path: Path) -> None:
    record, clock = tmp_path / "record", Clock()
    told = script(record, ["flood", "change"], ["flood", "change", "new"])
    async with connected_toolbox(raw(script=told), pacing=PACING, clock=clock) as box:
        await wait_for_listings(record, 1)
        clock.ahead += 5
        await call(tool_by_name(box, "flood"), box)
        await until(lambda: lists(record) == 2)
        await call(tool_by_name(box, "flood"), box)
        await call(tool_by_name(box, "change"), box)
        await wait_for_listings(record, 2)
        clock.ahead += 5
        await until(lambda: lists(record) == 3)
        await until(lambda: len(tools_of(box)) == 3)
        await wait_for_listings(record, 3)


async def test_an_announcement_without_a_change_is_not_reported(tmp_path: Path) -> None:
    record, clock, kept = tmp_path / "record", Clock(), list[int]()

    async def keep(_server: str, known: ServerCapabilities) -> None:
        kept.append(len(known.tools))

    told = script(record, ["flood", "change"], ["flood", "change", "new"], lines=1)
    async with connected_toolbox(raw(script=told), pacing=PACING, clock=clock, on_synced=keep) as box:
        await until(lambda: kept == [2])
        for name, count in (("flood", 2), ("change", 3)):
            clock.ahead += 5
            await call(tool_by_name(box, name), box)
            await wait_for_listings(record, count)
        await until(lambda: len(kept) == 2)
    assert kept == [2, 3]


async def test_a_log_on_standard_output_is_warned_of_once_with_one_of_its_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: dict[str, Any] = {
        "listings": [[{"tools": [tool("much"), tool("little")]}]],
        "calls": {
            "much": {"do": "flood", "with": "junk", "lines": 500},
            "little": {"do": "flood", "with": "junk", "lines": 15},
        },
    }
    async with connected_toolbox(DesiredServer(raw(script=told), secrets=frozenset(["DEBUG line"]))) as box:
        await call(tool_by_name(box, "little"), box)
        assert not [check async for check in box.diagnose("file:s") if check.name == "output"]
        await call(tool_by_name(box, "much"), box)
        [output] = [check async for check in box.diagnose("file:s") if check.name == "output"]
        assert (output.finding, output.fix) == (CheckStatus.DOUBTFUL, "let it log to its standard error")
        assert "such as: *** " in output.detail
        await call(tool_by_name(box, "much"), box)
    warnings = [record.getMessage() for record in caplog.records if "no message" in record.getMessage()]
    assert len(warnings) == 1
    assert "MCP server s writes to its standard output" in warnings[0]
    assert "DEBUG" not in caplog.text


def test_twenty_lines_a_minute_are_nobodys_trouble_and_a_long_line_is_shown_short() -> None:
    clock = Clock()
    count = StrayLineCounter("s", clock)
    for _ in range(5):
        for _ in range(20):
            count.add(StrayLine(b"\x1b[31mnoise " + b"x" * 5_000), visible)
        clock.ahead += 61
    assert not count.example
    for _ in range(21):
        count.add(StrayLine(b"\x1b[31mnoise " + b"x" * 5_000), visible)
    assert len(count.example) == 201
    assert count.example.isprintable()


def test_a_line_that_is_too_long_is_not_stored() -> None:
    assert len(StrayLine(b"x" * 8_000_000).line) == 2_000

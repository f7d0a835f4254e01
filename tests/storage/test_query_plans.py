"""Query plans of SQLite. The queries of a turn must not scan tables that only grow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.storage.reporting import SqlReporting
from bot.storage.sqlite import SqliteDatabase
from tests.fakes.parts import HALL, NEWEST, message
from tests.turn_log_harness import SqliteHarness, sqlite_harness

GROWING = (
    "turns|steps|approvals|decisions|deliveries|message_refs|message_keys|conversations|usage|audit|files|elicitations"
)
WHOLE = re.compile(rf"SCAN ({GROWING}|[a-z_]+)(?: USING (?:COVERING )?INDEX (\w+))?$")
SMALL = frozenset(
    {
        "turns_live", "turns_principal", "turns_one_active", "turns_with_content", "deliveries_stale",
        "approvals_to_remind",
    }
)  # fmt: skip
"""Indexes of unfinished work. A full scan of them is intended."""
ALIASES = frozenset({"candidate", "other", "theirs", "waiting_behind", "ahead"})


@contextmanager
def plans(database: SqliteDatabase) -> Iterator[dict[str, list[str]]]:
    """Collect the query plans of all statements executed in the block."""
    found: dict[str, list[str]] = {}

    def explain(_connection: object, cursor: object, words: str, given: object, _context: object, many: bool) -> None:
        if words.startswith(("SELECT", "UPDATE", "DELETE", "WITH")) and words not in found:
            raw = cursor.connection  # type: ignore[attr-defined]
            first = given[0] if many else given  # type: ignore[index]
            found[words] = [row[3] for row in raw.execute(f"explain query plan {words}", first)]

    sa.event.listen(database._engine, "before_cursor_execute", explain)
    yield found
    sa.event.remove(database._engine, "before_cursor_execute", explain)


def reads_all_of(step: str) -> str:
    """Return the growing table that this step of a plan scans; empty if it scans none."""
    match = WHOLE.match(step)
    if match is None or match[2] in SMALL:
        return ""
    return match[1] if re.fullmatch(GROWING, match[1]) or match[1] in ALIASES else ""


def reading_everything(found: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the statements that scan a growing table, with the step of their plan."""
    return {
        words: step
        for words, steps in found.items()
        for step in steps
        # The last audit entry is the first row of the index in reverse order.
        if reads_all_of(step) and not re.search(r"FROM audit ORDER BY audit\.seq DESC", words)
    }


async def run_all_queries(harness: SqliteHarness) -> None:
    log = harness.log
    receipt = await log.enqueue(message("hi"))
    await log.enqueue(message("and then?"))
    (claim,) = await log.claim(8)
    await log.acquire_delivery(receipt.turn_id, 0)
    await log.history(HALL, 1, 100)
    call = ToolCall("c2", "s__write")
    step = ToolStep(2, call, ToolRef("s", "write"), StepStatus.READY)
    await log.append(claim, ModelStep(1, assistant("", call)), [step])
    await log.start_call(claim, 2)
    await log.renew([claim])
    await log.finish_call(claim, 2, StepStatus.DONE, ToolResult("c2", (TextPart("ok"),)), 0.1)
    await log.finish(claim, TurnStatus.DONE, [ModelStep(3, assistant("Done."))], "")
    await log.mark_delivered(receipt.turn_id, NEWEST)
    for view in await log.stale_views("", 20):
        await log.get_view(view)
    await log.renew_deliveries([receipt.turn_id])
    await log.recent_turns(HALL, 10)
    await log.claim(8)
    await SqlReporting(harness.database).backlog()


async def test_no_statement_of_a_turn_reads_a_table_that_grows_from_end_to_end(tmp_path: Path) -> None:
    harness = await sqlite_harness(tmp_path)
    assert isinstance(harness.database, SqliteDatabase)
    with plans(harness.database) as found:
        await run_all_queries(harness)
    await harness.close()
    assert len(found) > 15
    assert reading_everything(found) == {}


async def test_the_deletion_of_content_reads_only_turns_that_have_some(tmp_path: Path) -> None:
    harness = await sqlite_harness(tmp_path)
    assert isinstance(harness.database, SqliteDatabase)
    await run_all_queries(harness)
    harness.time += 1
    with plans(harness.database) as found:
        assert await harness.log.delete_content(9, fetch_seconds=0.0, undelivered_seconds=0.0) == 1
        await harness.log.history(HALL, 9, 9)
    await harness.close()
    assert any("turns_with_content" in step for steps in found.values() for step in steps)
    assert reading_everything(found) == {}


@pytest.mark.parametrize(
    ("step", "table"),
    [
        ("SCAN candidate USING INDEX turns_created", "candidate"),
        ("SCAN turns", "turns"),
        ("SCAN candidate USING INDEX turns_live", ""),
        ("SEARCH turns USING INDEX turns_live (created_at>?)", ""),
        ("SCAN grants", ""),
    ],
)
def test_a_plan_that_reads_everything_is_seen(step: str, table: str) -> None:
    assert reads_all_of(step) == table

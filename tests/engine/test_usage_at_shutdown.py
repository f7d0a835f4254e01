"""Usage that is not yet recorded when the process stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bot.domain.completions import TextDelta
from bot.domain.turns import Claim
from bot.domain.usage import UsageEntry, UsageTotal
from bot.engine import usage
from bot.engine.usage import estimate_text
from bot.errors import DatabaseUnavailable
from tests.engine.conftest import EngineHarness
from tests.engine.test_usage_metering import CUT, HALF, Counting, Waits, running_question, usage_total


async def test_usage_that_could_not_be_written_is_written_when_the_process_leaves(harness: EngineHarness) -> None:
    harness.log = Counting(harness, DatabaseUnavailable("The database is away."))
    gate = Waits()
    async with running_question(harness, [TextDelta(HALF), CUT], [gate]):
        await gate.reached.wait()
        assert await usage_total(harness) == UsageTotal()
    found = await usage_total(harness)
    assert (found.requests, found.usage.output_tokens) == (1, round(estimate_text(HALF)))


async def test_a_process_that_leaves_waits_for_no_database(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "SETTLE_SECONDS", 0.05)

    class Away(Counting):
        async def record_usage(self, _uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
            await asyncio.Event().wait()

    harness.log = Away(harness)
    gate = Waits()
    async with asyncio.timeout(30):
        async with running_question(harness, [TextDelta(HALF), CUT], [gate]):
            await gate.reached.wait()
    assert await usage_total(harness) == UsageTotal()

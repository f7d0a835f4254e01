"""`/usage`: the usage that a user sees, and its format."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.admin.usage import MOST_NAMES, ROWS
from bot.domain.completions import Usage
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitStatus,
    LimitUnit,
    UsageGrouping,
    UsageLimit,
    UsageQuery,
    UsageTotal,
)
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, GUEST, OPERATOR, CommandHarness, command_harness

MONTH = LimitPeriod.MONTH.start_of_period(NOW)
PAID = UsageTotal(3, Usage(12_000, 3_000, 4_000, 500, 100), {"EUR": 420_000}, 0, questions=2)
FREE = UsageTotal(1, Usage(10, 5), {}, 1, questions=1)
PERSON_A_DAY = LimitStatus(
    UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 20_000), 15_015, NOW + 7 * 3600, "EUR"
)
CHANNEL_A_DAY = LimitStatus(
    UsageLimit(LimitScope.CHANNEL, LimitPeriod.DAY, LimitUnit.TOKENS, 20_000), 15_015, NOW + 7 * 3600, "EUR"
)
WORKSPACE_A_MONTH = LimitStatus(
    UsageLimit(LimitScope.WORKSPACE, LimitPeriod.MONTH, LimitUnit.MONEY, 400_000), 420_000, NOW + 5 * 86400, "EUR"
)


@pytest.fixture
def harness() -> CommandHarness:
    held = command_harness()
    held.usage.spent = {"anthropic:best": PAID, "demo": FREE}
    held.usage.limits = [PERSON_A_DAY, CHANNEL_A_DAY, WORKSPACE_A_MONTH]
    return held


async def test_users_see_the_usage_of_their_questions_this_month_by_model(harness: CommandHarness) -> None:
    for line in ("usage", "usage me", "usage mine"):
        reply = await harness.ask(line, GUEST)
        assert harness.usage.looks.pop() == (UsageQuery(MONTH, person="test:ben"), UsageGrouping.MODEL)
    since = datetime.fromtimestamp(MONTH, UTC)
    assert reply.text == f"Your usage · 3 questions · 15,015 tokens · 0.42 EUR · since {since.day} {since:%b %Y}"
    assert reply.table is not None
    assert reply.table.headings == ("model", "questions", "in", "cached", "out", "cost")
    assert reply.table.rows == (
        ("anthropic:best", "2", "12,000", "4,000", "3,000", "0.42 EUR"),
        ("demo", "1", "10", "0", "5", "no price"),
    )
    assert dict(reply.details) == {
        "your limit a day": "15,015 of 20,000 tokens; resets at 15:00 UTC, in 7 h",
        "this channel's limit a day": "15,015 of 20,000 tokens; resets at 15:00 UTC, in 7 h",
        "this workspace's limit a month": ("0.42 of 0.40 EUR, nothing is left; resets at 08:00 UTC, in 5 days"),
        "written to the cache": "500 tokens of those that went in",
        "reasoning": "100 tokens of those that came out",
        "without a price": "1 of 4 requests to models; not counted as money. "
        "The operator sets prices in config/prices.toml",
    }


async def test_the_total_is_that_of_the_shown_rows_under_concurrent_writes(harness: CommandHarness) -> None:
    harness.usage.coming = {"late": PAID}
    reply = await harness.ask("usage", GUEST)
    assert reply.data is not None
    assert len(reply.data["sums"]) == 2
    assert reply.data["total"]["requests"] == sum(each["requests"] for each in reply.data["sums"])
    assert "15,015 tokens · 0.42 EUR" in reply.text


async def test_names_that_are_left_out_of_the_sums_are_counted(harness: CommandHarness) -> None:
    harness.usage.spent = {f"model-{n:04}": FREE for n in range(MOST_NAMES + 3)}
    harness.usage.limits = []
    reply = await harness.ask("usage", GUEST)
    assert reply.data is not None
    assert (len(reply.data["sums"]), reply.data["omitted"]) == (MOST_NAMES, 3)
    assert reply.data["total"]["requests"] == MOST_NAMES + 3


async def test_partly_estimated_usage_is_marked_and_counted(harness: CommandHarness) -> None:
    harness.usage.spent = {"anthropic:best": replace(PAID, estimated=2), "demo": FREE}
    harness.usage.limits = []
    reply = await harness.ask("usage", GUEST)
    assert reply.text.startswith("Your usage · 3 questions · ~15,015 tokens · ~0.42 EUR · since ")
    assert reply.table is not None
    assert reply.table.rows == (
        ("anthropic:best", "2", "~12,000", "4,000", "~3,000", "~0.42 EUR"),
        ("demo", "1", "10", "0", "5", "no price"),
    )
    assert dict(reply.details)["estimated"].startswith(
        "2 of 4 requests to models; the provider did not report all of it"
    )
    assert reply.data is not None
    assert reply.data["total"]["estimated"] == 2


async def test_since_the_beginning_of_time_is_no_default(harness: CommandHarness) -> None:
    await harness.ask("usage --since 1970-01-01", GUEST)
    assert harness.usage.looks == [(UsageQuery(0.0, person="test:ben"), UsageGrouping.MODEL)]


async def test_options_without_a_verb_are_those_of_ones_own_usage(harness: CommandHarness) -> None:
    await harness.ask("usage --since 2h", GUEST)
    assert harness.usage.looks == [(UsageQuery(NOW - 2 * 3600, person="test:ben"), UsageGrouping.MODEL)]
    refused = await harness.ask("usage --channel C1", GUEST)
    assert refused.failed
    assert "/usage me [--since TIME]" in refused.text


@pytest.mark.parametrize("verb", ["channel", "workspace", "all"])
async def test_usage_of_others_is_for_admins(harness: CommandHarness, verb: str) -> None:
    reply = await harness.ask(f"usage {verb}", GUEST)
    assert reply.failed
    assert "Only test:ana can do this" in reply.text
    assert harness.usage.looks == []


async def test_admins_see_their_channel_and_their_workspace_by_the_grouping_they_choose(
    harness: CommandHarness,
) -> None:
    reply = await harness.ask("usage channel")
    assert [name for name, _ in reply.details][:2] == ["this channel's limit a day", "this workspace's limit a month"]
    await harness.ask("usage workspace --by channel --since 2h")
    assert harness.usage.looks == [
        (UsageQuery(MONTH, channel="test:w:hall", workspace="test:w"), UsageGrouping.PERSON),
        (UsageQuery(NOW - 7200, workspace="test:w"), UsageGrouping.CHANNEL),
    ]


async def test_all_workspaces_are_the_operators(harness: CommandHarness) -> None:
    refused = await harness.ask("usage all", ADMIN)
    assert refused.failed
    assert "Only the operator sees every workspace" in refused.text
    assert harness.usage.looks == []
    await harness.ask("usage all", OPERATOR)
    assert harness.usage.looks == [(UsageQuery(MONTH), UsageGrouping.WORKSPACE)]


async def test_without_requests_the_limits_are_shown(harness: CommandHarness) -> None:
    harness.usage.spent = {}
    reply = await harness.ask("usage", GUEST)
    assert reply.text.startswith("Your usage: no model was asked since ")
    assert len(reply.details) == 3
    assert reply.table is None


async def test_a_long_list_says_how_many_names_it_leaves_out(harness: CommandHarness) -> None:
    harness.usage.spent = {f"test:p{number}": PAID for number in range(ROWS + 2)}
    reply = await harness.ask("usage workspace")
    assert reply.table is not None
    assert len(reply.table.rows) == ROWS
    assert dict(reply.details)["left out"] == "2 names"


async def test_a_time_that_is_none_is_told_and_so_is_a_sum_that_is_not_made(harness: CommandHarness) -> None:
    for line in (
        "usage --since yesterday",
        "usage --since 0001-01-01T00:00+14:00",
        "usage me --since 2026-13-01",
        "usage workspace --by moon",
    ):
        reply = await harness.ask(line)
        assert reply.failed, line
    assert harness.usage.looks == []


async def test_verbs_and_their_options_complete(harness: CommandHarness) -> None:
    complete = harness.registry.complete
    from tests.fakes.parts import HALL  # noqa: PLC0415

    assert complete("usa", HALL) == ["usage"]
    assert set(complete("usage ", HALL)) >= {"usage me", "usage channel", "usage workspace", "usage all", "usage help"}
    assert set(complete("usage workspace --by ", HALL)) == {f"usage workspace --by {each}" for each in UsageGrouping}

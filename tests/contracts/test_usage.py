"""Usage of models, on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.domain.usage import Price, PriceList, UsageEntry, UsageGrouping, UsageKind, UsageQuery, UsageTotal, channel_of
from bot.errors import LostLease, Stopped
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.usage import SqlUsageStore
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import START, Harness

EURO = PriceList("EUR", (Price("paid:*", Decimal(3), Decimal("0.3"), Decimal("3.75"), Decimal(15)),))
DOLLAR = PriceList("USD", (Price("*", Decimal(1), Decimal(1), Decimal(1), Decimal(1)),))
TAKEN = Usage(1000, 200, 400, 100, 50)
COST = 500 * 3 + 400 * 3 // 10 + 375 + 200 * 15
EVER = UsageQuery(0)
ELSEWHERE = ConversationKey("test", "w", "den", "1")
BEYOND = ConversationKey("test", "v", "hall", "1")
DAY = 86_400.0


def answer(n: int = 1, model: str = "paid:best", usage: Usage = TAKEN) -> ModelStep:
    return ModelStep(n, assistant("Done."), StopReason.ANSWERED, usage, model=model)


def counted_as(use_id: str) -> UsageEntry:
    return UsageEntry(use_id, 1, UsageKind.REPLY, "paid:best", TAKEN)


def set_prices(harness: Harness, prices: PriceList = EURO) -> SqlTurnLog:
    harness.log = SqlTurnLog(harness.database, prices=prices)
    return harness.log


async def begun(harness: Harness, where: ConversationKey = HALL, **more: object) -> Claim:
    before = (await whole(harness)).requests
    await harness.log.enqueue(message(f"hi {before}", conversation=where, **more))  # type: ignore[arg-type]
    (claim,) = await harness.log.claim(1)
    return claim


async def finish_turn(harness: Harness, step: ModelStep, where: ConversationKey = HALL, **more: object) -> Claim:
    claim = await begun(harness, where, **more)
    await harness.log.finish(claim, TurnStatus.DONE, [step], "")
    return claim


async def whole(harness: Harness, query: UsageQuery = EVER) -> UsageTotal:
    (found,) = await SqlUsageStore(harness.database).totals([query])
    return found


async def tokens_by_name(harness: Harness, by: UsageGrouping, query: UsageQuery = EVER) -> dict[str, int]:
    return {name: spent.tokens for name, spent in await SqlUsageStore(harness.database).totals_by(query, by)}


async def test_every_reply_is_counted_with_its_model_its_tokens_and_its_cost(harness: Harness) -> None:
    log = set_prices(harness)
    claim = await begun(harness)
    wants = ModelStep(1, assistant("", ToolCall("c2", "s__read")), StopReason.TOOLS, Usage(10, 5), model="other:free")
    await log.append(
        claim, wants, [ToolStep(2, ToolCall("c2", "s__read"), ToolRef("s", "read"), StepStatus.DONE, repeatable=True)]
    )
    await log.finish(claim, TurnStatus.DONE, [answer(3)], "")
    found = await whole(harness)
    assert found == UsageTotal(2, Usage(1010, 205, 400, 100, 50), {"EUR": COST}, unpriced=1)
    assert await tokens_by_name(harness, UsageGrouping.MODEL) == {"paid:best": 1200, "other:free": 15}


async def test_a_question_is_counted_once_however_often_models_are_asked_for_it(harness: Harness) -> None:
    log = set_prices(harness)
    claim = await begun(harness)
    wants = ModelStep(1, assistant("", ToolCall("c2", "s__read")), StopReason.TOOLS, Usage(10, 5), model="other:free")
    await log.append(
        claim, wants, [ToolStep(2, ToolCall("c2", "s__read"), ToolRef("s", "read"), StepStatus.DONE, repeatable=True)]
    )
    await log.finish(claim, TurnStatus.DONE, [answer(3)], "")
    await finish_turn(harness, answer(), where=ELSEWHERE)
    store = SqlUsageStore(harness.database)
    counts = {
        by: {name: spent.questions for name, spent in await store.totals_by(EVER, by)}
        for by in (UsageGrouping.MODEL, UsageGrouping.WORKSPACE, UsageGrouping.PERSON)
    }
    assert counts == {
        UsageGrouping.MODEL: {"paid:best": 2, "other:free": 1},
        UsageGrouping.WORKSPACE: {"test:w": 2},
        UsageGrouping.PERSON: {ANA.principal: 2},
    }
    assert await store.count_questions(EVER) == 2
    assert await store.count_questions(UsageQuery(0, channel=channel_of(ELSEWHERE), workspace="test:w")) == 1


async def test_nothing_is_counted_where_no_model_was_asked(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.finish(claim, TurnStatus.FAILED, (), "no")
    assert await whole(harness) == UsageTotal()
    assert await tokens_by_name(harness, UsageGrouping.PERSON) == {}


async def test_sums_are_made_by_person_channel_workspace_and_kind(harness: Harness) -> None:
    await finish_turn(harness, answer(usage=Usage(1, 0)))
    await finish_turn(harness, answer(usage=Usage(10, 0)), ELSEWHERE, author=BEN)
    claim = await finish_turn(harness, answer(usage=Usage(100, 0)), BEYOND)
    await harness.log.record_usage([(claim, UsageEntry("u1", 0, UsageKind.SUMMARY, "paid:best", Usage(1000, 0)))])
    assert await tokens_by_name(harness, UsageGrouping.PERSON) == {ANA.principal: 1101, BEN.principal: 10}
    assert await tokens_by_name(harness, UsageGrouping.CHANNEL) == {
        "test:w:hall": 1,
        "test:w:den": 10,
        "test:v:hall": 1100,
    }
    assert await tokens_by_name(harness, UsageGrouping.WORKSPACE) == {"test:w": 11, "test:v": 1100}
    assert await tokens_by_name(harness, UsageGrouping.KIND) == {"reply": 111, "summary": 1000}
    assert (await whole(harness, UsageQuery(0, person=ANA.principal, workspace="test:v"))).tokens == 1100
    assert (await whole(harness, UsageQuery(0, channel="test:w:den"))).tokens == 10


async def test_a_conversation_over_http_counts_for_the_workspace_it_is_held_in(harness: Harness) -> None:
    await finish_turn(harness, answer(usage=Usage(7, 0)), ConversationKey("api", "test:w", "ci", "order-17"))
    assert await tokens_by_name(harness, UsageGrouping.WORKSPACE) == {"test:w": 7}


async def test_only_usage_since_then_counts(harness: Harness) -> None:
    await finish_turn(harness, answer(usage=Usage(1, 0)))
    harness.time += DAY
    await finish_turn(harness, answer(usage=Usage(10, 0)))
    assert (await whole(harness, UsageQuery(START + DAY))).tokens == 10
    assert await tokens_by_name(harness, UsageGrouping.PERSON, UsageQuery(START + DAY + 1)) == {}


async def test_usage_keeps_the_price_of_its_day(harness: Harness) -> None:
    set_prices(harness)
    await finish_turn(harness, answer())
    set_prices(harness, DOLLAR)
    await finish_turn(harness, answer())
    assert (await whole(harness)).costs == {"EUR": COST, "USD": 1200}


async def test_usage_stays_when_turns_are_deleted_and_has_a_retention_of_its_own(harness: Harness) -> None:
    claim = await finish_turn(harness, answer())
    await harness.log.acquire_delivery(claim.turn_id, 99)
    await harness.log.mark_delivered(claim.turn_id, 99)
    harness.time += 2 * DAY
    await finish_turn(harness, answer(), ELSEWHERE)
    assert await harness.log.delete_old(DAY, 100) == 1
    assert (await whole(harness)).requests == 2
    assert await SqlUsageStore(harness.database).delete_old(DAY, 100) == 1
    assert await SqlUsageStore(harness.database).delete_old(DAY, 100) == 0
    assert await tokens_by_name(harness, UsageGrouping.CHANNEL) == {"test:w:den": 1200}


async def test_it_stays_when_the_conversation_is_deleted_and_says_nothing_of_it(harness: Harness) -> None:
    await finish_turn(harness, answer())
    assert await SqlReporting(harness.database).delete(HALL, ANA)
    assert await tokens_by_name(harness, UsageGrouping.CHANNEL) == {"test:w:hall": 1200}


async def test_a_reply_of_a_turn_that_was_stopped_meanwhile_was_paid_for(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.stop(claim.turn_id, BEN)
    with pytest.raises(Stopped):
        await harness.log.append(claim, answer(), [])
    assert (await whole(harness)).requests == 1
    record = await harness.log.finish(claim, TurnStatus.DONE, [answer(2)], "")
    assert (record.turn.status, [step.n for step in record.steps]) == (TurnStatus.CANCELLED, [2])
    assert (await whole(harness)).requests == 2


async def test_a_reply_that_came_after_the_lease_was_lost_was_paid_for_once(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.finish(claim, TurnStatus.FAILED, (), "no")
    with pytest.raises(LostLease):
        await harness.log.append(claim, answer(), [])
    assert (await whole(harness)).requests == 1


@pytest.mark.parametrize("ends", [True, False])
async def test_a_reply_is_paid_for_that_is_being_written_when_its_task_is_cancelled(
    harness: Harness, ends: bool
) -> None:
    claim = await begun(harness)
    if ends:
        await harness.log.finish(claim, TurnStatus.FAILED, (), "no")
        writing = asyncio.create_task(harness.log.finish(claim, TurnStatus.DONE, [answer()], ""))
    else:
        await harness.log.stop(claim.turn_id, BEN)
        writing = asyncio.create_task(harness.log.append(claim, answer(), []))
    await asyncio.sleep(0)  # the write has begun
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    async with asyncio.timeout(10):
        while not (await whole(harness)).requests:
            await asyncio.sleep(0.01)
    assert (await whole(harness)).requests == 1


async def test_a_reply_to_a_turn_that_others_have_ended_under_the_same_claim_was_paid_for(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.release([claim])
    await harness.log.stop(claim.turn_id, BEN)
    await harness.log.finish(claim, TurnStatus.DONE, [answer()], "")
    assert (await whole(harness)).requests == 1


# Replies that are running or broke off


def begun_reply(written: int, *, estimated: bool = True, model: str = "paid:best", use_id: str = "u1") -> UsageEntry:
    return UsageEntry(use_id, 1, UsageKind.REPLY, model, Usage(1000, written), estimated)


async def test_an_estimate_grows_with_the_reply_and_is_one_request(harness: Harness) -> None:
    log = set_prices(harness)
    claim = await begun(harness)
    for written in (10, 40, 40):
        await log.record_usage([(claim, begun_reply(written))])
        found = await whole(harness)
        assert found == UsageTotal(1, Usage(1000, written), {"EUR": 3000 + written * 15}, estimated=1)
    assert await tokens_by_name(harness, UsageGrouping.PERSON) == {ANA.principal: 1040}


async def test_an_estimate_that_comes_late_makes_nothing_less(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.record_usage([(claim, begun_reply(40))])
    await harness.log.record_usage([(claim, begun_reply(10))])
    assert (await whole(harness)).usage == Usage(1000, 40)


@pytest.mark.parametrize("ends", [True, False])
async def test_the_reply_takes_the_place_of_its_estimate_at_once_and_for_good(harness: Harness, ends: bool) -> None:
    log = set_prices(harness)
    claim = await begun(harness)
    await log.record_usage([(claim, begun_reply(900, model="other:free"))])
    reply = replace(answer(), use=counted_as("u1"))
    if ends:
        await log.finish(claim, TurnStatus.DONE, [reply], "")
    else:
        await log.append(claim, reply, [])
    counted = UsageTotal(1, TAKEN, {"EUR": COST})
    assert await whole(harness) == counted
    await log.record_usage([(claim, begun_reply(2000))])  # estimated before the append, written after it
    await log.record_usage([(claim, begun_reply(0, estimated=False))])
    assert await whole(harness) == counted


async def test_a_reply_that_cannot_be_stored_is_counted_once_after_many_reports(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.stop(claim.turn_id, BEN)
    with pytest.raises(Stopped):
        await harness.log.append(claim, replace(answer(), use=counted_as("u1")), [])
    await harness.log.record_usage([(claim, UsageEntry("u1", 1, UsageKind.REPLY, "paid:best", TAKEN))])
    assert await whole(harness) == UsageTotal(1, TAKEN, unpriced=1)


async def test_broken_off_replies_are_counted_for_ended_turns_and_for_several_at_once(harness: Harness) -> None:
    one = await finish_turn(harness, answer(usage=Usage(1, 0)))
    two = await begun(harness, ELSEWHERE, author=BEN)
    await harness.log.record_usage([(one, begun_reply(1)), (two, begun_reply(2, use_id="u2"))])
    assert await tokens_by_name(harness, UsageGrouping.PERSON) == {ANA.principal: 1002, BEN.principal: 1002}
    assert (await whole(harness)).estimated == 2
    assert (await whole(harness, UsageQuery(0, channel="test:w:den"))).estimated == 1


async def test_an_estimate_from_before_the_process_died_stays(harness: Harness) -> None:
    claim = await begun(harness)
    await harness.log.record_usage([(claim, begun_reply(40))])
    harness.time += DAY
    log = await harness.restart()
    (again,) = await log.claim(1)
    await log.finish(again, TurnStatus.DONE, [replace(answer(), use=counted_as("u2"))], "")
    assert await whole(harness) == UsageTotal(2, Usage(2000, 240, 400, 100, 50), unpriced=2, estimated=1)

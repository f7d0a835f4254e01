"""Usage limits on tokens and money in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from bot.domain.completions import Completion, StopReason, Usage
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import ModelStep, TurnStatus, TurnView
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitUnit,
    Price,
    PriceList,
    UsageGrouping,
    UsageLimit,
    UsageOwner,
    UsageQuery,
    UsageTotal,
)
from bot.engine.engine import Engine
from bot.engine.scheduler import BATCH, DAY_SECONDS, usage_retention
from bot.engine.turn_runner import MOST_TURNS
from bot.engine.usage import LARGE_REQUESTS, LARGE_SECONDS, UsageLimiter
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.usage import SqlUsageStore
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, message, running, say, tool, until

NOON = datetime(2026, 8, 31, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
PRICES = PriceList("EUR", (Price("paid", Decimal(3), Decimal(3), Decimal(3), Decimal(15)),))
TOKENS_A_DAY = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 1_000)
ELSEWHERE = ConversationKey("test", "w", "den", "1")


def costs(usage: Usage, text: str = "Here.") -> Completion:
    return Completion(assistant(text), StopReason.ANSWERED, usage, "paid")


def limited_engine(harness: EngineHarness, *limits: UsageLimit) -> Engine:
    harness.clock[0] = max(harness.clock[0], NOON)
    harness.log = SqlTurnLog(harness.database, prices=PRICES)
    return harness.engine(allow=_spending(harness, *limits).check)


def _spending(harness: EngineHarness, *limits: UsageLimit) -> UsageLimiter:
    return UsageLimiter(limits, SqlUsageStore(harness.database), "EUR", clock=lambda: harness.clock[0])


async def run_turn(engine: Engine, harness: EngineHarness, said: InboundMessage) -> TurnView:
    receipt = await engine.receive(said)
    await harness.surface.wait_for_end(receipt.turn_id)
    return await engine.view(receipt.turn_id)


async def test_a_question_is_not_sent_once_the_limit_is_used_up_and_is_when_it_begins_anew(
    harness: EngineHarness,
) -> None:
    harness.model.script = [costs(Usage(900, 98)), costs(Usage(1, 1)), say("Good morning.")]
    engine = limited_engine(harness, TOKENS_A_DAY)
    async with running(engine):
        assert (await run_turn(engine, harness, message("one"))).turn.status is TurnStatus.DONE
        assert (await run_turn(engine, harness, message("one left"))).turn.status is TurnStatus.DONE
        refused = await run_turn(engine, harness, message("none left"))
        assert refused.turn.status is TurnStatus.FAILED
        assert refused.turn.failure == (
            "The request was not sent: your limit for today is used up, 1,000 of 1,000 tokens. "
            "It resets on 1 Sept 2026 at 00:00 UTC, in 12 h."
        )
        assert len(harness.model.requests) == 2
        harness.clock[0] += 12 * HOUR
        assert (await run_turn(engine, harness, message("tomorrow"))).turn.status is TurnStatus.DONE


async def test_a_begun_request_is_finished_over_the_limit(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    wants = ask_for(call("s__read"))
    harness.model.script = [Completion(wants.message, wants.stop, Usage(5_000, 0), "paid"), say("Done.")]
    engine = limited_engine(harness, TOKENS_A_DAY)
    async with running(engine):
        view = await run_turn(engine, harness, message("read"))
    assert view.turn.status is TurnStatus.DONE


async def test_each_person_has_a_limit_alone_and_a_channel_one_for_all(harness: EngineHarness) -> None:
    harness.model.script = [costs(Usage(500, 100)) for _ in range(4)]
    engine = limited_engine(
        harness,
        UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 500),
        UsageLimit(LimitScope.CHANNEL, LimitPeriod.MONTH, LimitUnit.TOKENS, 1_000),
    )
    sam = Author("test", "sam", "Sam")
    async with running(engine):
        await run_turn(engine, harness, message("one"))
        assert "your limit for today" in (await run_turn(engine, harness, message("two"))).turn.failure
        assert (await run_turn(engine, harness, message("three", author=BEN))).turn.status is TurnStatus.DONE
        full = await run_turn(engine, harness, message("four", author=sam))
        assert "this channel's limit for this month is used up, 1,200 of 1,000 tokens" in full.turn.failure
        assert "in 12 h" in full.turn.failure
        elsewhere = await run_turn(engine, harness, message("five", author=sam, conversation=ELSEWHERE))
        assert elsewhere.turn.status is TurnStatus.DONE


async def test_a_persons_limit_is_the_same_wherever_on_a_platform_they_ask(harness: EngineHarness) -> None:
    harness.model.script = [costs(Usage(900, 100)) for _ in range(4)]
    engine = limited_engine(harness, TOKENS_A_DAY)
    places = [
        HALL,
        ConversationKey("test", "w", "hall", "2"),
        ConversationKey("test", "w", "den", "1"),
        ConversationKey("test", "v", "hall", "1"),
    ]
    async with running(engine):
        views = [
            await run_turn(engine, harness, message(f"q{n}", conversation=where)) for n, where in enumerate(places)
        ]
    assert [view.turn.status for view in views] == [TurnStatus.DONE, *[TurnStatus.FAILED] * 3]
    assert len(harness.model.requests) == 1


async def test_questions_of_one_moment_pass_a_limit_once_and_no_further_than_that(harness: EngineHarness) -> None:
    harness.model.script = [costs(Usage(900, 100)) for _ in range(100)]
    engine = limited_engine(harness, TOKENS_A_DAY)
    async with running(engine):
        receipts = [
            await engine.receive(message(f"q{n}", conversation=ConversationKey("test", "w", "hall", str(n))))
            for n in range(100)
        ]
        views = [await harness.surface.wait_for_end(receipt.turn_id) for receipt in receipts]
    answered = sum(view.turn.status is TurnStatus.DONE for view in views)
    assert 1 <= answered == len(harness.model.requests) <= MOST_TURNS


async def test_money_is_limited_by_the_cost_of_replies(harness: EngineHarness) -> None:
    harness.model.script = [costs(Usage(10_000, 2_000)), say("No.")]
    engine = limited_engine(harness, UsageLimit(LimitScope.WORKSPACE, LimitPeriod.MONTH, LimitUnit.MONEY, 50_000))
    async with running(engine):
        await run_turn(engine, harness, message("one"))
        refused = await run_turn(engine, harness, message("two", author=BEN))
    assert "this workspace's limit for this month is used up, 0.06 of 0.05 EUR" in refused.turn.failure
    assert len(harness.model.requests) == 1


async def test_a_call_that_is_run_by_hand_asks_no_model_and_meets_no_limit(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    engine = limited_engine(harness, UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 0))
    async with running(engine):
        inbound_message = InboundMessage(("by hand",), HALL, ANA, "Run it", call=ToolCall("c1", "s__read"))
        assert (await run_turn(engine, harness, inbound_message)).turn.status is TurnStatus.DONE


async def test_where_no_limit_holds_nothing_is_looked_up(harness: EngineHarness) -> None:
    class Nobody:
        async def totals(self, queries: object) -> object:
            pytest.fail("it was looked up")

    only = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 0, "slack:*")
    spending = UsageLimiter((only,), Nobody())  # type: ignore[arg-type]
    assert await spending.statuses(UsageOwner.of(ANA, HALL)) == ()


async def test_the_reply_names_the_model_that_gave_it(harness: EngineHarness) -> None:
    harness.model.script = [costs(Usage(1, 1))]
    engine = limited_engine(harness)
    async with running(engine):
        view = await run_turn(engine, harness, message("hi"))
    assert [step.model for step in view.steps if isinstance(step, ModelStep)] == ["paid"]
    (found,) = await SqlUsageStore(harness.database).totals([UsageQuery(0)])
    assert found.costs == {"EUR": 18}


class Kept:
    """A usage store with fixed totals. It records the queries."""

    def __init__(self, requests: int) -> None:
        self.spent = UsageTotal(requests, Usage(10, 0))
        self.asked: list[UsageQuery] = []

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        self.asked += queries
        return [self.spent for _ in queries]

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        raise NotImplementedError

    async def count_questions(self, query: UsageQuery) -> int:
        raise NotImplementedError

    async def delete_old(self, seconds: float, limit: int) -> int:
        deleted, self.spent = min(self.spent.requests, limit), UsageTotal(max(0, self.spent.requests - limit))
        self.asked.append(UsageQuery(seconds))
        return deleted


@pytest.mark.parametrize(("requests", "looks"), [(LARGE_REQUESTS - 1, [1, 2, 3, 4]), (LARGE_REQUESTS, [1, 1, 2, 3])])
async def test_only_a_sum_of_many_requests_is_made_now_and_then(requests: int, looks: list[int]) -> None:
    usage, time = Kept(requests), [NOON]
    spending = UsageLimiter((TOKENS_A_DAY,), usage, clock=lambda: time[0])
    seen = []
    for moved in (0.0, LARGE_SECONDS - 1, 1.0, -HOUR):
        time[0] += moved
        (balance,) = await spending.statuses(UsageOwner.of(ANA, HALL))
        assert balance.used == 10
        seen.append(len(usage.asked))
    assert seen == looks


async def test_a_sum_that_ages_while_another_is_made_is_still_used_by_its_reader() -> None:
    class Slow(Kept):
        """A usage store that returns totals only after the event `held`."""

        def __init__(self) -> None:
            super().__init__(LARGE_REQUESTS)
            self.held: asyncio.Event | None = None

        async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
            found = await super().totals(queries)
            if self.held is not None:
                await self.held.wait()
            return found

    usage, time = Slow(), [NOON]
    limits = (TOKENS_A_DAY, UsageLimit(LimitScope.CHANNEL, LimitPeriod.DAY, LimitUnit.TOKENS, 1_000))
    spending = UsageLimiter(limits, usage, clock=lambda: time[0])
    await spending.statuses(UsageOwner.of(ANA, HALL))
    time[0] += LARGE_SECONDS - 1
    usage.held = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        early = group.create_task(spending.statuses(UsageOwner.of(ANA, ELSEWHERE)))
        await until(lambda: len(usage.asked) == 3)
        time[0] += 2
        late = group.create_task(spending.statuses(UsageOwner.of(ANA, HALL)))
        await until(lambda: len(usage.asked) == 5)
        usage.held.set()
    assert [balance.used for balance in (*early.result(), *late.result())] == [10] * 4


async def test_old_usage_is_deleted_in_batches_until_none_is_left() -> None:
    usage = Kept(2 * BATCH + 1)
    await usage_retention(usage, 400).do()
    assert usage.asked == [UsageQuery(400 * DAY_SECONDS)] * 4

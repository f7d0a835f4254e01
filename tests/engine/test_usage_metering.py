"""Usage of completions that were cut off, stopped, released, or lost with their process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import assistant
from bot.domain.metrics import null_sink
from bot.domain.turns import Claim, ModelStep, TurnStatus, TurnView
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitUnit,
    UsageEntry,
    UsageGrouping,
    UsageKind,
    UsageLimit,
    UsageQuery,
    UsageTotal,
)
from bot.engine.engine import Engine
from bot.engine.prompt.builder import ATTEMPTS
from bot.engine.prompt.history import HistoryBudget
from bot.engine.usage import NOTE_SECONDS, UsageLimiter, UsageMeter, UsageMeters, estimate_text
from bot.errors import DatabaseError, DatabaseUnavailable, ModelRejected, ModelUnavailable
from bot.llm.models import FallbackModel, InstrumentedModel
from bot.ports import LanguageModel
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.usage import SqlUsageStore
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, ScriptedModel, ask_for, call, message, running, say, until

REAL = Usage(1_000, 200, 400, 100, 50)
ANSWER = Completion(assistant("Done."), StopReason.ANSWERED, REAL, "paid")
HALF = "A sentence that is never finished, since its connection broke "
CUT = ModelUnavailable("The reply was cut off before its end.", retry_after=0.1)
BUSY = ModelUnavailable("It is asked too much.", retry_after=1.0)


class Waits:
    """A gate that holds up a completion until the test opens it or the request is cancelled."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def here(self) -> None:
        self.reached.set()
        await self.opened.wait()


Reply = Sequence[ModelEvent | Exception | Waits]


@dataclass
class Broken:
    """A model that streams the events of its next reply and may break off."""

    replies: list[Reply]
    requests: list[ModelRequest] = field(default_factory=list)
    capabilities: Capabilities = field(default_factory=Capabilities)

    async def get(self, _name: str) -> Broken:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for each in self.replies.pop(0):
            match each:
                case Exception():
                    raise each
                case Waits():
                    await each.here()
                case _:
                    yield each

    async def close(self) -> None:
        pass


@dataclass
class Asked:
    """A running engine with one received message."""

    harness: EngineHarness
    engine: Engine
    turn_id: str

    async def wait_for_end(self) -> TurnView:
        return await self.harness.surface.wait_for_end(self.turn_id)


def replying(harness: EngineHarness, *replies: Reply) -> Broken:
    model = Broken(list(replies))
    harness.model = cast("ScriptedModel", model)
    return model


async def sleep_briefly(seconds: float) -> None:
    """Sleep briefly. The loop that records running usage never wakes."""
    await (asyncio.sleep(min(seconds, 0.01)) if seconds < NOTE_SECONDS else asyncio.Event().wait())


@asynccontextmanager
async def running_question(harness: EngineHarness, *replies: Reply, **changes: Any) -> AsyncIterator[Asked]:
    """Receive a message in a running engine. Running usage is recorded soon with a `pause` of the harness only."""
    replying(harness, *replies)
    engine = harness.engine(**{"pause": sleep_briefly, **changes})
    async with running(engine):
        yield Asked(harness, engine, (await engine.receive(message("hi"))).turn_id)


async def usage_total(harness: EngineHarness) -> UsageTotal:
    (found,) = await SqlUsageStore(harness.database).totals([UsageQuery(0)])
    return found


async def by_model(harness: EngineHarness) -> dict[str, UsageTotal]:
    return dict(await SqlUsageStore(harness.database).totals_by(UsageQuery(0), UsageGrouping.MODEL))


async def wait_for_usage(harness: EngineHarness, requests: int) -> UsageTotal:
    """Return the recorded usage once `requests` requests are counted."""
    async with asyncio.timeout(10):
        while (found := await usage_total(harness)).requests < requests:
            await asyncio.sleep(0.005)
    return found


# Counted and estimated


HALF_TOKENS, WHOLE = round(estimate_text(HALF)), round(estimate_text(HALF * 2))
TEXT = {"text": "word " * 1_000}
GUESSED = -1
"""In place of input tokens that are estimated."""


def answer_with_usage(*counts: int) -> Completion:
    return replace(ANSWER, usage=Usage(*counts))


REST = (400, 100, 50)
EARLY, LATE = UsageReported(Usage(5_000, 30, 4_000, 500, 20)), UsageReported(Usage(1_000, 200))
AT_ONCE = replace(ask_for(call("s__write", **TEXT)), usage=Usage(1_000))
COUNTS: dict[str, tuple[list[Reply], int, Usage]] = {
    "cut off and repeated": ([[TextDelta(HALF), CUT], [ANSWER]], 1, Usage(GUESSED, 200 + HALF_TOKENS, *REST)),
    "unseen output": (
        [[ReasoningDelta(HALF), ToolCallDelta(HALF), CUT], [ANSWER]],
        1,
        Usage(GUESSED, 200 + WHOLE, *REST),
    ),
    "counted to a point": (
        [[EARLY, TextDelta(HALF), CUT], [ANSWER]],
        1,
        Usage(6_000, 230 + HALF_TOKENS, 4_400, 600, 70),
    ),
    "only begun": ([[UsageReported(Usage(5_000, 1)), CUT], [ANSWER]], 1, Usage(6_000, 201, *REST)),
    "not counted": ([[TextDelta(HALF), answer_with_usage()]], 1, Usage(GUESSED, HALF_TOKENS)),
    "output not counted": ([[TextDelta(HALF), answer_with_usage(1_000, 0, 400)]], 1, Usage(1_000, HALF_TOKENS, 400)),
    "text at once": ([[replace(answer_with_usage(1_000), message=assistant(HALF))]], 1, Usage(1_000, HALF_TOKENS)),
    "calls at once": ([[AT_ONCE], [ANSWER]], 1, Usage(2_000, 200 + round(estimate_text(json.dumps(TEXT))), *REST)),
    "empty": ([[replace(answer_with_usage(1_000), message=assistant(""))]], 0, Usage(1_000)),
    "output alone counted": (
        [[TextDelta(HALF), UsageReported(Usage(0, 200)), answer_with_usage(0, 200)]],
        1,
        Usage(GUESSED, 200),
    ),
    "lower at the end": ([[TextDelta(HALF), LATE, answer_with_usage(900, 150)]], 0, Usage(900, 150)),
    "no output at the end": ([[TextDelta(HALF), LATE, answer_with_usage(1_000)]], 0, Usage(1_000, 200)),
}
"""Replies, the number of estimated ones, and the usage of all of them."""


@pytest.mark.parametrize("reply", COUNTS)
async def test_each_request_counts_as_its_service_has_counted_it_or_by_an_estimate(
    harness: EngineHarness, reply: str
) -> None:
    replies, estimated, usage = COUNTS[reply]
    async with running_question(harness, *replies) as question:
        assert (await question.wait_for_end()).turn.status is TurnStatus.DONE
    found = await usage_total(harness)
    assert (found.requests, found.estimated) == (len(replies), estimated)
    if usage.input_tokens == GUESSED:
        assert found.usage.input_tokens > REAL.input_tokens * (len(replies) - 1) + estimate_text("hi")
        usage = replace(usage, input_tokens=found.usage.input_tokens)
    assert found.usage == usage


# Cut off


async def test_each_attempt_that_broke_off_counts_once_where_none_succeeds(harness: EngineHarness) -> None:
    cut: Reply = [TextDelta(HALF), CUT]
    async with running_question(harness, *[cut] * ATTEMPTS) as question:
        assert (await question.wait_for_end()).turn.status is TurnStatus.FAILED
    found = await usage_total(harness)
    assert (found.requests, found.estimated) == (ATTEMPTS, ATTEMPTS)


@pytest.mark.parametrize("refusal", [BUSY, CUT, ModelRejected("The key is wrong.")])
async def test_a_request_refused_before_any_reply_costs_nothing(harness: EngineHarness, refusal: Exception) -> None:
    async with running_question(harness, *[[refusal]] * ATTEMPTS) as question:
        assert (await question.wait_for_end()).turn.status is TurnStatus.FAILED
    assert await usage_total(harness) == UsageTotal()


# Stopped


async def test_a_reply_that_was_stopped_counts_as_far_as_it_came(harness: EngineHarness) -> None:
    gate = Waits()
    async with running_question(harness, [TextDelta(HALF), gate]) as question:
        await gate.reached.wait()
        await question.engine.stop(question.turn_id, BEN)
        assert (await question.wait_for_end()).turn.status is TurnStatus.CANCELLED
        found = await usage_total(harness)
    assert (found.requests, found.estimated) == (1, 1)
    assert found.usage.output_tokens == round(estimate_text(HALF))


async def test_a_reply_that_was_stopped_before_it_began_costs_nothing(harness: EngineHarness) -> None:
    gate = Waits()
    async with running_question(harness, [gate]) as question:
        await gate.reached.wait()
        await question.engine.stop(question.turn_id, BEN)
        await question.wait_for_end()
    assert await usage_total(harness) == UsageTotal()


async def test_a_finished_reply_that_is_stopped_in_the_same_moment_counts_as_its_service_has_counted_it(
    harness: EngineHarness,
) -> None:
    gate = Waits()

    class Lingering(Broken):
        """A model that is stopped while it closes the connection of a complete reply."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                await gate.here()

    harness.model = cast("ScriptedModel", Lingering([[TextDelta("Done."), ANSWER]]))
    engine = harness.engine(pause=sleep_briefly)
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await gate.reached.wait()
        await engine.stop(receipt.turn_id, BEN)
        view = await harness.surface.wait_for_end(receipt.turn_id)
    (written,) = view.steps
    assert isinstance(written, ModelStep)
    assert (view.turn.status, written.message.text) == (TurnStatus.CANCELLED, "Done.")
    assert await usage_total(harness) == UsageTotal(1, REAL, unpriced=1)


async def test_a_limit_counts_broken_off_replies(harness: EngineHarness) -> None:
    gate = Waits()
    limit = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 5_000)
    spending = UsageLimiter([limit], SqlUsageStore(harness.database), clock=lambda: harness.clock[0])
    async with running_question(
        harness, [UsageReported(Usage(5_000, 1)), gate], [ANSWER], allow=spending.check
    ) as question:
        await gate.reached.wait()
        await question.engine.stop(question.turn_id, ANA)
        await question.wait_for_end()
        receipt = await question.engine.receive(message("and now?"))
        refused = await harness.surface.wait_for_end(receipt.turn_id)
    assert "your limit for today is used up, 5,001 of 5,000 tokens" in refused.turn.failure


# Lost with their process


async def test_a_reply_under_way_is_counted_meanwhile_so_that_it_stays_if_its_process_is_killed(
    harness: EngineHarness,
) -> None:
    gate = Waits()
    async with running_question(harness, [TextDelta(HALF), gate, ANSWER], pause=harness.pause_briefly) as question:
        found = await wait_for_usage(harness, 1)
        assert (found.estimated, found.usage.output_tokens) == (1, round(estimate_text(HALF)))
        gate.opened.set()
        await question.wait_for_end()
        assert await usage_total(harness) == UsageTotal(1, REAL, unpriced=1)


async def test_a_reply_of_a_turn_that_is_given_back_counts_and_so_does_the_one_after_it(harness: EngineHarness) -> None:
    gate = Waits()
    async with running_question(harness, [TextDelta(HALF), gate]):
        await gate.reached.wait()
    assert (await usage_total(harness)).estimated == 1
    replying(harness, [ANSWER])
    async with running(harness.engine()):
        await harness.surface.wait_for(lambda view: view.turn.status is TurnStatus.DONE)
    found = await usage_total(harness)
    assert (found.requests, found.estimated) == (2, 1)


class Counting(SqlTurnLog):
    """A turn log that records the usage it is given. The first calls raise the errors in `trouble`."""

    def __init__(self, harness: EngineHarness, *trouble: Exception) -> None:
        super().__init__(harness.database)
        self.trouble = list(trouble)
        self.charged: list[Sequence[tuple[Claim, UsageEntry]]] = []

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        self.charged.append(uses)
        if self.trouble:
            raise self.trouble.pop(0)
        await super().record_usage(uses)


async def test_usage_that_cannot_be_written_at_once_is_written_later(harness: EngineHarness) -> None:
    log = harness.log = Counting(harness, *[DatabaseUnavailable("The database is away.")] * 2)
    gate = Waits()
    async with running_question(
        harness, [TextDelta(HALF), CUT], [gate, ANSWER], pause=harness.pause_briefly
    ) as question:
        found = await wait_for_usage(harness, 1)
        assert found.usage.output_tokens == round(estimate_text(HALF))
        gate.opened.set()
        await question.wait_for_end()
        written = len(log.charged)
        pauses = harness.pauses.count(NOTE_SECONDS)
        await until(lambda: harness.pauses.count(NOTE_SECONDS) > pauses + 9)
    assert (await usage_total(harness)).requests == 2
    assert len(log.charged) == written, "it is written no more once it was"


async def test_usage_that_cannot_be_written_at_all_holds_up_no_answer(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.log = Counting(harness, *[DatabaseError("The database failed.")] * 3)
    async with running_question(harness, [TextDelta(HALF), CUT], [ANSWER], pause=harness.pause_briefly) as question:
        assert (await question.wait_for_end()).turn.status is TurnStatus.DONE
    assert "not stored" in caplog.text


async def test_one_that_cannot_be_written_does_not_take_the_others_along(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello.")]
    async with running(engine := harness.engine()):
        receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
    before = (await usage_total(harness)).requests

    class Choosy(Counting):
        async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
            if any(use.model == "bad" for _, use in uses):
                raise DatabaseError("This one cannot be written.")
            await super().record_usage(uses)

    passing = asyncio.Event()

    async def pause(_seconds: float) -> None:
        if passing.is_set():
            await asyncio.Event().wait()
        passing.set()

    log = Choosy(harness, DatabaseUnavailable("The database is away."))
    meters = UsageMeters(log, pause)
    claim = Claim(receipt.turn_id, message("").conversation, 1)
    good, bad = UsageMeter(claim, meters), UsageMeter(claim, meters)
    for meter, model in ((good, "good"), (bad, "bad")):
        (await meter.begin(1, UsageKind.REPLY, model, 100.0)).take(TextDelta(HALF))
    await good.settle()  # the database is unavailable: the usage is recorded later
    counting = asyncio.create_task(meters.run())
    found = await wait_for_usage(harness, before + 1)
    counting.cancel()
    await asyncio.wait({counting})
    assert found.requests == before + 1


async def test_unwritable_usage_is_logged_and_dropped_once(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = 0

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        await (asyncio.Event().wait() if pauses > 4 else asyncio.sleep(0))

    log = Counting(harness, *[DatabaseError("This one cannot be written.")] * 20)
    meters = UsageMeters(log, pause)
    meter = UsageMeter(Claim("t1", message("").conversation, 1), meters)
    (await meter.begin(1, UsageKind.REPLY, "bad", 100.0)).take(TextDelta(HALF))
    await meter.settle()
    counting = asyncio.create_task(meters.run())
    await until(lambda: pauses > 4)
    counting.cancel()
    await asyncio.wait({counting})
    assert caplog.text.count("usage of a model request dropped") == 1


async def test_a_turn_that_goes_well_writes_nothing_besides(harness: EngineHarness) -> None:
    log = harness.log = Counting(harness)
    async with running_question(harness, [UsageReported(), TextDelta("Done."), ANSWER]) as question:
        assert (await question.wait_for_end()).turn.status is TurnStatus.DONE
    assert log.charged == []
    assert await usage_total(harness) == UsageTotal(1, REAL, unpriced=1)


# Fallback models


def chain(harness: EngineHarness, first: list[Reply], second: list[Reply]) -> None:
    models: dict[str, LanguageModel] = {"first": Broken(first), "second": Broken(second)}
    both = FallbackModel({name: InstrumentedModel(model, name, null_sink) for name, model in models.items()})

    class Named:
        async def get(self, _name: str) -> FallbackModel:
            return both

    harness.model = cast("ScriptedModel", Named())


@pytest.mark.parametrize("begun", [TextDelta(HALF), UsageReported(), ToolCallDelta("{")])
async def test_each_model_of_several_is_counted_under_its_own_name(harness: EngineHarness, begun: ModelEvent) -> None:
    chain(harness, [[begun, CUT]], [[TextDelta("Done."), ANSWER]])
    await harness.run_turn("hi")
    found = await by_model(harness)
    assert {name: (each.requests, each.estimated) for name, each in found.items()} == {
        "first": (1, 1),
        "second": (1, 0),
    }


async def test_of_models_that_refuse_only_the_one_that_began_is_counted(harness: EngineHarness) -> None:
    chain(harness, [[BUSY]] * ATTEMPTS, [[TextDelta(HALF), CUT]] * ATTEMPTS)
    await harness.run_turn("hi")
    assert list(await by_model(harness)) == ["second"]


async def test_a_smaller_final_count_of_output_replaces_the_noted_one(
    harness: EngineHarness,
) -> None:
    gate, counts = Waits(), UsageReported(Usage(0, 20))
    async with running_question(
        harness, [TextDelta(HALF * 20), gate, counts, answer_with_usage(0, 20)], pause=harness.pause_briefly
    ) as question:
        assert (await wait_for_usage(harness, 1)).usage.output_tokens > 20
        gate.opened.set()
        await question.wait_for_end()
        found = await usage_total(harness)
    assert (found.requests, found.usage.output_tokens, found.estimated) == (1, 20, 1)


async def test_less_than_was_noted_counts_of_a_reply_that_broke_off_after_its_service_had_counted(
    harness: EngineHarness,
) -> None:
    gate, counts = Waits(), UsageReported(Usage(0, 20))
    broken: Reply = [TextDelta(HALF * 20), gate, counts, ModelRejected("no")]
    async with running_question(harness, broken, pause=harness.pause_briefly) as question:
        assert (await wait_for_usage(harness, 1)).usage.output_tokens > 20
        gate.opened.set()
        await question.wait_for_end()
        found = await usage_total(harness)
    assert (found.requests, found.usage.output_tokens, found.estimated) == (1, 20, 1)


# Summaries


async def test_a_summary_that_broke_off_is_counted_as_one(harness: EngineHarness) -> None:
    model = ScriptedModel([replace(say(f"a{n} {'word ' * 400}"), usage=REAL) for n in range(2)])
    harness.model = model
    engine = harness.engine(memory=HistoryBudget(tokens=800))
    async with running(engine):
        for n in range(2):
            await harness.surface.wait_for_end((await engine.receive(message(f"q{n}"))).turn_id)
    before = await usage_total(harness)
    replying(harness, [TextDelta(HALF), CUT], [ANSWER])
    engine = harness.engine(memory=HistoryBudget(tokens=800))
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("and now?"))).turn_id)
    found = dict(await SqlUsageStore(harness.database).totals_by(UsageQuery(0), UsageGrouping.KIND))
    assert before.estimated == 0
    assert (found["summary"].requests, found["summary"].estimated) == (1, 1)
    assert found["summary"].usage.output_tokens == round(estimate_text(HALF))
    assert found["summary"].usage.input_tokens > 500
    assert found["reply"].estimated == 0

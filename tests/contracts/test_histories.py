"""Contract of the turn log about the history of a conversation, on each database."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.domain.conversations import ConversationKey
from bot.domain.flows import OtherSource, ToolSource
from bot.domain.messages import FilePart, StoredFile, TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import Claim, History, HistorySummary, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import LostLease
from bot.storage.reporting import SqlReporting
from bot.storage.tables import deliveries, steps
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import ANA, HALL, NEWEST
from tests.turn_log_harness import Harness, running

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")
WANTS = ModelStep(1, assistant("", ToolCall("c2", "s__read")))
RESULT = ToolResult("c2", (TextPart("forty-two"),))
CALL = ToolStep(2, ToolCall("c2", "s__read"), ToolRef("s", "read"), StepStatus.READY, repeatable=True)
ANSWER = ModelStep(3, assistant("Done."))


async def store_finished_turn(harness: Harness, text: str) -> Claim:
    """Store a finished turn with a tool call and an answer. Return its claim."""
    claim = await running(harness, text)
    await harness.log.append(claim, WANTS, [CALL])
    await harness.log.finish_call(claim, 2, StepStatus.DONE, RESULT)
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    return claim


def questions(past: History) -> list[str]:
    return [record.turn.question.text for record in past.turns]


async def test_history_goes_on_where_the_summary_ends(harness: Harness) -> None:
    for text in ("one", "two", "three"):
        await store_finished_turn(harness, text)
    claim = await running(harness, "four")
    assert (await harness.log.history(HALL, 4, 9)).summary is None
    for summary in (HistorySummary(1, "They began."), HistorySummary(2, "They spoke\0 of two.")):
        past = await harness.log.history(HALL, 4, 9)
        await harness.log.save_summary(claim, summary, past)
        await harness.log.save_summary(claim, summary, past)
    past = await harness.log.history(HALL, 4, 9)
    assert past.summary == HistorySummary(2, "They spoke\ufffd of two.")
    assert questions(past) == ["three"]
    assert await harness.log.history(ELSEWHERE, 4, 9) == History()


async def test_sources_of_replies_and_summaries_are_stored_with_them(harness: Harness) -> None:
    sources = (ToolSource("s", "read", "id-s", "d1g3st", "p1"), *OtherSource)
    claim = await running(harness, "one")
    await harness.log.finish(claim, TurnStatus.DONE, [replace(ANSWER, n=1, sources=sources)], "")
    await store_finished_turn(harness, "two")
    past = await SqlTurnLog(harness.database).history(HALL, 9, 9)
    assert [[reply.sources for reply in record.replies] for record in past.turns] == [[sources], [(), ()]]
    claim = await running(harness, "three")
    for kept in (sources, ()):
        past = await harness.log.history(HALL, 3, 9)
        await harness.log.save_summary(claim, HistorySummary(1, "They began.", kept), past)
        assert (await SqlTurnLog(harness.database).history(HALL, 3, 9)).summary == HistorySummary(
            1, "They began.", kept
        )


async def test_a_source_that_only_a_later_release_knows_is_that_of_an_unknown_result(harness: Harness) -> None:
    claim = await running(harness, "one")
    await harness.log.finish(claim, TurnStatus.DONE, [replace(ANSWER, n=1, sources=())], "")

    def change(connection: sa.Connection) -> None:
        body = connection.execute(sa.select(steps.c.body)).scalar_one()
        connection.execute(steps.update().values(body={**body, "sources": ["rumour"]}))

    await harness.database.run(change)
    (record,) = (await SqlTurnLog(harness.database).history(HALL, 9, 9)).turns
    assert [reply.sources for reply in record.replies] == [(OtherSource.RESULT,)]


async def test_cached_earlier_turns_equal_the_stored_ones(harness: Harness) -> None:
    claims = [await store_finished_turn(harness, text) for text in ("one", "two", "three")]
    known = await harness.log.history(HALL, 9, 9)
    assert known == await SqlTurnLog(harness.database).history(HALL, 9, 9)
    assert [len(record.steps) for record in known.turns] == [3, 3, 3]
    assert [record.answer for record in known.turns] == [ANSWER] * 3
    assert [record.turn.id for record in known.turns] == [claim.turn_id for claim in claims]


async def test_a_turn_that_has_changed_since_it_ended_is_read_again(harness: Harness) -> None:
    def change(connection: sa.Connection) -> None:
        connection.execute(steps.update().values(result=None))
        connection.execute(deliveries.update().values(revision=deliveries.c.revision + 1))

    await store_finished_turn(harness, "one")
    (before,) = (await harness.log.history(HALL, 9, 9)).turns
    await harness.database.run(change)
    (after,) = (await harness.log.history(HALL, 9, 9)).turns
    assert after.revision == before.revision + 1
    assert [(one.result, other.result) for one, other in zip(before.calls, after.calls, strict=True)] == [
        (RESULT, None)
    ]


async def test_a_turn_that_was_deleted_is_not_remembered(harness: Harness) -> None:
    claim = await store_finished_turn(harness, "one")
    assert questions(await harness.log.history(HALL, 9, 9)) == ["one"]
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, NEWEST)
    harness.time += 100
    await store_finished_turn(harness, "two")
    assert await harness.log.delete_old(50, 9) == 1
    assert questions(await harness.log.history(HALL, 9, 9)) == ["two"]


async def test_a_process_that_lost_a_turn_stores_no_summary(harness: Harness) -> None:
    claim = await store_finished_turn(harness, "one")
    with pytest.raises(LostLease):
        await harness.log.save_summary(claim, HistorySummary(1, "Late."), await harness.log.history(HALL, 9, 9))
    assert (await harness.log.history(HALL, 9, 9)).summary is None


async def test_a_summary_goes_with_its_conversation(harness: Harness) -> None:
    await store_finished_turn(harness, "one")
    claim = await running(harness, "two")
    await harness.log.save_summary(claim, HistorySummary(1, "So far."), await harness.log.history(HALL, 2, 9))
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert (await harness.log.history(HALL, 9, 9)).summary is not None
    assert await SqlReporting(harness.database).delete(HALL, ANA)
    assert (await harness.log.history(HALL, 9, 9)).summary is None


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
async def test_a_summary_of_turns_deleted_meanwhile_is_not_stored(
    harness: Harness, before: HistorySummary | None
) -> None:
    for text in ("one", "two"):
        claim = await store_finished_turn(harness, text)
        await harness.log.acquire_delivery(claim.turn_id, NEWEST)
        await harness.log.mark_delivered(claim.turn_id, NEWEST)
        harness.time += 100
    claim = await running(harness, "three")
    if before is not None:
        await harness.log.save_summary(claim, before, await harness.log.history(HALL, 3, 9))
    past = await harness.log.history(HALL, 3, 9)
    assert await harness.log.delete_old(150, 9) == 1
    await harness.log.save_summary(claim, HistorySummary(2, "They spoke of one and two."), past)
    left = await harness.log.history(HALL, 3, 9)
    assert (left.summary, questions(left)) == (None, ["two"])


async def test_a_call_is_found_by_its_place_in_its_own_conversation_alone(harness: Harness) -> None:
    await store_finished_turn(harness, "one")
    called = await harness.log.get_call(HALL, 1, 2)
    assert called == (await harness.log.history(HALL, 9, 9)).turns[0].calls[0]
    assert called is not None
    assert called.result == RESULT
    assert await harness.log.get_call(HALL, 1, 1) is None
    assert await harness.log.get_call(HALL, 2, 2) is None
    assert await harness.log.get_call(HALL, 10**15 - 1, 10**9 - 1) is None
    assert await harness.log.get_call(ELSEWHERE, 1, 2) is None


async def test_of_a_large_result_the_past_has_the_beginning_and_the_length(harness: Harness) -> None:
    file = FilePart(b"%PDF", "application/pdf", "all.pdf")
    large = ToolResult("c2", (TextPart("ab" * 1_999), TextPart("cd" * 5_000), file), structured={"cd": 5_000})
    claim = await running(harness, "one")
    await harness.log.append(claim, WANTS, [CALL])
    await harness.log.finish_call(claim, 2, StepStatus.DONE, large)
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    for log in (harness.log, SqlTurnLog(harness.database)):
        (record,) = (await log.history(HALL, 9, 9)).turns
        (told,) = (step.result for step in record.calls)
        assert told is not None
        assert (told.text, told.length, told.structured) == (f"{'ab' * 1_999}\nc", 13_999, None)
        assert [type(part) for part in told.parts] == [TextPart, StoredFile]
        whole = await log.get_call(HALL, 1, 2)
        assert whole is not None
        assert whole.result is not None
        assert (whole.result.text, whole.result.length) == (large.text, 13_999)


async def test_a_turn_of_many_large_results_is_read_once(harness: Harness) -> None:
    calls = [
        ToolStep(n, ToolCall(f"c{n}", "s__read"), CALL.tool, StepStatus.READY, repeatable=True) for n in range(2, 22)
    ]
    claim = await running(harness, "one")
    await harness.log.append(claim, ModelStep(1, assistant("", *(call.call for call in calls))), calls)
    for call in calls:
        result = ToolResult(call.call.id, (TextPart("word " * 10_000),))
        await harness.log.finish_call(claim, call.n, StepStatus.DONE, result)
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(22, assistant("Done."))], "")
    (one,) = (await harness.log.history(HALL, 9, 9)).turns
    (other,) = (await harness.log.history(HALL, 9, 9)).turns
    assert one is other


async def test_for_the_first_turn_of_a_conversation_nothing_is_looked_for(harness: Harness) -> None:
    claim = await running(harness)
    assert claim.initial_record is not None

    async def away(_transaction: object) -> object:
        raise AssertionError

    harness.database.run_once = away  # type: ignore[method-assign, assignment]
    assert await harness.log.history(HALL, claim.initial_record.turn.seq, 20) == History()

"""What every turn log keeps of a conversation's past, over each database it runs on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.domain.conversations import ConversationKey
from bot.domain.history import History, HistorySummary
from bot.domain.messages import FilePart, StoredFile, TextPart, ToolCall, ToolResult, assistant
from bot.domain.sources import OtherSource, ToolSource
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import LostLease
from bot.storage.tables import deliveries, steps
from bot.storage.turn_log import SqlTurnLog
from tests.fakes.parts import ANA, HALL, NEWEST
from tests.ledgers import Ledger, running

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")
WANTS = ModelStep(1, assistant("", ToolCall("c2", "s__read")))
RESULT = ToolResult("c2", (TextPart("forty-two"),))
CALL = ToolStep(2, ToolCall("c2", "s__read"), ToolRef("s", "read"), StepStatus.READY, repeatable=True)
ANSWER = ModelStep(3, assistant("Done."))


async def ended(ledger: Ledger, text: str) -> Claim:
    """A turn that has asked, called and answered."""
    claim = await running(ledger, text)
    await ledger.log.append(claim, WANTS, [CALL])
    await ledger.log.finish_call(claim, 2, StepStatus.DONE, RESULT)
    await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    return claim


def questions(past: History) -> list[str]:
    return [record.turn.question.text for record in past.turns]


async def test_history_goes_on_where_the_summary_ends(ledger: Ledger) -> None:
    for text in ("one", "two", "three"):
        await ended(ledger, text)
    claim = await running(ledger, "four")
    assert (await ledger.log.history(HALL, 4, 9)).summary is None
    for summary in (HistorySummary(1, "They began."), HistorySummary(2, "They spoke\0 of two.")):
        past = await ledger.log.history(HALL, 4, 9)
        await ledger.log.save_summary(claim, summary, past)
        await ledger.log.save_summary(claim, summary, past)
    past = await ledger.log.history(HALL, 4, 9)
    assert past.summary == HistorySummary(2, "They spoke\ufffd of two.")
    assert questions(past) == ["three"]
    assert await ledger.log.history(ELSEWHERE, 4, 9) == History()


async def test_whose_words_stand_in_replies_and_summaries_is_kept_with_them(ledger: Ledger) -> None:
    sources = (ToolSource("s", "read", "id-s", "d1g3st", "p1"), *OtherSource)
    claim = await running(ledger, "one")
    await ledger.log.finish(claim, TurnStatus.DONE, [replace(ANSWER, n=1, sources=sources)], "")
    await ended(ledger, "two")
    past = await SqlTurnLog(ledger.database).history(HALL, 9, 9)
    assert [[reply.sources for reply in record.replies] for record in past.turns] == [[sources], [(), ()]]
    claim = await running(ledger, "three")
    for kept in (sources, ()):
        past = await ledger.log.history(HALL, 3, 9)
        await ledger.log.save_summary(claim, HistorySummary(1, "They began.", kept), past)
        assert (await SqlTurnLog(ledger.database).history(HALL, 3, 9)).summary == HistorySummary(1, "They began.", kept)


async def test_a_source_that_only_a_later_release_knows_is_that_of_an_unknown_result(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    await ledger.log.finish(claim, TurnStatus.DONE, [replace(ANSWER, n=1, sources=())], "")

    def change(connection: sa.Connection) -> None:
        body = connection.execute(sa.select(steps.c.body)).scalar_one()
        connection.execute(steps.update().values(body={**body, "sources": ["rumour"]}))

    await ledger.database.run(change)
    (record,) = (await SqlTurnLog(ledger.database).history(HALL, 9, 9)).turns
    assert [reply.sources for reply in record.replies] == [(OtherSource.RESULT,)]


async def test_what_is_known_of_earlier_turns_is_what_is_read_of_them(ledger: Ledger) -> None:
    claims = [await ended(ledger, text) for text in ("one", "two", "three")]
    known = await ledger.log.history(HALL, 9, 9)
    assert known == await SqlTurnLog(ledger.database).history(HALL, 9, 9)
    assert [len(record.steps) for record in known.turns] == [3, 3, 3]
    assert [record.answer for record in known.turns] == [ANSWER] * 3
    assert [record.turn.id for record in known.turns] == [claim.turn_id for claim in claims]


async def test_a_turn_that_has_changed_since_it_ended_is_read_again(ledger: Ledger) -> None:
    def change(connection: sa.Connection) -> None:
        connection.execute(steps.update().values(result=None))
        connection.execute(deliveries.update().values(revision=deliveries.c.revision + 1))

    await ended(ledger, "one")
    (before,) = (await ledger.log.history(HALL, 9, 9)).turns
    await ledger.database.run(change)
    (after,) = (await ledger.log.history(HALL, 9, 9)).turns
    assert after.revision == before.revision + 1
    assert [(one.result, other.result) for one, other in zip(before.calls, after.calls, strict=True)] == [
        (RESULT, None)
    ]


async def test_a_turn_that_was_deleted_is_not_remembered(ledger: Ledger) -> None:
    claim = await ended(ledger, "one")
    assert questions(await ledger.log.history(HALL, 9, 9)) == ["one"]
    await ledger.log.acquire_delivery(claim.turn_id, NEWEST)
    await ledger.log.mark_delivered(claim.turn_id, NEWEST)
    ledger.time += 100
    await ended(ledger, "two")
    assert await ledger.log.delete_old(50, 9) == 1
    assert questions(await ledger.log.history(HALL, 9, 9)) == ["two"]


async def test_who_has_lost_a_turn_sums_nothing_up(ledger: Ledger) -> None:
    claim = await ended(ledger, "one")
    with pytest.raises(LostLease):
        await ledger.log.save_summary(claim, HistorySummary(1, "Late."), await ledger.log.history(HALL, 9, 9))
    assert (await ledger.log.history(HALL, 9, 9)).summary is None


async def test_a_summary_goes_with_its_conversation(ledger: Ledger) -> None:
    await ended(ledger, "one")
    claim = await running(ledger, "two")
    await ledger.log.save_summary(claim, HistorySummary(1, "So far."), await ledger.log.history(HALL, 2, 9))
    await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert (await ledger.log.history(HALL, 9, 9)).summary is not None
    assert await ledger.log.delete_conversation(HALL, ANA)
    assert (await ledger.log.history(HALL, 9, 9)).summary is None


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
async def test_a_summary_of_what_was_deleted_while_it_was_made_is_not_kept(
    ledger: Ledger, before: HistorySummary | None
) -> None:
    for text in ("one", "two"):
        claim = await ended(ledger, text)
        await ledger.log.acquire_delivery(claim.turn_id, NEWEST)
        await ledger.log.mark_delivered(claim.turn_id, NEWEST)
        ledger.time += 100
    claim = await running(ledger, "three")
    if before is not None:
        await ledger.log.save_summary(claim, before, await ledger.log.history(HALL, 3, 9))
    past = await ledger.log.history(HALL, 3, 9)
    assert await ledger.log.delete_old(150, 9) == 1
    await ledger.log.save_summary(claim, HistorySummary(2, "They spoke of one and two."), past)
    left = await ledger.log.history(HALL, 3, 9)
    assert (left.summary, questions(left)) == (None, ["two"])


async def test_a_call_is_found_by_its_place_in_its_own_conversation_alone(ledger: Ledger) -> None:
    await ended(ledger, "one")
    called = await ledger.log.get_call(HALL, 1, 2)
    assert called == (await ledger.log.history(HALL, 9, 9)).turns[0].calls[0]
    assert called is not None
    assert called.result == RESULT
    assert await ledger.log.get_call(HALL, 1, 1) is None
    assert await ledger.log.get_call(HALL, 2, 2) is None
    assert await ledger.log.get_call(HALL, 10**15 - 1, 10**9 - 1) is None
    assert await ledger.log.get_call(ELSEWHERE, 1, 2) is None


async def test_of_a_large_result_the_past_has_the_beginning_and_the_length(ledger: Ledger) -> None:
    file = FilePart(b"%PDF", "application/pdf", "all.pdf")
    large = ToolResult("c2", (TextPart("ab" * 1_999), TextPart("cd" * 5_000), file), structured={"cd": 5_000})
    claim = await running(ledger, "one")
    await ledger.log.append(claim, WANTS, [CALL])
    await ledger.log.finish_call(claim, 2, StepStatus.DONE, large)
    await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    for log in (ledger.log, SqlTurnLog(ledger.database)):
        (record,) = (await log.history(HALL, 9, 9)).turns
        (told,) = (step.result for step in record.calls)
        assert told is not None
        assert (told.text, told.length, told.structured) == (f"{'ab' * 1_999}\nc", 13_999, None)
        assert [type(part) for part in told.parts] == [TextPart, StoredFile]
        whole = await log.get_call(HALL, 1, 2)
        assert whole is not None
        assert whole.result is not None
        assert (whole.result.text, whole.result.length) == (large.text, 13_999)


async def test_a_turn_of_many_large_results_is_read_once(ledger: Ledger) -> None:
    calls = [
        ToolStep(n, ToolCall(f"c{n}", "s__read"), CALL.tool, StepStatus.READY, repeatable=True) for n in range(2, 22)
    ]
    claim = await running(ledger, "one")
    await ledger.log.append(claim, ModelStep(1, assistant("", *(call.call for call in calls))), calls)
    for call in calls:
        result = ToolResult(call.call.id, (TextPart("word " * 10_000),))
        await ledger.log.finish_call(claim, call.n, StepStatus.DONE, result)
    await ledger.log.finish(claim, TurnStatus.DONE, [ModelStep(22, assistant("Done."))], "")
    (one,) = (await ledger.log.history(HALL, 9, 9)).turns
    (other,) = (await ledger.log.history(HALL, 9, 9)).turns
    assert one is other


async def test_for_the_first_turn_of_a_conversation_nothing_is_looked_for(ledger: Ledger) -> None:
    claim = await running(ledger)
    assert claim.initial_record is not None

    async def away(_transaction: object) -> object:
        raise AssertionError

    ledger.database.run_once = away  # type: ignore[method-assign, assignment]
    assert await ledger.log.history(HALL, claim.initial_record.turn.seq, 20) == History()

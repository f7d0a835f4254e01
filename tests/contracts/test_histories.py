"""What every turn log keeps of a conversation's past, over each database it runs on."""

from __future__ import annotations

import pytest

from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.past import Past, Replay, Summary
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import LostLease
from tests.fakes.parts import ANA, HALL
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
    await ledger.log.end(claim, 2, StepStatus.DONE, RESULT)
    await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    return claim


def questions(past: Past) -> list[str]:
    return [record.turn.question.text for record in past.turns]


async def test_history_goes_on_where_the_summary_ends(ledger: Ledger) -> None:
    for text in ("one", "two", "three"):
        await ended(ledger, text)
    claim = await running(ledger, "four")
    assert (await ledger.log.history(HALL, 4, 9)).summary is None
    for summary in (Summary(1, "They began."), Summary(2, "They spoke\0 of two.")):
        await ledger.log.sum_up(claim, summary)
        await ledger.log.sum_up(claim, summary)
    past = await ledger.log.history(HALL, 4, 9)
    assert past.summary == Summary(2, "They spoke\ufffd of two.")
    assert questions(past) == ["three"]
    assert await ledger.log.history(ELSEWHERE, 4, 9) == Past()


@pytest.mark.parametrize(("replay", "steps"), [(Replay.NONE, 1), (Replay.NAMES, 3), (Replay.FULL, 3)])
async def test_of_earlier_turns_as_much_is_read_as_is_told_again(ledger: Ledger, replay: Replay, steps: int) -> None:
    await ended(ledger, "one")
    await running(ledger, "two")
    (record,) = (await ledger.log.history(HALL, 2, 9, replay)).turns
    assert len(record.steps) == steps
    assert record.answer == ANSWER


async def test_who_has_lost_a_turn_sums_nothing_up(ledger: Ledger) -> None:
    claim = await ended(ledger, "one")
    with pytest.raises(LostLease):
        await ledger.log.sum_up(claim, Summary(1, "Late."))
    assert (await ledger.log.history(HALL, 9, 9)).summary is None


async def test_a_summary_goes_with_its_conversation(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    await ledger.log.sum_up(claim, Summary(0, "So far."))
    await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert await ledger.log.delete_conversation(HALL, ANA)
    assert (await ledger.log.history(HALL, 9, 9)).summary is None


async def test_a_result_is_found_by_its_place_in_its_own_conversation_alone(ledger: Ledger) -> None:
    await ended(ledger, "one")
    assert await ledger.log.result_of(HALL, 1, 2) == RESULT
    assert await ledger.log.result_of(HALL, 1, 1) is None
    assert await ledger.log.result_of(HALL, 2, 2) is None
    assert await ledger.log.result_of(ELSEWHERE, 1, 2) is None

"""Deletions of users' messages, on each database."""

from __future__ import annotations

from bot.domain.messages import assistant
from bot.domain.turns import DELETED_TEXT, DELETION, HistorySummary, ModelStep, TurnStatus
from tests.fakes.parts import HALL, message
from tests.turn_log_harness import Harness, running


async def test_a_deletion_of_an_unknown_message_changes_nothing(harness: Harness) -> None:
    await running(harness, "one")
    assert await harness.log.delete_question(["unknown"]) is None


async def test_a_waiting_question_is_ended_without_its_text(harness: Harness) -> None:
    await running(harness, "one")
    await harness.log.enqueue(message("two"))
    turn_id = await harness.log.delete_question(["two"])
    assert turn_id is not None
    assert await harness.log.delete_question(["two"]) == turn_id
    turn = (await harness.log.get_view(turn_id)).turn
    assert (turn.status, turn.question.text, turn.failure) == (
        TurnStatus.CANCELLED,
        DELETED_TEXT,
        f"Stopped by {DELETION}.",
    )
    assert await harness.log.is_stored(["two"]), "a redelivery is no new question"


async def test_a_running_turn_is_stopped_by_its_owner(harness: Harness) -> None:
    claim = await running(harness, "one")
    await harness.log.delete_question(["one"])
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(1, assistant("about one"))], "")
    turn = (await harness.log.get_view(claim.turn_id)).turn
    assert (turn.status, turn.failure) == (TurnStatus.CANCELLED, f"Stopped by {DELETION}.")


async def test_an_answered_question_leaves_no_summary(harness: Harness) -> None:
    await harness.log.finish(await running(harness, "one"), TurnStatus.DONE, [], "")
    claim = await running(harness, "two")
    await harness.log.save_summary(claim, HistorySummary(1, "about one"), await harness.log.history(HALL, 2, 9))
    await harness.log.delete_question(["one"])
    past = await harness.log.history(HALL, 2, 9)
    assert past.summary is None
    assert [record.turn.question.deleted for record in past.turns] == [True]

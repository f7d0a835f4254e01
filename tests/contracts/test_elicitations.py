"""Contract of the turn log (`bot.ports.TurnLog`) about elicitations, on each database."""

from __future__ import annotations

import asyncio
import json

import pytest
import sqlalchemy as sa

from bot.domain.approvals import AlreadyDecided
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    Elicitation,
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    ElicitationResults,
    FormMode,
    UrlMode,
)
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import Claim, StepStatus, TurnStatus
from bot.errors import LostLease
from bot.ports.platform import ElicitationAnswered
from bot.storage.reporting import SqlReporting
from tests.audit_check import audit_rows
from tests.contracts.test_turn_logs import WANTS, reading, result, write
from tests.fakes.parts import ANA, BEN, HALL
from tests.turn_log_harness import Harness, running

FORM = ElicitationRequest("seats", "How many?\n\ud800 seats", FormMode({"type": "object", "properties": {}}))
LINK = ElicitationRequest("page", "Pay here.", UrlMode("https://pay.example.com/1"))
ANSWER = ElicitationResult(ElicitationAction.ACCEPT, {"seats": 3, "hidden": "number-4711"})


async def store_started_call(harness: Harness) -> Claim:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2)])
    await harness.log.start_call(claim, 2)
    return claim


async def asking(
    harness: Harness, *questions: ElicitationRequest, seconds: float | None = 60.0
) -> tuple[Claim, list[str]]:
    """Store a delivered turn that is suspended for elicitations. Return its claim and their ids."""
    claim = await store_started_call(harness)
    record = await harness.log.suspend_for_elicitation(
        claim, 2, CallNeedsInput(questions or (FORM,), "state \u2028 1"), seconds
    )
    await harness.log.acquire_delivery(claim.turn_id, record.revision)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    assert await harness.log.suspend(claim) is None
    return claim, [elicitation.id for elicitation in record.calls[0].pending_elicitations]


async def again(harness: Harness) -> Claim:
    (claim,) = await harness.log.claim(8)
    return claim


async def test_a_call_that_is_answered_is_ready_again_with_the_answers_and_the_servers_own_words(
    harness: Harness,
) -> None:
    _, (asked,) = await asking(harness)
    assert await harness.log.claim(8) == []
    assert await harness.log.answer_elicitation(asked, ANSWER, ANA) == ElicitationAnswered(ElicitationAction.ACCEPT)
    record = await harness.log.resume(await again(harness))
    (step,) = record.ready_calls
    assert step.resume == ElicitationResults({"seats": ANSWER}, "state \u2028 1")
    assert [(elicitation.reply, elicitation.answered_by) for elicitation in step.elicitations] == [(ANSWER, "Ana")]


async def test_a_question_comes_back_as_it_was_asked(harness: Harness) -> None:
    _, ids = await asking(harness, FORM, LINK)
    results = await asyncio.gather(*map(harness.log.get_elicitation, ids))
    asked = {each.elicitation.question.key: each.elicitation.question for each in results if each is not None}
    assert asked["page"] == LINK
    assert asked["seats"].ask == FORM.ask
    assert await harness.log.get_elicitation("no-such-question") is None


async def test_exactly_one_answer_counts(harness: Harness) -> None:
    _, (asked,) = await asking(harness)
    answers = [ElicitationResult(ElicitationAction.ACCEPT, {"seats": n}) for n in range(6)]
    outcomes = await asyncio.gather(
        *(harness.log.answer_elicitation(asked, each, BEN if n else ANA) for n, each in enumerate(answers))
    )
    assert sum(isinstance(outcome, ElicitationAnswered) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyDecided) for outcome in outcomes) == 5


async def test_a_call_waits_for_the_last_of_its_questions(harness: Harness) -> None:
    _, (first, second) = await asking(harness, FORM, LINK)
    await harness.log.answer_elicitation(first, DECLINED, ANA)
    # The turn may be claimed, and is suspended again.
    for claim in await harness.log.claim(8):
        assert not (await harness.log.resume(claim)).ready_calls
        assert await harness.log.suspend(claim) is None
    await harness.log.answer_elicitation(second, DECLINED, ANA)
    (step,) = (await harness.log.resume(await again(harness))).ready_calls
    assert step.resume is not None
    assert step.resume.by_key == {"seats": DECLINED, "page": DECLINED}


async def test_a_questions_time_runs_from_the_moment_it_was_posted_and_wakes_its_turn(harness: Harness) -> None:
    claim = await store_started_call(harness)
    record = await harness.log.suspend_for_elicitation(claim, 2, CallNeedsInput((FORM,)), 60.0)
    harness.time += 3600
    assert await harness.log.suspend(claim) is None
    assert await harness.log.claim(8) == []
    await harness.log.acquire_delivery(claim.turn_id, record.revision)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.time += 61
    late = await harness.log.answer_elicitation(record.calls[0].pending_elicitations[0].id, ANSWER, ANA)
    assert isinstance(late, AlreadyDecided)
    (step,) = (await harness.log.resume(await again(harness))).ready_calls
    assert step.resume is not None
    assert step.resume.by_key == {"seats": CANCELLED}


async def test_a_question_that_can_never_be_shown_is_nobodys_to_answer(harness: Harness) -> None:
    claim = await store_started_call(harness)
    record = await harness.log.suspend_for_elicitation(claim, 2, CallNeedsInput((FORM,)), 60.0)
    assert await harness.log.suspend(claim) is None
    await harness.log.acquire_delivery(claim.turn_id, record.revision)
    assert await harness.log.give_up_delivery(claim.turn_id, record.revision, "The channel is gone.")
    (step,) = (await harness.log.resume(await again(harness))).ready_calls
    assert [(elicitation.reply, elicitation.reason) for elicitation in step.elicitations] == [
        (CANCELLED, "The channel is gone.")
    ]


async def test_an_owner_that_was_replaced_can_ask_nothing(harness: Harness) -> None:
    claim = await store_started_call(harness)
    await harness.restart()
    await again(harness)
    with pytest.raises(LostLease):
        await harness.log.suspend_for_elicitation(claim, 2, CallNeedsInput((FORM,)), 60.0)
    with pytest.raises(LostLease):
        await harness.log.open_elicitation(claim, 2, FORM, 60.0)


async def test_a_question_of_a_running_call_is_withdrawn_when_the_call_ends(harness: Harness) -> None:
    claim = await store_started_call(harness)
    record, asked = await harness.log.open_elicitation(claim, 2, FORM, 60.0)
    assert [elicitation.id for elicitation in record.calls[0].pending_elicitations] == [asked]
    assert record.calls[0].status is StepStatus.STARTED
    record = await harness.log.finish_call(claim, 2, StepStatus.DONE, result())
    assert [elicitation.reply for elicitation in record.calls[0].elicitations] == [CANCELLED]
    assert isinstance(await harness.log.answer_elicitation(asked, ANSWER, ANA), AlreadyDecided)


async def test_a_question_of_a_dead_process_is_withdrawn_by_the_next(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [reading(2)])
    _, asked = await harness.log.open_elicitation(claim, 2, FORM, 60.0)
    # The process that asked continues to wait; the next process withdraws the elicitation.
    assert (await harness.log.resume(claim)).is_awaiting_input
    log = await harness.restart()
    (claim,) = await log.claim(8)
    record = await log.resume(claim)
    assert [elicitation.id for elicitation in record.ready_calls[0].elicitations] == [asked]
    assert not record.is_awaiting_input
    assert record.ready_calls[0].resume is None


async def test_withdrawing_changes_nothing_that_was_answered(harness: Harness) -> None:
    claim = await store_started_call(harness)
    _, asked = await harness.log.open_elicitation(claim, 2, FORM, 60.0)
    await harness.log.answer_elicitation(asked, ANSWER, ANA)
    record = await harness.log.cancel_elicitation(claim, asked, "The question expired without an answer.")
    assert [elicitation.reply for elicitation in record.calls[0].elicitations] == [ANSWER]


async def test_a_turn_that_ends_asks_no_more(harness: Harness) -> None:
    claim, (asked,) = await asking(harness)
    assert await harness.log.stop(claim.turn_id, ANA)
    view = await harness.log.get_view(claim.turn_id)
    assert view.turn.status is TurnStatus.CANCELLED
    assert isinstance(await harness.log.answer_elicitation(asked, ANSWER, ANA), AlreadyDecided)


async def test_rounds_are_counted_and_only_the_last_goes_along(harness: Harness) -> None:
    _, (asked,) = await asking(harness)
    await harness.log.answer_elicitation(asked, ANSWER, ANA)
    claim = await again(harness)
    await harness.log.start_call(claim, 2)
    record = await harness.log.suspend_for_elicitation(claim, 2, CallNeedsInput((LINK,), "state 2"), None)
    (second,) = record.calls[0].pending_elicitations
    assert [elicitation.round for elicitation in record.calls[0].elicitations] == [1, 2]
    await harness.log.answer_elicitation(second.id, DECLINED, ANA)
    (step,) = (await harness.log.resume(claim)).ready_calls
    assert step.resume == ElicitationResults({"page": DECLINED}, "state 2")


async def test_the_audit_has_the_answering_user_and_not_the_answer(harness: Harness) -> None:
    _, (asked,) = await asking(harness)
    await harness.log.answer_elicitation(asked, ANSWER, ANA)
    rows = await harness.database.run(audit_rows)
    (row,) = [row for row in rows if row["kind"] == "answered"]
    assert (row["actor"], json.loads(row["body"])["action"]) == ("test:ana", "accept")
    assert not any("4711" in row["body"] for row in rows)


async def test_a_deleted_conversation_takes_its_questions_along(harness: Harness) -> None:
    claim, _ = await asking(harness)
    await harness.log.stop(claim.turn_id, ANA)
    assert await SqlReporting(harness.database).delete(HALL, ANA)
    count = sa.text("select count(*) from elicitations")
    assert await harness.database.run(lambda connection: connection.execute(count).scalar_one()) == 0


def test_an_answer_is_not_shown_where_values_are_printed() -> None:
    assert "state 1" not in repr(ElicitationResults({}, "state 1"))
    assert Elicitation("e", FORM).open

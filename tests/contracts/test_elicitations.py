"""What every turn log promises of what servers ask back (`bot.ports.TurnLog`), over each database it runs on."""

from __future__ import annotations

import asyncio
import json

import pytest
import sqlalchemy as sa

from bot.domain.answering import Answered
from bot.domain.approvals import AlreadySettled
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    Action,
    Elicitation,
    Elicited,
    FormAsk,
    LinkAsk,
    Replies,
    ServerQuestion,
)
from bot.domain.tools import AsksBack
from bot.domain.turns import Claim, StepStatus, TurnStatus
from bot.errors import LostLease
from bot.storage import audit
from tests.contracts.test_turn_logs import WANTS, reading, result, write
from tests.fakes.parts import ANA, BEN, HALL
from tests.ledgers import Ledger, running

FORM = ServerQuestion("seats", "How many?\n\ud800 seats", FormAsk({"type": "object", "properties": {}}))
LINK = ServerQuestion("page", "Pay here.", LinkAsk("https://pay.example.com/1"))
ANSWER = Elicited(Action.ACCEPT, {"seats": 3, "hidden": "number-4711"})


async def started(ledger: Ledger) -> Claim:
    claim = await running(ledger)
    await ledger.log.append(claim, WANTS, [write(2)])
    await ledger.log.begin(claim, 2)
    return claim


async def asking(ledger: Ledger, *questions: ServerQuestion, seconds: float | None = 60.0) -> tuple[Claim, list[str]]:
    """A turn that is parked until somebody answers, everything drawn."""
    claim = await started(ledger)
    record = await ledger.log.ask(claim, 2, AsksBack(questions or (FORM,), "state \u2028 1"), seconds)
    await ledger.log.take(claim.turn_id, record.revision)
    await ledger.log.drawn(claim.turn_id, record.revision)
    assert await ledger.log.park(claim) is None
    return claim, [each.id for each in record.calls[0].asks]


async def again(ledger: Ledger) -> Claim:
    (claim,) = await ledger.log.claim(8)
    return claim


async def test_a_call_that_is_answered_is_ready_again_with_the_answers_and_the_servers_own_words(
    ledger: Ledger,
) -> None:
    _, (asked,) = await asking(ledger)
    assert await ledger.log.claim(8) == []
    assert await ledger.log.answer(asked, ANSWER, ANA) == Answered(Action.ACCEPT)
    record = await ledger.log.resume(await again(ledger))
    (step,) = record.ready
    assert step.resume == Replies({"seats": ANSWER}, "state \u2028 1")
    assert [(each.reply, each.answered_by) for each in step.elicitations] == [(ANSWER, "Ana")]


async def test_a_question_comes_back_as_it_was_asked(ledger: Ledger) -> None:
    _, ids = await asking(ledger, FORM, LINK)
    found = await asyncio.gather(*map(ledger.log.inquiry, ids))
    asked = {each.elicitation.question.key: each.elicitation.question for each in found if each is not None}
    assert asked["page"] == LINK
    assert asked["seats"].ask == FORM.ask
    assert await ledger.log.inquiry("no-such-question") is None


async def test_exactly_one_answer_counts(ledger: Ledger) -> None:
    _, (asked,) = await asking(ledger)
    answers = [Elicited(Action.ACCEPT, {"seats": n}) for n in range(6)]
    outcomes = await asyncio.gather(
        *(ledger.log.answer(asked, each, BEN if n else ANA) for n, each in enumerate(answers))
    )
    assert sum(isinstance(each, Answered) for each in outcomes) == 1
    assert sum(isinstance(each, AlreadySettled) for each in outcomes) == 5


async def test_a_call_waits_for_the_last_of_its_questions(ledger: Ledger) -> None:
    _, (first, second) = await asking(ledger, FORM, LINK)
    await ledger.log.answer(first, DECLINED, ANA)
    # It may be looked after, and waits again.
    for claim in await ledger.log.claim(8):
        assert not (await ledger.log.resume(claim)).ready
        assert await ledger.log.park(claim) is None
    await ledger.log.answer(second, DECLINED, ANA)
    (step,) = (await ledger.log.resume(await again(ledger))).ready
    assert step.resume is not None
    assert step.resume.by_key == {"seats": DECLINED, "page": DECLINED}


async def test_a_questions_time_runs_from_the_moment_it_was_posted_and_wakes_its_turn(ledger: Ledger) -> None:
    claim = await started(ledger)
    record = await ledger.log.ask(claim, 2, AsksBack((FORM,)), 60.0)
    ledger.time += 3600
    assert await ledger.log.park(claim) is None
    assert await ledger.log.claim(8) == []
    await ledger.log.take(claim.turn_id, record.revision)
    await ledger.log.drawn(claim.turn_id, record.revision)
    ledger.time += 61
    late = await ledger.log.answer(record.calls[0].asks[0].id, ANSWER, ANA)
    assert isinstance(late, AlreadySettled)
    (step,) = (await ledger.log.resume(await again(ledger))).ready
    assert step.resume is not None
    assert step.resume.by_key == {"seats": CANCELLED}


async def test_a_question_that_can_never_be_shown_is_nobodys_to_answer(ledger: Ledger) -> None:
    claim = await started(ledger)
    record = await ledger.log.ask(claim, 2, AsksBack((FORM,)), 60.0)
    assert await ledger.log.park(claim) is None
    await ledger.log.take(claim.turn_id, record.revision)
    assert await ledger.log.abandon(claim.turn_id, record.revision, "The channel is gone.")
    (step,) = (await ledger.log.resume(await again(ledger))).ready
    assert [(each.reply, each.reason) for each in step.elicitations] == [(CANCELLED, "The channel is gone.")]


async def test_an_owner_that_was_replaced_can_ask_nothing(ledger: Ledger) -> None:
    claim = await started(ledger)
    await ledger.restart()
    await again(ledger)
    with pytest.raises(LostLease):
        await ledger.log.ask(claim, 2, AsksBack((FORM,)), 60.0)
    with pytest.raises(LostLease):
        await ledger.log.ask_meanwhile(claim, 2, FORM, 60.0)


async def test_what_was_asked_while_a_call_was_under_way_is_withdrawn_when_it_ends(ledger: Ledger) -> None:
    claim = await started(ledger)
    record, asked = await ledger.log.ask_meanwhile(claim, 2, FORM, 60.0)
    assert [each.id for each in record.calls[0].asks] == [asked]
    assert record.calls[0].status is StepStatus.STARTED
    record = await ledger.log.end(claim, 2, StepStatus.DONE, result())
    assert [each.reply for each in record.calls[0].elicitations] == [CANCELLED]
    assert isinstance(await ledger.log.answer(asked, ANSWER, ANA), AlreadySettled)


async def test_what_a_dead_process_was_asking_under_way_is_withdrawn_by_the_next(ledger: Ledger) -> None:
    claim = await running(ledger)
    await ledger.log.append(claim, WANTS, [reading(2)])
    _, asked = await ledger.log.ask_meanwhile(claim, 2, FORM, 60.0)
    # Whoever looks after it goes on waiting; whoever comes after it does not.
    assert (await ledger.log.resume(claim)).asks
    log = await ledger.restart()
    (claim,) = await log.claim(8)
    record = await log.resume(claim)
    assert [each.id for each in record.ready[0].elicitations] == [asked]
    assert not record.asks
    assert record.ready[0].resume is None


async def test_withdrawing_changes_nothing_that_was_answered(ledger: Ledger) -> None:
    claim = await started(ledger)
    _, asked = await ledger.log.ask_meanwhile(claim, 2, FORM, 60.0)
    await ledger.log.answer(asked, ANSWER, ANA)
    record = await ledger.log.withdraw(claim, asked, "Nobody answered in time.")
    assert [each.reply for each in record.calls[0].elicitations] == [ANSWER]


async def test_a_turn_that_ends_asks_no_more(ledger: Ledger) -> None:
    claim, (asked,) = await asking(ledger)
    assert await ledger.log.stop(claim.turn_id, ANA)
    view = await ledger.log.view(claim.turn_id)
    assert view.turn.status is TurnStatus.CANCELLED
    assert isinstance(await ledger.log.answer(asked, ANSWER, ANA), AlreadySettled)


async def test_rounds_are_counted_and_only_the_last_goes_along(ledger: Ledger) -> None:
    _, (asked,) = await asking(ledger)
    await ledger.log.answer(asked, ANSWER, ANA)
    claim = await again(ledger)
    await ledger.log.begin(claim, 2)
    record = await ledger.log.ask(claim, 2, AsksBack((LINK,), "state 2"), None)
    (second,) = record.calls[0].asks
    assert [each.round for each in record.calls[0].elicitations] == [1, 2]
    await ledger.log.answer(second.id, DECLINED, ANA)
    (step,) = (await ledger.log.resume(claim)).ready
    assert step.resume == Replies({"page": DECLINED}, "state 2")


async def test_the_audit_knows_who_answered_and_not_what(ledger: Ledger) -> None:
    _, (asked,) = await asking(ledger)
    await ledger.log.answer(asked, ANSWER, ANA)
    rows = await ledger.database.run(lambda connection: list(audit.rows(connection)))
    (row,) = [row for row in rows if row["kind"] == "answered"]
    assert (row["actor"], json.loads(row["body"])["action"]) == ("test:ana", "accept")
    assert not any("4711" in row["body"] for row in rows)


async def test_a_deleted_conversation_takes_its_questions_along(ledger: Ledger) -> None:
    claim, _ = await asking(ledger)
    await ledger.log.stop(claim.turn_id, ANA)
    assert await ledger.log.delete_conversation(HALL, ANA)
    count = sa.text("select count(*) from elicitations")
    assert await ledger.database.run(lambda connection: connection.execute(count).scalar_one()) == 0


def test_an_answer_is_not_shown_where_values_are_printed() -> None:
    assert "state 1" not in repr(Replies({}, "state 1"))
    assert Elicitation("e", FORM).open

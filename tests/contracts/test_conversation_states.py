"""A conversation in a list stands as its last response does, at every moment, over each database there is: the one word
comes from a view, the other from what is read of a turn.
"""

from __future__ import annotations

import pytest

from bot.domain.approvals import Decision, DecisionType
from bot.domain.elicitations import DECLINED
from bot.domain.turns import TurnStatus
from bot.storage.reporting import SqlReporting
from bot.web.turn_schemas import status_of
from tests.contracts.test_elicitations import asking
from tests.contracts.test_queues import asks
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.ledgers import Ledger, running


async def word(ledger: Ledger) -> str:
    """How the conversation stands, which the list and its last response agree on."""
    archive = SqlReporting(ledger.database)
    summary = await archive.summary(HALL)
    ((listed,), _) = await archive.conversations("", "", 10, 0)
    (last,) = await ledger.log.recent_turns(HALL, 1)
    assert summary is not None
    assert {summary.state, listed.state} == {status_of(last).value}
    return listed.state


async def test_a_question_that_waits_behind_another_is_created_and_begins_once(ledger: Ledger) -> None:
    await ledger.log.enqueue(message("one"))
    assert await word(ledger) == "CREATED"
    (first,) = await ledger.log.claim(1)
    assert await word(ledger) == "STREAMING"
    await ledger.log.enqueue(message("two"))
    assert await word(ledger) == "CREATED"
    await ledger.log.finish(first, TurnStatus.DONE, [], "")
    assert await word(ledger) == "CREATED"
    (second,) = await ledger.log.claim(1)
    assert await word(ledger) == "STREAMING"
    await ledger.log.release([second])
    assert await word(ledger) == "STREAMING", "given back before it has said anything"
    (again,) = await ledger.log.claim(1)
    assert await word(ledger) == "STREAMING"
    await ledger.log.finish(again, TurnStatus.DONE, [], "")
    assert await word(ledger) == "COMPLETED"


@pytest.mark.parametrize("verdict", list(DecisionType))
async def test_a_turn_that_goes_on_after_a_signature_has_begun_long_since(
    ledger: Ledger, verdict: DecisionType
) -> None:
    await asks(ledger, await running(ledger))
    assert await word(ledger) == "STREAMING"
    await ledger.log.decide(Decision("card-1", 1, verdict, ANA))
    assert (await ledger.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(ledger) == "STREAMING"


async def test_a_turn_that_goes_on_after_an_answer_has_begun_long_since(ledger: Ledger) -> None:
    _, (asked,) = await asking(ledger)
    assert await word(ledger) == "STREAMING"
    await ledger.log.answer_elicitation(asked, DECLINED, ANA)
    assert (await ledger.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(ledger) == "STREAMING"


async def test_a_turn_that_is_called_off_without_a_stop_is_given_back_and_has_begun(ledger: Ledger) -> None:
    await ledger.log.finish(await running(ledger), TurnStatus.CANCELLED, [], "")
    assert (await ledger.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(ledger) == "STREAMING"


async def test_an_end_is_told_for_what_it_is(ledger: Ledger) -> None:
    await ledger.log.finish(await running(ledger), TurnStatus.FAILED, [], "It did not work.")
    assert await word(ledger) == "FAILED"
    claim = await running(ledger, "and again")
    await ledger.log.stop(claim.turn_id, BEN)
    await ledger.log.finish(claim, TurnStatus.CANCELLED, [], "")
    assert await word(ledger) == "INCOMPLETE"


async def test_a_question_that_is_stopped_before_it_has_begun_is_incomplete(ledger: Ledger) -> None:
    receipt = await ledger.log.enqueue(message("hi"))
    assert await ledger.log.stop(receipt.turn_id, BEN)
    assert await word(ledger) == "INCOMPLETE"


async def test_a_question_that_is_taken_in_and_driven_at_once_has_begun(ledger: Ledger) -> None:
    await ledger.log.enqueue_and_claim(message("hi"))
    assert await word(ledger) == "STREAMING"

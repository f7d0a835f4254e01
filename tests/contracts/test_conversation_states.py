"""The state of a conversation in a list equals the status of its last response, at every moment and on each database.
The state is read from rows, the status from a view.
"""

from __future__ import annotations

import pytest

from bot.domain.approvals import Decision, DecisionType
from bot.domain.elicitations import DECLINED
from bot.domain.turns import TurnStatus
from bot.rendering.response_models import status_of
from bot.storage.reporting import SqlReporting
from tests.contracts.test_elicitations import asking
from tests.contracts.test_queues import asks
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import Harness, running


async def word(harness: Harness) -> str:
    """Return the state of the conversation. The list and its last response agree on it."""
    archive = SqlReporting(harness.database)
    summary = await archive.summary(HALL)
    ((listed,), _) = await archive.conversations("", "", 10, 0)
    (last,) = await harness.log.recent_turns(HALL, 1)
    assert summary is not None
    assert {summary.state, listed.state} == {status_of(last).value}
    return listed.state


async def test_a_question_that_waits_behind_another_is_created_and_begins_once(harness: Harness) -> None:
    await harness.log.enqueue(message("one"))
    assert await word(harness) == "CREATED"
    (first,) = await harness.log.claim(1)
    assert await word(harness) == "STREAMING"
    await harness.log.enqueue(message("two"))
    assert await word(harness) == "CREATED"
    await harness.log.finish(first, TurnStatus.DONE, [], "")
    assert await word(harness) == "CREATED"
    (second,) = await harness.log.claim(1)
    assert await word(harness) == "STREAMING"
    await harness.log.release([second])
    assert await word(harness) == "STREAMING", "given back before it has said anything"
    (again,) = await harness.log.claim(1)
    assert await word(harness) == "STREAMING"
    await harness.log.finish(again, TurnStatus.DONE, [], "")
    assert await word(harness) == "COMPLETED"


@pytest.mark.parametrize("verdict", list(DecisionType))
async def test_a_turn_that_goes_on_after_an_approval_has_begun_long_since(
    harness: Harness, verdict: DecisionType
) -> None:
    await asks(harness, await running(harness))
    assert await word(harness) == "STREAMING"
    await harness.log.decide(Decision("card-1", 1, verdict, ANA))
    assert (await harness.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(harness) == "STREAMING"


async def test_a_turn_that_goes_on_after_an_answer_has_begun_long_since(harness: Harness) -> None:
    _, (asked,) = await asking(harness)
    assert await word(harness) == "STREAMING"
    await harness.log.answer_elicitation(asked, DECLINED, ANA)
    assert (await harness.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(harness) == "STREAMING"


async def test_a_turn_that_is_called_off_without_a_stop_is_given_back_and_has_begun(harness: Harness) -> None:
    await harness.log.finish(await running(harness), TurnStatus.CANCELLED, [], "")
    assert (await harness.log.recent_turns(HALL, 1))[0].turn.status is TurnStatus.QUEUED
    assert await word(harness) == "STREAMING"


async def test_an_end_of_a_conversation_has_its_kind(harness: Harness) -> None:
    await harness.log.finish(await running(harness), TurnStatus.FAILED, [], "It did not work.")
    assert await word(harness) == "FAILED"
    claim = await running(harness, "and again")
    await harness.log.stop(claim.turn_id, BEN)
    await harness.log.finish(claim, TurnStatus.CANCELLED, [], "")
    assert await word(harness) == "INCOMPLETE"


async def test_a_question_that_is_stopped_before_it_has_begun_is_incomplete(harness: Harness) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    assert await harness.log.stop(receipt.turn_id, BEN)
    assert await word(harness) == "INCOMPLETE"


async def test_a_question_that_is_taken_in_and_driven_at_once_has_begun(harness: Harness) -> None:
    await harness.log.enqueue_and_claim(message("hi"))
    assert await word(harness) == "STREAMING"

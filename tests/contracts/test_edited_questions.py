"""Edits of users' messages, on each database."""

from __future__ import annotations

from bot.domain.agents import AgentRef
from bot.domain.turns import EditedQuestion, EditEffect, TurnStatus
from bot.storage.turn_log.log import EDIT_SECONDS
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import Harness, running

SUPPORT = AgentRef("p1", "support")


async def edit(harness: Harness, key: str, text: str) -> EditedQuestion:
    """Return the edit of a turn's message by its author."""
    edited = await harness.log.edit_question([key], text, ANA)
    assert edited is not None
    assert edited.conversation == HALL
    return edited


async def test_an_edit_of_an_unknown_message_has_no_turn(harness: Harness) -> None:
    assert await harness.log.edit_question(["unknown"], "hi", ANA) is None
    assert not await harness.log.is_stored(["unknown"])


async def test_a_queued_turn_works_on_the_new_text(harness: Harness) -> None:
    first = await running(harness, "one")
    await harness.log.enqueue(message("two"))
    assert (await edit(harness, "two", "2")).effect is EditEffect.REPLACED
    await harness.log.finish(first, TurnStatus.DONE, [], "")
    (second,) = await harness.log.claim(1)
    assert (await harness.log.get_view(second.turn_id)).turn.question.text == "2"


async def test_a_running_turn_keeps_its_text_and_the_new_one_is_stored_beside_it(harness: Harness) -> None:
    claim = await running(harness, "one")
    assert (await edit(harness, "one", "1")).effect is EditEffect.STORED
    question = (await harness.log.get_view(claim.turn_id)).turn.question
    assert (question.text, question.edited_text) == ("one", "1")
    assert (await edit(harness, "one", "1")).effect is EditEffect.NONE


async def test_an_edit_back_to_the_first_text_leaves_nothing_to_ask_again(harness: Harness) -> None:
    claim = await running(harness, "one")
    await edit(harness, "one", "1")
    assert (await edit(harness, "one", "one")).effect is EditEffect.NONE
    question = (await harness.log.get_view(claim.turn_id)).turn.question
    assert (question.text, question.edited_text) == ("one", "")


async def test_an_edit_may_name_another_agent(harness: Harness) -> None:
    claim = await running(harness, "one")
    edited = await harness.log.edit_question(["one"], "one", ANA, SUPPORT)
    assert edited is not None
    assert edited.effect is EditEffect.STORED
    question = (await harness.log.get_view(claim.turn_id)).turn.question
    assert (question.agent, question.edited_text, question.edited_agent) == (None, "one", SUPPORT)
    await harness.log.enqueue(message("two"))
    edited = await harness.log.edit_question(["two"], "two", ANA, SUPPORT)
    assert edited is not None
    assert edited.effect is EditEffect.REPLACED
    assert (await harness.log.get_view(edited.turn_id)).turn.question.agent == SUPPORT
    again = await harness.log.edit_question(["two"], "two", ANA, SUPPORT)
    assert again is not None
    assert again.effect is EditEffect.NONE


async def test_another_user_cannot_edit_a_question(harness: Harness) -> None:
    await running(harness, "one")
    edited = await harness.log.edit_question(["one"], "1", BEN)
    assert edited is not None
    assert edited.effect is EditEffect.NONE


async def test_an_edit_counts_for_some_minutes_after_the_end(harness: Harness) -> None:
    await harness.log.finish(await running(harness, "one"), TurnStatus.DONE, [], "")
    assert (await edit(harness, "one", "1")).effect is EditEffect.STORED
    harness.time += EDIT_SECONDS + 1
    assert (await edit(harness, "one", "2")).effect is EditEffect.NONE


async def test_the_keys_of_a_message_can_move_to_another_turn(harness: Harness) -> None:
    claim = await running(harness, "one")
    other = await harness.log.enqueue(message("other"))
    await harness.log.move_keys(claim.turn_id, other.turn_id)
    assert (await edit(harness, "one", "1")).turn_id == other.turn_id
    assert await harness.log.is_stored(["unknown", "one"])
    assert (await harness.log.enqueue(message("one"))).redelivery

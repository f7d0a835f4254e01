"""The agent of a conversation and of its turns, on each database."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.agents import PLACE_AGENT, AgentRef
from bot.domain.conversations import ConversationKey
from bot.domain.turns import TurnStatus
from tests.fakes.parts import HALL, call, message
from tests.turn_log_harness import Harness

SUPPORT, DATA = AgentRef("p1", "サポート"), AgentRef("p2", "data")
OTHER = ConversationKey("test", "w", "hall", "2")


async def ask(
    harness: Harness, text: str, agent: AgentRef | None = None, where: ConversationKey = HALL
) -> AgentRef | None:
    """Return the agent that is to answer a message."""
    receipt = await harness.log.enqueue(replace(message(text, conversation=where), agent=agent))
    return (await harness.log.get_view(receipt.turn_id)).turn.question.agent


async def test_a_conversation_goes_on_with_the_agent_that_was_named_last(harness: Harness) -> None:
    assert await ask(harness, "1") is None
    assert await ask(harness, "2", SUPPORT) == SUPPORT
    assert await ask(harness, "3") == SUPPORT
    assert await ask(harness, "4", DATA) == DATA
    assert await ask(harness, "5") == DATA
    assert await ask(harness, "6", where=OTHER) is None
    assert await ask(harness, "7", PLACE_AGENT) is None
    assert await ask(harness, "8") is None


async def test_a_turn_that_is_claimed_at_once_knows_its_agent(harness: Harness) -> None:
    _, first = await harness.log.enqueue_and_claim(replace(message("1"), agent=SUPPORT))
    assert first is not None
    assert first.initial_record is not None
    assert first.initial_record.turn.question.agent == SUPPORT
    await harness.log.finish(first, TurnStatus.DONE, [], "")
    _, second = await harness.log.enqueue_and_claim(message("2"))
    assert second is not None
    assert second.initial_record is not None
    assert second.initial_record.turn.question.agent == SUPPORT


async def test_a_name_that_was_changed_meanwhile_leaves_the_turn_as_it_was_asked(harness: Harness) -> None:
    await ask(harness, "1", SUPPORT)
    assert await ask(harness, "2", replace(SUPPORT, name="help desk")) == replace(SUPPORT, name="help desk")
    first, second = await harness.log.recent_turns(HALL, 2)
    assert [first.turn.question.agent_name, second.turn.question.agent_name] == ["サポート", "help desk"]


async def test_a_call_by_hand_belongs_to_the_agent_of_the_conversation(harness: Harness) -> None:
    await ask(harness, "1", SUPPORT)
    receipt = await harness.log.enqueue(replace(message("run"), call=call("notes__add")))
    assert (await harness.log.get_view(receipt.turn_id)).turn.question.agent == SUPPORT


async def test_a_redelivered_message_changes_no_agent(harness: Harness) -> None:
    await ask(harness, "1", SUPPORT)
    await ask(harness, "2", DATA)
    assert (await harness.log.enqueue(replace(message("1"), agent=SUPPORT))).redelivery
    assert await ask(harness, "3") == DATA

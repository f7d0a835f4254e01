"""Conversations that continue without a mention of the bot, on each database."""

from __future__ import annotations

from bot.domain.conversations import ConversationKey
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import Harness


async def test_a_conversation_is_followed_from_its_first_turn(harness: Harness) -> None:
    assert not await harness.log.is_followed(HALL, 30.0)
    await harness.log.enqueue(message("hi"))
    assert await harness.log.is_followed(HALL, 30.0)
    assert await harness.log.is_followed(HALL, 30.0, ANA.id)
    assert not await harness.log.is_followed(HALL, 30.0, BEN.id), "who has asked nothing here"


async def test_the_last_addressed_message_decides(harness: Harness) -> None:
    await harness.log.enqueue(message("hi"))
    await harness.log.save_addressee(HALL, is_bot=False, at=10.0)
    assert not await harness.log.is_followed(HALL, 30.0)
    await harness.log.enqueue(message("a turn that nobody wrote"))
    assert not await harness.log.is_followed(HALL, 30.0)
    await harness.log.save_addressee(HALL, is_bot=True, at=20.0)
    await harness.log.save_addressee(HALL, is_bot=False, at=15.0)
    assert await harness.log.is_followed(HALL, 30.0)
    assert not await harness.log.is_followed(HALL, 12.0), "a message between people that is read late"


async def test_a_conversation_without_turns_stays_one(harness: Harness) -> None:
    other = ConversationKey("slack", "W", "C", "1")
    await harness.log.save_addressee(other, is_bot=True, at=10.0)
    assert not await harness.log.is_followed(other, 30.0)

"""One message begins one turn, despite redelivery, database errors and other processes."""

from __future__ import annotations

import logging

import pytest

from bot.chat import background_tasks, message_handler
from bot.chat.message_handler import AT_ONCE
from tests.fakes.discord import Answers, Cut, Fails, Lost, TooMany
from tests.fakes.discord.faults import Fault
from tests.platforms.discord.connected_bot import ConnectedBot

OPEN = "POST /channels/{channel}/messages/{message}/threads"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between two tries."""
    monkeypatch.setattr(message_handler, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(message_handler, "LONGEST_PAUSE", 0.02)


@pytest.mark.parametrize("fault", [Lost(), Cut(), Answers(502), TooMany(0.1)], ids=repr)
async def test_a_thread_that_was_perhaps_opened_is_where_the_question_is_answered_once(
    place: ConnectedBot, fault: Fault
) -> None:
    place.discord.fail(OPEN, fault)
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
    await place.quiet()
    assert place.texts == ["why?"]
    (thread,) = [each for each in place.discord.threads(place.channel) if each.name == "why?"]
    assert place.engine.received[0].conversation == place.key(place.channel, thread.id)


@pytest.mark.parametrize("code", [200001, 50024, 160005])
async def test_a_thread_that_discord_does_not_open_leaves_the_question_in_its_channel(
    place: ConnectedBot, code: int
) -> None:
    place.discord.fail(OPEN, Fails(code, status=400))
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
    await place.quiet()
    assert [each.conversation for each in place.engine.received] == [place.key(place.channel)]


async def test_users_who_talk_during_a_turn_hold_up_no_other(place: ConnectedBot) -> None:
    place.engine.opened.clear()
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} slow")
    await place.discord.until(lambda: place.engine.arrived)
    for number in range(background_tasks.MOST + 20):
        place.discord.say(place.priya, place.channel, f"lunch {number}")
    place.discord.say(place.priya, place.discord.channel("other"), f"{place.discord.bot.mention} quick")
    await place.discord.until(lambda: place.engine.arrived == 2)
    place.engine.opened.set()
    await place.wait_for_messages(2)
    assert sorted(place.texts) == ["quick", "slow"]


async def test_messages_of_many_users_at_once_are_all_received(place: ConnectedBot) -> None:
    people = [place.discord.user(f"Person {number}") for number in range(background_tasks.MOST // AT_ONCE + 1)]
    place.engine.opened.clear()
    for number in range(AT_ONCE):
        for person in people:
            place.discord.say(person, place.discord.dm(person), f"question {number}")
    await place.discord.until(lambda: place.engine.arrived == len(people))
    place.engine.opened.set()
    await place.wait_for_messages(len(people) * AT_ONCE)
    for person in people:
        mine = [each.text for each in place.engine.received if each.author.id == person.id]
        assert mine == [f"question {number}" for number in range(AT_ONCE)]


async def test_one_user_who_writes_without_end_holds_up_no_other(
    place: ConnectedBot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bot.chat")
    too_much = background_tasks.MOST + 20
    mallory = place.discord.user("Mallory")
    place.engine.opened.clear()
    for number in range(too_much):
        place.discord.say(mallory, place.channel, f"{place.discord.bot.mention} spam {number}")
    place.discord.say(place.priya, place.discord.channel("other"), f"{place.discord.bot.mention} why?")
    await place.discord.until(lambda: place.engine.arrived == 2)
    await place.discord.until(lambda: caplog.text.count("limit of a user reached") >= too_much - AT_ONCE)
    assert "why?" not in place.texts, "nothing is on disk before the door is open"
    place.engine.opened.set()
    await place.wait_for_messages(AT_ONCE + 1)
    place.discord.say(mallory, place.channel, f"{place.discord.bot.mention} sorry")
    await place.discord.until(lambda: {"why?", "sorry"} <= set(place.texts))

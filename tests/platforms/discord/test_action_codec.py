"""Buttons: the interaction names the user, the engine decides, and a rejection is an ephemeral message."""

from __future__ import annotations

import dataclasses
import re

import pytest

from bot.domain.approvals import NotAllowed
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.discord.interactions import FILE, IN_THE_FILE
from bot.platforms.discord.modals import asked_about
from tests.fakes.discord import Channel, Message
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.rendering.turns import NOTES, a_step, a_view, an_approval


async def draw_view(place: ConnectedBot, view: TurnView, channel: Channel | None = None) -> Message:
    """Return the last message of a view in a thread of #incidents or in a channel."""
    if channel is None:
        said = place.discord.say(place.priya, place.channel, "please")
        channel = place.discord.thread(place.priya, place.channel, "please", said)
        key = place.key(place.channel, channel.id)
    else:
        key = place.key(channel)
    await place.draw(place.engine.knows(view, key))
    return place.public_messages(channel)[-1]


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


def ids(message: Message) -> list[str]:
    """Return the custom ids of the buttons."""

    def walk(components: list[dict[str, object]]) -> list[str]:
        found: list[str] = []
        for component in components:
            if component.get("custom_id"):
                found.append(str(component["custom_id"]))
            found += walk(component.get("components") or [])  # type: ignore[arg-type]
        return found

    return walk(message.components)


def button_id(message: Message, kind: str) -> str:
    """Return the custom id of the button with this action."""
    return next(each for each in ids(message) if each.startswith(f"cs:{kind}:"))


async def test_a_call_that_may_destroy_data_is_approved_after_a_question(place: ConnectedBot) -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=dataclasses.replace(NOTES, destructive=True))
    card = await draw_view(place, a_view(step, status=TurnStatus.WAITING))
    pressed = await place.discord.press(place.priya, card, button_id(card, "ask"))
    await place.discord.until(lambda: pressed.messages)
    (question,) = pressed.messages
    assert question.ephemeral_to == place.priya.id
    assert "may destroy data, and cannot be taken back" in str(question.components)
    assert place.engine.decisions == []
    await place.discord.press(place.priya, question, "Approve")
    await place.discord.until(lambda: place.engine.decisions)
    ((decision, _),) = place.engine.decisions
    assert (decision.approval_id, decision.revision) == ("apr-12345678", 1)


async def test_roles_are_those_of_the_moment_of_the_press(place: ConnectedBot) -> None:
    ops = place.discord.role("ops")
    sam = place.discord.user("Sam", ops)
    card = await draw_view(place, waiting())
    await place.discord.press(sam, card, button_id(card, "approve"))
    await place.discord.until(lambda: place.engine.decisions)
    place.discord.take(sam, ops)
    await place.discord.press(sam, card, button_id(card, "approve"))
    await place.discord.until(lambda: len(place.engine.decisions) == 2)
    roles = [member.roles for _, member in place.engine.decisions]
    assert roles == [{f"discord-role:{ops.id}"}, frozenset()]


async def test_a_button_that_an_earlier_process_drew_works(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting())
    await place.stop()
    async with place.running("two"):
        await place.discord.press(place.priya, card, button_id(card, "approve"))
        await place.discord.until(lambda: place.engine.decisions)


async def test_a_refusal_names_people_and_roles_and_calls_none_of_them(place: ConnectedBot) -> None:
    discord = place.discord
    sam, ops = discord.user("Sam"), discord.role("ops-approvers")
    card = await draw_view(place, waiting())
    place.engine.settlements = [NotAllowed(f"It needs discord-role:{ops.id}, discord:{sam.id}.")]
    await discord.press(place.priya, card, button_id(card, "approve"))
    await discord.until(lambda: place.whispers(place.priya, card.channel))
    (told,) = place.whispers(place.priya, card.channel)
    assert told.replace("\u2060", "") == "It needs @ops-approvers, @Sam."
    (whisper,) = [message for message in discord.bot_messages(card.channel) if message.ephemeral_to]
    assert discord.notified_ids(whisper) == set()


async def test_a_denial_is_taken_by_whichever_process_receives_it(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting())
    await place.discord.press(place.priya, card, button_id(card, "deny"))
    await place.stop()
    async with place.running("two"):
        await place.discord.submit(place.priya)
        await place.discord.until(lambda: place.engine.decisions)
        assert place.engine.decisions[0][0].reason == ""


async def test_view_all_shows_everything_to_one_person_and_can_be_approved_there(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(text="long " * 700))
    pressed = await place.discord.press(place.priya, card, button_id(card, "view"))
    await place.discord.until(lambda: len(pressed.messages) >= 3)
    assert "".join(pressed.text.split("```")[1::2]).count("l") == 700
    assert all(message.ephemeral_to == place.priya.id for message in pressed.messages)
    last = pressed.messages[-1]
    await place.discord.press(place.priya, last, button_id(last, "approve"))
    await place.discord.until(lambda: place.engine.decisions)
    assert place.engine.decisions[0][0].approval_id == "apr-12345678"


async def test_no_line_of_a_value_reads_like_another_argument_in_the_file(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(body="long " * 4_000 + "\n\nto:\nben@example.com", to="eve@example.org"))
    pressed = await place.discord.press(place.priya, card, button_id(card, "view"))
    await place.discord.until(lambda: pressed.messages)
    (shown,) = pressed.messages
    (file,) = shown.files
    text = file.content.decode().splitlines()
    assert [line for line in text if line and not line.startswith(" ")] == ["body:", "to:"]
    assert text[-1] == "    eve@example.org"


async def test_a_call_of_too_many_messages_is_shown_as_a_file(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(text="`@everyone` long " * 2_000))
    pressed = await place.discord.press(place.priya, card, button_id(card, "view"))
    await place.discord.until(lambda: pressed.messages)
    (shown,) = pressed.messages
    assert IN_THE_FILE in shown.content
    (file,) = shown.files
    assert (file.name, file.content.count(b"long ")) == (FILE, 2_000)


async def test_arguments_cannot_end_their_code_block(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(text="```\n@everyone **Approved** <@1>\n" * 20))
    pressed = await place.discord.press(place.priya, card, button_id(card, "view"))
    await place.discord.until(lambda: pressed.messages)
    outside = re.sub(r"```.*?```", "", pressed.text, flags=re.DOTALL)
    assert "Approved" not in outside
    assert "everyone" not in outside
    assert place.discord.notified_ids(pressed.messages[0]) == set()


@pytest.mark.parametrize("value", ["`" * 5_000, "\N{GRINNING FACE}" * 2_500, "_*~" * 1_500, ""])
async def test_everything_is_shown_however_much_room_it_takes(place: ConnectedBot, value: str) -> None:
    card = await draw_view(place, waiting(text=value, more="long " * 300))
    pressed = await place.discord.press(place.priya, card, button_id(card, "view"))
    await place.discord.until(lambda: pressed.messages and ids(pressed.messages[-1]))
    files = "".join(file.content.decode() for message in pressed.messages for file in message.files)
    shown = "".join(pressed.text.split("```")[1::2]) + files
    for character in set(value):
        assert shown.count(character) == value.count(character)


async def test_in_a_direct_conversation_who_pressed_is_asked_for(place: ConnectedBot) -> None:
    ops = place.discord.role("ops", place.priya)
    dm = place.discord.dm(place.priya)
    card = await draw_view(place, waiting(), dm)
    await place.discord.press(place.priya, card, button_id(card, "approve"))
    await place.discord.until(lambda: place.engine.decisions)
    assert place.engine.decisions[0][1].roles == {f"discord-role:{ops.id}"}


@pytest.mark.parametrize("custom_id", ["cs.ask:1", "cs.ask:a:b", "other:1:2"])
def test_a_modal_of_another_app_is_ignored(custom_id: str) -> None:
    assert asked_about(custom_id) is None

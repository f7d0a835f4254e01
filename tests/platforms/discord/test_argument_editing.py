"""Changing a call before it is signed, in Discord."""

from __future__ import annotations

import dataclasses

from bot.chat.argument_editing import DONE
from bot.chat.rejection_messages import OUT_OF_DATE
from bot.domain.approvals import NotAllowed, StaleRevision
from bot.domain.argument_edits import InvalidArguments
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, TurnStatus
from bot.domain.views import TurnView
from tests.fakes.discord import Answer, Interaction, Message
from tests.fakes.discord.components import TEXT, walk
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot
from tests.platforms.discord.test_action_codec import drawn, ids, named
from tests.rendering.turns import NOTES, a_step, a_view, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")
SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "kind": {"type": "string", "enum": ["note", "task"]},
        "count": {"type": "integer"},
    },
    "required": ["text"],
}
MANY = {f"field_{n}": f"value {n}" for n in range(7)}


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN, arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


def said(asked: Interaction) -> str:
    """Everything that was posted in answer."""
    shown = [node for message in asked.messages for node in walk(message.components)]
    return " ".join(str(each["content"]) for each in shown if each["type"] == TEXT)


async def editing(place: ConnectedBot, **arguments: str) -> tuple[Message, Interaction]:
    """Priya has pressed Edit…; the card, and what became of the press."""
    place.engine.schema = {} if arguments else SCHEMA
    card = await drawn(place, waiting(**arguments))
    pressed = await place.discord.press(place.priya, card, named(card, "edit"))
    await place.discord.until(lambda: pressed.answered)
    return card, pressed


async def test_the_button_opens_a_form_with_what_the_call_holds() -> None:
    async with connected_bot() as place:
        card, pressed = await editing(place)
        assert pressed.answered is Answer.MODAL
        shown = str(place.discord.modal(place.priya).drawn)
        for expected in ("text", "Buy milk", "kind", "task", "leave out", "count"):
            assert expected in shown
        assert place.engine.revisions == []
        assert any(each.startswith("cs:edit:") for each in ids(card))


async def test_what_was_filled_in_reaches_the_engine_as_arguments() -> None:
    async with connected_bot() as place:
        card, _ = await editing(place)
        before = list(card.components)
        sent = await place.discord.submit(place.priya, {"text": "Buy bread", "kind": "task", "count": "3"})
        await place.discord.until(lambda: sent.messages)
        ((approval_id, revision, arguments, member),) = place.engine.revisions
        assert (approval_id, revision) == ("apr-12345678", 1)
        assert arguments == {"text": "Buy bread", "kind": "task", "count": 3}
        assert member.author.id == str(place.priya.id)
        assert DONE in said(sent)
        assert card.components == before


async def test_an_error_stands_under_its_field_in_the_form_that_comes_again() -> None:
    async with connected_bot() as place:
        await editing(place)
        sent = await place.discord.submit(place.priya, {"text": "Buy bread", "count": "many"})
        await place.discord.until(lambda: sent.messages)
        again = sent.messages[-1]
        (button,) = [each for each in ids(again) if "pending" in each]
        await place.discord.press(place.priya, again, button)
        await place.discord.until(lambda: "A whole number" in str(place.discord.modal(place.priya).drawn))
        place.engine.editings = [InvalidArguments((ArgumentError("text", "text: 'x' is too short"),))]
        sent = await place.discord.submit(place.priya, {"text": "x", "count": "3"})
        await place.discord.until(lambda: place.engine.revisions)
        assert place.engine.revisions[-1][2] == {"text": "x", "count": 3}


async def test_a_long_form_comes_in_steps_and_is_sent_once() -> None:
    async with connected_bot() as place:
        await editing(place, **MANY)
        sent = await place.discord.submit(place.priya, {"field_0": '"zero"'})
        await place.discord.until(lambda: sent.messages)
        assert place.engine.revisions == []
        further = sent.messages[-1]
        (button,) = [each for each in ids(further) if "pending" in each]
        await place.discord.press(place.priya, further, button)
        await place.discord.until(lambda: "field_5" in str(place.discord.modal(place.priya).drawn))
        await place.discord.submit(place.priya, {"field_6": '"six"'})
        await place.discord.until(lambda: place.engine.revisions)
        ((_, _, arguments, _),) = place.engine.revisions
        assert arguments == {**MANY, "field_0": "zero", "field_6": "six"}


async def test_a_card_that_is_out_of_date_opens_nothing_and_says_so() -> None:
    async with connected_bot() as place:
        place.engine.not_now = StaleRevision()
        card, pressed = await editing(place)
        before = list(card.components)
        await place.discord.until(lambda: pressed.messages)
        assert OUT_OF_DATE in said(pressed)
        assert card.components == before


async def test_who_may_not_hears_why_alone() -> None:
    async with connected_bot() as place:
        place.engine.not_now = NotAllowed("You may not approve this.")
        _, pressed = await editing(place)
        await place.discord.until(lambda: pressed.messages)
        assert "You may not approve this." in said(pressed)
        assert pressed.messages[-1].ephemeral_to == place.priya.id


async def test_in_a_direct_conversation_the_card_stays_where_it_is() -> None:
    async with connected_bot() as place:
        place.engine.schema = SCHEMA
        card = await drawn(place, waiting(), place.discord.dm(place.priya))
        before = list(card.components)
        await place.discord.press(place.priya, card, named(card, "edit"))
        sent = await place.discord.submit(place.priya, {"text": "Buy bread"})
        await place.discord.until(lambda: sent.messages)
        assert DONE in said(sent)
        assert card.components == before

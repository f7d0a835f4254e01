"""Editing a call's arguments before its approval, in Discord."""

from __future__ import annotations

import dataclasses

from bot.chat.forms import DONE
from bot.domain.approvals import NotAllowed
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from tests.fakes.discord import Answer, Interaction
from tests.fakes.discord.components import TEXT, walk
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.platforms.discord.test_action_codec import button_id, draw_view
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
TEN = {f"field_{n}": f"value {n}" for n in range(10)}
FIELDS_A_MODAL = 5
"""Top-level components of a modal; Discord's limit."""


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN, arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


def response_text(asked: Interaction) -> str:
    """Return the texts of the responses to an interaction."""
    shown = [node for message in asked.messages for node in walk(message.components)]
    return " ".join(str(each["content"]) for each in shown if each["type"] == TEXT)


async def test_in_a_direct_conversation_the_card_stays_where_it_is(place: ConnectedBot) -> None:
    place.engine.schema = SCHEMA
    card = await draw_view(place, waiting(), place.discord.dm(place.priya))
    before = list(card.components)
    place.engine.not_now = NotAllowed("You may not approve this.")
    refused = await place.discord.press(place.priya, card, button_id(card, "edit"))
    await place.discord.until(lambda: "You may not" in response_text(refused))
    assert card.components == before
    place.engine.not_now = None
    await place.discord.press(place.priya, card, button_id(card, "edit"))
    sent = await place.discord.submit(place.priya, {"text": "Buy bread"})
    await place.discord.until(lambda: sent.messages)
    assert DONE in response_text(sent)
    assert card.components == before


async def test_ten_arguments_are_edited_in_two_modals_with_one_press_between_them_and_nothing_is_typed_twice(
    place: ConnectedBot,
) -> None:
    discord = place.discord
    card = await draw_view(place, waiting(**TEN))
    opened = await discord.press(place.priya, card, button_id(card, "edit"))
    assert opened.answered is Answer.MODAL
    assert len(discord.modal(place.priya).drawn["components"]) == FIELDS_A_MODAL
    first = await discord.submit(place.priya, {f"field_{n}": f'"first {n}"' for n in range(5)})
    await discord.until(lambda: first.messages)
    for _ in range(2):  # also after the user closes the second modal
        again = await discord.press(place.priya, first.messages[-1], "Continue")
        assert again.answered is Answer.MODAL
    assert len(discord.modal(place.priya).drawn["components"]) == FIELDS_A_MODAL
    await discord.submit(place.priya, {f"field_{n}": f'"second {n}"' for n in range(5, 10)})
    await discord.until(lambda: place.engine.revisions)
    ((_, _, arguments, _),) = place.engine.revisions
    assert list(arguments.values()) == [f"first {n}" for n in range(5)] + [f"second {n}" for n in range(5, 10)]

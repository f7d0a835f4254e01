"""Granting later calls with the approval of one call, in Discord."""

from __future__ import annotations

import dataclasses

import pytest

from bot.chat.actions import Action, ApprovalRef, ApproveWithGrant, Edit
from bot.domain.approvals import ArgumentsScope, HoursScope, PermanentScope
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.discord.components import MENU, decode, decode_choice, encode
from bot.platforms.discord.message_layout import CALLS_A_CARD
from tests.fakes.discord.components import walk
from tests.fakes.discord.interactions import Interaction
from tests.fakes.discord.messages import Message
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.platforms.discord.payload_checks import labels
from tests.platforms.discord.test_action_codec import button_id, draw_view
from tests.platforms.discord.test_cards import cards
from tests.rendering.turns import NOTES, a_step, a_view, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")
CARD = ApprovalRef("apr-12345678", 1)


def waiting(count: int = 1) -> TurnView:
    steps = [
        a_step(
            StepStatus.AWAITING,
            n,
            approval=an_approval(id=f"apr-{12345678 + n}"),
            tool=KNOWN,
            arguments={f"field_{k}": "x" * 190 for k in range(20)},
        )
        for n in range(count)
    ]
    return a_view(*steps, status=TurnStatus.WAITING)


async def whole(place: ConnectedBot, viewed: Interaction) -> Message:
    """Wait for the last message of a complete call, the only message with buttons."""
    await place.discord.until(lambda: viewed.messages and viewed.messages[-1].components)
    return viewed.messages[-1]


@pytest.mark.parametrize("press", [ApproveWithGrant(CARD, "thread"), Edit(CARD)])
def test_a_press_is_read_as_it_was_written(press: Action) -> None:
    custom_id = encode(press)
    assert custom_id is not None
    assert decode(custom_id) == press
    assert decode_choice(f"{MENU}:{CARD.approval_id}", [custom_id]) == press


@pytest.mark.parametrize("custom_id", ["cs:allow:a:1", "cs:allow:a:b:thread", "cs:allow:a:1:thread:more", "cs:menu:a"])
def test_a_forged_value_is_no_grant(custom_id: str) -> None:
    assert decode_choice(custom_id, []) is None


def test_a_button_with_values_is_no_menu() -> None:
    assert decode_choice("cs:view:a:1:1", ["cs:approve:b:1"]) == decode("cs:view:a:1:1")


def test_a_full_card_with_everything_that_is_offered_is_taken() -> None:
    (slot,) = cards(waiting(CALLS_A_CARD))
    assert labels(slot.components).count("Allow in this thread") == CALLS_A_CARD


async def test_a_grant_is_chosen_where_the_whole_call_is_shown(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting())
    viewed = await place.discord.press(place.priya, card, button_id(card, "view"))
    shown = await whole(place, viewed)
    (menu,) = [node["custom_id"] for node in walk(shown.components) if node["type"] == 3]
    for label in ("Allow this very call", "Allow for 8 hours", "Always allow (admins)"):
        await place.discord.choose(place.priya, shown, menu, label)
    await place.discord.until(lambda: len(place.engine.granted) == 3)
    assert place.engine.granted == [
        GrantRequest(ArgumentsScope()),
        GrantRequest(HoursScope(8)),
        GrantRequest(PermanentScope()),
    ]

"""Changing a call before it is signed, in Discord."""

from __future__ import annotations

import dataclasses

from bot.chat.argument_editing import DONE
from bot.domain.turns import StepStatus, TurnStatus
from bot.domain.views import TurnView
from tests.fakes.discord import Interaction
from tests.fakes.discord.components import TEXT, walk
from tests.platforms.discord.connected_bot import connected_bot
from tests.platforms.discord.test_action_codec import drawn, named
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

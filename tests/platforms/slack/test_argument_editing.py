"""Editing a call's arguments before its approval, in Slack."""

from __future__ import annotations

import dataclasses

from bot.chat.forms import DONE
from bot.domain.approvals import NotAllowed
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from tests.fakes.slack import Message
from tests.platforms.slack.connected_bot import ConnectedBot
from tests.platforms.slack.payload_checks import labels
from tests.platforms.slack.test_action_codec import drawn, somebody
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


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN, arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


async def editing(place: ConnectedBot, **arguments: str) -> Message:
    """Let Priya press Edit…, and return the card."""
    place.engine.schema = {} if arguments else SCHEMA
    card = await drawn(place, waiting(**arguments))
    await place.slack.press(place.priya, card, "Edit…")
    return card


async def test_a_refused_user_reads_approvers_by_their_names(place: ConnectedBot) -> None:
    sam = somebody(place, "Sam")
    place.engine.not_now = NotAllowed(f"You may not approve this. It needs slack:{sam.id}.")
    await editing(place)
    await place.slack.until(lambda: place.whispers(place.priya))
    (told,) = place.whispers(place.priya)
    assert told.replace("\u2060", "") == "⚠ You may not approve this. It needs @sam."


async def test_in_a_direct_conversation_the_card_stays_where_it_is(place: ConnectedBot) -> None:
    dm = place.slack.dm(place.priya)
    root = place.slack.say(place.priya, dm, "please")
    await place.slack.until(lambda: place.engine.received)
    key = place.engine.received[0].conversation
    place.engine.schema = SCHEMA
    await place.draw(place.engine.knows(waiting(), key))
    card = next(post for post in place.bot_posts(dm) if "Edit…" in labels(post.blocks))
    before = card.written()
    await place.slack.press(place.priya, card, "Edit…")
    await place.slack.until(lambda: place.slack.modals(place.priya))
    await place.slack.submit(place.priya, {"text": "Buy bread"})
    await place.slack.until(lambda: DONE in str([message.text for message in place.slack.posted(dm)]))
    assert card.written() == before
    assert root.ts

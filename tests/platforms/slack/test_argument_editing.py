"""Changing a call before it is signed, in Slack."""

from __future__ import annotations

import dataclasses

from bot.chat.argument_editing import DONE
from bot.chat.rejection_messages import OUT_OF_DATE
from bot.domain.approvals import NotAllowed, StaleRevision
from bot.domain.argument_edits import InvalidArguments
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, TurnStatus
from bot.domain.views import TurnView
from tests.fakes.slack import Message
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
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
MANY = {f"field_{n}": f"value {n}" for n in range(7)}


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN, arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


async def editing(place: ConnectedBot, **arguments: str) -> Message:
    """Priya has pressed Edit…; the card."""
    place.engine.schema = {} if arguments else SCHEMA
    card = await drawn(place, waiting(**arguments))
    await place.slack.press(place.priya, card, "Edit…")
    return card


async def test_the_button_opens_a_form_with_what_the_call_holds() -> None:
    async with connected_bot() as place:
        card = await editing(place)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        window = place.slack.modal(place.priya).drawn
        fields = {each["label"]["text"]: each["element"] for each in window["blocks"] if each["type"] == "input"}
        assert list(fields) == ["text", "kind", "count"]
        assert fields["text"]["initial_value"] == "Buy milk"
        assert [each["value"] for each in fields["kind"]["options"]] == ["note", "task", "leave out"]
        assert place.engine.revisions == []
        assert "Edit…" in labels(card.blocks)


async def test_what_was_filled_in_reaches_the_engine_as_arguments() -> None:
    async with connected_bot() as place:
        card = await editing(place)
        before = card.written()
        await place.slack.until(lambda: place.slack.modals(place.priya))
        await place.slack.submit(place.priya, {"text": "Buy bread", "kind": "task", "count": "3"})
        await place.slack.until(lambda: place.whispers(place.priya))
        ((approval_id, revision, arguments, member),) = place.engine.revisions
        assert (approval_id, revision) == ("apr-12345678", 1)
        assert arguments == {"text": "Buy bread", "kind": "task", "count": 3}
        assert member.author.id == place.priya.id
        assert place.whispers(place.priya) == [DONE]
        assert place.slack.modals(place.priya) == []
        assert place.bot_posts()[-1].written() == before


async def test_an_error_stands_under_its_field_and_the_form_stays_open() -> None:
    async with connected_bot() as place:
        await editing(place)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        place.engine.editings = [InvalidArguments((ArgumentError("text", "text: 'x' is too short"),))]
        await place.slack.submit(place.priya, {"text": "x", "count": "many"})
        assert "A whole number" in place.slack.modal(place.priya).words
        await place.slack.submit(place.priya, {"text": "x", "count": "3"})
        assert "is too short" in place.slack.modal(place.priya).words
        assert place.whispers(place.priya) == []


async def test_a_long_form_comes_in_steps_and_is_sent_once() -> None:
    async with connected_bot() as place:
        await editing(place, **MANY)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        await place.slack.submit(place.priya, {"field_0": '"zero"'})
        window = str(place.slack.modal(place.priya).drawn)
        assert "field_5" in window
        assert place.engine.revisions == []
        await place.slack.submit(place.priya, {"field_6": '"six"'})
        await place.slack.until(lambda: place.engine.revisions)
        ((_, _, arguments, _),) = place.engine.revisions
        assert arguments == {**MANY, "field_0": "zero", "field_6": "six"}


async def test_a_card_that_is_out_of_date_opens_nothing_and_says_so() -> None:
    async with connected_bot() as place:
        place.engine.not_now = StaleRevision()
        await editing(place)
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.whispers(place.priya) == [f"⚠ {OUT_OF_DATE}"]
        assert place.slack.modals(place.priya) == []


async def test_who_may_not_hears_it_by_the_names_people_know() -> None:
    async with connected_bot() as place:
        sam = somebody(place, "Sam")
        place.engine.not_now = NotAllowed(f"You may not approve this. It needs slack:{sam.id}.")
        await editing(place)
        await place.slack.until(lambda: place.whispers(place.priya))
        (told,) = place.whispers(place.priya)
        assert told.replace("\u2060", "") == "⚠ You may not approve this. It needs @sam."


async def test_in_a_direct_conversation_the_card_stays_where_it_is() -> None:
    async with connected_bot() as place:
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

"""Elicitations in Discord: the public card, and the answer of one user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.chat.forms import FINISHED, SENT
from bot.domain.conversations import Author, ConversationKey
from bot.domain.elicitations import Elicitation, ElicitationAction, ElicitationResult
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.discord.components import LINK, OutgoingMessage
from bot.platforms.discord.message_layout import GREEN, GREY, ORANGE, turn_messages
from bot.ports.platform import OpenElicitation
from bot.rendering.elicitation_card import ANSWER, DECLINE, VISIT
from tests.fakes.discord import Answer, Channel, Interaction, Message
from tests.fakes.discord.components import BUTTON, walk
from tests.fakes.discord.mentions import CODE
from tests.platforms import sample_views
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.platforms.discord.payload_checks import check_slot, labels, texts
from tests.platforms.discord.test_action_codec import draw_view, ids
from tests.platforms.discord.test_argument_editing import response_text
from tests.rendering.turns import a_form, a_link, a_step
from tests.rendering.turns import a_view as a_turn

PRIYA = Author("discord", "1001", "Priya")
THREAD = ConversationKey("discord", "1", "2", "3")
ID = "eli-12345678"
PAGE = "https://pay.example.com/c/7?a=1&b=2"
BOMB = "<@1001> <@&1> *x* [here](https://evil.example) @everyone # big https://evil.example/login"


def questions(view: TurnView) -> list[OutgoingMessage]:
    slots = turn_messages(sample_views.at(view, THREAD, PRIYA), sample_views.NOW)
    found = [slot for slot in slots if slot.name.startswith("question-")]
    for slot in found:
        check_slot(slot, frozenset({PRIYA.id}))
    return found


def only(view: TurnView) -> OutgoingMessage:
    (slot,) = questions(view)
    return slot


def read_out(slot: OutgoingMessage) -> str:
    return "\n".join(filter(None, texts(slot)))


def colour(slot: OutgoingMessage) -> int:
    return int(slot.components[0]["accent_color"])


# ------------------------------------------------------------------ the card


def test_a_card_has_server_user_question_and_expiry() -> None:
    slot = only(sample_views.INQUIRED)
    assert (
        read_out(slot)
        == """\
### travel asks for an answer
**Server** travel   **Tool** book_train
**It asks for** Seats, Class, A note for the guard
**The server says:**
> The 14:05 to Leeds has seats left.
> How many, and in which class?
-# For <@1001> alone · the answer is private · expires <t:1800001800:R>"""
    )
    assert (slot.asks, slot.notifies, colour(slot)) == (True, frozenset({PRIYA.principal}), ORANGE)


@pytest.mark.parametrize(
    ("name", "edge"), [("answered", GREEN), ("visited", GREEN), ("declined", GREY), ("late", GREY), ("stopped", GREY)]
)
def test_afterwards_the_card_has_the_colour_of_its_end_and_mentions_no_user(name: str, edge: int) -> None:
    slot = only(sample_views.HEARD[name])
    assert (colour(slot), slot.notifies) == (edge, frozenset())


def test_text_of_a_server_mentions_formats_and_links_nothing() -> None:
    asked = a_form(message=BOMB, properties={BOMB: {"type": "string", "title": BOMB}})
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(asked,)), status=TurnStatus.WAITING)
    (slot,) = [
        message
        for message in turn_messages(sample_views.at(view, THREAD, PRIYA), sample_views.NOW)
        if message.name == f"question-{ID}"
    ]
    check_slot(slot, frozenset({PRIYA.id}))
    shown = CODE.sub("", read_out(slot))
    assert "https://" not in shown
    assert "\\*x\\*" in shown


# ------------------------------------------------------------------ on the platform


async def asking(place: ConnectedBot, elicitation: Elicitation, channel: Channel | None = None) -> Message:
    """Return the card of an elicitation that waits for Priya."""
    asker = Author("discord", place.priya.id, "Priya")
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(elicitation,)), status=TurnStatus.WAITING)
    card = await draw_view(place, replace(view, turn=replace(view.turn, author=asker)), channel)
    drawn_view = place.engine.views[-1]
    (step,) = drawn_view.steps
    place.engine.inquiries[elicitation.id] = OpenElicitation(drawn_view.turn, step, elicitation)  # type: ignore[arg-type]
    return card


async def stands(place: ConnectedBot, elicitation: Elicitation) -> None:
    """Deliver the turn again with the current elicitation."""
    view = place.engine.views[-1]
    step = a_step(StepStatus.STARTED, elicitations=(elicitation,))
    place.engine.views[-1] = replace(view, steps=(step,), revision=view.revision + 1)
    await place.draw(place.engine.views[-1])


async def answer(place: ConnectedBot, asked: Interaction) -> Message:
    """Return the last ephemeral response to a button or a form."""
    await place.discord.until(lambda: asked.messages)
    return asked.messages[-1]


def button(message: Message, word: str) -> str:
    """Return the custom id of the button with this label."""
    return next(each for each in ids(message) if word in each)


async def test_the_card_mentions_the_asked_user_once_and_becomes_its_outcome_in_place(place: ConnectedBot) -> None:
    card = await asking(place, a_form())
    assert place.discord.notified_ids(card) == {place.priya.id}
    card.pings.clear()
    count = len(place.public_messages(card.channel))
    await stands(place, a_form(expires_at=1.0))
    await stands(place, a_form(reply=ElicitationResult(ElicitationAction.ACCEPT, {"title": "x"}), answered_by="Priya"))
    assert len(place.public_messages(card.channel)) == count
    assert place.public_messages(card.channel)[-1] is card
    assert "Answered by Priya" in str(card.components)
    assert place.discord.notified_ids(card) == set()


async def test_a_card_that_an_earlier_process_drew_is_answered(place: ConnectedBot) -> None:
    card = await asking(place, a_form())
    await place.stop()
    async with place.running("two"):
        await place.discord.press(place.priya, card, button(card, ANSWER))
        sent = await place.discord.submit(place.priya, {"Title": "x"})
        await place.discord.until(lambda: SENT in response_text(sent))


async def test_the_address_of_a_page_is_shown_to_the_asked_user_alone_with_its_domain(place: ConnectedBot) -> None:
    card = await asking(place, a_link(url=PAGE, message=f"Pay at {BOMB}"))
    asked = await place.discord.press(place.priya, card, button(card, VISIT))
    await place.discord.until(lambda: asked.messages)
    (shown,) = asked.messages
    assert shown.ephemeral_to == place.priya.id
    assert f"`{PAGE}`" in response_text(asked)
    assert "`pay.example.com`" in response_text(asked)
    assert "https://" not in CODE.sub("", response_text(asked))
    assert labels(shown.components) == ["Open pay.example.com", "I have finished", "Decline"]
    (way,) = [node for node in walk(shown.components) if node["type"] == BUTTON and node.get("url")]
    assert way["url"] == PAGE
    assert place.discord.fetched_addresses(shown) == set()
    assert place.discord.notified_ids(shown) == set()
    done = await place.discord.press(place.priya, shown, button(shown, "visited-server"))
    await place.discord.until(lambda: place.engine.replied)
    ((elicitation_id, reply, _),) = place.engine.replied
    assert (elicitation_id, reply) == (ID, ElicitationResult(ElicitationAction.ACCEPT))
    await place.discord.until(lambda: FINISHED in str(shown.components))
    assert done.answered is Answer.UPDATE
    assert not any(PAGE in str(message.components) for message in place.public_messages(card.channel))


async def test_an_address_that_is_too_long_for_a_button_is_copied_from_the_text(place: ConnectedBot) -> None:
    page = PAGE + "&c=" + "x" * LINK
    card = await asking(place, a_link(url=page))
    asked = await place.discord.press(place.priya, card, button(card, VISIT))
    await place.discord.until(lambda: page in response_text(asked))
    assert labels(asked.messages[-1].components) == ["I have finished", "Decline"]


async def test_in_a_direct_conversation_the_card_stays_where_it_is(place: ConnectedBot) -> None:
    for elicitation in (a_link(url=PAGE), a_form("eli-2")):
        card = await asking(place, elicitation, place.discord.dm(place.priya))
        before = list(card.components)
        asked = await place.discord.press(place.priya, card, button(card, DECLINE))
        await answer(place, asked)
        assert "Declined." in response_text(asked)
        assert card.components == before
    await place.discord.press(place.priya, card, button(card, ANSWER))
    sent = await place.discord.submit(place.priya, {"Title": "x"})
    await place.discord.until(lambda: SENT in response_text(sent))
    assert card.components == before
    assert place.discord.calls.failed_calls() == []

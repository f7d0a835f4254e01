"""Elicitations in Slack: the public card, and the answer of one user."""

from __future__ import annotations

from dataclasses import replace

from bot.chat.context import Lookups
from bot.chat.forms import FINISHED, SENT
from bot.chat.home_message import Home
from bot.domain.conversations import ConversationKey, Member
from bot.domain.elicitations import DECLINED, Elicitation, ElicitationAction, ElicitationResult
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.blocks import LINK_PRESSED, OutgoingMessage
from bot.platforms.slack.message_blocks import turn_messages
from bot.platforms.slack.sending import TaskStatus, streams
from bot.ports.platform import OpenElicitation
from tests.fakes.slack import Message, User
from tests.platforms import sample_views
from tests.platforms.sample_views import a_booking, a_reply, a_view, asked_back
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.platforms.slack.payload_checks import check_message, labels, parts
from tests.platforms.slack.test_action_codec import draw_view
from tests.platforms.slack.test_streaming import ask, in_dm
from tests.platforms.slack.test_surface import running
from tests.rendering.turns import a_form, a_link, a_step
from tests.rendering.turns import a_reply as a_turn_reply
from tests.rendering.turns import a_view as a_turn

ID = "eli-12345678"
PAGE = "https://pay.example.com/c/7?a=1&b=2"
BOMB = "<!channel> <@U0PRIYA> *x* <https://evil.example|here> @everyone https://evil.example/login"


def questions(view: TurnView) -> list[OutgoingMessage]:
    found = [slot for slot in turn_messages(view, sample_views.NOW) if slot.name.startswith("question-")]
    for slot in found:
        check_message(slot.blocks, slot.text, frozenset({sample_views.PRIYA.id}))
    return found


def only(view: TurnView) -> OutgoingMessage:
    (slot,) = questions(view)
    return slot


# ------------------------------------------------------------------ the card


def test_a_card_has_server_user_question_and_expiry() -> None:
    slot = only(sample_views.INQUIRED)
    assert (
        outline(slot.blocks)
        == """\
*travel asks for an answer*
*Server* travel   *Tool* book_train
*It asks for* Seats, Class, A note for the guard
*The server says:*
> The 14:05 to Leeds has seats left.
> How many, and in which class?
For @U0PRIYA alone · the answer is private · expires <at 08:30 UTC>
[Answer…](primary) [Decline]
[Stop]"""
    )
    assert slot.asks
    assert slot.text.startswith("Answer needed: travel asks for an answer")


def test_text_of_a_server_mentions_and_links_nothing() -> None:
    asked = a_form(message=BOMB, properties={BOMB: {"type": "string", "title": BOMB}})
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(asked,)), status=TurnStatus.WAITING)
    (slot,) = [message for message in turn_messages(view, sample_views.NOW) if message.name == f"question-{ID}"]
    check_message(slot.blocks, slot.text, frozenset({view.turn.author.id}))
    assert not any(part.get("type") == "link" for part in parts(list(slot.blocks)))


def test_a_stream_stops_while_a_server_waits_and_names_the_question() -> None:
    view = a_view(a_reply(0, "I book it."), a_booking(StepStatus.STARTED, asked_back(round=0)), running=frozenset({3}))
    (stream,) = streams(view)
    assert not stream.open
    assert [(task.title, task.status) for task in stream.tasks] == [
        ("Asked for an answer: Book train", TaskStatus.COMPLETE)
    ]


# ------------------------------------------------------------------ on the platform


async def asking(place: ConnectedBot, elicitation: Elicitation) -> Message:
    """Return the card of an elicitation that waits for Priya."""
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(elicitation,)), status=TurnStatus.WAITING)
    card = await draw_view(place, view)
    know(place, elicitation)
    return card


def know(place: ConnectedBot, elicitation: Elicitation) -> None:
    view = place.engine.views[-1]
    (step,) = view.steps
    place.engine.inquiries[elicitation.id] = OpenElicitation(view.turn, step, elicitation)  # type: ignore[arg-type]


async def redeliver_turn(place: ConnectedBot, elicitation: Elicitation) -> None:
    """Deliver the turn again with the current elicitation."""
    view = place.engine.views[-1]
    step = a_step(StepStatus.STARTED, elicitations=(elicitation,))
    place.engine.views[-1] = replace(view, steps=(step,), revision=view.revision + 1)
    await place.draw(place.engine.views[-1])


def alone(place: ConnectedBot, user: User) -> Message:
    """Return the last ephemeral message to this user."""
    return [message for message in place.slack.bot_messages(place.channel) if message.ephemeral_to == user.id][-1]


async def test_the_card_mentions_the_asked_user_once_and_becomes_its_outcome_in_place(place: ConnectedBot) -> None:
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(a_form(),)), status=TurnStatus.WAITING)
    asker = replace(view.turn.author, id=place.priya.id)
    card = await draw_view(place, replace(view, turn=replace(view.turn, author=asker)))
    assert place.slack.notified_ids(card) == {place.priya.id}
    assert "unfurl_links" not in str(place.slack.calls.failed_calls())
    count = len(place.bot_posts())
    await redeliver_turn(
        place, a_form(reply=ElicitationResult(ElicitationAction.ACCEPT, {"title": "x"}), answered_by="Priya")
    )
    assert len(place.bot_posts()) == count
    assert place.bot_posts()[-1] is card
    assert "Answered by Priya" in outline(card.blocks)
    assert place.slack.notified_ids(card) == set()


async def test_the_address_of_a_page_is_shown_to_the_asked_user_alone_with_its_domain(place: ConnectedBot) -> None:
    card = await asking(place, a_link(url=PAGE, message=f"Pay at {BOMB}"))
    await place.slack.press(place.priya, card, "Show the link…")
    await place.slack.until(lambda: place.whispers(place.priya))
    shown = alone(place, place.priya)
    assert f"`{PAGE}`" in outline(shown.blocks)
    assert "`pay.example.com`" in outline(shown.blocks)
    assert labels(shown.blocks) == ["Open pay.example.com", "I have finished", "Decline"]
    (way,) = [part for part in parts(list(shown.blocks)) if part.get("url")]
    assert (way["type"], way["url"], way["action_id"]) == ("button", PAGE, LINK_PRESSED)
    assert place.slack.fetched_addresses(shown) == set()
    assert [part for part in parts(list(shown.blocks)) if part.get("type") in ("link", "user")] == []
    opened = await place.slack.press(place.priya, shown, "Open pay.example.com")
    assert opened.is_acknowledged
    assert place.engine.replied == []
    await place.slack.press(place.priya, shown, "I have finished")
    await place.slack.until(lambda: place.engine.replied)
    ((elicitation_id, reply, _),) = place.engine.replied
    assert (elicitation_id, reply) == (ID, ElicitationResult(ElicitationAction.ACCEPT))
    await place.slack.until(lambda: FINISHED in place.whispers(place.priya))
    assert not any(PAGE in str(post.blocks) for post in place.bot_posts())


async def test_in_a_direct_conversation_the_card_stays_where_it_is_and_no_link_unfolds(place: ConnectedBot) -> None:
    dm = place.slack.dm(place.priya)
    place.slack.say(place.priya, dm, "please")
    await place.slack.until(lambda: place.engine.received)
    key = place.engine.received[0].conversation
    elicitation = a_link(url=PAGE)
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(elicitation,)), status=TurnStatus.WAITING)
    await place.draw(place.engine.knows(view, key))
    know(place, elicitation)
    card = place.bot_posts(dm)[-1]
    before = card.to_json()
    await place.slack.press(place.priya, card, "Show the link…")
    await place.slack.until(lambda: place.slack.bot_messages(dm)[-1] is not card)
    shown = place.slack.bot_messages(dm)[-1]
    assert f"`{PAGE}`" in outline(shown.blocks)
    assert place.slack.fetched_addresses(shown) == set()
    await place.slack.press(place.priya, shown, "I have finished")
    await place.slack.until(lambda: any(FINISHED in message.text for message in place.slack.bot_messages(dm)))
    assert card.to_json() == before
    assert place.slack.calls.failed_calls() == []


async def test_a_question_is_answered_from_home_and_told_in_the_direct_conversation() -> None:
    view = a_turn(a_step(StepStatus.ASKING, elicitations=(a_form(),)), status=TurnStatus.WAITING)
    (step,) = view.steps
    inquiry = OpenElicitation(view.turn, step, a_form())  # type: ignore[arg-type]

    async def home(_member: Member, _workspace: str) -> Home:
        return Home(sample_views.NOW, inquiries=[inquiry])

    async with connected_bot(records=Lookups(build_home=home)) as place:
        team = place.slack.workspace.team.id
        here = replace(view.turn, conversation=ConversationKey("slack", team, place.channel.id, "1.1"))
        place.engine.inquiries[ID] = replace(inquiry, turn=here)
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))
        published = place.slack.home(place.priya)
        assert published is not None
        await place.slack.press(place.priya, published, "Answer…")
        await place.slack.until(lambda: place.slack.modals(place.priya))
        await place.slack.submit(place.priya, {"Title": "x"})
        dm = place.slack.dm(place.priya)
        await place.slack.until(lambda: SENT in [message.text for message in place.slack.bot_messages(dm)])
        ((_, reply, _),) = place.engine.replied
        assert reply == ElicitationResult(ElicitationAction.ACCEPT, {"title": "x"})
        assert place.slack.calls.failed_calls() == []


async def test_a_stream_is_stopped_before_a_question_and_slack_shows_that_an_answer_is_due(
    worker: ConnectedBot,
) -> None:
    thread, dm = ask(worker), worker.slack.dm(worker.priya)
    await worker.draw(in_dm(worker, running("Let me add that."), thread))
    said = a_turn_reply(0, "Let me add that.")
    asking_now = a_step(StepStatus.STARTED, 1, elicitations=(a_form(round=0),))
    await worker.draw(in_dm(worker, a_turn(said, asking_now, running=frozenset({1})), thread))
    assert all(post.stream is None or not post.stream.open for post in worker.bot_posts(dm))
    assert worker.slack.workspace.sessions[dm.id, thread]["status"] == "suspended"
    heard = a_step(StepStatus.DONE, 1, elicitations=(a_form(round=0, reply=DECLINED, answered_by="Ana"),))
    await worker.draw(in_dm(worker, a_turn(said, heard, streaming="It is there"), thread))
    assert worker.bot_posts(dm)[-1].stream is not None
    assert "Declined by Ana" in str([post.blocks for post in worker.bot_posts(dm)])
    assert not worker.slack.calls.failed_calls()

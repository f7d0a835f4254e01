"""The Home tab, Slack's Stop button, and the shortcut on a message."""

from __future__ import annotations

import dataclasses

from bot.chat.actions import OUT_OF_DATE, UNEXPECTED_ERROR
from bot.chat.approval_inbox import NOTHING_WAITS, PendingCall
from bot.chat.context import Lookups
from bot.chat.home_message import Home
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.turns import StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.errors import NotFound
from tests.fakes.slack import Team
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.platforms.slack.test_action_codec import draw_view, waiting
from tests.rendering.turns import a_reply, a_step, a_view, an_approval


def _view_of_team(step: ToolStep) -> TurnView:
    """Return a pending call in a conversation of the fake workspace."""
    view = a_view(step, status=TurnStatus.WAITING)
    return dataclasses.replace(
        view, turn=dataclasses.replace(view.turn, conversation=ConversationKey("slack", Team().id, "C1", "1"))
    )


async def test_home_shows_waiting_calls_and_a_call_can_be_reviewed_there() -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments={"text": "Buy milk"})
    view = _view_of_team(step)
    seen: list[Member] = []

    async def home(member: Member, _workspace: str) -> Home:
        seen.append(member)
        return Home(0.0, waiting=(PendingCall(view.turn, step),))

    async def approval(approval_id: str) -> object:
        return (view.turn, step) if approval_id == "apr-12345678" else None

    async with connected_bot(records=Lookups(build_home=home, approval=approval)) as place:  # type: ignore[arg-type]
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))
        published = place.slack.home(place.priya)
        assert published is not None
        assert "Waiting for you (1)" in str(published.drawn)
        assert [member.author.id for member in seen] == [place.priya.id]
        await place.slack.press(place.priya, published, "View all")
        await place.slack.until(lambda: place.slack.modals(place.priya))
        assert "Buy milk" in str(place.slack.modal(place.priya).drawn)


async def test_home_says_hello_where_nothing_is_known_yet(place: ConnectedBot) -> None:
    place.slack.open_home(place.priya)
    await place.slack.until(lambda: place.slack.home(place.priya))


async def test_slacks_own_stop_stops_the_turn_of_that_thread(place: ConnectedBot) -> None:
    root = place.slack.say(place.priya, place.channel, "please")
    key = ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, root.ts)
    place.engine.knows(a_view(), key)
    ended = a_view(status=TurnStatus.DONE)
    place.engine.knows(dataclasses.replace(ended, turn=dataclasses.replace(ended.turn, id="t0")), key)
    place.slack.tell(
        "agent_session_stopped",
        {
            "type": "agent_session_stopped",
            "channel": place.channel.id,
            "user": place.priya.id,
            "thread_ts": root.ts,
            "event_ts": root.ts,
        },
    )
    await place.slack.until(lambda: place.engine.stopped)
    await place.wait_for_responses()
    assert [turn_id for turn_id, _ in place.engine.stopped] == ["t1"]


async def test_a_title_that_a_user_gives_a_session_is_that_of_the_conversation(place: ConnectedBot) -> None:
    root = place.slack.say(place.priya, place.channel, "please")
    key = ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, root.ts)
    place.slack.tell(
        "agent_session_title_changed",
        {
            "type": "agent_session_title_changed",
            "channel": place.channel.id,
            "user": place.priya.id,
            "thread_ts": root.ts,
            "previous_title": "please",
            "title": "The pool is slow",
            "event_ts": root.ts,
        },
    )
    await place.slack.until(lambda: place.engine.titles == {key: "The pool is slow"})


async def test_a_call_that_home_shows_as_it_was_is_neither_opened_nor_approved() -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments={"text": "Buy milk"})
    view = _view_of_team(step)
    held = [step]

    async def home(_member: Member, _workspace: str) -> Home:
        return Home(0.0, waiting=[PendingCall(view.turn, each) for each in held if each.status is StepStatus.AWAITING])

    async def approval(_approval_id: str) -> tuple[Turn, ToolStep] | None:
        return (view.turn, held[0])

    async with connected_bot(records=Lookups(build_home=home, approval=approval)) as place:
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))
        published = place.slack.home(place.priya)
        assert published is not None
        held[:] = [a_step(StepStatus.AWAITING, approval=an_approval(revision=2), arguments={"text": "Buy oats"})]
        await place.slack.press(place.priya, published, "View all")
        direct = place.slack.dm(place.priya)
        await place.slack.until(lambda: place.bot_posts(direct))
        assert [post.text for post in place.bot_posts(direct)] == [OUT_OF_DATE]
        assert place.slack.modals(place.priya) == []


async def test_a_call_that_is_approved_in_home_is_gone_there_at_once() -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments={"text": "Buy milk"})
    view = _view_of_team(step)

    async def home(_member: Member, _workspace: str) -> Home:
        waits = not place.engine.decisions
        return Home(0.0, waiting=[PendingCall(view.turn, step)] if waits else [])

    async def approval(_approval_id: str) -> tuple[Turn, ToolStep] | None:
        return (view.turn, step)

    async with connected_bot(records=Lookups(build_home=home, approval=approval)) as place:
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))
        published = place.slack.home(place.priya)
        assert published is not None
        await place.slack.press(place.priya, published, "cs.approve")
        await place.slack.until(lambda: NOTHING_WAITS in str(getattr(place.slack.home(place.priya), "drawn", "")))
        ((decision, member),) = place.engine.decisions
        assert (decision.approval_id, member.author.id) == ("apr-12345678", place.priya.id)


async def test_an_unexpected_error_is_reported_to_the_pressing_user() -> None:
    async def approval(_approval_id: str) -> tuple[Turn, ToolStep]:
        raise ZeroDivisionError

    async with connected_bot(records=Lookups(approval=approval)) as place:
        message = await draw_view(place, _view_of_team(a_step(StepStatus.AWAITING, approval=an_approval())))
        await place.slack.press(place.priya, message, "cs.approve")
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.whispers(place.priya) == [UNEXPECTED_ERROR]


async def test_feedback_of_strangers_is_not_stored() -> None:
    kept: list[str] = []

    async def opinion(_turn_id: str, _good: bool, by: Author) -> None:
        kept.append(by.id)

    async with connected_bot(records=Lookups(opinion=opinion)) as place:
        stranger = place.slack.user("Stella", team=Team("T0OTHER001", "other"), stranger=True)
        place.channel.members.append(stranger.id)
        message = await draw_view(place, a_view(a_reply(0, "The pool."), status=TurnStatus.DONE))
        await place.slack.press(stranger, message, "Good answer")
        await place.slack.until(lambda: place.whispers(stranger))
        assert place.whispers(stranger) == [NOT_FOR_STRANGERS]
        assert kept == []


async def test_feedback_on_a_deleted_answer_is_not_confirmed() -> None:
    async def opinion(_turn_id: str, _good: bool, _by: Author) -> None:
        raise NotFound("That answer is not kept any more.")

    async with connected_bot(records=Lookups(opinion=opinion)) as place:
        message = await draw_view(place, a_view(a_reply(0, "The pool."), status=TurnStatus.DONE))
        await place.slack.press(place.priya, message, "Good answer")
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.whispers(place.priya) == ["That answer is not kept any more."]


async def test_a_card_that_was_replaced_shows_nothing_any_more(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(text="long " * 400))
    place.engine.views.clear()
    await place.slack.press(place.priya, card, "cs.view")
    await place.slack.until(lambda: place.whispers(place.priya))
    assert place.slack.modals(place.priya) == []

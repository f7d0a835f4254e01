"""Display of a running turn beside its messages: status, title, and a reaction if Slack shows no status."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.app import SlackSurface
from bot.platforms.slack.sending import EYES, RENAME, SET_STATUS
from tests.fakes.slack import Channel, Message
from tests.platforms.slack.connected_bot import ConnectedBot
from tests.platforms.slack.test_surface import done, placed_view, post_question, running
from tests.rendering.turns import a_step, a_view, an_approval


def of(place: ConnectedBot, question: Message, view: TurnView, turn: str = "t1", **changes: Any) -> TurnView:
    """Return the view with this message as the beginning of its turn."""
    view = placed_view(place, view, question.ts, question.channel)
    begun = dataclasses.replace(view.turn.question, message_id=f"{question.channel}:{question.ts}", **changes)
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=turn, question=begun))


def early(activity: str = "", **changes: Any) -> TurnView:
    return dataclasses.replace(running(), early=True, activity=activity, **changes)


def direct(place: ConnectedBot) -> tuple[Channel, Message]:
    dm = place.slack.dm(place.priya)
    return dm, place.slack.say(place.priya, dm, "a question")


async def test_a_status_shows_the_activity_until_the_answer(worker: ConnectedBot) -> None:
    question = post_question(worker)
    await worker.draw(of(worker, question, early("Looking at the tools")))
    assert worker.slack.status(worker.channel, question.ts) == "is looking at the tools…"
    called = a_step(StepStatus.STARTED)
    await worker.draw(of(worker, question, dataclasses.replace(a_view(called), early=True, running=frozenset({0}))))
    assert worker.slack.status(worker.channel, question.ts) == "is using notes.add_note…"
    assert worker.bot_posts() == []
    await worker.draw(of(worker, question, done("The pool.")))
    assert worker.slack.status(worker.channel, question.ts) == ""
    assert not question.reactions
    assert not worker.slack.calls.failed_calls()


async def test_a_status_is_set_again_only_when_it_changes_or_slack_is_about_to_clear_it(worker: ConnectedBot) -> None:
    question = post_question(worker)
    for _ in range(5):
        await worker.draw(of(worker, question, early("Asking the model")))
    assert len(worker.slack.calls.of(SET_STATUS)) == 1


async def test_a_message_that_shows_the_same_needs_no_status(worker: ConnectedBot) -> None:
    question = post_question(worker)
    await worker.draw(of(worker, question, running()))
    await worker.draw(of(worker, question, running("The pool")))
    assert worker.slack.calls.of(SET_STATUS) == []


async def test_a_thread_gets_a_title_once(worker: ConnectedBot) -> None:
    dm, question = direct(worker)
    for activity in ("Looking at the tools", "Asking the model"):
        await worker.draw(of(worker, question, early(activity), text="Why 502: is https://x.example/a down?"))
    assert worker.slack.workspace.sessions[dm.id, question.ts]["title"] == "Why 502 is https x.example a down?"
    await worker.draw(of(worker, post_question(worker), early("Asking the model"), turn="t2"))
    assert len(worker.slack.calls.of(RENAME)) == 2
    assert not worker.slack.calls.failed_calls()


async def test_a_turn_in_a_channel_is_a_session_with_a_title_that_can_be_stopped_and_says_if_it_waits(
    worker: ConnectedBot,
) -> None:
    question = post_question(worker)
    sessions = worker.slack.workspace.sessions
    await worker.draw(of(worker, question, early("Asking the model")))
    assert "status" not in sessions[worker.channel.id, question.ts]
    await worker.draw(of(worker, question, running(), text="why?"))
    session = sessions[worker.channel.id, question.ts]
    assert (session["status"], session["stop_button"], session["title"]) == ("processing", True, "why?")
    waiting = a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
    await worker.draw(of(worker, question, waiting))
    assert session["status"] == "suspended"
    await worker.draw(of(worker, question, done("The pool.")))
    assert session["status"] == "active"
    assert not worker.slack.calls.failed_calls()


async def test_a_quick_answer_needs_no_session(worker: ConnectedBot) -> None:
    question = post_question(worker)
    await worker.draw(of(worker, question, done("The pool.")))
    assert worker.slack.calls.of("agents.sessions.setStatus") == []


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_where_slack_shows_no_status_the_question_has_a_mark_until_there_is_something_to_read(
    worker: ConnectedBot, taken_over: bool, waits: bool
) -> None:
    worker.slack.absent.add(SET_STATUS)
    question = post_question(worker)
    for activity in ("Looking at the tools", "Asking the model"):
        await worker.draw(of(worker, question, early(activity)))
    assert list(question.reactions) == [EYES]
    surface = SlackSurface(worker.workspaces) if taken_over else worker.surface
    waiting = a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
    await worker.draw(of(worker, question, waiting if waits else done("The pool.")), surface)
    assert not question.reactions
    assert len(worker.slack.calls.of(SET_STATUS)) == len(worker.slack.calls.of("reactions.add")) == 1


async def test_without_its_scope_there_is_no_mark_and_no_further_attempt(worker: ConnectedBot) -> None:
    worker.slack.absent.add(SET_STATUS)
    worker.slack.installation.scopes.discard("reactions:write")
    for number in range(3):
        question = post_question(worker)
        await worker.draw(of(worker, question, early("Asking the model"), turn=f"t{number}"))
        await worker.draw(of(worker, question, done("The pool."), turn=f"t{number}"))
    assert len(worker.slack.calls.of("reactions.add")) == 1
    assert [message.text for message in worker.bot_posts()] == ["The pool."] * 3

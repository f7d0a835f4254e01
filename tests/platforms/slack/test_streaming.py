"""Answers as native streams. After a rejected or ended stream the answer is complete, but appears later."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.app import SlackSurface
from bot.platforms.slack.sending import LONGEST_SECONDS, Streaming, StreamManager, streams
from tests.fakes.slack import Fails, Lost
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.platforms.slack.test_surface import done, placed_view, running
from tests.rendering.turns import a_reply, a_step, a_view, an_approval


def in_dm(place: ConnectedBot, view: TurnView, thread: str) -> TurnView:
    return placed_view(place, view, thread, place.slack.dm(place.priya).id)


def ask(place: ConnectedBot) -> str:
    return place.slack.say(place.priya, place.slack.dm(place.priya), "a question").ts


def visible_text(place: ConnectedBot) -> str:
    """Return the bot's messages as Priya reads them."""
    dm = place.slack.dm(place.priya)
    sights = place.slack.what_user_sees(place.priya, dm)
    return "\n".join(sight.words for sight in sights if sight.user == place.slack.bot.id)


async def test_a_direct_reply_grows_as_a_stream_and_ends_as_one_complete_message(worker: ConnectedBot) -> None:
    thread = ask(worker)
    early = dataclasses.replace(running(), early=True)
    for view in (early, running("The pool"), running("The pool is too"), done("The pool is too small.")):
        await worker.draw(in_dm(worker, view, thread))
    methods = worker.slack.calls.methods()
    assert methods.count("chat.startStream") == methods.count("chat.stopStream") == 1
    assert "chat.postMessage" not in methods
    (message,) = worker.bot_posts(worker.slack.dm(worker.priya))
    assert message.stream is None
    assert "The pool is too small." in message.text
    assert not worker.slack.calls.failed_calls()


async def test_the_stream_shows_the_text_while_it_grows(worker: ConnectedBot) -> None:
    thread = ask(worker)
    await worker.draw(in_dm(worker, running("The pool "), thread))
    await worker.draw(in_dm(worker, running("The pool is too small. Now"), thread))
    assert "The pool is too small." in visible_text(worker)
    assert not worker.slack.calls.of("chat.update")


async def test_tool_calls_are_tasks_and_none_is_left_spinning(worker: ConnectedBot) -> None:
    thread = ask(worker)
    started = a_step(StepStatus.STARTED)
    await worker.draw(in_dm(worker, a_view(started, running=frozenset({0})), thread))
    finished = a_step(StepStatus.DONE, result="Added note 3")
    await worker.draw(in_dm(worker, a_view(finished), thread))
    await worker.draw(in_dm(worker, a_view(finished, a_reply(1, "Done."), status=TurnStatus.DONE), thread))
    sent = [chunk for call in worker.slack.calls for chunk in call.args.get("chunks", [])]
    states = [chunk["status"] for chunk in sent if chunk["type"] == "task_update"]
    assert states == ["in_progress", "complete"]
    assert not worker.slack.calls.failed_calls()


async def test_a_stream_is_stopped_before_an_approval_waits_and_another_begins_after_it(worker: ConnectedBot) -> None:
    thread, dm = ask(worker), worker.slack.dm(worker.priya)
    await worker.draw(in_dm(worker, running("Let me add that."), thread))
    said = a_reply(0, "Let me add that.")
    waiting = a_step(StepStatus.AWAITING, 1, approval=an_approval())
    await worker.draw(in_dm(worker, a_view(said, waiting, status=TurnStatus.WAITING), thread))
    assert all(post.stream is None or not post.stream.open for post in worker.bot_posts(dm))
    assert worker.slack.workspace.sessions[dm.id, thread]["status"] == "suspended"
    ran = a_step(StepStatus.DONE, 1, approval=an_approval(decided_by="sam"), result="Added note 3")
    await worker.draw(in_dm(worker, a_view(said, ran, streaming="It is there"), thread))
    assert worker.bot_posts(dm)[-1].stream is not None
    assert len(worker.slack.calls.of("chat.startStream")) == 2
    assert not worker.slack.calls.failed_calls()


@pytest.mark.parametrize("absent", [False, True])
async def test_a_turn_that_ends_while_an_approval_waits_leaves_no_session_that_waits_for_ever(
    worker: ConnectedBot, absent: bool
) -> None:
    thread, dm = ask(worker), worker.slack.dm(worker.priya)
    await worker.draw(in_dm(worker, running("Let me add that."), thread))
    said = a_reply(0, "Let me add that.")
    waiting = a_step(StepStatus.AWAITING, 1, approval=an_approval())
    await worker.draw(in_dm(worker, a_view(said, waiting, status=TurnStatus.WAITING), thread))
    if absent:
        worker.slack.absent.add("agents.sessions.setStatus")
    stopped = in_dm(
        worker,
        a_view(said, a_step(StepStatus.CANCELLED, 1, approval=an_approval()), status=TurnStatus.CANCELLED),
        thread,
    )
    await worker.draw(stopped)
    await worker.draw(stopped)
    assert len(worker.slack.calls.of("agents.sessions.setStatus")) == 3
    assert worker.slack.workspace.sessions[dm.id, thread]["status"] == ("suspended" if absent else "active")


@pytest.mark.parametrize("code", ["unknown_method", "channel_type_not_supported", "feature_not_enabled", "fatal_error"])
async def test_where_slack_streams_nothing_the_reply_is_posted_and_edited(worker: ConnectedBot, code: str) -> None:
    worker.slack.fail("chat.startStream", Fails(code))
    thread = ask(worker)
    for view in (running("The pool"), running("The pool is"), done("The pool is too small.")):
        await worker.draw(in_dm(worker, view, thread))
    (message,) = worker.bot_posts(worker.slack.dm(worker.priya))
    assert message.stream is None
    assert "The pool is too small." in message.text


async def test_a_workspace_without_streams_is_asked_once(worker: ConnectedBot) -> None:
    worker.slack.absent.add("chat.startStream")
    for number in range(3):
        view = in_dm(worker, running("Hello"), ask(worker))
        await worker.draw(dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number}")))
    assert len(worker.slack.calls.of("chat.startStream")) == 1


async def test_a_stream_that_slack_has_ended_goes_on_as_edits_without_lost_or_doubled_text(
    worker: ConnectedBot,
) -> None:
    thread = ask(worker)
    await worker.draw(in_dm(worker, running("One. "), thread))
    worker.slack.clock.advance(301)
    await worker.draw(in_dm(worker, running("One. Two. "), thread))
    await worker.draw(in_dm(worker, done("One. Two. Three."), thread))
    (message,) = worker.bot_posts(worker.slack.dm(worker.priya))
    assert visible_text(worker).count("Two.") == 1
    assert "One. Two. Three." in message.text


async def test_a_reply_of_twelve_minutes_outlives_every_stream_that_slack_allows_it(worker: ConnectedBot) -> None:
    thread = ask(worker)
    sentences = [f"Sentence {number}." for number in range(72)]
    for number in range(len(sentences)):
        worker.slack.clock.advance(10)
        await worker.draw(in_dm(worker, running(" ".join(sentences[: number + 1])), thread))
    await worker.draw(in_dm(worker, done(" ".join(sentences)), thread))
    assert worker.slack.clock.now() > worker.slack.limits.stream_lifetime
    text = visible_text(worker)
    assert [text.count(sentence) for sentence in sentences] == [1] * len(sentences)
    assert all(post.stream is None for post in worker.bot_posts(worker.slack.dm(worker.priya)))


async def test_a_stream_is_left_before_slack_ends_it(worker: ConnectedBot) -> None:
    thread, clock = ask(worker), [0.0]
    live = StreamManager(worker.api, clock=lambda: clock[0])
    view = in_dm(worker, running("One."), thread)
    (stream,) = streams(view)
    assert await live.start(view.turn, stream) is not None
    clock[0] = LONGEST_SECONDS - 1
    assert await live.append(view.turn.id, dataclasses.replace(stream, text="One. Two."))
    clock[0] = LONGEST_SECONDS + 1
    assert not await live.append(view.turn.id, dataclasses.replace(stream, text="One. Two. Three."))
    assert worker.slack.limits.stream_lifetime > LONGEST_SECONDS
    await live.stop(view.turn.id, stream.name)
    assert not worker.slack.calls.failed_calls()


async def test_an_append_with_a_lost_answer_doubles_nothing(worker: ConnectedBot) -> None:
    thread = ask(worker)
    await worker.draw(in_dm(worker, running("One. "), thread))
    worker.slack.fail("chat.appendStream", Lost())
    await worker.draw(in_dm(worker, running("One. Two. "), thread))
    await worker.draw(in_dm(worker, done("One. Two. Three."), thread))
    assert visible_text(worker).count("Two.") == 1


async def test_another_process_ends_a_stream_that_was_left_behind(worker: ConnectedBot) -> None:
    thread = ask(worker)
    await worker.draw(in_dm(worker, running("One. "), thread))
    await worker.draw(in_dm(worker, done("One. Two."), thread), SlackSurface(worker.workspaces))
    (message,) = worker.bot_posts(worker.slack.dm(worker.priya))
    assert message.stream is None
    assert "One. Two." in message.text


async def test_a_reply_that_begins_again_is_not_appended_to_the_old_one(worker: ConnectedBot) -> None:
    thread = ask(worker)
    await worker.draw(in_dm(worker, running("The first try "), thread))
    await worker.draw(in_dm(worker, running("Another "), thread))
    await worker.draw(in_dm(worker, done("Another try."), thread))
    assert "first" not in visible_text(worker)


async def test_an_answer_of_forty_thousand_characters_is_continued_and_nothing_is_refused(worker: ConnectedBot) -> None:
    thread = ask(worker)
    whole = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(75))
    for length in range(4_000, len(whole), 4_000):
        await worker.draw(in_dm(worker, running(whole[:length]), thread))
    await worker.draw(in_dm(worker, done(whole), thread))
    words = visible_text(worker)
    assert all(words.count(f"Paragraph {number}.") == 1 for number in range(75))
    assert not worker.slack.calls.failed_calls()
    assert len(worker.slack.calls.of("chat.startStream")) > 1


async def test_an_answer_that_escaping_makes_too_heavy_for_a_stream_is_posted(worker: ConnectedBot) -> None:
    thread, text = ask(worker), "@here " * 1_300
    await worker.draw(in_dm(worker, running(text), thread))
    assert worker.slack.calls.of("chat.postMessage")
    chunks = [chunk for call in worker.slack.calls.of("chat.startStream") for chunk in call.args["chunks"]]
    assert all(len(chunk.get("text", "").encode()) <= 9_500 for chunk in chunks)
    await worker.draw(in_dm(worker, done(text), thread))
    assert visible_text(worker).count("here") == 1_300
    assert not worker.slack.calls.failed_calls()


async def test_in_channels_nothing_is_streamed_unless_the_operator_says_so(worker: ConnectedBot) -> None:
    async with connected_bot(listening=False, streaming=Streaming.EVERYWHERE) as place:
        root = place.slack.say(place.priya, place.channel, "?")
        await place.draw(placed_view(place, running("Hello"), root.ts))
        (call,) = place.slack.calls.of("chat.startStream")
        assert call.args["recipient_user_id"] == place.priya.id
        await place.draw(placed_view(place, done("Hello there."), root.ts))
        assert not place.slack.calls.failed_calls()
    root = worker.slack.say(worker.priya, worker.channel, "?")
    await worker.draw(placed_view(worker, running("Hello"), root.ts))
    assert not worker.slack.calls.of("chat.startStream")

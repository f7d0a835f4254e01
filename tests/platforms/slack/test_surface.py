"""Delivery of turns in threads: one post, then edits; the last edit is complete despite failed requests."""

from __future__ import annotations

import dataclasses

from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import Notice, NoticeTarget, Step, TurnStatus, TurnView
from tests.fakes.slack import Message
from tests.platforms.slack.connected_bot import ConnectedBot
from tests.rendering.turns import a_reply, a_view


def placed_view(place: ConnectedBot, view: TurnView, thread: str, channel: str = "") -> TurnView:
    """Return a view in a thread of the fake workspace, created now by Priya."""
    key = ConversationKey("slack", place.slack.workspace.team.id, channel or place.channel.id, thread)
    author = Author("slack", place.priya.id, "priya")
    turn = dataclasses.replace(view.turn, conversation=key, author=author, created_at=place.slack.clock.now() + 60)
    return dataclasses.replace(view, turn=turn)


def post_question(place: ConnectedBot) -> Message:
    return place.slack.say(place.priya, place.channel, "a question")


def running(text: str = "", *steps: Step) -> TurnView:
    return a_view(*steps, streaming=text)


def done(text: str) -> TurnView:
    return a_view(a_reply(0, text), status=TurnStatus.DONE)


async def test_nothing_unfurls(worker: ConnectedBot) -> None:
    await worker.draw(placed_view(worker, done("See https://example.com/?secret=1"), post_question(worker).ts))
    (message,) = worker.bot_posts()
    assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_many_replies_at_once_stay_below_the_limits_of_slack_and_end_complete(worker: ConnectedBot) -> None:
    roots = [worker.slack.say(worker.priya, worker.slack.channel(f"c{n}", worker.priya), "?") for n in range(10)]
    texts = ["word " * length for length in range(1, 12)]
    for text in texts:
        for number, root in enumerate(roots):
            view = placed_view(worker, running(text), root.ts, root.channel)
            view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number}"))
            await worker.draw(view)
    assert not worker.slack.calls.failed_calls()
    assert len(worker.slack.calls.of("chat.update")) < 40
    for number, root in enumerate(roots):
        view = placed_view(worker, done("The end."), root.ts, root.channel)
        view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number}"))
        await worker.draw(view)
    assert not worker.slack.calls.failed_calls()
    assert worker.surface.min_interval >= 1.0


async def test_however_many_are_at_work_an_end_does_not_wait_for_long(worker: ConnectedBot) -> None:
    root = post_question(worker)
    await worker.draw(placed_view(worker, running("a"), root.ts))
    assert worker.surface.min_interval == 1.0
    worker.slack.pace.strict = False
    for number in range(40):
        view = placed_view(worker, running("a"), root.ts)
        await worker.draw(dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number + 2}")))
    assert worker.surface.min_interval == 2.0


async def test_notices_reach_one_person_their_direct_messages_or_everybody(worker: ConnectedBot) -> None:
    root = post_question(worker)
    where = str(ConversationKey("slack", worker.slack.workspace.team.id, worker.channel.id, root.ts))
    notice = Notice("<!channel> tool & die")
    await worker.surface.post_notice(NoticeTarget(where, worker.priya.id), notice)
    await worker.surface.post_notice(NoticeTarget(where, worker.priya.id, private=True), notice)
    await worker.surface.post_notice(NoticeTarget(where), notice)
    shown = "&lt;!channel&gt; tool &amp; die"
    assert worker.whispers(worker.priya) == [shown]
    assert [post.text for post in worker.bot_posts()] == [shown]
    assert [post.text for post in worker.bot_posts(worker.slack.dm(worker.priya))] == [shown]

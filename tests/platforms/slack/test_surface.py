"""Delivery of turns in threads: one post, then edits; the last edit is complete despite failed requests."""

from __future__ import annotations

import dataclasses

from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import Notice, NoticeTarget, Step, TurnStatus, TurnView
from tests.fakes.slack import Message
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.rendering.turns import a_reply, a_view


def placed(place: ConnectedBot, view: TurnView, thread: str, channel: str = "") -> TurnView:
    """Return a view in a thread of the fake workspace, created now by Priya."""
    key = ConversationKey("slack", place.slack.workspace.team.id, channel or place.channel.id, thread)
    author = Author("slack", place.priya.id, "priya")
    turn = dataclasses.replace(view.turn, conversation=key, author=author, created_at=place.slack.clock.now() + 60)
    return dataclasses.replace(view, turn=turn)


def asked(place: ConnectedBot) -> Message:
    return place.slack.say(place.priya, place.channel, "a question")


def running(text: str = "", *steps: Step) -> TurnView:
    return a_view(*steps, streaming=text)


def done(text: str) -> TurnView:
    return a_view(a_reply(0, text), status=TurnStatus.DONE)


async def test_nothing_unfurls() -> None:
    async with connected_bot(listening=False) as place:
        await place.draw(placed(place, done("See https://example.com/?secret=1"), asked(place).ts))
        (message,) = place.bot_posts()
        assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_many_replies_at_once_stay_below_the_limits_of_slack_and_end_complete() -> None:
    async with connected_bot(listening=False) as place:
        roots = [place.slack.say(place.priya, place.slack.channel(f"c{n}", place.priya), "?") for n in range(10)]
        texts = ["word " * length for length in range(1, 12)]
        for text in texts:
            for number, root in enumerate(roots):
                view = placed(place, running(text), root.ts, root.channel)
                view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number}"))
                await place.draw(view)
        assert not place.slack.calls.refused()
        assert len(place.slack.calls.of("chat.update")) < 40
        for number, root in enumerate(roots):
            view = placed(place, done("The end."), root.ts, root.channel)
            view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number}"))
            await place.draw(view)
        assert not place.slack.calls.refused()
        assert place.surface.min_interval >= 1.0


async def test_however_many_are_at_work_an_end_does_not_wait_for_long() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        await place.draw(placed(place, running("a"), root.ts))
        assert place.surface.min_interval == 1.0
        place.slack.pace.strict = False
        for number in range(40):
            view = placed(place, running("a"), root.ts)
            await place.draw(dataclasses.replace(view, turn=dataclasses.replace(view.turn, id=f"t{number + 2}")))
        assert place.surface.min_interval == 2.0


async def test_notices_reach_one_person_their_direct_messages_or_everybody() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        where = str(ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, root.ts))
        notice = Notice("<!channel> tool & die")
        await place.surface.post_notice(NoticeTarget(where, place.priya.id), notice)
        await place.surface.post_notice(NoticeTarget(where, place.priya.id, private=True), notice)
        await place.surface.post_notice(NoticeTarget(where), notice)
        shown = "&lt;!channel&gt; tool &amp; die"
        assert place.whispers(place.priya) == [shown]
        assert [post.text for post in place.bot_posts()] == [shown]
        assert [post.text for post in place.bot_posts(place.slack.dm(place.priya))] == [shown]

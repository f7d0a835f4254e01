"""Turns in their threads: posted once, edited from then on, complete in the end, whatever goes wrong on the way."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.turns import Step, StepStatus, TurnStatus
from bot.domain.views import Notice, NoticeTarget, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.app import SlackSurface
from tests.fakes.slack import Cut, Fails, Lost, Message, TooMany
from tests.fakes.stored_files import with_kept_files
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.rendering.turns import a_reply, a_step, a_view, an_approval


def placed(place: ConnectedBot, view: TurnView, thread: str, channel: str = "") -> TurnView:
    """The view in a thread of the fake workspace, asked by Priya, just now."""
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


async def test_a_reply_is_one_message_in_the_thread_from_its_first_word_to_its_last() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        for view in (running(), running("The pool"), running("The pool is too small."), done("The pool is too small.")):
            await place.draw(placed(place, view, root.ts))
        (message,) = place.bot_posts()
        assert message.thread_ts == root.ts
        assert "The pool is too small." in place.slack.what_user_sees(place.priya, place.channel)[-1].words
        assert not place.slack.calls.refused()


async def test_nothing_unfurls() -> None:
    async with connected_bot(listening=False) as place:
        await place.draw(placed(place, done("See https://example.com/?secret=1"), asked(place).ts))
        (message,) = place.bot_posts()
        assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_drawing_the_same_again_asks_slack_for_nothing() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Here."), asked(place).ts)
        await place.draw(view)
        before = len(place.slack.calls)
        await place.draw(view)
        assert len(place.slack.calls) == before


async def test_another_process_goes_on_from_the_references_alone() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        await place.draw(placed(place, running("Half of"), root.ts))
        other = SlackSurface(place.api, place.people)
        await place.draw(placed(place, done("Half of it, and the rest."), root.ts), other)
        (message,) = place.bot_posts()
        assert "and the rest" in message.text


async def test_a_message_that_somebody_deleted_is_posted_anew() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        await place.draw(placed(place, running("Half"), root.ts))
        place.slack.delete(place.bot_posts()[0])
        refs = await place.draw(placed(place, done("Half and half."), root.ts))
        (message,) = place.bot_posts()
        assert list(refs.values()) == [f"{place.channel.id}:{message.ts}"]
        assert "Half and half." in message.text


async def test_a_post_whose_answer_got_lost_is_found_instead_of_made_again() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Only once."), asked(place).ts)
        place.slack.fail("chat.postMessage", Lost())
        with pytest.raises(DeliveryFailed):
            await place.draw(view)
        await place.draw(view)
        assert len(place.bot_posts()) == 1


async def test_a_post_that_never_arrived_is_made_again() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Only once."), asked(place).ts)
        place.slack.fail("chat.postMessage", Cut())
        with pytest.raises(DeliveryFailed):
            await place.draw(view)
        assert place.bot_posts() == []
        await place.draw(view)
        assert len(place.bot_posts()) == 1


async def test_what_a_dead_process_posted_without_noting_it_is_found() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, running("Half"), asked(place).ts)
        old = dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=0.0))
        await place.draw(view)
        place.refs.clear()
        await place.draw(old, SlackSurface(place.api, place.people))
        assert len(place.bot_posts()) == 1


async def test_a_long_pause_that_slack_asks_for_reaches_whoever_draws() -> None:
    async with connected_bot(listening=False) as place:
        place.slack.fail("chat.postMessage", TooMany(30))
        with pytest.raises(DeliveryFailed) as failure:
            await place.draw(placed(place, done("Later."), asked(place).ts))
        assert failure.value.retry_after == pytest.approx(30, abs=1)
        assert not failure.value.permanent


async def test_a_short_pause_is_waited_for() -> None:
    async with connected_bot(listening=False) as place:
        place.slack.fail("chat.postMessage", TooMany(1))
        await place.draw(placed(place, done("In a moment."), asked(place).ts))
        assert len(place.bot_posts()) == 1


@pytest.mark.parametrize("code", ["is_archived", "not_in_channel", "restricted_action", "channel_not_found"])
async def test_what_will_never_work_is_said_with_a_cause(code: str) -> None:
    async with connected_bot(listening=False) as place:
        place.slack.fail("chat.postMessage", Fails(code))
        with pytest.raises(DeliveryFailed) as failure:
            await place.draw(placed(place, done("No."), asked(place).ts))
        assert failure.value.permanent
        assert code in failure.value.cause


@pytest.mark.parametrize("code", ["account_inactive", "token_revoked", "invalid_auth"])
async def test_where_only_the_token_is_no_good_what_waits_to_be_drawn_is_kept_for_the_next_one(code: str) -> None:
    async with connected_bot(listening=False) as place:
        place.slack.fail("chat.postMessage", Fails(code))
        view = placed(place, done("Late, but here."), asked(place).ts)
        with pytest.raises(DeliveryFailed) as failure:
            await place.draw(view)
        assert not failure.value.permanent
        assert failure.value.retry_after
        assert "SLACK_BOT_TOKEN" in failure.value.fix
        await place.draw(view)
        assert "Late, but here." in place.bot_posts()[0].text


async def test_a_layout_that_slack_refuses_becomes_plain_text() -> None:
    async with connected_bot(listening=False) as place:
        place.slack.fail("chat.postMessage", Fails("invalid_blocks"))
        await place.draw(placed(place, done("Anyway."), asked(place).ts))
        (message,) = place.bot_posts()
        assert "Anyway." in message.text
        assert not message.blocks


async def test_a_card_whose_layout_slack_refuses_is_not_posted_as_text_that_nobody_could_press() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        waiting = a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
        # The reply before it goes out as text; the card must not.
        place.slack.fail("chat.postMessage", Fails("invalid_blocks"), 2)
        with pytest.raises(DeliveryFailed) as failure:
            await place.draw(placed(place, waiting, root.ts))
        assert failure.value.permanent
        assert "invalid_blocks" in failure.value.cause
        assert not any("Approval needed" in message.text for message in place.bot_posts())


async def test_a_card_is_posted_at_once_and_becomes_its_outcome_in_the_same_message() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        waiting = a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
        await place.draw(placed(place, waiting, root.ts))
        before = [message.ts for message in place.bot_posts()]
        denied = a_step(StepStatus.DENIED, approval=an_approval(decided_by="sam", reason="use INC"))
        await place.draw(placed(place, a_view(denied, status=TurnStatus.DONE), root.ts))
        after = place.bot_posts()
        assert [message.ts for message in after] == before
        assert "use INC" in after[-1].text
        assert not place.slack.calls.refused()


async def test_a_card_that_is_not_out_yet_looks_the_same_whenever_it_is_drawn() -> None:
    async with connected_bot(listening=False) as place:
        now = [1_000.0]
        surface = SlackSurface(place.api, place.people, clock=lambda: now[0])
        view = a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
        view = placed(place, view, asked(place).ts)
        await place.draw(view, surface)
        now[0] += 20
        await place.draw(view, surface)
        assert not place.slack.calls.of("chat.update")


async def test_long_answers_go_on_in_further_messages_and_shorter_ones_take_them_away() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        long = "\n\n".join(f"Paragraph {number}. " + "word " * 200 for number in range(20))
        await place.draw(placed(place, running(long), root.ts))
        assert len(place.bot_posts()) > 1
        await place.draw(placed(place, done("Short after all."), root.ts))
        (message,) = place.bot_posts()
        assert "Short after all." in message.text
        assert not place.slack.calls.refused()


async def test_many_replies_at_once_stay_below_what_slack_takes_and_end_complete() -> None:
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


def with_files(*parts: ImagePart | FilePart) -> TurnView:
    step = a_step(StepStatus.DONE)
    result = ToolResult(step.call.id, parts)
    view = a_view(dataclasses.replace(step, result=result), a_reply(1, "There."), status=TurnStatus.DONE)
    return with_kept_files(view)


async def test_images_and_files_of_tools_are_shared_in_the_thread_once() -> None:
    async with connected_bot(listening=False) as place:
        root = asked(place)
        view = placed(
            place, with_files(ImagePart(b"png", "image/png"), FilePart(b"{}", "application/json", "a.json")), root.ts
        )
        await place.draw(view)
        await place.draw(view, SlackSurface(place.api, place.people))
        shared = [file for message in place.bot_posts(thread=root.ts) for file in message.files]
        assert [(file.name, file.content) for file in shared] == [("notes.add_note.png", b"png"), ("a.json", b"{}")]
        assert not place.slack.calls.refused()


async def test_an_answer_comes_without_its_files_where_the_bot_may_share_none() -> None:
    async with connected_bot(listening=False) as place:
        place.slack.installation.scopes.discard("files:write")
        await place.draw(placed(place, with_files(ImagePart(b"png", "image/png")), asked(place).ts))
        (message,) = place.bot_posts()
        assert "There." in message.text

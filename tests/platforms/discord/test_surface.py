"""Turns in their channels and threads: posted once, edited from then on, complete in the end, whatever goes wrong on
the way.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.turns import Step, StepStatus, TurnStatus
from bot.domain.views import Notice, NoticeTarget, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.discord.app import TYPING_SECONDS, DiscordSurface
from tests.fakes.discord import Answers, Channel, Cut, Fails, Flag, Lost, Message, Permission, TooMany
from tests.fakes.stored_files import with_kept_files
from tests.platforms import sample_views
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot
from tests.platforms.sample_views import a_call, a_filing, a_reply, a_view

POST = "POST /channels/{channel}/messages"
PATCH = "PATCH /channels/{channel}/messages/{message}"
TYPING = "POST /channels/{channel}/typing"


def placed(place: ConnectedBot, view: TurnView, thread: Channel | None = None, *, age: float = -60.0) -> TurnView:
    """The view in #incidents or in a thread of it, asked by Priya, so many seconds ago."""
    where = place.key(place.channel, thread.id if thread else "")
    view = sample_views.at(view, where, Author("discord", place.priya.id, "Priya"))
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.discord.clock.now() - age))


def later(place: ConnectedBot) -> DiscordSurface:
    """The surface of another process, which begins now."""
    return DiscordSurface(place.rest, place.people, clock=place.discord.clock.now)


async def draw(place: ConnectedBot, view: TurnView, surface: DiscordSurface | None = None) -> dict[str, str]:
    refs = place.refs.setdefault(view.turn.id, {})
    async for drawn in (surface or place.surface).deliver(view, refs):
        refs[drawn.slot] = drawn.ref
    return refs


def running(text: str = "", *steps: Step) -> TurnView:
    return a_view(*steps, streaming=text)


def done(text: str) -> TurnView:
    return a_view(a_reply(0, text), status=TurnStatus.DONE)


def asking() -> TurnView:
    return a_view(a_filing(StepStatus.AWAITING), status=TurnStatus.WAITING)


def denied() -> TurnView:
    return a_view(a_filing(StepStatus.DENIED, **sample_views.SAM, reason="use INC"), status=TurnStatus.DONE)


async def test_a_reply_is_one_message_from_its_first_word_to_its_last() -> None:
    async with connected_bot(listening=False) as place:
        root = place.discord.say(place.priya, place.channel, "a question")
        thread = place.discord.thread(place.priya, place.channel, "a question", root)
        for view in (running(), running("The pool"), running("The pool is too small."), done("The pool is too small.")):
            await draw(place, placed(place, view, thread))
        (message,) = place.posted(thread)
        assert message.content.startswith("The pool is too small.\n")
        assert place.posted() == []
        assert not place.discord.calls.refused()


async def test_nobody_is_notified_and_nothing_unfolds_also_after_edits() -> None:
    async with connected_bot(listening=False) as place:
        hook = f"@everyone {place.priya.mention} {place.discord.role('ops').mention} https://example.com/?secret=1"
        code = f"`{hook}`"
        for view in (running(), running(code), done(f"{code} {hook}"), asking()):
            await draw(place, placed(place, view))
        for message in place.posted():
            assert not place.discord.called(message)
            assert not place.discord.fetched(message)
        assert place.posted()[0].flags & Flag.SUPPRESS_EMBEDS


async def test_drawing_the_same_again_asks_discord_for_nothing() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Here."))
        await draw(place, view)
        before = len(place.discord.calls)
        await draw(place, view)
        assert len(place.discord.calls) == before


async def test_another_process_goes_on_from_the_references_alone() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, running("Half of")))
        await draw(place, placed(place, done("Half of it, and the rest.")), later(place))
        (message,) = place.posted()
        assert "and the rest" in message.content


async def test_a_message_that_somebody_deleted_is_posted_anew() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, running("Half")))
        place.discord.delete(place.posted()[0])
        refs = await draw(place, placed(place, done("Half and half.")))
        (message,) = place.posted()
        assert list(refs.values()) == [f"{place.channel.id}:{message.id}"]


async def test_a_post_whose_answer_got_lost_is_not_made_twice() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail(POST, Lost())
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, placed(place, running("Only")))
        assert not failure.value.permanent
        await draw(place, placed(place, done("Only once.")))
        (message,) = place.posted()
        assert message.content.startswith("Only once.")


async def test_a_post_that_never_arrived_is_made_again() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Only once."))
        place.discord.fail(POST, Cut())
        with pytest.raises(DeliveryFailed):
            await draw(place, view)
        assert place.posted() == []
        await draw(place, view)
        assert len(place.posted()) == 1


async def test_what_a_dead_process_posted_without_noting_it_is_found_long_after() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(
            place, a_view(sample_views.OFFERING, a_filing(StepStatus.AWAITING), status=TurnStatus.WAITING), age=5
        )
        await draw(place, view)
        place.refs.clear()
        place.discord.clock.advance(3000)  # no nonce is remembered for so long
        await draw(place, view, later(place))
        assert len(place.posted()) == 2


async def test_what_a_dead_process_posted_a_moment_ago_becomes_what_it_should_be_now() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, running("Half"), age=5))
        place.refs.clear()
        await draw(place, placed(place, done("Half, and the rest."), age=5), later(place))
        (message,) = place.posted()
        assert message.content.startswith("Half, and the rest.")


async def test_what_a_dead_process_began_an_hour_ago_is_ended_in_the_same_message_and_no_other_turns() -> None:
    async with connected_bot(listening=False) as place:
        other = placed(place, running(), age=5)
        await draw(place, dataclasses.replace(other, turn=dataclasses.replace(other.turn, id="another")))
        await draw(place, placed(place, running(), age=5))
        place.refs.clear()
        place.discord.clock.advance(3000)
        await draw(place, placed(place, done("At last."), age=3005), later(place))
        assert [message.content.split("\n")[0] for message in place.posted()] == ["-# ◌ Working", "At last."]


async def test_two_files_of_one_name_are_two_also_after_a_crash() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, with_files(*[FilePart(b"{}", "application/json", "a.json")] * 2), age=5)
        await draw(place, view)
        place.refs.clear()
        place.discord.clock.advance(3000)
        refs = await draw(place, dataclasses.replace(view), later(place))
        assert len(set(refs.values())) == len(place.posted()) == 3


async def test_where_the_bot_may_not_read_it_posts_without_a_search() -> None:
    async with connected_bot(listening=False) as place:
        place.channel.forbid(place.discord.bot, Permission.READ_MESSAGE_HISTORY)
        await draw(place, placed(place, done("Here."), age=60), later(place))
        assert len(place.posted()) == 1


async def test_a_long_pause_that_discord_asks_for_reaches_whoever_draws() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail(POST, TooMany(90))
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, placed(place, done("Later.")))
        assert failure.value.retry_after == pytest.approx(90, abs=1)
        assert not failure.value.permanent


async def test_a_short_pause_is_waited_for() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail(POST, TooMany(0.1))
        await draw(place, placed(place, done("In a moment.")))
        assert len(place.posted()) == 1


@pytest.mark.parametrize("code", [50001, 50013, 10003, 160005])
async def test_what_will_never_work_is_said_with_a_cause(code: int) -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail(POST, Fails(code))
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, placed(place, done("No.")))
        assert failure.value.permanent
        assert str(code) in failure.value.cause


async def test_where_only_the_token_is_no_good_what_waits_to_be_drawn_is_kept_for_the_next_one() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Late, but here."))
        place.discord.fail(POST, Answers(401))
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, view)
        assert not failure.value.permanent
        assert failure.value.retry_after
        assert "DISCORD_TOKEN" in failure.value.fix
        await draw(place, view)
        assert len(place.posted()) == 1


async def test_buttons_that_discord_refuses_do_not_keep_an_answer_from_going_out() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail(POST, Fails(50035))
        await draw(place, placed(place, done("Anyway.")))
        (message,) = place.posted()
        assert message.content.startswith("Anyway.")
        assert not message.components


async def test_a_card_whose_layout_discord_refuses_is_not_posted_at_all() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, running()))
        place.discord.fail(POST, Fails(50035))
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, placed(place, asking()))
        assert failure.value.permanent
        assert len(place.posted()) == 1


async def test_a_card_is_posted_at_once_and_becomes_its_outcome_in_the_same_message() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, asking()))
        before = place.posted()
        assert before[-1].flags & Flag.IS_COMPONENTS_V2
        await draw(place, placed(place, denied()))
        after = place.posted()
        assert [message.id for message in after] == [message.id for message in before]
        seen = place.discord.what_user_sees(place.priya, place.channel)[-1]
        assert "use INC" in seen.words
        assert seen.buttons == []
        assert not place.discord.calls.refused()


async def test_a_card_that_is_not_out_yet_looks_the_same_whenever_it_is_drawn() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, a_view(a_filing(StepStatus.AWAITING, expires_at=None), status=TurnStatus.WAITING))
        surface = later(place)
        await draw(place, view, surface)
        place.discord.clock.advance(20)
        await draw(place, view, surface)
        assert not place.discord.calls.of(PATCH)


async def test_a_message_that_is_too_old_to_be_edited_is_answered_by_a_new_one() -> None:
    async with connected_bot(listening=False) as place:
        surface = later(place)
        await draw(place, placed(place, asking()), surface)
        (_, card) = place.posted()
        place.discord.clock.advance(3 * 3600)
        place.discord.fail(PATCH, Fails(30046), 20)
        refs = await draw(place, placed(place, denied()), surface)
        *_, anew = place.posted()
        assert anew.reply_to is card
        assert refs["card-3"] == f"{place.channel.id}:{anew.id}"
        assert not place.discord.called(anew)
        before = len(place.discord.calls)
        await draw(place, placed(place, denied()), surface)
        assert len(place.discord.calls) == before  # and that is that


async def test_in_a_thread_that_was_archived_the_message_is_edited_all_the_same() -> None:
    async with connected_bot(listening=False) as place:
        thread = place.discord.thread(place.priya, place.channel, "a question")
        await draw(place, placed(place, asking(), thread))
        place.discord.archive(thread)
        await draw(place, placed(place, denied(), thread))
        assert "use INC" in place.discord.what_user_sees(place.priya, thread)[-1].words
        assert [call.outcome for call in place.discord.calls.refused()] == ["50083"]


async def test_a_thread_that_stays_archived_is_opened_once_and_no_more() -> None:
    async with connected_bot(listening=False) as place:
        thread = place.discord.thread(place.priya, place.channel, "a question")
        await draw(place, placed(place, asking(), thread))
        place.discord.fail(PATCH, Fails(50083), 20)
        with pytest.raises(DeliveryFailed) as failure:
            await draw(place, placed(place, denied(), thread))
        assert failure.value.permanent
        assert len(place.discord.calls.of(PATCH)) == 2


async def test_a_long_answer_becomes_a_file_and_what_it_was_before_goes() -> None:
    async with connected_bot(listening=False) as place:
        long = "\n\n".join(f"Paragraph {number}. " + "word " * 200 for number in range(20))
        await draw(place, placed(place, running(long)))
        assert len(place.posted()) == 3
        await draw(place, placed(place, done(long)))
        first, last = place.posted()
        assert first.content.startswith("Paragraph 0.")
        assert [(file.name, file.content.decode()) for file in last.files] == [("answer.md", long.strip())]
        await draw(place, placed(place, done("Short after all.")))
        (message,) = place.posted()
        assert message.content.startswith("Short after all.")
        assert not place.discord.calls.refused()


async def test_it_types_while_nothing_of_the_answer_is_there_to_see() -> None:
    async with connected_bot(listening=False) as place:
        surface = later(place)
        await draw(place, placed(place, running()), surface)
        await draw(place, placed(place, a_view(a_call(1, sample_views.LOGS, StepStatus.STARTED))), surface)
        assert place.discord.typing(place.channel)
        assert len(place.discord.calls.of(TYPING)) == 1
        place.discord.clock.advance(TYPING_SECONDS)
        await draw(place, placed(place, running("It")), surface)
        assert len(place.discord.calls.of(TYPING)) == 1
        await draw(place, placed(place, running()), surface)
        assert len(place.discord.calls.of(TYPING)) == 2
        place.discord.clock.advance(TYPING_SECONDS)
        place.discord.fail(TYPING, Fails(50013))
        await draw(place, placed(place, running()), surface)  # it is not worth a word


async def test_a_drawing_that_is_cancelled_while_discord_holds_everybody_back_holds_back_nobody_else() -> None:
    async with connected_bot(listening=False) as place:
        await place.rest.identity()
        place.discord.fail(POST, TooMany(20, everywhere=True))
        drawing = asyncio.create_task(draw(place, placed(place, done("One."))))
        await place.discord.until(lambda: place.discord.calls.of(POST))
        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing
        async with asyncio.timeout(10):
            await place.surface.post_notice(NoticeTarget(str(place.key(place.channel))), Notice("Two."))
        assert [message.content for message in place.posted()] == ["Two."]


async def test_notices_reach_one_person_directly_or_everybody() -> None:
    async with connected_bot(listening=False) as place:
        where, notice = str(place.key(place.channel)), Notice("@everyone **tool**")
        await place.surface.post_notice(NoticeTarget(where, place.priya.id), notice)
        await place.surface.post_notice(NoticeTarget(where, place.priya.id, private=True), notice)
        await place.surface.post_notice(NoticeTarget(where), notice)
        direct = place.posted(place.discord.dm(place.priya))
        assert [each.content for each in direct] == ["@\u2060everyone \\*\\*tool\\*\\*"] * 2
        (public,) = place.posted()
        assert not place.discord.called(public)


async def test_somebody_who_takes_no_direct_messages_is_told_nowhere_else() -> None:
    async with connected_bot(listening=False) as place:
        place.priya.takes_dms = False
        with pytest.raises(DeliveryFailed) as failure:
            await place.surface.post_notice(
                NoticeTarget(str(place.key(place.channel)), place.priya.id), Notice("Psst.")
            )
        assert failure.value.permanent
        assert place.posted() == []


def with_files(*parts: ImagePart | FilePart) -> TurnView:
    step = a_call(1, sample_views.LOGS, StepStatus.DONE)
    result = ToolResult(step.call.id, parts)
    view = a_view(dataclasses.replace(step, result=result), a_reply(2, "There."), status=TurnStatus.DONE)
    return with_kept_files(view)


def shared(messages: list[Message]) -> list[tuple[str, bytes]]:
    return [(file.name, file.content) for message in messages for file in message.files]


async def test_images_and_files_of_tools_are_shared_once() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(
            place, with_files(ImagePart(b"png", "image/png"), FilePart(b"{}", "application/json", "../a.json"))
        )
        await draw(place, view)
        await draw(place, view, later(place))
        assert shared(place.posted()) == [("grafana.search_logs.png", b"png"), (".._a.json", b"{}")]
        assert not place.discord.calls.refused()


async def test_an_answer_comes_without_its_files_where_the_bot_may_share_none() -> None:
    async with connected_bot(listening=False) as place:
        place.channel.forbid(place.discord.bot, Permission.ATTACH_FILES)
        refs = await draw(place, placed(place, with_files(ImagePart(b"png", "image/png"))))
        (message,) = place.posted()
        assert message.content.startswith("-# ✓ grafana.search_logs  1 image\nThere.")
        assert refs["file-1-0"] == "left out"


async def test_conversations_of_other_platforms_are_none_of_its_business() -> None:
    async with connected_bot(listening=False) as place:
        where = ConversationKey("slack", "T1", "C1", "")
        assert (await place.surface.member(Author("discord", place.priya.id, "Priya"), where)).external
        with pytest.raises(DeliveryFailed):
            await place.surface.post_notice(NoticeTarget(str(where)), Notice("Hello."))

"""Delivery of turns in channels and threads: one post, then edits; the last one is complete despite failed requests."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.turns import Notice, NoticeTarget, Step, StepStatus, TurnStatus, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.discord import sending
from bot.platforms.discord.app import TYPING_SECONDS, DiscordSurface
from bot.platforms.discord.message_layout import ANSWER_LIMITS
from tests.fakes.discord import Channel, Fails, Flag, Message, Permission, Slow, TooMany
from tests.fakes.stored_files import with_kept_files
from tests.platforms import sample_views
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot
from tests.platforms.sample_views import a_call, a_filing, a_reply, a_view

POST = "POST /channels/{channel}/messages"
PATCH = "PATCH /channels/{channel}/messages/{message}"
READ = "GET /channels/{channel}/messages"
TYPING = "POST /channels/{channel}/typing"


def placed(place: ConnectedBot, view: TurnView, thread: Channel | None = None, *, age: float = -60.0) -> TurnView:
    """Return a view in #incidents or in a thread of it, created `age` seconds ago by Priya."""
    where = place.key(place.channel, thread.id if thread else "")
    view = sample_views.at(view, where, Author("discord", place.priya.id, "Priya"))
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.discord.clock.now() - age))


def later(place: ConnectedBot) -> DiscordSurface:
    """Return the surface of another process that starts now."""
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


async def test_no_user_is_notified_and_no_link_unfolds_also_after_edits() -> None:
    async with connected_bot(listening=False) as place:
        hook = f"@everyone {place.priya.mention} {place.discord.role('ops').mention} https://example.com/?secret=1"
        code = f"`{hook}`"
        for view in (running(), running(code), done(f"{code} {hook}")):
            await draw(place, placed(place, view))
        assert place.posted()[0].flags & Flag.SUPPRESS_EMBEDS
        await draw(place, placed(place, asking()))
        for message in place.posted():
            assert not place.discord.called(message)
            assert not place.discord.fetched(message)


async def test_two_files_of_one_name_are_two_also_after_a_crash() -> None:
    async with connected_bot(listening=False) as place:
        view = placed(place, with_files(*[FilePart(b"{}", "application/json", "a.json")] * 2), age=5)
        await draw(place, view)
        place.refs.clear()
        place.discord.clock.advance(3000)
        refs = await draw(place, dataclasses.replace(view), later(place))
        assert len(set(refs.values())) == len(place.posted()) == 3


async def test_each_page_of_a_search_has_a_time_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "ANSWER_SECONDS", 1.0)
    async with connected_bot(listening=False) as place:
        view = placed(place, done("Here."), age=60)
        for number in range(2 * sending.PAGE):
            place.discord.say(place.priya, place.channel, f"number {number}")
        await draw(place, view)
        place.refs.clear()
        place.discord.clock.advance(600)
        place.discord.fail(READ, Slow(0.4), 3)
        before = len(place.discord.calls.of(READ))
        await draw(place, view, later(place))
        assert len(place.discord.calls.of(READ)) == before + 3
        assert len(place.posted()) == 1


async def test_where_the_bot_may_not_read_it_posts_without_a_search() -> None:
    async with connected_bot(listening=False) as place:
        place.channel.forbid(place.discord.bot, Permission.READ_MESSAGE_HISTORY)
        await draw(place, placed(place, done("Here."), age=60), later(place))
        assert len(place.posted()) == 1


async def test_a_message_that_is_too_old_to_be_edited_is_answered_by_a_new_one() -> None:
    async with connected_bot(listening=False) as place:
        surface = later(place)
        await draw(place, placed(place, asking()), surface)
        (card,) = place.posted()
        place.discord.clock.advance(3 * 3600)
        place.discord.fail(PATCH, Fails(30046), 20)
        refs = await draw(place, placed(place, denied()), surface)
        anew = next(message for message in place.posted() if refs["card-3"] == f"{place.channel.id}:{message.id}")
        assert anew.reply_to is card
        assert not place.discord.called(anew)
        before = len(place.discord.calls)
        await draw(place, placed(place, denied()), surface)
        assert len(place.discord.calls) == before  # no further requests


async def test_in_a_thread_that_was_archived_the_message_is_edited_all_the_same() -> None:
    async with connected_bot(listening=False) as place:
        thread = place.discord.thread(place.priya, place.channel, "a question")
        await draw(place, placed(place, asking(), thread))
        place.discord.archive(thread)
        await draw(place, placed(place, denied(), thread))
        assert any("use INC" in message.words for message in place.discord.what_user_sees(place.priya, thread))
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


async def test_a_long_answer_ends_in_a_file_and_shown_text_stays() -> None:
    async with connected_bot(listening=False) as place:
        long = "\n\n".join(f"Paragraph {number}. " + "word " * 200 for number in range(20))
        await draw(place, placed(place, running(long)))
        *read, writing = place.posted()
        assert len(read) == ANSWER_LIMITS.most_messages - 1
        await draw(place, placed(place, done(long)))
        *stayed, last = place.posted()
        assert stayed == read
        assert writing.deleted
        assert read[0].content.startswith("Paragraph 0.")
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
        await draw(place, placed(place, running()), surface)  # the failed typing indicator is ignored


async def test_a_delivery_cancelled_during_a_rate_limit_holds_up_no_other() -> None:
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


async def test_a_user_without_direct_messages_gets_no_notice_elsewhere() -> None:
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


async def test_the_name_of_a_shared_file_holds_no_path() -> None:
    async with connected_bot(listening=False) as place:
        await draw(place, placed(place, with_files(FilePart(b"{}", "application/json", "../a.json"))))
        assert shared(place.posted()) == [(".._a.json", b"{}")]


async def test_conversations_of_other_platforms_are_none_of_its_business() -> None:
    async with connected_bot(listening=False) as place:
        where = ConversationKey("slack", "T1", "C1", "")
        assert (await place.surface.member(Author("discord", place.priya.id, "Priya"), where)).external
        with pytest.raises(DeliveryFailed):
            await place.surface.post_notice(NoticeTarget(str(where)), Notice("Hello."))

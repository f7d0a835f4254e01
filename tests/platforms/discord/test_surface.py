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


def placed_view(place: ConnectedBot, view: TurnView, thread: Channel | None = None, *, age: float = -60.0) -> TurnView:
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


def denied_view() -> TurnView:
    return a_view(a_filing(StepStatus.DENIED, **sample_views.SAM, reason="use INC"), status=TurnStatus.DONE)


async def test_no_user_is_notified_and_no_link_unfolds_also_after_edits(worker: ConnectedBot) -> None:
    hook = f"@everyone {worker.priya.mention} {worker.discord.role('ops').mention} https://example.com/?secret=1"
    code = f"`{hook}`"
    for view in (running(), running(code), done(f"{code} {hook}")):
        await draw(worker, placed_view(worker, view))
    assert worker.public_messages()[0].flags & Flag.SUPPRESS_EMBEDS
    await draw(worker, placed_view(worker, asking()))
    for message in worker.public_messages():
        assert not worker.discord.notified_ids(message)
        assert not worker.discord.fetched_addresses(message)


async def test_two_files_of_one_name_are_two_also_after_a_crash(worker: ConnectedBot) -> None:
    view = placed_view(worker, with_files(*[FilePart(b"{}", "application/json", "a.json")] * 2), age=5)
    await draw(worker, view)
    worker.refs.clear()
    worker.discord.clock.advance(3000)
    refs = await draw(worker, dataclasses.replace(view), later(worker))
    assert len(set(refs.values())) == len(worker.public_messages()) == 3


async def test_each_page_of_a_search_has_a_time_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "ANSWER_SECONDS", 1.0)
    async with connected_bot(listening=False) as place:
        view = placed_view(place, done("Here."), age=60)
        for number in range(2 * sending.PAGE):
            place.discord.say(place.priya, place.channel, f"number {number}")
        await draw(place, view)
        place.refs.clear()
        place.discord.clock.advance(600)
        place.discord.fail(READ, Slow(0.4), 3)
        before = len(place.discord.calls.of(READ))
        await draw(place, view, later(place))
        assert len(place.discord.calls.of(READ)) == before + 3
        assert len(place.public_messages()) == 1


async def test_where_the_bot_may_not_read_it_posts_without_a_search(worker: ConnectedBot) -> None:
    worker.channel.forbid(worker.discord.bot, Permission.READ_MESSAGE_HISTORY)
    await draw(worker, placed_view(worker, done("Here."), age=60), later(worker))
    assert len(worker.public_messages()) == 1


async def test_a_message_that_is_too_old_to_be_edited_is_answered_by_a_new_one(worker: ConnectedBot) -> None:
    surface = later(worker)
    await draw(worker, placed_view(worker, asking()), surface)
    (card,) = worker.public_messages()
    worker.discord.clock.advance(3 * 3600)
    worker.discord.fail(PATCH, Fails(30046), 20)
    refs = await draw(worker, placed_view(worker, denied_view()), surface)
    anew = next(
        message for message in worker.public_messages() if refs["card-3"] == f"{worker.channel.id}:{message.id}"
    )
    assert anew.reply_to is card
    assert not worker.discord.notified_ids(anew)
    before = len(worker.discord.calls)
    await draw(worker, placed_view(worker, denied_view()), surface)
    assert len(worker.discord.calls) == before  # no further requests


async def test_in_a_thread_that_was_archived_the_message_is_edited_all_the_same(worker: ConnectedBot) -> None:
    thread = worker.discord.thread(worker.priya, worker.channel, "a question")
    await draw(worker, placed_view(worker, asking(), thread))
    worker.discord.archive(thread)
    await draw(worker, placed_view(worker, denied_view(), thread))
    assert any("use INC" in message.words for message in worker.discord.what_user_sees(worker.priya, thread))
    assert [call.outcome for call in worker.discord.calls.failed_calls()] == ["50083"]


async def test_a_thread_that_stays_archived_is_opened_once_and_no_more(worker: ConnectedBot) -> None:
    thread = worker.discord.thread(worker.priya, worker.channel, "a question")
    await draw(worker, placed_view(worker, asking(), thread))
    worker.discord.fail(PATCH, Fails(50083), 20)
    with pytest.raises(DeliveryFailed) as failure:
        await draw(worker, placed_view(worker, denied_view(), thread))
    assert failure.value.permanent
    assert len(worker.discord.calls.of(PATCH)) == 2


async def test_a_long_answer_ends_in_a_file_and_shown_text_stays(worker: ConnectedBot) -> None:
    long = "\n\n".join(f"Paragraph {number}. " + "word " * 200 for number in range(20))
    await draw(worker, placed_view(worker, running(long)))
    *read, writing = worker.public_messages()
    assert len(read) == ANSWER_LIMITS.most_messages - 1
    await draw(worker, placed_view(worker, done(long)))
    *stayed, last = worker.public_messages()
    assert stayed == read
    assert writing.deleted
    assert read[0].content.startswith("Paragraph 0.")
    assert [(file.name, file.content.decode()) for file in last.files] == [("answer.md", long.strip())]
    await draw(worker, placed_view(worker, done("Short after all.")))
    (message,) = worker.public_messages()
    assert message.content.startswith("Short after all.")
    assert not worker.discord.calls.failed_calls()


async def test_it_types_while_nothing_of_the_answer_is_there_to_see(worker: ConnectedBot) -> None:
    surface = later(worker)
    await draw(worker, placed_view(worker, running()), surface)
    await draw(worker, placed_view(worker, a_view(a_call(1, sample_views.LOGS, StepStatus.STARTED))), surface)
    assert worker.discord.typing(worker.channel)
    assert len(worker.discord.calls.of(TYPING)) == 1
    worker.discord.clock.advance(TYPING_SECONDS)
    await draw(worker, placed_view(worker, running("It")), surface)
    assert len(worker.discord.calls.of(TYPING)) == 1
    await draw(worker, placed_view(worker, running()), surface)
    assert len(worker.discord.calls.of(TYPING)) == 2
    worker.discord.clock.advance(TYPING_SECONDS)
    worker.discord.fail(TYPING, Fails(50013))
    await draw(worker, placed_view(worker, running()), surface)  # the failed typing indicator is ignored


async def test_a_delivery_cancelled_during_a_rate_limit_holds_up_no_other(worker: ConnectedBot) -> None:
    await worker.rest.identity()
    worker.discord.fail(POST, TooMany(20, everywhere=True))
    drawing = asyncio.create_task(draw(worker, placed_view(worker, done("One."))))
    await worker.discord.until(lambda: worker.discord.calls.of(POST))
    drawing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drawing
    async with asyncio.timeout(10):
        await worker.surface.post_notice(NoticeTarget(str(worker.key(worker.channel))), Notice("Two."))
    assert [message.content for message in worker.public_messages()] == ["Two."]


async def test_notices_reach_one_person_directly_or_everybody(worker: ConnectedBot) -> None:
    where, notice = str(worker.key(worker.channel)), Notice("@everyone **tool**")
    await worker.surface.post_notice(NoticeTarget(where, worker.priya.id), notice)
    await worker.surface.post_notice(NoticeTarget(where, worker.priya.id, private=True), notice)
    await worker.surface.post_notice(NoticeTarget(where), notice)
    direct = worker.public_messages(worker.discord.dm(worker.priya))
    assert [each.content for each in direct] == ["@\u2060everyone \\*\\*tool\\*\\*"] * 2
    (public,) = worker.public_messages()
    assert not worker.discord.notified_ids(public)


async def test_a_user_without_direct_messages_gets_no_notice_elsewhere(worker: ConnectedBot) -> None:
    worker.priya.takes_dms = False
    with pytest.raises(DeliveryFailed) as failure:
        await worker.surface.post_notice(
            NoticeTarget(str(worker.key(worker.channel)), worker.priya.id), Notice("Psst.")
        )
    assert failure.value.permanent
    assert worker.public_messages() == []


def with_files(*parts: ImagePart | FilePart) -> TurnView:
    step = a_call(1, sample_views.LOGS, StepStatus.DONE)
    result = ToolResult(step.call.id, parts)
    view = a_view(dataclasses.replace(step, result=result), a_reply(2, "There."), status=TurnStatus.DONE)
    return with_kept_files(view)


def shared_files(messages: list[Message]) -> list[tuple[str, bytes]]:
    return [(file.name, file.content) for message in messages for file in message.files]


async def test_the_name_of_a_shared_file_holds_no_path(worker: ConnectedBot) -> None:
    await draw(worker, placed_view(worker, with_files(FilePart(b"{}", "application/json", "../a.json"))))
    assert shared_files(worker.public_messages()) == [(".._a.json", b"{}")]


async def test_conversations_of_other_platforms_are_none_of_its_business(worker: ConnectedBot) -> None:
    where = ConversationKey("slack", "T1", "C1", "")
    assert (await worker.surface.member(Author("discord", worker.priya.id, "Priya"), where)).external
    with pytest.raises(DeliveryFailed):
        await worker.surface.post_notice(NoticeTarget(str(where)), Notice("Hello."))

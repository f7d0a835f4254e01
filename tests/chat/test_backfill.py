"""Backfill of missed messages: its start time, and the handling of late messages, on any platform."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.chat import message_handler
from bot.chat.backfill import CLOCKS_DIFFER, HOURS, Backfill, MissedPeriod
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.context import ChatContext, Lookups
from bot.chat.message_handler import (
    Location,
    MessageContent,
    MessageHandler,
    PlatformMessage,
    ThreadMessage,
)
from bot.chat.message_model import Message
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import Author, ConversationKey, Member
from bot.errors import DatabaseUnavailable, DeliveryFailed
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands

BEGAN = datetime(2026, 11, 25, 12, tzinfo=UTC)
THREAD = ConversationKey("chat", "W", "C", "1")


class Platform:
    """A platform that redelivers, with one thread. User ids of guests begin with `guest`."""

    name, redelivers, reading_seconds = "chat", True, 1.0

    def __init__(self) -> None:
        self.missed: list[PlatformMessage] = []
        self.missed_mentions: list[PlatformMessage] = []
        self.read_since: list[datetime] = []
        self.periods: list[MissedPeriod] = []
        self.commands: list[tuple[str, ...]] = []
        self.notices: list[str] = []
        self.fails = False
        self.contexts = 0
        """Number of context reads."""

    async def locate(self, message: PlatformMessage) -> Location:
        return Location(THREAD, in_thread=message.may_be_in_thread)

    async def find_author(self, message: PlatformMessage, conversation: ConversationKey) -> Member:
        return Member(Author("chat", message.user, message.user), guest=message.user.startswith("guest"))

    async def resolve_names(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        return messages

    async def read_earlier(self, message: PlatformMessage, *, in_thread: bool) -> tuple[tuple[()], tuple[()]]:
        self.contexts += 1
        return (), ()

    async def run_command(
        self, message: PlatformMessage, conversation: ConversationKey, words: tuple[str, ...]
    ) -> None:
        self.commands.append(words)

    async def notify_author(self, message: PlatformMessage, text: str) -> None:
        self.notices.append(text)

    post_hint = notify_author

    async def show_to_author(self, message: PlatformMessage, conversation: ConversationKey, shown: Message) -> None:
        raise NotImplementedError

    async def messages_since(self, conversation: ConversationKey, since: datetime) -> Sequence[PlatformMessage]:
        self.read_since.append(since)
        if self.fails:
            raise DeliveryFailed("The thread cannot be read.")
        return self.missed

    async def mentions(self, period: MissedPeriod) -> AsyncGenerator[PlatformMessage, None]:
        self.periods.append(period)
        for message in self.missed_mentions:
            yield message


def make_message(number: int, text: str, user: str = "ana", **fields: Any) -> PlatformMessage:
    return PlatformMessage(
        id=f"m{number}", keys=(f"chat:m{number}",), thread_key="1", user=user, content=MessageContent(text), **fields
    )


async def run_backfill(platform: Platform, engine: FakeEngine) -> None:
    """Run a backfill with THREAD as the only active conversation, and wait for its notices."""

    async def active(_prefix: str, _seconds: float, _limit: int) -> Sequence[ConversationKey]:
        return [THREAD]

    tasks = BackgroundTasks()
    context = ChatContext(
        engine=engine,
        commands=ScriptedCommands(),
        audience=AudiencePolicy(),
        background_tasks=tasks,
        records=Lookups(),
    )
    handler = MessageHandler[PlatformMessage](platform, context)
    await Backfill("chat", platform, handler, engine, active).run(BEGAN.timestamp())
    await tasks.close()


async def turn_at(engine: FakeEngine, moment: datetime, text: str) -> None:
    """Store a turn of THREAD with this creation time."""
    engine.clock = moment.timestamp
    platform = Platform()
    platform.missed = [make_message(int(moment.timestamp()), text, mentions_bot=True)]
    await run_backfill(platform, engine)


async def test_messages_are_read_from_the_last_turn_before_the_session() -> None:
    engine, platform = FakeEngine(), Platform()
    last = BEGAN - timedelta(hours=1)
    await turn_at(engine, last, "before")
    await turn_at(engine, BEGAN + timedelta(seconds=5), "of this session")
    await run_backfill(platform, engine)
    assert platform.read_since == [last - CLOCKS_DIFFER]
    (period,) = platform.periods
    assert (period.since, set(period.known)) == (last - CLOCKS_DIFFER, {THREAD})


async def test_messages_are_read_back_one_day_at_most() -> None:
    engine, platform = FakeEngine(), Platform()
    await turn_at(engine, BEGAN - timedelta(days=9), "long ago")
    await run_backfill(platform, engine)
    assert platform.read_since == [BEGAN - timedelta(hours=HOURS)]


async def test_late_messages_become_turns_without_late_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_handler, "FIRST_PAUSE", 0.01)
    engine, platform = FakeEngine(), Platform()
    engine.troubles = [DatabaseUnavailable("The database is away.")]
    platform.missed = [
        make_message(1, "why?", mentions_bot=True),
        make_message(2, "and since when?", may_be_in_thread=True),
        make_message(3, "mcp list", mentions_bot=True),
        make_message(4, "hi", "guest", mentions_bot=True),
        make_message(5, "", mentions_bot=True),
        make_message(1, "why?", mentions_bot=True),
    ]
    platform.missed_mentions = [make_message(6, "and in here?", mentions_bot=True), make_message(7, "nothing for you")]
    await run_backfill(platform, engine)
    assert [message.text for message in engine.received] == ["why?", "and since when?", "and in here?"]
    assert (platform.commands, platform.notices) == ([], [])


async def test_late_messages_between_people_are_not_answered_and_a_second_reading_changes_nothing() -> None:
    engine, platform = FakeEngine(), Platform()
    platform.missed = [
        make_message(1, "why?", mentions_bot=True, may_be_in_thread=True, sent_at=1),
        make_message(2, "and since when?", may_be_in_thread=True, sent_at=2),
        make_message(3, "@ben do you know?", may_be_in_thread=True, mentions=frozenset({"ben"}), sent_at=3),
        make_message(4, "no idea", "ben", may_be_in_thread=True, sent_at=4),
        make_message(5, "is that so?", mentions_bot=True, may_be_in_thread=True, sent_at=5),
        make_message(6, "thanks", may_be_in_thread=True, sent_at=6),
    ]
    for _ in range(2):
        await run_backfill(platform, engine)
        assert platform.contexts == 4, "that of a turn is not read again"
        assert [message.text for message in engine.received] == ["why?", "and since when?", "is that so?", "thanks"]
        assert await engine.is_followed(THREAD, 7)


async def test_a_conversation_that_cannot_be_read_does_not_end_the_backfill() -> None:
    engine, platform = FakeEngine(), Platform()
    platform.fails = True
    platform.missed_mentions = [make_message(6, "and in here?", mentions_bot=True)]
    await run_backfill(platform, engine)
    assert [message.text for message in engine.received] == ["and in here?"]


async def test_nothing_older_than_the_last_question_is_answered() -> None:
    engine, platform = FakeEngine(), Platform()
    moment = BEGAN - timedelta(minutes=5)
    remark: dict[str, Any] = {"may_be_in_thread": True, "user": "ana"}
    engine.clock = moment.timestamp
    platform.missed = [make_message(3, "why?", mentions_bot=True, sent_at=moment.timestamp())]
    await run_backfill(platform, engine)
    received = [message.message_id for message in engine.received]
    platform.missed = [
        make_message(1, "it is down", sent_at=moment.timestamp() - 50, **remark),
        make_message(2, "really?", sent_at=moment.timestamp() - 1, **remark),
        make_message(3, "why?", mentions_bot=True, sent_at=moment.timestamp()),
        make_message(4, "and since when?", sent_at=moment.timestamp() + 1, **remark),
    ]
    for _ in range(2):
        await run_backfill(platform, engine)
        assert [message.message_id for message in engine.received] == [*received, "m4"]
    # The question was in no thread: its time is that of its turn.
    platform.missed = [make_message(5, "before", sent_at=moment.timestamp() - 1, **remark)]
    platform.missed += [make_message(6, "after", sent_at=moment.timestamp() + 2, **remark)]
    await run_backfill(platform, engine)
    assert [message.text for message in engine.received][-1] == "after"
    assert len(engine.received) == 3

"""Messages that users wrote while no process was connected to Slack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from bot.chat.context import Lookups
from bot.domain.conversations import ConversationKey
from bot.domain.health import ListenerStatus
from bot.platforms.slack import listener
from tests.fakes.slack import Fails, Message
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot


@asynccontextmanager
async def after_a_downtime(*retries: float) -> AsyncIterator[tuple[ConnectedBot, Message]]:
    """Stop the listener after Priya's messages in #incidents and in a direct message. Yield the first message.

    Slack delivers again after `retries`, in seconds.
    """

    async def active_keys(_prefix: str, _seconds: float, _limit: int) -> Sequence[ConversationKey]:
        return list(dict.fromkeys(message.conversation for message in reversed(place.engine.received)))

    async with connected_bot(records=Lookups(active_conversations=active_keys)) as place:
        place.slack.post.retries = retries
        asked = place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} why?")
        place.slack.say(place.priya, place.slack.dm(place.priya), "hello")
        await place.slack.until(lambda: len(place.engine.received) == 2)
        await place.wait_for_responses()
        assert place.listening is not None
        place.listening.cancel()
        with suppress(asyncio.CancelledError):
            await place.listening
        place.slack.clock.advance(120)
        yield place, asked


@asynccontextmanager
async def receiving(place: ConnectedBot) -> AsyncIterator[None]:
    """Run the listener of the next process."""
    listening = asyncio.create_task(place.listener.run(place.engine, place.commands))
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def texts(place: ConnectedBot) -> list[str]:
    """Return the texts of the messages since the beginning of the downtime, sorted."""
    return sorted(message.text for message in place.engine.received[2:])


async def test_messages_of_a_downtime_are_answered_and_no_command_is_run() -> None:
    async with after_a_downtime() as (place, asked):
        slack, priya, dm = place.slack, place.priya, place.slack.dm(place.priya)
        sam = slack.user("Sam")
        place.channel.members.append(sam.id)
        slack.say(priya, place.channel, "and since when?", thread_ts=asked.ts)
        edited = slack.say(priya, place.channel, f"{slack.bot.mention} how mny?")
        slack.edit(edited, f"{slack.bot.mention} how many?")
        slack.say(priya, place.channel, "lunch?")
        slack.say(priya, dm, "still there?")
        slack.say(priya, dm, "mcp list")
        slack.say(priya, place.channel, f"{sam.mention} do you know?", thread_ts=asked.ts)
        slack.say(sam, place.channel, "no idea", thread_ts=asked.ts)
        async with receiving(place):
            await slack.until(lambda: len(place.engine.received) == 5)
            # The last message that the backfill reads is the command.
            slack.say(priya, dm, "and now?")
            await slack.until(lambda: "and now?" in texts(place))
        assert texts(place) == ["and now?", "and since when?", "how many?", "still there?"]
        where = {message.text: message.conversation for message in place.engine.received}
        assert where["and since when?"] == where["why?"]
        assert place.commands.requests == []
        assert place.whispers(priya) == []


async def test_a_message_that_slack_delivers_again_as_well_is_answered_once() -> None:
    async with after_a_downtime(0.2, 0.5, 1.0) as (place, _):
        slack = place.slack
        slack.say(place.priya, place.channel, f"{slack.bot.mention} how many?")
        async with receiving(place):
            await slack.until(lambda: texts(place))
            await place.wait_for_responses()
            for delivery in slack.sent_deliveries[-2:]:
                slack.post.again(delivery)
            slack.say(place.priya, slack.dm(place.priya), "and now?")
            await slack.until(lambda: "and now?" in texts(place))
        assert texts(place) == ["and now?", "how many?"]


async def test_a_second_process_reads_up_after_the_first() -> None:
    async with after_a_downtime() as (place, _):
        slack = place.slack
        slack.say(place.priya, place.channel, f"{slack.bot.mention} how many?")
        async with receiving(place):
            await slack.until(lambda: texts(place))
        calls = len(slack.calls.of("conversations.history"))
        async with receiving(place):
            await slack.until(lambda: len(slack.calls.of("conversations.history")) > calls)
            slack.say(place.priya, slack.dm(place.priya), "and now?")
            await slack.until(lambda: "and now?" in texts(place))
        assert texts(place) == ["and now?", "how many?"]


async def test_remarks_before_the_first_question_of_a_thread_are_not_answered_after_a_downtime() -> None:
    async with after_a_downtime() as (place, _asked):
        slack, priya = place.slack, place.priya
        root = slack.say(priya, place.channel, "it is down")
        for text in ("really?", "I see 502s"):
            slack.say(priya, place.channel, text, thread_ts=root.ts)
        async with receiving(place), asyncio.timeout(60):
            while await place.listener.listening() is not ListenerStatus.CONNECTED:
                await asyncio.sleep(0.01)
            slack.say(priya, place.channel, f"{slack.bot.mention} who deployed?", thread_ts=root.ts)
            await slack.until(lambda: "who deployed?" in texts(place))
            await place.wait_for_responses()
        slack.clock.advance(5)
        slack.say(priya, place.channel, "and when?", thread_ts=root.ts)
        async with receiving(place):
            await slack.until(lambda: "and when?" in texts(place))
        assert texts(place) == ["and when?", "who deployed?"]


async def test_after_a_long_disconnection_a_missed_question_is_answered_once_and_no_remark_of_colleagues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(listener, "FAILED_CHECKS", 1)
    monkeypatch.setattr(listener, "PING_SECONDS", 0.1)

    async def active_keys(_prefix: str, _seconds: float, _limit: int) -> Sequence[ConversationKey]:
        return list(dict.fromkeys(message.conversation for message in reversed(place.engine.received)))

    async with connected_bot(records=Lookups(active_conversations=active_keys)) as place:
        slack, channel = place.slack, place.channel
        slack.post.retries = ()
        sam = slack.user("Sam")
        channel.members.append(sam.id)
        root = slack.say(sam, channel, "the checkout is slow")
        slack.say(sam, channel, "since the deploy", thread_ts=root.ts)
        slack.say(place.priya, channel, f"{slack.bot.mention} why?", thread_ts=root.ts)
        await slack.until(lambda: len(place.engine.received) == 1)
        slack.say(sam, channel, "I had that, too", thread_ts=root.ts)
        await place.wait_for_responses()
        opened = slack.sockets.ever
        asked_for_a_url = len(slack.calls.of("apps.connections.open"))
        slack.fail("apps.connections.open", Fails("internal_error"), times=1000)
        await slack.sockets.drop()
        slack.clock.advance(300)
        slack.say(sam, channel, "still slow", thread_ts=root.ts)
        missed = slack.say(place.priya, channel, f"{slack.bot.mention} and now?", thread_ts=root.ts)
        slack.say(sam, channel, "thanks", thread_ts=root.ts)
        other = slack.say(sam, channel, "lunch?")
        slack.say(sam, channel, "at noon", thread_ts=other.ts)
        await slack.until(lambda: len(slack.calls.of("apps.connections.open")) > asked_for_a_url + 4)
        slack.world.faults.clear("apps.connections.open")
        await slack.sockets.wait_for_reconnect(opened + 1)
        await slack.until(lambda: len(place.engine.received) == 2)
        slack.say(place.priya, channel, f"{slack.bot.mention} anything else?", thread_ts=root.ts)
        slack.post.again(next(each for each in slack.sent_deliveries if each.event.get("ts") == missed.ts))
        await slack.until(lambda: "anything else?" in [message.text for message in place.engine.received])
        await place.wait_for_responses()
        assert [message.text for message in place.engine.received] == ["why?", "and now?", "anything else?"]
        assert place.whispers(sam) == place.whispers(place.priya) == []

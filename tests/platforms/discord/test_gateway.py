"""Gateway: one process at a time, minimal intents, recoverable and fatal errors, and missed messages."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import discord
import pytest

from bot.chat import backfill, background_tasks, message_handler
from bot.chat.listener_leases import ListenerLease
from bot.domain.health import ListenerStatus
from bot.domain.turns import TurnStatus
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.platforms.discord import gateway
from bot.platforms.discord.listener import DiscordListener
from tests.fakes.discord import Answers, Channel, Permission
from tests.platforms.discord.connected_bot import ConnectedBot, cancel_task, connected_bot
from tests.platforms.fake_engine import SharedLeases
from tests.rendering.turns import a_reply, a_view

GUILDS, GUILD_MESSAGES, DIRECT_MESSAGES, MESSAGE_CONTENT = 1 << 0, 1 << 9, 1 << 12, 1 << 15


SOON_OVER = 0.6
"""Seconds of a lease."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between two tries."""
    for module in (gateway, background_tasks):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(gateway, "IDENTIFY_SECONDS", 0.01)


async def ask_in_channel(place: ConnectedBot, text: str = "why?") -> Channel:
    """Let Priya ask in #incidents, and return the thread of the answer."""
    said = place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} {text}")
    await place.wait_for_messages(len(place.engine.received) + 1)
    (thread,) = [each for each in place.discord.threads(place.channel) if each.id == said.id]
    return thread


async def stands(listener: DiscordListener, wanted: ListenerStatus) -> None:
    """Wait until a listener has this status."""
    async with asyncio.timeout(60):
        while await listener.listening() is not wanted:
            await asyncio.sleep(0.01)


# Intents


@pytest.mark.parametrize(("switched_on", "more"), [(True, MESSAGE_CONTENT), (False, 0)])
async def test_only_needed_intents_are_requested(switched_on: bool, more: int) -> None:
    async with connected_bot(message_content=switched_on) as place:
        (session,) = place.discord.gateway.live
        assert int(session.intents) == GUILDS | GUILD_MESSAGES | DIRECT_MESSAGES | more


async def test_an_intent_that_was_switched_off_in_between_is_done_without(
    worker: ConnectedBot, caplog: pytest.LogCaptureFixture
) -> None:
    listed = worker.discord.app.to_json

    def outdated_description() -> dict[str, object]:
        return {**listed(), "flags": 1 << 19}

    worker.discord.app.message_content = False
    worker.discord.app.to_json = outdated_description  # type: ignore[method-assign]
    async with worker.running():
        assert not int(worker.discord.gateway.live[0].intents) & MESSAGE_CONTENT
        await ask_in_channel(worker)
    assert "Message Content intent" in caplog.text
    assert "Fix:" in caplog.text


# Recoverable and fatal errors


async def test_a_token_that_discord_does_not_know_ends_the_listener_with_a_fix(worker: ConnectedBot) -> None:
    worker.rest.token = "wrong"
    with pytest.raises(DeliveryFailed) as told:
        await worker.listener().run(worker.engine, worker.commands)
    assert told.value.permanent
    assert "DISCORD_TOKEN" in told.value.fix


async def test_a_token_that_is_withdrawn_ends_the_listener_and_frees_the_gateway(place: ConnectedBot) -> None:
    assert place.listening is not None
    await place.discord.gateway.close(4004)
    await asyncio.wait({place.listening}, timeout=30)
    failure = place.listening.exception()
    assert isinstance(failure, DeliveryFailed)
    assert failure.permanent
    assert "DISCORD_TOKEN" in failure.fix
    assert place.leases.held == {}


async def test_a_connection_that_breaks_is_resumed_and_nothing_is_lost(place: ConnectedBot) -> None:
    await ask_in_channel(place)
    await place.discord.gateway.drop()
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} and since when?")
    await place.wait_for_messages(2)
    assert place.texts == ["why?", "and since when?"]
    assert place.discord.gateway.identify_count == 1


async def test_discord_may_ask_for_another_connection(place: ConnectedBot) -> None:
    place.discord.gateway.ask_to_reconnect()
    await place.discord.gateway.wait_for_reconnect(2)
    await ask_in_channel(place)
    assert place.discord.gateway.identify_count == 1


async def test_it_says_whether_messages_arrive_here_or_in_the_process_it_follows() -> None:
    async with connected_bot(listening=False, lease_seconds=SOON_OVER) as place:
        first, second = place.listener("one"), place.listener("two")
        assert await first.listening() is ListenerStatus.CONNECTING
        one = asyncio.create_task(first.run(place.engine, place.commands))
        await stands(first, ListenerStatus.CONNECTED)
        two = asyncio.create_task(second.run(place.engine, place.commands))
        await stands(second, ListenerStatus.STANDBY)
        await place.discord.go_down()
        await stands(first, ListenerStatus.CONNECTING)
        await place.discord.come_back()
        await stands(first, ListenerStatus.CONNECTED)
        await cancel_task(one)
        assert await first.listening() is ListenerStatus.CONNECTING
        await stands(second, ListenerStatus.CONNECTED)
        await cancel_task(two)


async def test_discord_that_is_down_is_waited_for(place: ConnectedBot) -> None:
    await place.discord.go_down()
    await place.discord.come_back()
    await place.discord.gateway.wait_for_connections()
    await ask_in_channel(place)
    assert place.listening is not None
    assert not place.listening.done()


async def test_an_outage_at_the_start_is_waited_out(worker: ConnectedBot) -> None:
    worker.discord.fail("GET /gateway/bot", Answers(503), times=6)
    async with worker.running():
        await ask_in_channel(worker)


async def test_a_day_without_sessions_left_is_waited_out_before_the_token_is_withdrawn(
    worker: ConnectedBot, caplog: pytest.LogCaptureFixture
) -> None:
    worker.discord.limits.identifies_a_day = gateway.STARTS_KEPT
    listening = asyncio.create_task(worker.listener().run(worker.engine, worker.commands))
    await worker.discord.until(lambda: "takes no more new sessions" in caplog.text)
    await cancel_task(listening)
    assert worker.discord.gateway.opened == 0


# One process at a time


async def test_one_process_receives_and_another_takes_over_when_it_stops() -> None:
    async with connected_bot(lease_seconds=SOON_OVER) as place:
        standing_by = asyncio.create_task(place.listener("two").run(place.engine, place.commands))
        try:
            asked_before = place.leases.asked
            await place.discord.until(lambda: place.leases.asked > asked_before + 3)
            assert place.discord.gateway.identify_count == 1
            await place.stop()
            await place.discord.gateway.wait_for_connections()
            assert place.leases.held[f"discord-gateway:{place.discord.app.id}"][0] == "two"
            await ask_in_channel(place)
        finally:
            await cancel_task(standing_by)


async def test_a_right_that_is_lost_closes_the_gateway_until_it_is_back() -> None:
    async with connected_bot(lease_seconds=SOON_OVER) as place:
        name = f"discord-gateway:{place.discord.app.id}"
        place.leases.held[name] = ("another", asyncio.get_running_loop().time() + 3600)
        await place.discord.gateway.wait_for_disconnect()
        place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
        place.leases.held.clear()
        await place.discord.gateway.wait_for_connections()
        await ask_in_channel(place, "and now?")
        await place.wait_for_messages(2)
        assert sorted(place.texts) == ["and now?", "why?"]


async def test_a_database_that_is_away_for_a_moment_does_not_close_the_gateway() -> None:
    async with connected_bot(lease_seconds=3.0) as place:
        place.leases.broken = [DatabaseUnavailable("The database is away.")]
        await place.discord.until(lambda: not place.leases.broken)
        asked_before = place.leases.asked
        await place.discord.until(lambda: place.leases.asked > asked_before + 1)
        assert place.discord.gateway.opened == 1


async def test_a_database_that_stays_away_ends_the_work_before_the_lease_does() -> None:
    leases, loop = SharedLeases(), asyncio.get_running_loop()
    lasted: list[float] = []

    async def work() -> None:
        began = loop.time()
        leases.broken = [DatabaseUnavailable("The database is away.")] * 1000
        try:
            await asyncio.Event().wait()
        finally:
            lasted.append(loop.time() - began)

    task = asyncio.create_task(ListenerLease(leases, "gateway", "one", "receiving", seconds=3.0).run_while_held(work))
    async with asyncio.timeout(15):
        while not lasted:
            await asyncio.sleep(0.01)
    await cancel_task(task)
    assert lasted[0] < 3.0


# Missed messages


async def test_messages_of_a_downtime_are_read_afterwards(place: ConnectedBot) -> None:
    discord, dm = place.discord, place.discord.dm(place.priya)
    thread = await ask_in_channel(place)
    discord.say(place.priya, dm, "hello")
    await place.wait_for_messages(2)
    await place.stop()
    discord.say(place.priya, thread, "and since when?")
    discord.say(discord.user("Sam"), thread, f"{place.priya.mention} you know that")
    discord.say(place.priya, dm, "still there?")
    discord.say(place.priya, dm, "mcp list")
    place.engaged += [each.conversation for each in place.engine.received]
    async with place.running():
        await place.wait_for_messages(4)
        await place.quiet(thread)
        assert sorted(place.texts[2:]) == ["and since when?", "still there?"]
        where = {each.text: each.conversation for each in place.engine.received}
        assert where["and since when?"] == where["why?"] == place.key(place.channel, thread.id)
        assert where["still there?"] == where["hello"]
        assert place.commands.requests == []


async def test_remarks_before_the_first_question_of_a_thread_are_not_answered_after_a_downtime(
    place: ConnectedBot,
) -> None:
    discord = place.discord
    thread = discord.thread(place.priya, place.channel, "outage")
    for text in ("it is down", "really?", "I see 502s"):
        discord.say(place.priya, thread, text)
    discord.say(place.priya, thread, f"{discord.bot.mention} who deployed?")
    await place.wait_for_messages(1)
    await place.stop()
    discord.say(place.priya, thread, "and when?")
    place.engaged += [each.conversation for each in place.engine.received]
    async with place.running():
        await place.wait_for_messages(2)
        await place.quiet(thread)
        assert place.texts == ["who deployed?", "and when?"]


async def test_a_session_that_cannot_be_resumed_is_followed_by_reading_up(place: ConnectedBot) -> None:
    discord = place.discord
    thread = await ask_in_channel(place)
    place.engaged.append(place.key(place.channel, thread.id))
    (first,) = discord.gateway.live
    discord.gateway.refuses = True
    await discord.gateway.drop()
    discord.say(place.priya, thread, "and since when?")
    discord.gateway.forget_sessions()
    discord.gateway.refuses = False
    await place.wait_for_messages(2)
    assert place.texts == ["why?", "and since when?"]
    assert first not in discord.gateway.live


async def test_a_thread_that_was_opened_and_never_had_its_question_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_tasks, "GOODBYE_SECONDS", 0.2)
    async with connected_bot() as place:
        place.engine.opened.clear()
        place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
        await place.discord.until(lambda: place.engine.arrived)
        await place.stop()
        place.engine.opened.set()
        assert place.texts == []
        async with place.running("two"):
            await place.wait_for_messages(1)
            (thread,) = place.discord.threads(place.channel)
            assert place.engine.received[0].conversation == place.key(place.channel, thread.id)


async def test_a_mention_during_a_downtime_is_answered_after_the_start(place: ConnectedBot) -> None:
    discord, side = place.discord, place.discord.channel("side")
    side.forbid(discord.bot, Permission.CREATE_PUBLIC_THREADS)
    hidden = discord.channel("hidden")
    hidden.forbid(discord.bot, Permission.READ_MESSAGE_HISTORY)
    theirs = discord.thread(place.priya, place.channel, "theirs")
    before = await ask_in_channel(place, "before")
    place.engaged.append(place.key(place.channel, before.id))
    await place.stop()
    discord.clock.advance(2 * backfill.CLOCKS_DIFFER.total_seconds())
    discord.say(place.priya, place.channel, f"{discord.bot.mention} why?")
    discord.say(place.priya, place.channel, "nothing for you")
    discord.say(place.priya, side, f"{discord.bot.mention} in place?")
    discord.say(place.priya, theirs, f"{discord.bot.mention} in here?")
    discord.say(place.priya, hidden, f"{discord.bot.mention} unseen")
    discord.say(place.priya, place.channel, f"{discord.bot.mention} mcp list")
    discord.say(place.priya, place.channel, f"{discord.bot.mention}")
    async with place.running("two"):
        await place.wait_for_messages(4)
        await place.quiet(side)
        assert sorted(place.texts) == ["before", "in here?", "in place?", "why?"]
        where = {each.text: each.conversation for each in place.engine.received}
        (thread,) = [each for each in discord.threads(place.channel) if each.name == "why?"]
        assert where["why?"] == place.key(place.channel, thread.id)
        assert where["in place?"] == place.key(side)
        assert where["in here?"] == place.key(place.channel, theirs.id)
        assert place.commands.requests == []
        assert not discord.calls.failed_calls()
    await place.stop()
    place.engaged += [place.key(place.channel, thread.id), place.key(side)]
    async with place.running("three"):
        await place.quiet(side)
        assert len(place.texts) == 4  # each message once


async def test_all_messages_of_one_user_in_a_downtime_are_received(place: ConnectedBot) -> None:
    discord, dm = place.discord, place.discord.dm(place.priya)
    discord.say(place.priya, dm, "hello")
    await place.wait_for_messages(1)
    place.engaged.append(place.engine.received[0].conversation)
    await place.stop()
    said = [f"number {number}" for number in range(message_handler.AT_ONCE + 10)]
    for text in said:
        discord.say(place.priya, dm, text)
    async with place.running():
        await place.wait_for_messages(len(said) + 1)
        assert place.texts == ["hello", *said]


async def test_a_question_whose_conversation_was_deleted_is_not_asked_again(place: ConnectedBot) -> None:
    thread = await ask_in_channel(place)
    await place.draw(
        place.engine.knows(
            a_view(a_reply(0, "Because."), status=TurnStatus.DONE), place.engine.views[0].turn.conversation
        )
    )
    await place.stop()
    place.engine.forget()
    looks = ("GET /channels/{channel}/messages", "GET /channels/{channel}/messages/{message}")
    before = len(place.discord.calls.of(*looks))
    async with place.running("two"):
        await place.discord.until(lambda: len(place.discord.calls.of(*looks)) > before)
        await place.quiet()
        await place.quiet(thread)
        assert place.texts == ["why?"]


async def test_messages_older_than_a_day_are_left_alone(place: ConnectedBot) -> None:
    discord = place.discord
    thread = await ask_in_channel(place)
    await place.stop()
    discord.say(place.priya, thread, "and since when?")
    discord.clock.advance(timedelta(hours=backfill.HOURS + 1).total_seconds())
    place.engaged.append(place.key(place.channel, thread.id))
    async with place.running():
        await place.quiet(thread)
        assert place.texts == ["why?"]


async def test_discord_that_ends_every_new_session_is_not_asked_for_one_without_a_pause(
    place: ConnectedBot, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(place.discord.calls.of("GET /gateway/bot"))
    for count in range(1, gateway.HASTY + 2):
        place.discord.gateway.invalidate()
        await place.discord.gateway.wait_for_reconnect(count + 1)
    assert len(place.discord.calls.of("GET /gateway/bot")) == before + 1
    assert "ends every new session" in caplog.text
    await ask_in_channel(place)


async def test_log_lines_of_the_library_without_use_to_operators_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discord.VoiceClient, "warn_nacl", True)
    monkeypatch.setattr(discord.VoiceClient, "warn_dave", True)
    async with connected_bot() as place:
        await ask_in_channel(place)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("discord")] == []


async def test_a_connection_that_is_cut_off_before_its_first_word_leaves_no_heartbeat_behind(
    place: ConnectedBot,
) -> None:
    gate = place.discord.gateway
    opened, before = gate.opened, heartbeats()
    gate.invalidate()  # discord.py waits five seconds before the next session
    await place.discord.until(lambda: gate.opened > opened and heartbeats() - before)
    (beating,) = heartbeats() - before
    await place.stop()
    await asyncio.to_thread(beating.join, 10)
    assert not beating.is_alive()


def heartbeats() -> set[threading.Thread]:
    """Return the heartbeat threads of the library."""
    return {each for each in threading.enumerate() if each.name.startswith("keep-alive-handler")}


async def test_a_connection_that_loses_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "AGAIN_SECONDS", 0.01)
    lost = []

    async def connect() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append(True)
        await asyncio.Event().wait()

    task = asyncio.create_task(connect())
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await gateway.cancel_and_wait(task)
    assert lost
    assert task.cancelled()

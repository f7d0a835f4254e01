"""Gateway shards: one session each, distributed over the processes of the bot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from operator import ge

import pytest

from bot.chat import backfill
from bot.domain.conversations import ConversationKey
from bot.domain.health import ListenerStatus
from bot.errors import DeliveryFailed
from bot.platforms.discord import gateway
from bot.platforms.discord.app_commands import ASK_ABOUT_THIS
from bot.platforms.discord.gateway import shard_of
from tests.fakes.discord import Answer, Channel, FakeDiscord
from tests.platforms.discord.connected_bot import ConnectedBot, cancel_task, connected_bot

SHARDS = 4
COMMANDS = "PUT /applications/{application}/commands"
LEASE_SECONDS = 1.5
TURN_SECONDS = 0.1


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause between the starts of two sessions."""
    monkeypatch.setattr(gateway, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(gateway, "TURN_SECONDS", TURN_SECONDS)


@asynccontextmanager
async def a_large_bot() -> AsyncIterator[tuple[ConnectedBot, list[Channel]]]:
    """A bot for which Discord recommends shards. Each shard has a guild with Priya and a channel."""
    async with connected_bot(listening=False, lease_seconds=LEASE_SECONDS) as place:
        discord = place.discord
        discord.limits.shards = discord.limits.fewest_shards = SHARDS
        channels: dict[int, Channel] = {}
        while len(channels) < SHARDS:
            discord.clock.advance(0.001)
            guild = discord.another_guild(f"Guild {len(channels)}")
            discord.join(place.priya, guild)
            channels.setdefault(shard_of(guild.id, SHARDS), discord.channel("incidents", guild=guild))
        yield place, [channels[number] for number in range(SHARDS)]


@asynccontextmanager
async def a_process(place: ConnectedBot, name: str) -> AsyncIterator[asyncio.Task[None]]:
    listening = asyncio.create_task(place.listener(name).run(place.engine, place.commands))
    try:
        yield listening
    finally:
        await cancel_task(listening)


def holders(place: ConnectedBot) -> list[str]:
    """Return the lease holders, in the order of the shards."""
    name = f"discord-gateway:{place.discord.app.id}"
    names = [name, *(f"{name}:{number}" for number in range(1, SHARDS))]
    return [place.leases.held.get(lease, ("", 0.0))[0] for lease in names]


def began_in_turns(place: ConnectedBot, sessions: int) -> bool:
    """Return True if `sessions` sessions began, each after its granted start, and the starts are TURN_SECONDS apart."""
    turns, begun = sorted(place.quotas.starts), sorted(place.discord.gateway.identified_at)
    apart = all(later - turn > TURN_SECONDS * 0.99 for turn, later in pairwise(turns))
    return len(turns) == len(begun) == sessions and apart and all(map(ge, begun, turns))


def connected_shards(discord: FakeDiscord) -> list[tuple[int, int]]:
    return sorted(session.shard for session in discord.gateway.live)


async def all_connected(place: ConnectedBot, **shares: int) -> None:
    """Wait until each shard is connected once, and each process holds its share."""
    everything = [(number, SHARDS) for number in range(SHARDS)]
    await place.discord.until(
        lambda: (
            connected_shards(place.discord) == everything
            and {name: holders(place).count(name) for name in shares} == shares
        )
    )


async def asked_everywhere(place: ConnectedBot, channels: list[Channel], text: str) -> None:
    """Let Priya write in a guild of each shard and directly, and check that each message is received once."""
    discord = place.discord
    before = len(place.engine.received)
    for number, channel in enumerate(channels):
        discord.say(place.priya, channel, f"{discord.bot.mention} {text} {number}")
    discord.say(place.priya, discord.dm(place.priya), f"{text} directly")
    await place.wait_for_messages(before + SHARDS + 1)
    await asyncio.sleep(0.2)
    wanted = [f"{text} {number}" for number in range(SHARDS)] + [f"{text} directly"]
    assert sorted(place.texts[before:]) == sorted(wanted)


async def test_one_process_receives_all_shards_and_begins_their_sessions_apart() -> None:
    async with a_large_bot() as (place, channels), a_process(place, "one"):
        await all_connected(place, one=SHARDS)
        await asked_everywhere(place, channels, "why")
        discord = place.discord
        assert began_in_turns(place, SHARDS)
        for channel in channels:
            said = discord.say(place.priya, channel, "checkout is broken")
            assert (await discord.shortcut(place.priya, ASK_ABOUT_THIS, said)).answered is Answer.MODAL
        assert len(discord.calls.of(COMMANDS)) == 1


async def test_two_processes_share_the_shards_and_one_that_stops_leaves_its_own() -> None:
    async with a_large_bot() as (place, channels):
        async with a_process(place, "one") as first:
            await all_connected(place, one=SHARDS)
            async with a_process(place, "two"):
                await all_connected(place, one=2, two=2)
                await asked_everywhere(place, channels, "why")
                await cancel_task(first)
                await all_connected(place, two=SHARDS)
                await asked_everywhere(place, channels, "and since when")
        assert place.leases.held == {}
        assert began_in_turns(place, 2 * SHARDS)


async def test_all_processes_use_the_number_of_shards_of_the_first() -> None:
    async with a_large_bot() as (place, _), a_process(place, "one"):
        await all_connected(place, one=SHARDS)
        place.discord.limits.shards = 2 * SHARDS
        async with a_process(place, "two"):
            await all_connected(place, one=2, two=2)


async def test_too_few_shards_end_the_listener_with_a_fix() -> None:
    async with a_large_bot() as (place, _):
        place.discord.limits.fewest_shards = 2 * SHARDS
        with pytest.raises(DeliveryFailed) as failure:
            await place.listener().run(place.engine, place.commands)
        assert failure.value.permanent
        assert "restart" in failure.value.fix


async def test_a_process_without_a_shard_stands_by() -> None:
    async with connected_bot(lease_seconds=LEASE_SECONDS) as place:
        listener = place.listener("two")
        listening = asyncio.create_task(listener.run(place.engine, place.commands))
        async with asyncio.timeout(30):
            while await listener.listening() is not ListenerStatus.STANDBY:
                await asyncio.sleep(0.01)
        (identify,) = [payload["d"] for payload in place.discord.gateway.connections[0].heard if payload["op"] == 2]
        assert "shard" not in identify
        await cancel_task(listening)


async def test_missed_messages_are_read_by_the_shard_that_missed_them() -> None:
    async with a_large_bot() as (place, channels):
        discord = place.discord
        dm = discord.dm(place.priya)
        async with a_process(place, "one"):
            await all_connected(place, one=SHARDS)
            await asked_everywhere(place, channels, "why")
        place.engaged += [message.conversation for message in place.engine.received]
        discord.clock.advance(2 * backfill.CLOCKS_DIFFER.total_seconds())
        for channel in channels:
            discord.say(place.priya, channel, f"{discord.bot.mention} anybody?")
        discord.say(place.priya, dm, "hello?")
        async with a_process(place, "two"):
            await place.wait_for_messages(2 * (SHARDS + 1))
            assert sorted(place.texts[SHARDS + 1 :]) == ["anybody?"] * SHARDS + ["hello?"]
            where: dict[str, ConversationKey] = {
                message.text: message.conversation for message in place.engine.received
            }
            assert where["hello?"].channel == dm.id

"""The gateway's protocol over a plain websocket: beginning, resuming, being thrown out."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord.intents import Intent

USUAL = int(Intent.GUILDS | Intent.GUILD_MESSAGES | Intent.DIRECT_MESSAGES)
CONTENT = USUAL | int(Intent.MESSAGE_CONTENT)


class Line:
    """One connection of an app that speaks the protocol by hand."""

    def __init__(self, discord: FakeDiscord, socket: ClientWebSocketResponse) -> None:
        self._discord, self.socket = discord, socket

    async def send(self, op: int, data: Any) -> None:
        await self.socket.send_json({"op": op, "d": data})

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            heard: dict[str, Any] = await self.socket.receive_json()
            return heard

    async def event(self, name: str) -> dict[str, Any]:
        """The next event of this name with its number."""
        while True:
            heard = await self.hear()
            if heard["t"] == name:
                return heard

    async def closed(self) -> int:
        """The code with which it is closed."""
        async with asyncio.timeout(30):
            while (await self.socket.receive()).type is WSMsgType.TEXT:
                pass
        assert self.socket.close_code is not None
        return self.socket.close_code

    async def identify(self, intents: int = CONTENT, **more: Any) -> dict[str, Any]:
        """Begin a session; returns READY's data."""
        properties = {"os": "linux", "browser": "test", "device": "test"}
        await self.send(2, {"token": self._discord.token, "intents": intents, "properties": properties} | more)
        ready: dict[str, Any] = (await self.event("READY"))["d"]
        return ready

    async def resume(self, session: str, seq: int) -> None:
        await self.send(6, {"token": self._discord.token, "session_id": session, "seq": seq})


@asynccontextmanager
async def line(discord: FakeDiscord, session: ClientSession) -> AsyncIterator[Line]:
    """A connection that has heard HELLO."""
    async with session.ws_connect(f"{discord.world.gateway_url}?v=10&encoding=json") as socket:
        opened = Line(discord, socket)
        hello = await opened.hear()
        assert (hello["op"], hello["d"]["heartbeat_interval"]) == (10, 41250)
        yield opened


async def test_a_session_begins_with_ready_and_the_guilds(discord: FakeDiscord, session: ClientSession) -> None:
    room = discord.channel("general")
    async with line(discord, session) as opened:
        ready = await opened.identify()
        assert ready["guilds"] == [{"id": discord.guild.id, "unavailable": True}]
        assert ready["resume_gateway_url"] == discord.world.gateway_url
        guild = (await opened.event("GUILD_CREATE"))["d"]
        assert [channel["id"] for channel in guild["channels"]] == [room.id]
        assert [member["user"]["id"] for member in guild["members"]] == [discord.bot.id]
    assert discord.gateway.identified == 1


async def test_a_heartbeat_is_answered_unless_the_line_is_dead(discord: FakeDiscord, session: ClientSession) -> None:
    async with line(discord, session) as opened:
        await opened.send(1, None)
        assert (await opened.hear())["op"] == 11
        discord.gateway.connections[0].muted = True
        await opened.send(1, None)
        await discord.until(lambda: len(discord.gateway.connections[0].heard) == 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await opened.hear()


@pytest.mark.parametrize(
    ("op", "data", "code"),
    [
        (2, {"token": "wrong", "intents": USUAL, "properties": {}}, 4004),
        (2, {"token": "", "intents": 1 << 40, "properties": {}}, 4013),
        (2, {"token": "", "intents": USUAL | int(Intent.GUILD_MEMBERS), "properties": {}}, 4014),
        (6, {"token": "wrong", "session_id": "x", "seq": 0}, 4004),
        (8, {"guild_id": "1"}, 4003),
        (3, {}, 4003),
    ],
)
async def test_what_is_not_allowed_closes_the_connection(
    discord: FakeDiscord, session: ClientSession, op: int, data: dict[str, Any], code: int
) -> None:
    async with line(discord, session) as opened:
        given = data | ({"token": discord.token} if data.get("token") == "" else {})
        await opened.send(op, given)
        assert await opened.closed() == code
    assert discord.gateway.identified == 0


async def test_message_content_must_be_switched_on(discord: FakeDiscord, session: ClientSession) -> None:
    discord.app.message_content = False
    async with line(discord, session) as opened:
        await opened.send(2, {"token": discord.token, "intents": CONTENT, "properties": {}})
        assert await opened.closed() == 4014


async def test_identifying_twice_unknown_opcodes_and_nonsense_close(
    discord: FakeDiscord, session: ClientSession
) -> None:
    async with line(discord, session) as opened:
        await opened.identify()
        await opened.send(2, {"token": discord.token, "intents": USUAL, "properties": {}})
        assert await opened.closed() == 4005
    async with line(discord, session) as opened:
        await opened.identify()
        await opened.send(99, {})
        assert await opened.closed() == 4001
    for nonsense in ("{", json.dumps({"op": 1, "d": "x" * 4096})):
        async with line(discord, session) as opened:
            await opened.socket.send_str(nonsense)
            assert await opened.closed() == 4002


async def test_more_than_so_many_payloads_a_minute_close(discord: FakeDiscord, session: ClientSession) -> None:
    discord.limits.gateway_sends = 3
    async with line(discord, session) as opened:
        for _ in range(4):
            await opened.send(1, None)
        assert await opened.closed() == 4008


async def test_events_go_to_who_asked_for_them(discord: FakeDiscord, session: ClientSession) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    async with line(discord, session) as opened:
        await opened.identify(int(Intent.GUILDS | Intent.DIRECT_MESSAGES))
        discord.say(ana, room, "not heard")
        discord.say(ana, discord.dm(ana), "heard")
        assert (await opened.event("MESSAGE_CREATE"))["d"]["content"] == "heard"


async def test_content_is_withheld_without_the_intent(discord: FakeDiscord, session: ClientSession) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    async with line(discord, session) as opened:
        await opened.identify(USUAL)
        discord.say(ana, room, "among us", files=[("a.txt", b"x")])
        discord.say(ana, room, f"{discord.bot.mention} hello")
        among, mention = (await opened.event("MESSAGE_CREATE"))["d"], (await opened.event("MESSAGE_CREATE"))["d"]
        assert (among["content"], among["attachments"]) == ("", [])
        assert among["author"]["id"] == ana.id
        assert (mention["content"], mention["member"]["roles"]) == (f"{discord.bot.mention} hello", [])


async def test_the_app_hears_nothing_from_where_it_does_not_see(discord: FakeDiscord, session: ClientSession) -> None:
    ana = discord.user("Ana")
    secret, room = discord.channel("secret", ana, with_bot=False), discord.channel("general")
    async with line(discord, session) as opened:
        await opened.identify()
        discord.say(ana, discord.thread(ana, secret, "more"), "not heard")
        discord.say(ana, secret, "not heard")
        discord.say(ana, discord.thread(ana, room, "more"), "heard")
        messages = [(await opened.event("MESSAGE_CREATE"))["d"] for _ in range(2)]
        assert [(message["type"], message["content"]) for message in messages] == [(18, "more"), (0, "heard")]


async def test_a_session_is_resumed_with_what_was_missed(discord: FakeDiscord, session: ClientSession) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    async with line(discord, session) as opened:
        ready = await opened.identify()
        discord.say(ana, room, "one")
        seq = (await opened.event("MESSAGE_CREATE"))["s"]
        await discord.gateway.drop()
    discord.say(ana, room, "two")
    async with line(discord, session) as opened:
        await opened.resume(ready["session_id"], seq)
        missed = await opened.hear()
        assert (missed["d"]["content"], missed["s"]) == ("two", seq + 1)
        assert (await opened.hear())["t"] == "RESUMED"
        discord.say(ana, room, "three")
        assert (await opened.hear())["d"]["content"] == "three"
    assert (discord.gateway.identified, discord.gateway.resumed) == (1, 1)


async def test_a_session_that_is_gone_cannot_be_resumed(discord: FakeDiscord, session: ClientSession) -> None:
    async with line(discord, session) as opened:
        ready = await opened.identify()
        await opened.socket.close(code=1000)
    await discord.gateway.disconnected()
    async with line(discord, session) as opened:
        await opened.resume(ready["session_id"], 1)
        answer = await opened.hear()
        assert (answer["op"], answer["d"]) == (9, False)


@pytest.mark.parametrize("forgotten", [True, False])
async def test_a_session_is_kept_for_a_while(
    discord: FakeDiscord,
    session: ClientSession,
    forgotten: bool,
) -> None:
    async with line(discord, session) as opened:
        ready = await opened.identify()
        await opened.socket.close(code=4000)
    await discord.gateway.disconnected()
    discord.clock.advance(discord.limits.resume_within + (1 if forgotten else -1))
    async with line(discord, session) as opened:
        await opened.resume(ready["session_id"], 1)
        assert {each["op"] for each in [await opened.hear()]} == ({9} if forgotten else {0})


async def test_a_number_from_the_future_is_refused(discord: FakeDiscord, session: ClientSession) -> None:
    async with line(discord, session) as opened:
        ready = await opened.identify()
        await discord.gateway.drop()
    async with line(discord, session) as opened:
        await opened.resume(ready["session_id"], 999)
        assert await opened.closed() == 4007


async def test_being_told_to_reconnect_and_being_invalidated(discord: FakeDiscord, session: ClientSession) -> None:
    async with line(discord, session) as opened:
        ready = await opened.identify()
        await opened.event("GUILD_CREATE")
        discord.gateway.ask_to_reconnect()
        assert (await opened.hear())["op"] == 7
        discord.gateway.invalidate(resumable=True)
        answer = await opened.hear()
        assert (answer["op"], answer["d"]) == (9, True)
        discord.gateway.invalidate()
        assert (await opened.hear())["d"] is False
    async with line(discord, session) as opened:
        await opened.resume(ready["session_id"], 1)
        assert (await opened.hear())["op"] == 9


async def test_two_sessions_both_get_everything(discord: FakeDiscord, session: ClientSession) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    async with line(discord, session) as first, line(discord, session) as second:
        await first.identify()
        await second.identify()
        discord.say(ana, room, "hello")
        for each in (first, second):
            assert (await each.event("MESSAGE_CREATE"))["d"]["content"] == "hello"


async def test_a_message_can_be_delivered_twice(discord: FakeDiscord, session: ClientSession) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    async with line(discord, session) as opened:
        await opened.identify()
        discord.again(discord.say(ana, room, "hello"))
        first, second = await opened.event("MESSAGE_CREATE"), await opened.event("MESSAGE_CREATE")
        assert first["d"] == second["d"]
        assert second["s"] == first["s"] + 1


async def test_members_are_asked_for_by_id_without_an_intent(discord: FakeDiscord, session: ClientSession) -> None:
    ana = discord.user("Ana")
    async with line(discord, session) as opened:
        await opened.identify()
        await opened.send(8, {"guild_id": discord.guild.id, "user_ids": [ana.id, "1"], "limit": 0, "nonce": "n"})
        chunk = (await opened.event("GUILD_MEMBERS_CHUNK"))["d"]
        assert ([each["user"]["id"] for each in chunk["members"]], chunk["not_found"]) == ([ana.id], ["1"])
        await opened.send(8, {"guild_id": discord.guild.id, "query": "", "limit": 0})
        assert await opened.closed() == 4014


async def test_what_happens_to_people_and_places_is_told(discord: FakeDiscord, session: ClientSession) -> None:
    discord.app.guild_members = True
    async with line(discord, session) as opened:
        await opened.identify(CONTENT | int(Intent.GUILD_MEMBERS | Intent.GUILD_MESSAGE_REACTIONS))
        ana, room = discord.user("Ana"), discord.channel("general")
        discord.give(ana, discord.role("ops"))
        message = discord.say(ana, room, "hello")
        discord.react(ana, message, "👍")
        discord.edit(message, "hello again")
        thread = discord.thread(ana, room, "more", message)
        discord.archive(thread)
        discord.delete(message)
        discord.remove(thread)
        discord.leave(ana)
        discord.expel(discord.guild)
        heard: list[str] = []
        while not heard or heard[-1] != "GUILD_DELETE":
            heard.append((await opened.hear())["t"])
        assert heard == [
            *("GUILD_CREATE", "GUILD_MEMBER_ADD", "CHANNEL_CREATE", "GUILD_ROLE_CREATE", "GUILD_MEMBER_UPDATE"),
            *("MESSAGE_CREATE", "MESSAGE_REACTION_ADD", "MESSAGE_UPDATE", "THREAD_CREATE", "MESSAGE_UPDATE"),
            *("THREAD_UPDATE", "MESSAGE_DELETE", "THREAD_DELETE", "GUILD_MEMBER_REMOVE", "GUILD_DELETE"),
        ]


async def test_frames_are_compressed_for_who_asks_for_it(discord: FakeDiscord, session: ClientSession) -> None:
    async with session.ws_connect(f"{discord.world.gateway_url}?v=10&encoding=json&compress=zlib-stream") as socket:
        unpacked = zlib.decompressobj().decompress(await socket.receive_bytes())
        assert json.loads(unpacked)["op"] == 10


async def test_a_gateway_that_is_down_refuses_and_an_old_version_is_noted(
    discord: FakeDiscord, session: ClientSession
) -> None:
    with pytest.raises(WSServerHandshakeError):
        await session.ws_connect(f"{discord.world.gateway_url}?v=9&encoding=json")
    assert discord.unknown
    discord.unknown.clear()
    discord.gateway.refuses = True
    with pytest.raises(WSServerHandshakeError):
        await session.ws_connect(f"{discord.world.gateway_url}?v=10&encoding=json")

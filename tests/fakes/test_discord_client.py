"""The real discord.py at the fake Discord: it logs in, connects, resumes, and everything people do reaches it."""

from __future__ import annotations

import asyncio

import discord as discord_py
import pytest

from tests.fakes.discord import Answers, FakeDiscord, Message, TooMany
from tests.fakes.discord_py_app import Approve, connected, drawn

POST = "POST /channels/{channel}/messages"


async def test_it_logs_in_registers_its_commands_and_is_ready(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(discord, monkeypatch) as app:
        assert [guild.id for guild in app.guilds] == [int(discord.guild.id)]
        assert {command["name"] for command in discord.app.commands[""]} == {"mcp", "Ask about this"}
        assert app.application_flags.gateway_message_content_limited
    assert discord.gateway.identified == 1
    assert discord.calls.refused() == []


async def test_a_wrong_token_fails_at_the_door(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(discord, monkeypatch):
        pass
    async with discord_py.Client(intents=discord_py.Intents.none()) as stranger:
        with pytest.raises(discord_py.LoginFailure):
            await stranger.login("wrong")


async def test_an_intent_that_is_off_is_refused(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    discord.app.message_content = False
    with pytest.raises(discord_py.PrivilegedIntentsRequired):
        async with connected(discord, monkeypatch):
            pass


async def test_a_mention_is_answered_in_a_thread_with_edits_cards_and_files(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        asked = discord.say(ana, room, f"{discord.bot.mention} why?", files=[("a.txt", b"the log")])
        await discord.until(lambda: app.said)
        message = app.said[0]
        assert app.user in message.mentions
        assert await message.attachments[0].read() == b"the log"
        thread = await message.create_thread(name="why?")
        first = await thread.send("thinking", nonce="t1")
        again = await thread.send("thinking", nonce="t1")
        assert first.id == again.id
        await first.edit(content="because of @everyone", suppress=True)
        await thread.send(view=drawn("### Create Issue", Approve("7")))
        await thread.send(file=discord_py.File(__file__, "b.py"))
        assert asked.thread is not None
        seen = discord.what_user_sees(ana, asked.thread)[1:]
        assert [sight.content for sight in seen] == ["because of @everyone", "", ""]
        assert (seen[0].edited, seen[0].pings, seen[1].buttons) == (True, frozenset(), ["Approve"])
        assert seen[2].files == ["b.py"]


async def test_a_press_reaches_a_dynamic_item_also_after_a_restart(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        channel = app.get_channel(int(room.id))
        assert isinstance(channel, discord_py.TextChannel)
        await channel.send(view=drawn("### Create Issue", Approve("7")))
    card: Message = discord.posted(room)[-1]
    async with connected(discord, monkeypatch):
        pressed = await discord.press(ana, card, "Approve")
    assert not pressed.failed
    assert discord.what_user_sees(ana, room)[-1].words == "approved 7"


async def test_nobody_answers_a_press_while_the_app_is_away(discord: FakeDiscord) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    button = {"type": 2, "style": 1, "label": "Approve", "custom_id": "x", "id": 2}
    card = discord.say(discord.bot, room, "card")
    card.components = [{"type": 1, "id": 1, "components": [button]}]
    discord.limits.answer_within = 0.02
    assert (await discord.press(ana, card, "Approve")).failed


async def test_a_command_is_completed_typed_deferred_and_answered(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch):
        assert await discord.suggest(ana, "mcp show", room, "server", "gi") == [{"name": "github", "value": "github"}]
        typed = await discord.command(ana, "mcp show", room, {"server": "github"})
        await discord.until(lambda: not typed.messages[0].loading)
        sight = discord.what_user_sees(ana, room)[-1]
        assert (sight.words, sight.ephemeral) == ("this is github", True)


async def test_a_modal_is_opened_and_submitted(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch):
        await discord.command(ana, "mcp add", room)
        assert discord.modal(ana).title == "Add"
        assert (await discord.submit(ana, {"Name": "github", "Kind": "Http"})).text == "added github over http"


async def test_a_context_menu_shows_the_message(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch):
        message = discord.say(discord.user("Sam"), room, "a question")
        assert (await discord.shortcut(ana, "Ask about this", message)).text == "about a question"


async def test_it_resumes_after_a_broken_line_and_a_request_to_reconnect(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        await discord.gateway.drop()
        discord.say(ana, room, "meanwhile")
        await discord.until(lambda: "resumed" in app.heard)
        discord.gateway.ask_to_reconnect()
        await discord.until(lambda: app.heard.count("resumed") == 2)
        assert "meanwhile" in app.heard
    assert (discord.gateway.identified, discord.gateway.resumed) == (1, 2)


async def test_it_identifies_again_when_its_session_is_gone(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, room = discord.user("Ana"), discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        discord.gateway.invalidate()
        discord.say(ana, room, "lost")
        await discord.until(lambda: app.heard.count("ready") == 2)
        discord.say(ana, room, "heard")
        await discord.until(lambda: "heard" in app.heard)
        assert "lost" not in app.heard
    assert discord.gateway.identified == 2


async def test_it_waits_as_long_as_discord_says(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    room = discord.channel("incidents")
    discord.pace.per_bucket[POST] = (2, 0.1)
    async with connected(discord, monkeypatch) as app:
        channel = app.get_channel(int(room.id))
        assert isinstance(channel, discord_py.TextChannel)
        discord.fail(POST, TooMany(0.01))
        await channel.send("patience")
        assert [call.outcome for call in discord.calls.of(POST)] == ["limited", "ok"]
        await asyncio.gather(*(channel.send(str(n)) for n in range(4)))
        assert len(discord.posted(room)) == 5
        assert [call.outcome for call in discord.calls.of(POST)[2:]] == ["ok"] * 4


async def test_a_refusal_carries_its_code_and_a_page_of_cloudflares_none(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        channel = app.get_channel(int(room.id))
        assert isinstance(channel, discord_py.TextChannel)
        with pytest.raises(discord_py.HTTPException) as refused:
            await channel.send("x" * 2001)
        assert (refused.value.status, refused.value.code) == (400, 50035)
        discord.fail(POST, Answers(503))
        with pytest.raises(discord_py.DiscordServerError) as broken:
            await channel.send("x")
        assert broken.value.code == 0


async def test_an_old_message_ends_in_429_after_the_client_has_tried_again(
    discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = discord.channel("incidents")
    async with connected(discord, monkeypatch) as app:
        channel = app.get_channel(int(room.id))
        assert isinstance(channel, discord_py.TextChannel)
        message = await channel.send("x")
        discord.clock.advance(3601)
        discord.limits.old_edits, discord.limits.old_edit_window = 0, 0.01
        with pytest.raises(discord_py.HTTPException) as refused:
            await message.edit(content="y")
        assert (refused.value.status, refused.value.code) == (429, 30046)

"""Channels, threads, direct conversations and what the app may do in them."""

from __future__ import annotations

import pytest

from tests.fakes.discord import FakeDiscord, Kind, Permission
from tests.fakes.discord_api import DiscordApi


async def test_a_channel_the_app_does_not_see_is_no_access(discord: FakeDiscord, api: DiscordApi) -> None:
    ana = discord.user("Ana")
    room = discord.channel("secret", ana, with_bot=False)
    assert (await api.post(room, {"content": "hi"})).refusal == (403, 50001)
    assert (await api.call("GET", f"/channels/{room.id}")).refusal == (403, 50001)
    assert (await api.call("GET", f"/channels/{room.id}/messages")).refusal == (403, 50001)


async def test_a_private_channel_is_for_those_it_is_for(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, sam = discord.user("Ana"), discord.user("Sam")
    room = discord.channel("secret", ana)
    await api.posted(room)
    assert len(discord.what_user_sees(ana, room)) == 1
    assert discord.what_user_sees(sam, room) == []


MISSED: list[tuple[Permission, str, str, dict[str, str] | None]] = [
    (Permission.SEND_MESSAGES, "POST", "/messages", {"content": "hi"}),
    (Permission.SEND_MESSAGES, "POST", "/typing", None),
    (Permission.CREATE_PUBLIC_THREADS, "POST", "/messages/{message}/threads", {"name": "x"}),
    (Permission.READ_MESSAGE_HISTORY, "GET", "/messages/{message}", None),
    (Permission.MANAGE_CHANNELS, "PATCH", "", {"name": "x"}),
]


@pytest.mark.parametrize("case", MISSED)
async def test_each_permission_is_missed_where_it_is_needed(
    discord: FakeDiscord, api: DiscordApi, case: tuple[Permission, str, str, dict[str, str] | None]
) -> None:
    permission, method, path, body = case
    room = discord.channel("general")
    message = discord.say(discord.user("Ana"), room, "hi")
    room.forbid(discord.bot, permission)
    said = await api.call(method, f"/channels/{room.id}" + path.format(message=message.id), body)
    assert said.refusal == (403, 50013)


async def test_without_the_permission_no_file_is_taken(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    room.forbid(discord.bot, Permission.ATTACH_FILES)
    assert (await api.post(room, {}, [("a.txt", b"x")])).refusal == (403, 50013)


async def test_history_that_may_not_be_read_is_empty_and_cannot_be_replied_to(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    room = discord.channel("general")
    asked = discord.say(discord.user("Ana"), room, "why?")
    room.forbid(discord.bot, Permission.READ_MESSAGE_HISTORY)
    assert (await api.call("GET", f"/channels/{room.id}/messages")).body == []
    reply = {"content": "because", "message_reference": {"message_id": asked.id}}
    assert (await api.post(room, reply)).refusal == (400, 160002)


async def test_roles_and_overwrites_add_up_as_discord_says(discord: FakeDiscord) -> None:
    now, room = discord.clock.now(), discord.channel("general")
    ops = discord.role("ops", permissions=Permission.MANAGE_MESSAGES)
    ana, boss = discord.user("Ana", ops), discord.user("Boss", admin=True)
    assert room.permissions(ana, now) & Permission.MANAGE_MESSAGES
    room.forbid(ops, Permission.SEND_MESSAGES, Permission.MANAGE_MESSAGES)
    assert not room.permissions(ana, now) & Permission.SEND_MESSAGES
    room.permit(ana, Permission.SEND_MESSAGES)
    assert room.permissions(ana, now) & Permission.SEND_MESSAGES
    room.forbid(discord.guild.everyone, Permission.VIEW_CHANNEL)
    assert room.permissions(ana, now) == Permission(0)
    assert room.permissions(boss, now) & Permission.SEND_MESSAGES


async def test_who_is_timed_out_only_reads(discord: FakeDiscord) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    discord.time_out(ana, 60)
    assert room.permissions(ana, discord.clock.now()) == Permission.VIEW_CHANNEL | Permission.READ_MESSAGE_HISTORY
    discord.clock.advance(61)
    assert room.permissions(ana, discord.clock.now()) & Permission.SEND_MESSAGES


async def test_a_member_tells_roles_screening_and_timeout(discord: FakeDiscord, api: DiscordApi) -> None:
    ops = discord.role("ops")
    ana = discord.user("Ana", ops, pending=True)
    discord.time_out(ana, 60)
    said = await api.call("GET", f"/guilds/{discord.guild.id}/members/{ana.id}")
    assert said.body["user"]["id"] == ana.id
    assert (said.body["roles"], said.body["pending"]) == ([ops.id], True)
    assert said.body["communication_disabled_until"]
    discord.leave(ana)
    gone = await api.call("GET", f"/guilds/{discord.guild.id}/members/{ana.id}")
    assert gone.refusal == (404, 10007)


async def test_members_are_listed_only_with_the_intent(discord: FakeDiscord, api: DiscordApi) -> None:
    path = f"/guilds/{discord.guild.id}/members"
    assert (await api.call("GET", path)).refusal == (403, 50001)
    discord.app.guild_members = True
    assert len((await api.call("GET", path, query={"limit": "10"})).body) == 2


async def test_a_guild_has_roles_channels_and_an_owner(discord: FakeDiscord, api: DiscordApi) -> None:
    discord.channel("general")
    boss, path = discord.user("Boss", owner=True), f"/guilds/{discord.guild.id}"
    assert (await api.call("GET", path)).body["owner_id"] == boss.id
    assert {role["name"] for role in (await api.call("GET", f"{path}/roles")).body} == {"@everyone", "Countersign"}
    assert [channel["name"] for channel in (await api.call("GET", f"{path}/channels")).body] == ["general"]


async def test_guilds_of_the_app_are_paged(discord: FakeDiscord, api: DiscordApi) -> None:
    second = discord.another_guild("Second")
    discord.another_guild("Elsewhere", with_bot=False)
    assert [g["id"] for g in (await api.call("GET", "/users/@me/guilds")).body] == [discord.guild.id, second.id]
    paged = await api.call("GET", "/users/@me/guilds", query={"after": discord.guild.id, "limit": "1"})
    assert [g["id"] for g in paged.body] == [second.id]


async def test_a_thread_has_the_id_of_its_message_and_only_one_fits(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    asked = discord.say(discord.user("Ana"), room, "why?")
    path = f"/channels/{room.id}/messages/{asked.id}/threads"
    opened = await api.call("POST", path, {"name": "why?", "auto_archive_duration": 1440})
    assert opened.status == 201
    assert (opened.body["id"], opened.body["parent_id"]) == (asked.id, room.id)
    assert (await api.call("POST", path, {"name": "again"})).refusal == (400, 160004)
    assert asked.thread is discord.threads(room)[0]
    active = await api.call("GET", f"/guilds/{discord.guild.id}/threads/active")
    assert [thread["id"] for thread in active.body["threads"]] == [asked.id]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"name": ""}, {"name": "BASE_TYPE_REQUIRED"}),
        ({"name": "x" * 101}, {"name": "BASE_TYPE_BAD_LENGTH"}),
        ({"name": "x", "auto_archive_duration": 61}, {"auto_archive_duration": "BASE_TYPE_CHOICES"}),
    ],
)
async def test_a_thread_needs_a_name_and_a_known_duration(
    discord: FakeDiscord, api: DiscordApi, body: dict[str, object], error: dict[str, str]
) -> None:
    room = discord.channel("general")
    asked = discord.say(discord.user("Ana"), room, "why?")
    assert (await api.call("POST", f"/channels/{room.id}/messages/{asked.id}/threads", body)).errors == error


async def test_threads_open_only_in_channels_that_have_them(discord: FakeDiscord, api: DiscordApi) -> None:
    ana = discord.user("Ana")
    for place in (discord.dm(ana), discord.channel("talk", kind=Kind.VOICE)):
        asked = discord.say(ana, place, "why?")
        said = await api.call("POST", f"/channels/{place.id}/messages/{asked.id}/threads", {"name": "x"})
        assert said.refusal == (400, 50024)
    assert (await api.post(discord.channel("files", kind=Kind.CATEGORY), {"content": "x"})).refusal == (400, 50008)


async def test_posting_opens_an_archived_thread_and_editing_does_not(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    thread = discord.thread(ana, room, "why?", discord.say(ana, room, "why?"))
    message = await api.posted(thread)
    discord.archive(thread)
    assert (await api.edit(message, {"content": "more"})).refusal == (400, 50083)
    assert thread.archived
    await api.posted(thread)
    assert not thread.archived


async def test_a_locked_thread_takes_nothing_from_the_app(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    thread = discord.thread(ana, room, "why?")
    discord.archive(thread, locked=True)
    assert (await api.post(thread, {"content": "hi"})).refusal == (400, 50083)
    discord.bot_role.permissions |= Permission.MANAGE_THREADS
    assert (await api.post(thread, {"content": "hi"})).status == 200


async def test_speaking_in_a_thread_needs_the_permission_for_threads(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    thread = discord.thread(ana, room, "why?")
    room.forbid(discord.bot, Permission.SEND_MESSAGES)
    assert (await api.post(thread, {"content": "hi"})).status == 200
    room.forbid(discord.bot, Permission.SEND_MESSAGES_IN_THREADS)
    assert (await api.post(thread, {"content": "hi"})).refusal == (403, 50013)


async def test_the_app_changes_a_thread_of_its_own_and_reopens_any_that_is_not_locked(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    path = f"/channels/{room.id}/threads"
    mine = (await api.call("POST", path, {"name": "mine", "type": 11})).body["id"]
    discord.archive(discord.threads(room)[0])
    assert (await api.call("PATCH", f"/channels/{mine}", {"archived": False})).status == 200
    theirs = discord.thread(ana, room, "theirs")
    discord.archive(theirs)
    assert (await api.call("PATCH", f"/channels/{theirs.id}", {"name": "x"})).refusal == (403, 50013)
    assert (await api.call("PATCH", f"/channels/{theirs.id}", {"archived": False})).status == 200
    discord.archive(theirs, locked=True)
    assert (await api.call("PATCH", f"/channels/{theirs.id}", {"archived": False})).refusal == (403, 50013)


async def test_a_direct_conversation_is_one_and_not_with_who_takes_none(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, stranger = discord.user("Ana"), discord.user("Una", stranger=True)
    opened = [(await api.call("POST", "/users/@me/channels", {"recipient_id": ana.id})).body["id"] for _ in range(2)]
    assert opened == [discord.dm(ana).id] * 2
    assert (await api.post(discord.dm(ana), {"content": "hi"})).status == 200
    ana.takes_dms = False
    assert (await api.post(discord.dm(ana), {"content": "hi"})).refusal == (403, 50007)
    assert (await api.post(discord.dm(stranger), {"content": "hi"})).refusal == (403, 50007)
    robot = discord.other_bot()
    assert (await api.call("POST", "/users/@me/channels", {"recipient_id": robot.id})).refusal == (403, 50007)


async def test_content_is_withheld_over_rest_as_well_where_the_intent_is_off(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    discord.app.message_content = False
    said = [
        discord.say(ana, room, "among us", files=[("a.txt", b"x")]),
        discord.say(ana, room, f"{discord.bot.mention} hello"),
        discord.say(ana, discord.dm(ana), "for you"),
        await api.posted(room, "mine"),
    ]
    said.append(discord.reply(ana, said[3], "with a ping"))
    said.append(discord.reply(ana, said[3], "without", ping=False))
    read = [(await api.call("GET", f"/channels/{m.channel.id}/messages/{m.id}")).body["content"] for m in said]
    assert read == ["", f"{discord.bot.mention} hello", "for you", "mine", "with a ping", ""]


@pytest.mark.parametrize(("large", "flag"), [(False, 1 << 19), (True, 1 << 18)])
async def test_the_application_tells_which_intents_are_switched_on(
    discord: FakeDiscord, api: DiscordApi, large: bool, flag: int
) -> None:
    discord.app.large = large
    for path in ("/applications/@me", "/oauth2/applications/@me"):
        assert (await api.call("GET", path)).body["flags"] == flag
    discord.app.message_content = False
    assert (await api.call("GET", "/applications/@me")).body["flags"] == 0


async def test_the_gateway_tells_its_address_and_how_often_one_may_identify(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    assert (await api.call("GET", "/gateway", token="")).body == {"url": discord.world.gateway_url}
    limit = (await api.call("GET", "/gateway/bot")).body["session_start_limit"]
    assert (limit["total"], limit["remaining"], limit["max_concurrency"]) == (1000, 1000, 1)


async def test_a_guild_that_put_the_app_out_is_unknown(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    discord.expel(discord.guild)
    assert (await api.call("GET", f"/guilds/{discord.guild.id}")).refusal == (404, 10004)
    assert (await api.post(room, {"content": "hi"})).refusal == (404, 10003)

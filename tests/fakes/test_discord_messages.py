"""Messages over REST: what Discord takes, what it refuses, what people then see and whom it calls."""

from __future__ import annotations

import pytest

from tests.fakes.discord import FakeDiscord, Flag, Permission
from tests.fakes.discord_api import DiscordApi


async def test_content_of_two_thousand_characters_is_taken_and_one_more_refused(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    room = discord.channel("general")
    assert (await api.post(room, {"content": "x" * 2000})).status == 200
    refused = await api.post(room, {"content": "x" * 2001})
    assert refused.refusal == (400, 50035)
    assert refused.errors == {"content": "BASE_TYPE_MAX_LENGTH"}


@pytest.mark.parametrize("body", [{}, {"content": ""}, {"content": "  \n"}, {"embeds": []}])
async def test_an_empty_message_is_refused(discord: FakeDiscord, api: DiscordApi, body: dict[str, object]) -> None:
    assert (await api.post(discord.channel("general"), body)).refusal == (400, 50006)


async def test_white_space_around_the_content_is_taken_away(discord: FakeDiscord, api: DiscordApi) -> None:
    assert (await api.posted(discord.channel("general"), "\n two words \n")).content == "two words"


@pytest.mark.parametrize(
    ("embeds", "error"),
    [
        ([{"title": "x"}] * 11, {"embeds": "BASE_TYPE_MAX_LENGTH"}),
        ([{"title": "x" * 257}], {"embeds.0.title": "BASE_TYPE_MAX_LENGTH"}),
        ([{"description": "x" * 4097}], {"embeds.0.description": "BASE_TYPE_MAX_LENGTH"}),
        ([{"fields": [{"name": "n", "value": "v"}] * 26}], {"embeds.0.fields": "BASE_TYPE_MAX_LENGTH"}),
        ([{"fields": [{"name": "n", "value": "x" * 1025}]}], {"embeds.0.fields.0.value": "BASE_TYPE_BAD_LENGTH"}),
        ([{"description": "x" * 3500}, {"description": "x" * 2501}], {"embeds": "MAX_EMBED_SIZE_EXCEEDED"}),
    ],
)
async def test_embeds_have_their_limits(
    discord: FakeDiscord, api: DiscordApi, embeds: list[object], error: dict[str, str]
) -> None:
    assert (await api.post(discord.channel("general"), {"embeds": embeds})).errors == error


async def test_unknown_fields_are_refused_and_end_the_test(discord: FakeDiscord, api: DiscordApi) -> None:
    refused = await api.post(discord.channel("general"), {"content": "hi", "colour": "red"})
    assert refused.errors == {"colour": "FAKE_UNKNOWN_FIELD"}
    assert discord.unknown
    discord.unknown.clear()


async def test_closing_tells_of_what_was_asked_for_and_is_not_known() -> None:
    with pytest.raises(AssertionError, match="GET /nowhere"):
        async with FakeDiscord() as discord:
            discord.unknown.append("GET /nowhere")


async def test_unknown_routes_parameters_and_flags_are_refused(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    assert (await api.call("GET", "/stickers")).status == 404
    assert (await api.call("GET", f"/channels/{room.id}/messages", query={"newest": "1"})).status == 400
    assert (await api.post(room, {"content": "hi", "flags": int(Flag.EPHEMERAL)})).errors == {"flags": "FAKE_FLAGS"}
    assert len(discord.unknown) == 3
    discord.unknown.clear()


async def test_a_call_without_the_token_is_unauthorized(discord: FakeDiscord, api: DiscordApi) -> None:
    said = await api.call("GET", "/users/@me", token="wrong")
    assert (said.status, said.body) == (401, {"message": "401: Unauthorized", "code": 0})


async def test_json_comes_with_exactly_the_content_type_that_discord_py_reads(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    assert (await api.call("GET", "/users/@me")).headers["Content-Type"] == "application/json"


async def test_a_page_of_history_is_newest_first_and_can_start_anywhere(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    ids = [discord.say(ana, room, f"{n}").id for n in range(120)]

    async def page(**query: str) -> list[str]:
        said = await api.call("GET", f"/channels/{room.id}/messages", query=query)
        return [each["id"] for each in said.body]

    assert await page() == ids[:-51:-1]
    assert await page(limit="2") == [ids[119], ids[118]]
    assert await page(limit="2", before=ids[10]) == [ids[9], ids[8]]
    assert await page(limit="2", after=ids[10]) == [ids[12], ids[11]]
    assert await page(limit="3", around=ids[10]) == [ids[11], ids[10], ids[9]]
    assert (await api.call("GET", f"/channels/{room.id}/messages", query={"limit": "101"})).refusal == (400, 50035)


async def test_what_is_not_there_is_unknown(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    assert (await api.call("GET", "/channels/1")).refusal == (404, 10003)
    assert (await api.call("GET", f"/channels/{room.id}/messages/1")).refusal == (404, 10008)
    assert (await api.call("GET", "/guilds/1")).refusal == (404, 10004)
    assert (await api.call("GET", f"/guilds/{discord.guild.id}/members/1")).refusal == (404, 10013)
    assert (await api.call("GET", "/users/1")).refusal == (404, 10013)


async def test_a_message_of_somebody_else_cannot_be_edited(discord: FakeDiscord, api: DiscordApi) -> None:
    message = discord.say(discord.user("Ana"), discord.channel("general"), "mine")
    assert (await api.edit(message, {"content": "yours"})).refusal == (403, 50005)


async def test_only_a_moderator_deletes_what_others_said(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    message, path = discord.say(discord.user("Ana"), room, "mine"), f"/channels/{room.id}/messages"
    assert (await api.call("DELETE", f"{path}/{message.id}")).refusal == (403, 50013)
    discord.bot_role.permissions |= Permission.MANAGE_MESSAGES
    assert (await api.call("DELETE", f"{path}/{message.id}")).status == 204
    assert (await api.call("DELETE", f"{path}/{message.id}")).refusal == (404, 10008)


async def test_the_same_nonce_posts_once(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    first = await api.post(room, {"content": "one", "nonce": "t1-0", "enforce_nonce": True})
    again = await api.post(room, {"content": "two", "nonce": "t1-0", "enforce_nonce": True})
    assert again.body["id"] == first.body["id"]
    assert [message.content for message in discord.posted(room)] == ["one"]
    discord.clock.advance(discord.limits.nonce_lifetime + 1)
    assert (await api.post(room, {"content": "two", "nonce": "t1-0", "enforce_nonce": True})).status == 200
    assert len(discord.posted(room)) == 2


async def test_a_nonce_has_twenty_five_characters_at_most_and_is_not_enforced_by_itself(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    room = discord.channel("general")
    assert (await api.post(room, {"content": "x", "nonce": "n" * 26})).errors == {"nonce": "NONCE_TYPE_TOO_LONG"}
    for _ in range(2):
        assert (await api.post(room, {"content": "x", "nonce": "n" * 25})).status == 200
    assert len(discord.posted(room)) == 2


async def test_messages_older_than_an_hour_take_few_edits(discord: FakeDiscord, api: DiscordApi) -> None:
    message = await api.posted(discord.channel("general"))
    discord.clock.stop()
    discord.clock.advance(3601)
    for n in range(discord.limits.old_edits):
        assert (await api.edit(message, {"content": f"{n}"})).status == 200
    refused = await api.edit(message, {"content": "more"})
    assert refused.refusal == (429, 30046)
    assert refused.body["retry_after"] > 0
    assert refused.headers["Via"]
    discord.clock.advance(discord.limits.old_edit_window)
    assert (await api.edit(message, {"content": "more"})).status == 200


async def test_files_are_kept_listed_and_fetched(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    attachments = [{"id": 0, "filename": "a.txt", "description": "the log"}]
    said = await api.post(room, {"attachments": attachments}, [("a.txt", b"one"), ("b.png", b"two")])
    assert [each["filename"] for each in said.body["attachments"]] == ["a.txt", "b.png"]
    assert said.body["attachments"][0]["description"] == "the log"
    assert discord.what_user_sees(ana, room)[-1].files == ["a.txt", "b.png"]
    async with api._session.get(said.body["attachments"][0]["url"]) as fetched:
        assert await fetched.read() == b"one"


async def test_an_edit_keeps_the_files_it_lists(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    said = await api.post(room, {"content": "two files"}, [("a.txt", b"one"), ("b.txt", b"two")])
    message, second = discord.posted(room)[-1], said.body["attachments"][1]["id"]
    assert (await api.edit(message, {"content": "still two"})).status == 200
    assert len(message.files) == 2
    assert (await api.edit(message, {"attachments": [{"id": second}]})).status == 200
    assert [stored.name for stored in message.files] == ["b.txt"]
    assert (await api.edit(message, {"attachments": [{"id": "9"}]})).errors == {
        "attachments.0.id": "ATTACHMENT_NOT_FOUND"
    }


async def test_files_are_limited_in_size_and_number(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    discord.limits.attachment_size = 10
    assert (await api.post(room, {}, [("a.txt", b"x" * 10)])).status == 200
    assert (await api.post(room, {}, [("a.txt", b"x" * 11)])).refusal == (413, 40005)
    assert (await api.post(room, {}, [(f"{n}.txt", b"x") for n in range(11)])).errors == {
        "attachments": "BASE_TYPE_MAX_LENGTH"
    }
    discord.limits.request_size = 100
    assert (await api.post(room, {"content": "x" * 200})).refusal == (413, 40005)


async def test_a_post_without_allowed_mentions_calls_everybody_it_names(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    ops = discord.role("ops", mentionable=True)
    words = f"{ana.mention} {ops.mention} @everyone @here `{discord.bot.mention}`"
    message = await api.posted(room, words)
    assert discord.called(message) == {ana.id, ops.id, "everyone", "here"}


async def test_allowed_mentions_say_who_is_called(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, sam, room = discord.user("Ana"), discord.user("Sam"), discord.channel("general")
    words = f"{ana.mention} {sam.mention} @everyone"
    for given, called in [
        ({"parse": []}, set()),
        ({"users": [ana.id]}, {ana.id}),
        ({"parse": ["everyone"]}, {"everyone"}),
    ]:
        assert (await api.post(room, {"content": words, "allowed_mentions": given})).status == 200
        assert discord.called(discord.posted(room)[-1]) == called


async def test_allowed_mentions_that_contradict_themselves_are_refused(discord: FakeDiscord, api: DiscordApi) -> None:
    given = {"parse": ["users"], "users": ["1"]}
    refused = await api.post(discord.channel("general"), {"content": "hi", "allowed_mentions": given})
    assert refused.errors == {"allowed_mentions": "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE"}


async def test_an_edit_calls_by_the_same_rules(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    message = await api.posted(room)
    await api.edit(message, {"content": ana.mention, "allowed_mentions": {"parse": []}})
    assert discord.called(message) == set()
    await api.edit(message, {"content": ana.mention})
    assert discord.called(message) == {ana.id}


async def test_a_role_that_cannot_be_mentioned_is_called_only_by_who_may_call_everyone(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    ops, room = discord.role("ops"), discord.channel("general")
    assert discord.called(await api.posted(room, ops.mention)) == {ops.id}
    discord.guild.everyone.permissions &= ~Permission.MENTION_EVERYONE
    assert discord.called(await api.posted(room, f"{ops.mention} @everyone")) == set()


async def test_links_are_fetched_unless_embeds_are_suppressed(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    words = "see https://a.example/1 and <https://b.example> and `https://c.example`"
    message = await api.posted(room, words)
    assert discord.fetched(message) == {"https://a.example/1"}
    await api.edit(message, {"flags": int(Flag.SUPPRESS_EMBEDS)})
    assert discord.fetched(message) == set()


async def test_a_reply_names_and_calls_whom_it_replies_to(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    asked = discord.say(ana, room, "why?")
    said = await api.post(room, {"content": "because", "message_reference": {"message_id": asked.id}})
    assert said.body["referenced_message"]["content"] == "why?"
    reply = discord.posted(room)[-1]
    assert discord.called(reply) == {ana.id}
    assert discord.what_user_sees(ana, room)[-1].reply_to == asked.id
    gone = {"content": "because", "message_reference": {"message_id": "1"}}
    assert (await api.post(room, gone)).errors == {"message_reference": "MESSAGE_REFERENCE_UNKNOWN_MESSAGE"}
    gone["message_reference"] = {"message_id": "1", "fail_if_not_exists": False}
    assert (await api.post(room, gone)).body["type"] == 0


async def test_typing_lasts_ten_seconds_or_until_the_post(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    path = f"/channels/{room.id}/typing"
    assert (await api.call("POST", path)).status == 204
    assert discord.typing(room)
    discord.clock.advance(10)
    assert not discord.typing(room)
    await api.call("POST", path)
    await api.posted(room)
    assert not discord.typing(room)


async def test_the_past_of_a_message_can_be_looked_at(discord: FakeDiscord, api: DiscordApi) -> None:
    message = await api.posted(discord.channel("general"), "first")
    await api.edit(message, {"content": "second"})
    assert [past["content"] for past in message.past] == ["first"]
    assert message.content == "second"


async def test_a_refused_edit_changes_nothing(discord: FakeDiscord, api: DiscordApi) -> None:
    message = await api.posted(discord.channel("general"), "first")
    body = {"content": "second", "embeds": [{"title": "x" * 257}]}
    assert (await api.edit(message, body)).refusal == (400, 50035)
    assert (message.content, message.past) == ("first", [])

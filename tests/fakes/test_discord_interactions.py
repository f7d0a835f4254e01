"""Interactions: the first answer, what comes after, and how long each may be given."""

from __future__ import annotations

import pytest

from tests.fakes.discord import Channel, FakeDiscord, Flag, Message, Permission, User
from tests.fakes.discord_api import DiscordApi, asked

HIDDEN, V2 = int(Flag.EPHEMERAL), int(Flag.IS_COMPONENTS_V2)


async def test_a_command_is_answered_with_a_message(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room, {"s": "x"})) as interaction:
        said = await api.answer(interaction, 4, {"content": "done"})
    assert said.body["interaction"]["response_message_id"] == discord.posted(room)[-1].id
    assert said.body["resource"]["message"]["content"] == "done"
    assert (interaction.failed, interaction.text) == (False, "done")


async def test_an_ephemeral_answer_is_seen_by_one_person_until_they_reload(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    sam = discord.user("Sam")
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 4, {"content": "secret", "flags": HIDDEN})
    message = interaction.messages[0]
    assert [sight.words for sight in discord.what_user_sees(ana, room)] == ["secret"]
    assert discord.what_user_sees(ana, room)[0].ephemeral
    assert discord.what_user_sees(sam, room) == []
    assert (await api.call("GET", f"/channels/{room.id}/messages")).body == []
    assert (await api.edit(message, {"content": "x"})).refusal == (404, 10008)
    assert (await api.follow(interaction, "PATCH", {"content": "changed"}, "@original")).status == 200
    assert discord.what_user_sees(ana, room)[0].words == "changed"
    discord.reload(ana)
    assert discord.what_user_sees(ana, room) == []


async def test_a_second_first_answer_is_refused(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 4, {"content": "one"})
        assert (await api.answer(interaction, 4, {"content": "two"})).refusal == (400, 40060)


async def test_after_three_seconds_nobody_can_answer(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        discord.clock.advance(3.1)
        assert (await api.answer(interaction, 4, {"content": "late"})).refusal == (404, 10062)
    assert interaction.failed
    assert (await api.follow(interaction, "POST", {"content": "late"})).refusal == (401, 50027)


async def test_the_token_dies_after_fifteen_minutes(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 5)
    discord.clock.advance(890)
    assert (await api.follow(interaction, "PATCH", {"content": "in time"}, "@original")).status == 200
    discord.clock.advance(11)
    for method, message in (("PATCH", "@original"), ("POST", ""), ("GET", "@original"), ("DELETE", "@original")):
        body = {"content": "late"} if method in {"PATCH", "POST"} else None
        assert (await api.follow(interaction, method, body, message)).refusal == (401, 50027)


async def test_nothing_follows_before_the_first_answer_or_with_a_wrong_token(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        assert (await api.follow(interaction, "POST", {"content": "early"})).refusal == (404, 10015)
        path = f"/interactions/{interaction.id}/nonsense/callback"
        assert (await api.call("POST", path, {"type": 5})).refusal == (404, 10062)
        await api.answer(interaction, 5)


async def test_a_deferral_shows_thinking_until_the_edit_which_may_set_the_flag(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 5, {"flags": HIDDEN})
    assert discord.what_user_sees(ana, room)[-1].thinking
    text = [{"type": 10, "content": "words"}]
    assert (await api.follow(interaction, "PATCH", {"components": text, "flags": V2}, "@original")).status == 200
    sight = discord.what_user_sees(ana, room)[-1]
    assert (sight.words, sight.thinking, sight.ephemeral, sight.edited) == ("words", False, True, False)


async def test_a_deferral_carries_nothing_but_ephemeral(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        assert (await api.answer(interaction, 5, {"flags": V2})).errors == {"data.flags": "FAKE_FLAGS"}
        await api.answer(interaction, 5)
    discord.unknown.clear()


async def test_the_first_follow_up_takes_the_place_of_thinking_and_its_visibility(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 5, {"flags": HIDDEN})
    await api.follow(interaction, "POST", {"content": "first"})
    await api.follow(interaction, "POST", {"content": "second"})
    first, second = discord.what_user_sees(ana, room)
    assert (first.words, first.ephemeral, first.thinking) == ("first", True, False)
    assert (second.words, second.ephemeral) == ("second", False)


async def test_follow_ups_are_edited_read_and_deleted_by_id(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 4, {"content": "one"})
    more = (await api.follow(interaction, "POST", {"content": "two"})).body["id"]
    await api.follow(interaction, "PATCH", {"content": "three"}, more)
    assert (await api.follow(interaction, "GET", message=more)).body["content"] == "three"
    assert (await api.follow(interaction, "DELETE", message=more)).status == 204
    assert (await api.follow(interaction, "GET", message=more)).refusal == (404, 10008)
    assert interaction.text == "one"


async def test_answers_call_only_users_unless_they_say(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    sam = discord.user("Sam")
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 4, {"content": f"@everyone {sam.mention}"})
    assert discord.called(interaction.messages[0]) == {sam.id}


async def test_a_press_changes_its_message(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel, card: Message
) -> None:
    async with asked(discord, discord.press(ana, card, "Approve")) as interaction:
        assert interaction.payload["message"]["id"] == card.id
        assert (interaction.payload["member"]["user"]["id"], interaction.payload["context"]) == (ana.id, 0)
        await api.answer(interaction, 7, {"content": "approved", "components": []})
    assert discord.what_user_sees(ana, room)[-1].words == "approved"
    with pytest.raises(LookupError):
        await discord.press(ana, card, "Approve")


async def test_a_press_can_be_acknowledged_and_answered_later(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel, card: Message
) -> None:
    async with asked(discord, discord.press(ana, card, "cs:approve")) as interaction:
        await api.answer(interaction, 6)
    await api.follow(interaction, "POST", {"content": "not you", "flags": HIDDEN})
    await api.follow(interaction, "PATCH", {"content": "changed"}, "@original")
    assert card.content == "changed"
    assert [sight.words for sight in discord.what_user_sees(ana, room)] == ["changed\nApprove", "not you"]


async def test_a_button_that_went_can_still_be_pressed_by_an_old_screen(
    discord: FakeDiscord, api: DiscordApi, ana: User, card: Message
) -> None:
    await api.edit(card, {"components": []})
    async with asked(discord, discord.press(ana, card, "Approve", hidden=True)) as interaction:
        assert interaction.data["custom_id"] == "cs:approve"
        await api.answer(interaction, 6)


async def test_a_select_gives_values_by_their_labels_and_people_as_they_are(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    kinds = [{"label": f"l{n}", "value": f"v{n}"} for n in range(3)]
    texts = {"type": 3, "custom_id": "kind", "options": kinds, "max_values": 2}
    rows = [{"type": 1, "components": [each]} for each in (texts, {"type": 5, "custom_id": "who"})]
    await api.post(room, {"content": "pick", "components": rows})
    message = discord.posted(room)[-1]
    async with asked(discord, discord.choose(ana, message, "kind", "l0", "v2")) as picked:
        await api.answer(picked, 6)
    assert picked.data["values"] == ["v0", "v2"]
    async with asked(discord, discord.choose(ana, message, "who", ana)) as picked:
        await api.answer(picked, 6)
    assert picked.data["values"] == [ana.id]
    assert picked.data["resolved"]["users"][ana.id]["id"] == ana.id


async def test_a_message_that_is_gone_is_not_updated(
    discord: FakeDiscord, api: DiscordApi, ana: User, card: Message
) -> None:
    async with asked(discord, discord.press(ana, card, "Approve")) as interaction:
        discord.delete(card)
        assert (await api.answer(interaction, 7, {"content": "x"})).refusal == (404, 10008)
        await api.answer(interaction, 5)


async def test_a_locked_thread_takes_no_answer(discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel) -> None:
    thread = discord.thread(ana, room, "more")
    discord.archive(thread, locked=True)
    async with asked(discord, discord.command(ana, "mcp", thread)) as interaction:
        assert (await api.answer(interaction, 4, {"content": "x"})).refusal == (400, 50083)
        discord.clock.advance(3.1)


async def test_who_does_not_see_a_message_cannot_press_it(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel, card: Message
) -> None:
    room.forbid(ana, Permission.VIEW_CHANNEL)
    with pytest.raises(AssertionError):
        await discord.press(ana, card, "Approve")


@pytest.mark.parametrize("answer", [6, 7, 8])
async def test_a_command_has_no_message_to_update_and_no_choices(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel, answer: int
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        assert (await api.answer(interaction, answer, {})).errors == {"type": "BASE_TYPE_CHOICES"}
        await api.answer(interaction, 5)


async def test_an_answer_has_the_limits_of_a_message(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        assert (await api.answer(interaction, 4, {"content": "x" * 2001})).errors == {"content": "BASE_TYPE_MAX_LENGTH"}
        assert (await api.answer(interaction, 4, {"content": ""})).refusal == (400, 50006)
        await api.answer(interaction, 4, {"content": "x" * 2000})


async def test_in_a_direct_conversation_there_is_a_user_and_no_member(
    discord: FakeDiscord, api: DiscordApi, ana: User
) -> None:
    async with asked(discord, discord.command(ana, "mcp", discord.dm(ana))) as interaction:
        await api.answer(interaction, 4, {"content": "hi"})
    assert interaction.payload["user"]["id"] == ana.id
    assert "member" not in interaction.payload

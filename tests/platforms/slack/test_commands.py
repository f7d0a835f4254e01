"""Commands by slash command, mention, button and modal. Only their user sees the reply."""

from __future__ import annotations

import pytest

from bot.chat.actions import not_shared_text
from bot.domain.commands import Field, Form, Invocation, PageInfo, Reply, ReplyAction, ReplyFile
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from tests.fakes.slack import Message
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot

ADD = Form("mcp add:1", "Add a server", (Field("title", "Name", required=True), Field("where", "Address")))


def last_invocation(place: ConnectedBot) -> Invocation:
    request = place.commands.requests[-1]
    assert isinstance(request, Invocation)
    return request


async def wait_for_whisper(place: ConnectedBot, *, text: str) -> Message:
    """Wait for an ephemeral message to Priya with this text, and return it."""

    def matching_messages() -> list[Message]:
        return [
            message
            for message in place.slack.bot_messages(place.channel)
            if message.ephemeral_to and text in message.text
        ]

    await place.slack.until(matching_messages)
    return matching_messages()[-1]


async def test_a_reply_names_people_of_any_name_as_text(place: ConnectedBot) -> None:
    boss, group = place.slack.user("*boss*.[x](http://evil.example)"), place.slack.group("it_admins_")
    who = f"slack:{boss.id}, slack-group:{group.id}"
    place.commands.answers = [[Reply(f"Only {who} can do this: `--approvers {who}`.", failed=True)]]
    await place.slack.command(place.priya, "/mcp", "remove jira", place.channel)
    answer = await wait_for_whisper(place, text="can do this")
    text = answer.text.replace("\u2060", "")
    assert f"Only @*boss*.[x](http evil.example), @it_admins_ can do this: --approvers {who}." in text
    assert "'type': 'link'" not in str(answer.blocks)
    assert place.slack.notified_ids(answer) == set()


async def test_a_slow_command_is_acknowledged_at_once_and_answered_when_it_is_done() -> None:
    replies = [Reply(f"{number} of 20 checked") for number in range(20)] + [Reply("All is well.")]
    async with connected_bot(answers=[replies]) as place:
        place.commands.going_on.clear()
        typed = await place.slack.command(place.priya, "/mcp", "verify weather", place.channel)
        assert typed.is_acknowledged
        await wait_for_whisper(place, text="0 of 20")
        place.commands.going_on.set()
        await wait_for_whisper(place, text="All is well.")
        assert len(place.slack.calls.of("response_url")) == 2
        assert not place.slack.calls.failed_calls()


async def test_answers_to_a_button_replace_the_message_it_stands_in_while_the_address_takes_them() -> None:
    first = Reply("Look?", actions=(ReplyAction("Verify", ("mcp", "verify", "weather")),))
    replies = [Reply(f"{number} of 20 checked") for number in range(20)] + [Reply("All is well.")]
    async with connected_bot(answers=[[first], replies]) as place:
        await place.slack.command(place.priya, "/mcp", "show weather", place.channel)
        answer = await wait_for_whisper(place, text="Look?")
        await place.slack.press(place.priya, answer, "Verify")
        await wait_for_whisper(place, text="All is well.")
        assert len([message for message in place.slack.bot_messages(place.channel) if message.ephemeral_to]) == 1
        assert not place.slack.calls.failed_calls()


async def test_an_answer_comes_also_when_the_address_for_answers_is_gone() -> None:
    async with connected_bot(answers=[[Reply("Checking…"), Reply("All is well.")]]) as place:
        place.commands.going_on.clear()
        await place.slack.command(place.priya, "/mcp", "verify weather", place.channel)
        await wait_for_whisper(place, text="Checking")
        place.slack.clock.advance(1801)
        place.commands.going_on.set()
        await wait_for_whisper(place, text="All is well.")
        assert len(place.slack.calls.of("chat.postEphemeral")) == 1


async def test_in_a_thread_a_command_is_said_to_the_bot_and_answered_there_once() -> None:
    async with connected_bot(answers=[[Reply("Two servers.")]]) as place:
        root = place.slack.say(place.priya, place.channel, "hm")
        place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} mcp list", thread_ts=root.ts)
        answer = await wait_for_whisper(place, text="Two servers.")
        await place.wait_for_responses()
        assert (answer.ephemeral_to, answer.thread_ts) == (place.priya.id, root.ts)
        assert len(place.commands.requests) == 1
        assert last_invocation(place).conversation.thread == root.ts
        assert place.engine.received == []


async def test_words_that_only_look_like_a_command_are_a_question(place: ConnectedBot) -> None:
    place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} profile the database for me")
    await place.wait_for_responses()
    assert place.commands.requests == []
    assert [each.text for each in place.engine.received] == ["profile the database for me"]


async def test_in_a_direct_conversation_the_answer_is_a_message_that_is_edited() -> None:
    async with connected_bot(answers=[[Reply("Checking…"), Reply("All is well.")]]) as place:
        dm = place.slack.dm(place.priya)
        place.slack.say(place.priya, dm, "mcp verify weather")
        await place.slack.until(lambda: any("All is well." in post.text for post in place.bot_posts(dm)))
        assert len(place.bot_posts(dm)) == 1


async def test_buttons_below_an_answer_say_the_next_command_in_its_place() -> None:
    first = Reply("Page one.", actions=(ReplyAction("Sync", ("mcp", "sync")),), page=PageInfo(1, 2, ("mcp", "list")))
    async with connected_bot(answers=[[first], [Reply("Page two.")]]) as place:
        await place.slack.command(place.priya, "/mcp", "list", place.channel)
        answer = await wait_for_whisper(place, text="Page one.")
        await place.slack.press(place.priya, answer, "More ▶")
        await wait_for_whisper(place, text="Page two.")
        assert last_invocation(place).words == ("list", "--page", "2")
        assert len([message for message in place.slack.bot_messages(place.channel) if message.ephemeral_to]) == 1


async def test_an_error_of_a_form_stands_below_its_field_and_the_modal_stays() -> None:
    wrong = Form(ADD.id, ADD.title, (Field("title", "Name", value="x", error="is taken"), Field("where", "Address")))
    async with connected_bot(answers=[[ADD], [wrong]]) as place:
        await place.slack.command(place.priya, "/mcp", "add", place.channel)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        sent = await place.slack.submit(place.priya, {"field.title": "x"})
        assert sent.answer == {"response_action": "errors", "errors": {"field.title": "is taken"}}
        assert len(place.slack.modals(place.priya)) == 1


async def test_where_no_modal_can_be_opened_there_is_a_button_that_opens_it() -> None:
    async with connected_bot(answers=[[ADD], [ADD]]) as place:
        place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} mcp add")
        answer = await wait_for_whisper(place, text="form")
        await place.slack.press(place.priya, answer, "Open the form")
        await place.slack.until(lambda: place.slack.modals(place.priya))


async def test_a_form_that_takes_longer_than_slack_waits_is_acknowledged_and_told_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.platforms.slack.interactions.SOON_SECONDS", 0.2)
    async with connected_bot(answers=[[ADD], [Reply("Added weather.")]]) as place:
        await place.slack.command(place.priya, "/mcp", "add", place.channel)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        place.commands.begun.clear()
        sent = await place.slack.submit(place.priya, {"field.title": "weather"})
        assert sent.is_acknowledged
        assert "moment" in str(place.slack.modal(place.priya).drawn)
        place.commands.begun.set()
        await wait_for_whisper(place, text="Added weather.")
        await place.slack.until(lambda: "Done" in str(place.slack.modal(place.priya).drawn))


async def test_how_far_a_sent_form_is_stands_in_its_modal_and_only_the_last_answer_below_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.platforms.slack.interactions.SOON_SECONDS", 0.05)
    monkeypatch.setattr("bot.platforms.slack.interactions.APART_SECONDS", 0.0)
    answers = [Reply("Verifying weather… 1 of 3"), Reply("Verifying weather… 2 of 3"), Reply("Added weather.")]
    async with connected_bot(answers=[[ADD], answers]) as place:
        await place.slack.command(place.priya, "/mcp", "add", place.channel)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        place.commands.going_on.clear()
        await place.slack.submit(place.priya, {"field.title": "weather"})
        await place.slack.until(lambda: "1 of 3" in str(place.slack.modal(place.priya).drawn))
        place.commands.going_on.set()
        await wait_for_whisper(place, text="Added weather.")
        await place.slack.until(lambda: "Done" in str(place.slack.modal(place.priya).drawn))
        assert any("2 of 3" in str(call.args["view"]) for call in place.slack.calls.of("views.update"))
        assert place.whispers(place.priya) == ["Added weather."]


async def test_a_modal_that_was_closed_meanwhile_keeps_no_answer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.slack.interactions.SOON_SECONDS", 0.05)
    monkeypatch.setattr("bot.platforms.slack.interactions.APART_SECONDS", 0.0)
    answers = [Reply("Verifying weather… 1 of 3"), Reply("Verifying weather… 2 of 3"), Reply("Added weather.")]
    async with connected_bot(answers=[[ADD], answers]) as place:
        await place.slack.command(place.priya, "/mcp", "add", place.channel)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        place.commands.going_on.clear()
        await place.slack.submit(place.priya, {"field.title": "weather"})
        await place.slack.close_modal(place.priya)
        place.commands.going_on.set()
        await wait_for_whisper(place, text="Added weather.")


async def test_a_call_by_hand_outside_a_thread_begins_one(place: ConnectedBot) -> None:
    key = ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, "")
    message = InboundMessage(("hand:1",), key, Author("slack", place.priya.id, "priya"), "Run weather.now")
    place.commands.answers = [[Reply("Running weather.now…", message=message, private=False)]]
    await place.slack.command(place.priya, "/mcp", "call weather now", place.channel)
    await place.slack.until(lambda: place.engine.received)
    (anchor,) = place.bot_posts()
    assert anchor.text == "priya: Run weather.now"
    assert place.engine.received[0].conversation.thread == anchor.ts


async def test_a_document_is_shared_with_the_asker_alone() -> None:
    document = ReplyFile("servers.json", "{}", "application/json")
    async with connected_bot(answers=[[Reply("Here they are.", document=document)]]) as place:
        await place.slack.command(place.priya, "/mcp", "export", place.channel)
        dm = place.slack.dm(place.priya)
        await place.slack.until(lambda: any(post.files for post in place.bot_posts(dm)))
        await wait_for_whisper(place, text="Here they are.")
        assert not any(post.files for post in place.bot_posts())


async def test_a_file_that_slack_does_not_take_is_named_and_the_answer_stays() -> None:
    document = ReplyFile("servers.json", "{}", "application/json")
    async with connected_bot(answers=[[Reply("Here they are.", document=document)]]) as place:
        place.slack.installation.scopes.discard("files:write")
        await place.slack.command(place.priya, "/mcp", "export", place.channel)
        await wait_for_whisper(place, text="Here they are.")
        await wait_for_whisper(place, text=not_shared_text("servers.json"))


async def test_an_error_of_a_slow_form_stands_in_its_modal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.slack.interactions.SOON_SECONDS", 0.05)
    wrong = Form(ADD.id, ADD.title, (Field("title", "Name", value="x", error="is taken"), Field("where", "Address")))
    async with connected_bot(answers=[[ADD], [wrong]]) as place:
        await place.slack.command(place.priya, "/mcp", "add", place.channel)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        place.commands.begun.clear()
        await place.slack.submit(place.priya, {"field.title": "x"})
        assert "moment" in str(place.slack.modal(place.priya).drawn)
        place.commands.begun.set()
        await place.slack.until(lambda: "is taken" in str(place.slack.modal(place.priya).drawn))

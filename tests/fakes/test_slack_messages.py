"""chat.* as the real client calls them."""

from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack
from tests.fakes.slack_refusals import code

SECTION = [{"type": "section", "text": {"type": "mrkdwn", "text": "*Hello*"}}]


async def test_a_post_is_seen_by_the_members_and_by_nobody_else(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, lee = slack.user("Priya"), slack.user("Lee")
    channel = slack.channel("incidents", priya)

    answer = await client.chat_postMessage(channel=channel.id, text="Hello", blocks=SECTION)

    assert [sight.words for sight in slack.what_user_sees(priya, channel)] == ["*Hello*"]
    assert slack.what_user_sees(lee, channel) == []
    assert answer["message"]["text"] == "Hello"
    assert answer["message"]["blocks"][0]["block_id"]


async def test_words_are_what_one_person_reads(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, sam = slack.user("Priya"), slack.user("Sam")
    channel = slack.channel("incidents", priya, sam)
    line = [
        {"type": "text", "text": "Ask "},
        {"type": "user", "user_id": sam.id},
        {"type": "text", "text": " or see "},
        {"type": "link", "url": "https://a.example", "text": "this"},
    ]
    cells = [{"type": "raw_text", "text": text} for text in ("Server", "jira")]
    button = {"type": "button", "text": {"type": "plain_text", "text": "Approve"}, "visible_to_user_ids": [sam.id]}
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": "Create an issue?"}},
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": line}]},
        {"type": "table", "rows": [cells]},
        {"type": "actions", "elements": [button]},
    ]
    await client.chat_postMessage(channel=channel.id, text="fallback", blocks=blocks)
    read = ["Create an issue?", f"Ask <@{sam.id}> or see this", "Server | jira"]
    assert slack.what_user_sees(priya, channel)[0].words.split("\n") == read
    assert slack.what_user_sees(sam, channel)[0].words.split("\n") == [*read, "Approve"]


async def test_a_post_without_an_answer_that_is_repeated_is_there_twice(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    channel = slack.channel("incidents")
    for _ in range(2):
        await client.chat_postMessage(channel=channel.id, text="Hello")
    assert len(slack.posted(channel)) == 2


async def test_a_post_to_a_user_goes_to_the_direct_message(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    answer = await client.chat_postMessage(channel=priya.id, text="Hello")
    assert answer["channel"] == slack.dm(priya).id


async def test_a_reply_to_a_reply_lands_in_the_thread_of_both(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "first")
    reply = slack.say(priya, channel, "second", thread_ts=root.ts)

    answer = await client.chat_postMessage(channel=channel.id, text="third", thread_ts=reply.ts)

    assert answer["message"]["thread_ts"] == root.ts
    assert len(slack.what_user_sees(priya, channel, root.ts)) == 3


async def test_places_that_cannot_be_posted_to_are_refused(slack: FakeSlack, client: AsyncWebClient) -> None:
    away, private = slack.channel("away", with_bot=False), slack.channel("secret", kind="group", with_bot=False)
    archived, closed, home = slack.channel("old"), slack.channel("closed"), slack.channel("home")
    archived.archived, closed.posting_restricted = True, True

    async def posted(channel: str, **more: str) -> str:
        return await code(client.chat_postMessage(channel=channel, text="Hello", **more))  # type: ignore[arg-type]

    assert await posted("C404") == "channel_not_found"
    assert await posted(private.id) == "channel_not_found"
    assert await posted(away.id) == "not_in_channel"
    assert await posted(archived.id) == "is_archived"
    assert await posted(closed.id) == "restricted_action"
    assert await posted(home.id, thread_ts="1.000001") == "thread_not_found"
    assert await posted(home.id, username="Boss") == "missing_scope"


@pytest.mark.filterwarnings("ignore:The top-level `text` argument is missing")
async def test_what_is_said_must_be_said_in_one_way_and_not_be_empty(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.pace.strict = False
    channel = slack.channel("incidents").id
    assert await code(client.chat_postMessage(channel=channel, text="")) == "no_text"
    assert await code(client.chat_postMessage(channel=channel, blocks=[], text="")) == "no_text"
    both = client.chat_postMessage(channel=channel, text="a", markdown_text="b")
    assert await code(both) == "markdown_text_conflict"
    assert await code(client.chat_postMessage(channel=channel, markdown_text="x" * 12_001)) == "msg_too_long"
    assert await code(client.chat_postMessage(channel=channel, text="a", blocks="{oops")) == "invalid_blocks_format"
    await client.chat_postMessage(channel=channel, markdown_text="x" * 12_000)


async def test_a_text_is_cut_at_forty_thousand_characters(slack: FakeSlack, client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel=slack.channel("incidents").id, text="x" * 40_001)
    assert len(answer["message"]["text"]) == 40_000


async def test_an_update_takes_four_thousand_bytes_and_no_more(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")
    ts = (await client.chat_postMessage(channel=channel.id, text="Hello"))["ts"]
    await client.chat_update(channel=channel.id, ts=ts, text="x" * 4_000)
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="x" * 4_001)) == "msg_too_long"
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="é" * 2_001)) == "msg_too_long"


@pytest.mark.filterwarnings("ignore:The top-level `text` argument is missing")
async def test_an_update_keeps_blocks_only_if_it_brings_no_text(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")
    ts = (await client.chat_postMessage(channel=channel.id, text="Hello", blocks=SECTION))["ts"]
    message = slack.posted(channel)[0]

    await client.chat_update(channel=channel.id, ts=ts, blocks=SECTION)
    assert (message.text, len(message.blocks), message.edited) == ("Hello", 1, None)
    await client.chat_update(channel=channel.id, ts=ts, text="Bye")
    assert (message.text, message.blocks) == ("Bye", [])
    assert message.edited is not None
    assert [before["text"] for before in message.past] == ["Hello", "Hello"]


async def test_only_ones_own_messages_that_are_still_there_can_be_changed(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    hers = slack.say(priya, channel, "mine")
    own = (await client.chat_postMessage(channel=channel.id, text="Hello"))["ts"]

    assert await code(client.chat_update(channel=channel.id, ts=hers.ts, text="x")) == "cant_update_message"
    assert await code(client.chat_delete(channel=channel.id, ts=hers.ts)) == "cant_delete_message"
    await client.chat_delete(channel=channel.id, ts=own)
    assert await code(client.chat_delete(channel=channel.id, ts=own)) == "message_not_found"
    assert await code(client.chat_update(channel=channel.id, ts=own, text="x")) == "message_not_found"


async def test_an_ephemeral_message_is_seen_by_one_and_is_no_message_to_change(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    priya, sam, lee = slack.user("Priya"), slack.user("Sam"), slack.user("Lee")
    channel = slack.channel("incidents", priya, sam)

    ts = (await client.chat_postEphemeral(channel=channel.id, user=sam.id, text="Only you"))["message_ts"]

    assert [sight.words for sight in slack.what_user_sees(sam, channel)] == ["Only you"]
    assert slack.what_user_sees(sam, channel)[0].ephemeral
    assert slack.what_user_sees(priya, channel) == []
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="x")) == "message_not_found"
    assert (await client.conversations_history(channel=channel.id))["messages"] == []
    outside = client.chat_postEphemeral(channel=channel.id, user=lee.id, text="x")
    assert await code(outside) == "user_not_in_channel"


async def test_an_ephemeral_reply_is_seen_only_in_a_thread_that_has_begun_and_until_a_reload(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "first")
    target: dict[str, Any] = {"channel": channel.id, "user": priya.id, "thread_ts": root.ts}

    await client.chat_postEphemeral(text="too early", **target)
    slack.say(priya, channel, "second", thread_ts=root.ts)
    await client.chat_postEphemeral(text="in time", **target)

    assert [sight.words for sight in slack.what_user_sees(priya, channel)] == ["first", "second", "in time"]
    slack.reload(priya)
    assert [sight.words for sight in slack.what_user_sees(priya, channel)] == ["first", "second"]


async def test_the_blocks_of_a_message_may_weigh_so_much_together(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")

    def blocks(last: str) -> list[dict[str, object]]:
        texts = ["x" * 3_000] * 4 + [last]
        return [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in texts]

    ts = (await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks("x" * 700)))["ts"]
    for heavy in ("x" * 701, "&" * 141):
        posted = client.chat_postMessage(channel=channel.id, text="x", blocks=blocks(heavy))
        assert await code(posted) == "msg_blocks_too_long"
        updated = client.chat_update(channel=channel.id, ts=ts, text="x", blocks=blocks(heavy))
        assert await code(updated) == "msg_blocks_too_long"


async def test_a_message_has_one_table_at_most(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")
    table = {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]]}
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[table])
    two = client.chat_postMessage(channel=channel.id, text="x", blocks=[table, table])
    assert await code(two) == "invalid_attachments"


async def test_metadata_comes_back_to_whoever_asks_for_it(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")
    metadata = {"event_type": "turn", "event_payload": {"id": "t1"}}
    ts = (await client.chat_postMessage(channel=channel.id, text="Hello", metadata=metadata))["ts"]

    plain = await client.conversations_replies(channel=channel.id, ts=ts)
    full = await client.conversations_replies(channel=channel.id, ts=ts, include_all_metadata=True)

    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == metadata


async def test_metadata_has_a_form_and_a_size(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents").id
    typeless = client.chat_postMessage(channel=channel, text="a", metadata={"event_payload": {}})
    assert await code(typeless) == "invalid_metadata_schema"
    large = {"event_type": "turn", "event_payload": {"id": "x" * 16_000}}
    assert await code(client.chat_postMessage(channel=channel, text="a", metadata=large)) == "metadata_too_large"


async def test_a_permalink_names_channel_and_thread(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "first")
    reply = slack.say(priya, channel, "second", thread_ts=root.ts)

    link = (await client.chat_getPermalink(channel=channel.id, message_ts=reply.ts))["permalink"]

    assert f"/archives/{channel.id}/p{reply.ts.replace('.', '')}?thread_ts={root.ts}" in link


async def test_a_broadcast_reply_is_in_the_thread_and_in_the_channel(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "first")
    await client.chat_postMessage(channel=channel.id, text="to all", thread_ts=root.ts, reply_broadcast=True)
    history = (await client.conversations_history(channel=channel.id))["messages"]
    assert [message["text"] for message in history] == ["to all", "first"]
    assert history[0]["subtype"] == "thread_broadcast"


async def test_reactions_are_put_on_once_and_taken_off_once(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    message = slack.say(priya, channel, "look")
    target = {"channel": channel.id, "timestamp": message.ts}

    await client.reactions_add(name="eyes", **target)
    assert slack.what_user_sees(priya, channel)[0].reactions == {"eyes": [slack.bot.id]}
    assert await code(client.reactions_add(name="eyes", **target)) == "already_reacted"
    assert await code(client.reactions_add(name=":eyes:", **target)) == "invalid_name"
    await client.reactions_remove(name="eyes", **target)
    assert await code(client.reactions_remove(name="eyes", **target)) == "no_reaction"

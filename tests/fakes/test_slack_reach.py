"""Whom a message calls and what it makes Slack fetch: the questions safety tests ask."""

from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack

Json = dict[str, Any]


def section(text: str, kind: str = "mrkdwn") -> Json:
    return {"type": "section", "text": {"type": kind, "text": text}}


def rich(**element: Any) -> Json:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [element]}]}


@pytest.mark.parametrize(
    ("said", "called"),
    [
        ({"text": "<!channel> and <!here|here>"}, {"channel", "here"}),
        ({"text": "<@U1> <@W2|sam> <!subteam^S3|@ops>"}, {"U1", "W2", "S3"}),
        ({"text": "&lt;!channel&gt; @channel <https://a|b>"}, set()),
        ({"text": "@everyone", "link_names": True}, {"everyone"}),
        ({"text": "@here", "parse": "full"}, {"here"}),
        ({"text": "x", "blocks": [section("<!everyone>")]}, {"everyone"}),
        ({"text": "x", "blocks": [section("<!everyone>", "plain_text")]}, set()),
        ({"text": "x", "blocks": [{"type": "markdown", "text": "<!channel>"}]}, {"channel"}),
        ({"text": "x", "blocks": [rich(type="user", user_id="U1")]}, {"U1"}),
        ({"text": "x", "blocks": [rich(type="usergroup", usergroup_id="S1")]}, {"S1"}),
        ({"text": "x", "blocks": [rich(type="broadcast", range="here")]}, {"here"}),
        ({"text": "x", "blocks": [rich(type="text", text="<!channel>")]}, set()),
        ({"markdown_text": "<!channel>"}, {"channel"}),
    ],
)
async def test_a_message_calls_whom_slack_would_resolve(
    slack: FakeSlack, client: AsyncWebClient, said: Json, called: set[str]
) -> None:
    channel = slack.channel("incidents")
    await client.chat_postMessage(channel=channel.id, **said)
    assert slack.called(slack.posted(channel)[0]) == called


async def test_a_stream_and_an_edit_call_too(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    place = slack.dm(priya)
    question = slack.say(priya, place, "?")
    task = {"type": "task_update", "id": "t", "title": "<!here>", "status": "complete"}
    ts = (await client.chat_startStream(channel=place.id, thread_ts=question.ts, chunks=[task]))["ts"]
    assert slack.called(slack.posted(place)[0]) == {"here"}
    await client.chat_stopStream(channel=place.id, ts=ts)
    await client.chat_update(channel=place.id, ts=ts, text="<!channel>")
    assert slack.called(slack.posted(place)[0]) == {"channel"}


async def test_links_are_fetched_unless_unfurling_is_off(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    link = "https://evil.example/?q=secret"
    blocks = [section(f"see <{link}|this>")]
    await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks)
    await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks, unfurl_links=False)
    await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks, unfurl_links=False, unfurl_media=False)
    await client.chat_postEphemeral(channel=channel.id, user=priya.id, text=link)
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[rich(type="link", url=link)])
    assert [slack.fetched(message) for message in slack.posted(channel)] == [{link}, {link}, set(), set(), {link}]

"""Which events come of what people do, and which do not."""

from __future__ import annotations

from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack, Team


def told(slack: FakeSlack) -> list[tuple[str, str | None]]:
    """Type and subtype of every event, in order."""
    return [(delivery.event["type"], delivery.event.get("subtype")) for delivery in slack.sent]


async def test_a_mention_is_told_twice_with_one_ts_and_two_event_ids(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    said = slack.say(priya, channel, f"{slack.bot.mention} hi")
    assert told(slack) == [("app_mention", None), ("message", None)]
    assert {d.event["ts"] for d in slack.sent} == {said.ts}
    assert len({d.payload["event_id"] for d in slack.sent}) == 2
    assert "channel_type" not in slack.sent[0].event
    assert slack.sent[1].event["channel_type"] == "channel"


async def test_the_two_events_of_a_mention_come_in_either_order(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    slack.app.mention_first = False
    slack.say(priya, slack.channel("incidents", priya), f"{slack.bot.mention} hi")
    assert told(slack) == [("message", None), ("app_mention", None)]


async def test_without_a_mention_and_in_direct_messages_there_is_only_the_message(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    slack.say(priya, slack.channel("incidents", priya), "hi")
    slack.say(priya, slack.dm(priya), f"{slack.bot.mention} hi")
    assert told(slack) == [("message", None), ("message", None)]
    assert slack.sent[1].event["channel_type"] == "im"


async def test_where_the_bot_is_not_nothing_is_told(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    slack.say(priya, slack.channel("away", priya, with_bot=False), f"{slack.bot.mention} hi")
    assert slack.sent == []


async def test_an_event_needs_its_subscription_and_its_scope(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    slack.app.events.discard("app_mention")
    slack.say(priya, channel, f"{slack.bot.mention} hi")
    assert told(slack) == [("message", None)]
    slack.installation.scopes.discard("channels:history")
    slack.say(priya, channel, "hi")
    slack.react(priya, slack.say(priya, channel, "hi"), "eyes")
    assert told(slack) == [("message", None)]


async def test_an_edit_is_a_change_and_a_mention_again_if_it_mentions(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    said = slack.say(priya, channel, "hi")
    slack.edit(said, "hi you")
    slack.edit(said, f"hi {slack.bot.mention}")
    assert told(slack)[1:] == [("message", "message_changed"), ("app_mention", None), ("message", "message_changed")]
    mention, change = slack.sent[2].event, slack.sent[3].event
    assert (mention["ts"], mention["edited"]["user"]) == (said.ts, priya.id)
    assert (change["message"]["ts"], change["previous_message"]["text"]) == (said.ts, "hi you")
    assert change["ts"] != said.ts


async def test_a_preview_of_a_link_is_a_change_that_nobody_made(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    said = slack.say(priya, channel, f"{slack.bot.mention} https://example.com")
    slack.unfurl(said, "Example")
    assert told(slack)[2:] == [("message", "message_changed")]
    assert "edited" not in slack.sent[2].event["message"]


async def test_a_deleted_message_leaves_a_tombstone_if_it_has_replies(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    alone, root = slack.say(priya, channel, "a"), slack.say(priya, channel, "b")
    slack.say(priya, channel, "c", thread_ts=root.ts)
    slack.delete(alone)
    slack.delete(root)
    assert told(slack)[3:] == [("message", "message_deleted"), ("message", "message_changed")]
    assert slack.sent[3].event["deleted_ts"] == alone.ts
    assert slack.sent[4].event["message"]["subtype"] == "tombstone"
    assert [sight.text for sight in slack.what_user_sees(priya, channel)] == ["This message was deleted.", "c"]


async def test_files_broadcasts_joins_and_other_bots_have_marks_of_their_own(slack: FakeSlack) -> None:
    priya, robo = slack.user("Priya"), slack.other_bot("Robo")
    channel = slack.channel("incidents", priya, robo)
    root = slack.say(priya, channel, "look", files=[("a.txt", b"x")])
    slack.say(priya, channel, "all", thread_ts=root.ts, broadcast=True)
    slack.join(slack.user("Lee"), channel)
    slack.say(robo, channel, "beep")
    assert told(slack) == [
        *(("message", "file_share"), ("message", "thread_broadcast")),
        *(("message", "channel_join"), ("message", None)),
    ]
    assert slack.sent[0].event["files"][0]["name"] == "a.txt"
    assert slack.sent[3].event["bot_id"] == robo.bot_id
    assert "client_msg_id" not in slack.sent[3].event


async def test_the_apps_own_posts_edits_and_deletions_are_told_to_it_too(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    channel = slack.channel("incidents")
    ts = (await client.chat_postMessage(channel=channel.id, text="a"))["ts"]
    await client.chat_update(channel=channel.id, ts=ts, text="b")
    await client.chat_delete(channel=channel.id, ts=ts)
    assert told(slack) == [("message", None), ("message", "message_changed"), ("message", "message_deleted")]
    assert slack.sent[0].event["bot_id"] == slack.bot.bot_id


async def test_an_ephemeral_message_is_told_to_nobody(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    await client.chat_postEphemeral(channel=channel.id, user=priya.id, text="psst")
    assert slack.sent == []


async def test_one_message_may_be_said_twice_by_a_client_that_retries(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    first, second = (slack.say(priya, slack.dm(priya), "hi", client_msg_id="c1") for _ in range(2))
    assert first.ts != second.ts
    assert {d.event["client_msg_id"] for d in slack.sent} == {"c1"}


async def test_a_stranger_speaks_from_another_workspace_in_a_shared_channel(slack: FakeSlack) -> None:
    stranger = slack.user("Stu", stranger=True, team=Team("T0FAR", "Far", "far"))
    channel = slack.channel("partners", stranger, ext_shared=True)
    slack.say(stranger, channel, f"{slack.bot.mention} hi")
    payload = slack.sent[0].payload
    assert payload["is_ext_shared_channel"] is True
    assert (payload["event"]["user_team"], payload["team_id"]) == ("T0FAR", slack.installation.team.id)


async def test_a_reply_says_whose_thread_it_is_in(slack: FakeSlack) -> None:
    priya, sam = slack.user("Priya"), slack.user("Sam")
    channel = slack.channel("incidents", priya, sam)
    root = slack.say(priya, channel, "a")
    slack.say(sam, channel, "b", thread_ts=root.ts)
    assert "parent_user_id" not in slack.sent[0].event
    assert (slack.sent[1].event["thread_ts"], slack.sent[1].event["parent_user_id"]) == (root.ts, priya.id)


async def test_a_file_may_be_named_only(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    said = slack.say(priya, slack.dm(priya), "look", files=[("a.png", b"x")])
    said.files[0].check_info = True
    slack.edit(said, "look again")
    named = slack.sent[-1].event["message"]["files"][0]
    assert (named["file_access"], "url_private" in named) == ("check_file_info", False)
    assert (await client.files_info(file=named["id"]))["file"]["name"] == "a.png"


async def test_a_second_workspace_may_have_the_same_ids(slack: FakeSlack) -> None:
    other = slack.install(Team("T0OTHER", "Other", "other"))
    there = slack.world.workspaces[other.team.id]
    priya = slack.user("Priya", user_id="U1")
    olga = slack.user("Olga", user_id="U1", workspace=there)
    slack.say(priya, slack.channel("one", priya, channel_id="C1"), "here")
    slack.say(olga, slack.channel("two", olga, channel_id="C1", workspace=there), "there")
    assert [(d.payload["team_id"], d.event["text"]) for d in slack.sent] == [
        (slack.installation.team.id, "here"),
        ("T0OTHER", "there"),
    ]


async def test_opening_the_home_brings_the_home_that_was_published(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    slack.open_home(priya)
    await client.views_publish(user_id=priya.id, view={"type": "home", "blocks": [{"type": "divider"}]})
    slack.open_home(priya)
    slack.open_home(priya, "messages")
    first, second, third = (delivery.event for delivery in slack.sent)
    assert ("view" in first, "view" in second, "view" in third) == (False, True, False)
    assert (first["tab"], third["tab"], third["channel"]) == ("home", "messages", slack.dm(priya).id)


async def test_time_stands_still_and_jumps_as_a_test_wants(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    slack.clock.stop()
    before = slack.clock.now()
    slack.clock.advance(90)
    said = [slack.say(priya, slack.dm(priya), str(n)) for n in range(3)]
    assert slack.clock.now() == before + 90
    assert sorted({message.ts for message in said}) == [message.ts for message in said]
    assert all(float(message.ts) >= before + 89 for message in said)

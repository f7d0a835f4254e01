"""Who is there, where they talk, what they brought: the reading methods and files."""

from __future__ import annotations

from aiohttp import ClientSession
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack, Team
from tests.fakes.slack_refusals import code


async def test_users_are_described_by_what_they_may_do(slack: FakeSlack, client: AsyncWebClient) -> None:
    people = {
        "is_admin": slack.user("Ana", admin=True),
        "is_owner": slack.user("Olu", owner=True),
        "is_restricted": slack.user("Gus", guest="multi"),
        "is_ultra_restricted": slack.user("Gil", guest="single"),
        "is_stranger": slack.user("Stu", stranger=True, team=Team("T0FAR", "Far", "far")),
        "deleted": slack.user("Del", deleted=True),
        "is_bot": slack.other_bot("Robo"),
    }
    plain = (await client.users_info(user=slack.user("Priya").id))["user"]
    for flag, person in people.items():
        described = (await client.users_info(user=person.id))["user"]
        assert described[flag] is True
        assert not plain.get(flag)
    assert (await client.users_info(user=people["is_stranger"].id))["user"]["team_id"] == "T0FAR"
    assert (await client.users_info(user=people["is_owner"].id))["user"]["is_admin"]
    assert (await client.users_info(user=people["is_ultra_restricted"].id))["user"]["is_restricted"]
    assert await code(client.users_info(user="U404")) == "user_not_found"


async def test_an_address_needs_its_own_scope(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya", email="priya@acme.example")
    assert "email" not in (await client.users_info(user=priya.id))["user"]["profile"]
    slack.installation.scopes.add("users:read.email")
    assert (await client.users_info(user=priya.id))["user"]["profile"]["email"] == "priya@acme.example"


async def test_user_groups_have_members_until_they_are_disabled(slack: FakeSlack, client: AsyncWebClient) -> None:
    sam = slack.user("Sam")
    group = slack.group("ops-approvers", sam)
    assert (await client.usergroups_list())["usergroups"][0]["handle"] == "ops-approvers"
    assert (await client.usergroups_users_list(usergroup=group.id))["users"] == [sam.id]
    group.disabled = True
    assert (await client.usergroups_list())["usergroups"] == []
    assert (await client.usergroups_users_list(usergroup=group.id))["users"] == []
    assert await code(client.usergroups_users_list(usergroup="S404")) == "no_such_subteam"


async def test_lists_come_in_pages(slack: FakeSlack, client: AsyncWebClient) -> None:
    people = [slack.user(f"P{n}") for n in range(5)]
    channel = slack.channel("incidents", *people)
    seen, cursor = [], ""
    for _ in range(3):
        page = await client.conversations_members(channel=channel.id, limit=2, cursor=cursor)
        seen += page["members"]
        cursor = page["response_metadata"]["next_cursor"]
    assert (seen, cursor) == (channel.members, "")
    assert await code(client.conversations_members(channel=channel.id, limit=1001)) == "invalid_limit"
    assert await code(client.conversations_members(channel=channel.id, cursor="?")) == "invalid_cursor"


async def test_a_thread_comes_oldest_first_with_its_root_on_every_page(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "0")
    replies = [slack.say(priya, channel, str(n), thread_ts=root.ts) for n in range(1, 5)]

    page = await client.conversations_replies(channel=channel.id, ts=root.ts, limit=2)
    assert [m["text"] for m in page["messages"]] == ["0", "1", "2"]
    assert page["messages"][0]["reply_count"] == 4
    assert page["has_more"]
    cursor = page["response_metadata"]["next_cursor"]
    page = await client.conversations_replies(channel=channel.id, ts=root.ts, limit=2, cursor=cursor)
    assert [m["text"] for m in page["messages"]] == ["0", "3", "4"]
    late = await client.conversations_replies(channel=channel.id, ts=root.ts, oldest=replies[1].ts, inclusive=True)
    assert [m["text"] for m in late["messages"]] == ["0", "2", "3", "4"]
    assert await code(client.conversations_replies(channel=channel.id, ts="1.000001")) == "thread_not_found"


async def test_a_history_comes_newest_first_without_replies(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "a")
    slack.say(priya, channel, "in thread", thread_ts=root.ts)
    last = slack.say(priya, channel, "b")
    messages = (await client.conversations_history(channel=channel.id))["messages"]
    assert [m["text"] for m in messages] == ["b", "a"]
    before = await client.conversations_history(channel=channel.id, latest=last.ts)
    assert [m["text"] for m in before["messages"]] == ["a"]


async def test_what_the_bot_is_not_in_it_cannot_read(slack: FakeSlack, client: AsyncWebClient) -> None:
    away = slack.channel("away", with_bot=False)
    secret = slack.channel("secret", kind="group", with_bot=False)
    assert await code(client.conversations_history(channel=away.id)) == "not_in_channel"
    assert await code(client.conversations_info(channel=secret.id)) == "channel_not_found"
    info = (await client.conversations_info(channel=away.id, include_num_members=True))["channel"]
    assert (info["is_member"], info["num_members"]) == (False, 0)


async def test_a_shared_channel_says_so(slack: FakeSlack, client: AsyncWebClient) -> None:
    shared = slack.channel("partners", ext_shared=True)
    assert (await client.conversations_info(channel=shared.id))["channel"]["is_ext_shared"]


async def test_a_direct_message_is_opened_once(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    first = (await client.conversations_open(users=[priya.id]))["channel"]["id"]
    assert (await client.conversations_open(users=priya.id))["channel"]["id"] == first
    assert slack.dm(priya).id == first
    assert await code(client.conversations_open(users="U404")) == "user_not_found"
    assert await code(client.conversations_open(users=slack.bot.id)) == "cannot_dm_self"
    assert await code(client.conversations_open(users=slack.other_bot("Robo").id)) == "cannot_dm_bot"
    slack.installation.scopes.discard("im:write")
    assert await code(client.conversations_open(users=priya.id)) == "missing_scope"


# Files


async def test_the_real_helper_uploads_into_a_thread(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    root = slack.say(priya, channel, "logs?")

    await client.files_upload_v2(
        channel=channel.id, thread_ts=root.ts, filename="log.txt", content="line", initial_comment="Here"
    )

    message = slack.posted(channel, root.ts)[0]
    assert (message.text, message.files[0].name, message.files[0].content) == ("Here", "log.txt", b"line")
    assert slack.what_user_sees(priya, channel)[-1].files == ["log.txt"]


async def test_an_upload_must_be_asked_for_sent_in_full_and_completed_once(
    slack: FakeSlack, client: AsyncWebClient, session: ClientSession
) -> None:
    channel = slack.channel("incidents")
    assert await code(client.files_getUploadURLExternal(filename="a.txt", length=0)) == "invalid_arguments"
    target = await client.files_getUploadURLExternal(filename="a.txt", length=4)
    files = [{"id": target["file_id"]}]
    early = client.files_completeUploadExternal(files=files, channel_id=channel.id)
    assert await code(early) == "file_update_failed"
    async with session.post(target["upload_url"], data=b"too long") as response:
        assert response.status == 400
    async with session.post(target["upload_url"], data=b"line") as response:
        assert response.status == 200
    await client.files_completeUploadExternal(files=files, channel_id=channel.id)
    again = client.files_completeUploadExternal(files=files, channel_id=channel.id)
    assert await code(again) == "file_not_found"
    async with session.post(f"{slack.url}../upload/v1/nothing", data=b"x") as response:
        assert response.status == 404


async def test_a_file_is_downloaded_with_a_token_that_may_and_else_a_page_comes(
    slack: FakeSlack, client: AsyncWebClient, session: ClientSession
) -> None:
    priya = slack.user("Priya")
    message = slack.say(priya, slack.dm(priya), "look", files=[("a.png", b"\x89PNG")])
    described = (await client.files_info(file=message.files[0].id))["file"]
    assert (described["mimetype"], described["size"]) == ("image/png", 4)
    url, head = described["url_private"], {"Authorization": f"Bearer {slack.bot_token}"}
    async with session.get(url, headers=head) as response:
        assert await response.read() == b"\x89PNG"
    async with session.get(url) as response:
        assert (response.status, response.content_type) == (200, "text/html")
    slack.installation.scopes.discard("files:read")
    async with session.get(url, headers=head) as response:
        assert response.content_type == "text/html"
    assert [call.outcome for call in slack.calls.of("download")] == ["ok", "signed out", "signed out"]

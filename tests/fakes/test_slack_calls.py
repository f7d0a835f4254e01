"""Calls as such: how they may come, who may make them, how often, and what may go wrong on the way."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientError, ClientSession
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
    AsyncServerErrorRetryHandler,
)
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import Answers, Cut, Fails, FakeSlack, Hangs, Lost, Slow, Team, TooMany
from tests.fakes.slack.methods import METHODS
from tests.fakes.slack_refusals import code, refusal


async def test_a_call_may_come_as_a_query_as_a_form_or_as_json(slack: FakeSlack, session: ClientSession) -> None:
    channel = slack.channel("incidents")
    url, head = f"{slack.url}chat.postMessage", {"Authorization": f"Bearer {slack.bot_token}"}
    args = {"channel": channel.id, "text": "Hello"}
    for how in ({"json": args}, {"data": args}, {"params": args}):
        async with session.post(url, headers=head, **how) as response:  # type: ignore[arg-type]
            assert (await response.json())["ok"]
    async with session.get(url, headers=head, params=args) as response:
        assert (await response.json())["ok"]
    async with session.post(url, data=args | {"token": slack.bot_token}) as response:
        assert (await response.json())["ok"]
    assert len(slack.posted(channel)) == 5


async def test_blocks_may_come_as_a_string_of_json_in_a_form(slack: FakeSlack, session: ClientSession) -> None:
    channel = slack.channel("incidents")
    form = {"channel": channel.id, "blocks": '[{"type": "divider"}]', "token": slack.bot_token}
    async with session.post(f"{slack.url}chat.postMessage", data=form) as response:
        assert (await response.json())["ok"]
    assert slack.posted(channel)[0].blocks[0]["type"] == "divider"


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        ("{oops", "application/json", "invalid_json"),
        ("[]", "application/json", "json_not_object"),
        ("hello", "text/plain", "invalid_post_type"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(
    slack: FakeSlack, session: ClientSession, body: str, content_type: str, error: str
) -> None:
    head = {"Authorization": f"Bearer {slack.bot_token}", "Content-Type": content_type}
    async with session.post(f"{slack.url}chat.postMessage", data=body, headers=head) as response:
        assert await response.json() == {"ok": False, "error": error}


async def test_a_reading_method_does_not_read_json(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    assert await code(client.api_call("users.info", json={"user": priya.id})) == "user_not_found"


async def test_a_token_must_be_there_known_in_force_and_of_the_right_kind(
    slack: FakeSlack, session: ClientSession
) -> None:
    def using(token: str | None) -> AsyncWebClient:
        return AsyncWebClient(token=token, base_url=slack.url, session=session, retry_handlers=[])

    assert await code(using(None).auth_test()) == "not_authed"
    assert await code(using("xoxb-other").auth_test()) == "invalid_auth"
    assert (await using(slack.bot_token).auth_test())["user_id"] == slack.bot.id
    app = using(slack.app.app_token)
    assert await code(app.chat_postMessage(channel="C1", text="x")) == "not_allowed_token_type"
    assert await code(app.apps_connections_open(app_token=slack.bot_token)) == "not_allowed_token_type"
    slack.installation.revoked = True
    assert await code(using(slack.bot_token).auth_test()) == "token_revoked"


async def test_a_missing_scope_is_named_together_with_those_there_are(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.installation.scopes.clear()
    slack.installation.scopes |= {"chat:write", "im:history"}
    answer = await refusal(client.users_info(user=slack.bot.id))
    assert answer == {
        "ok": False,
        "error": "missing_scope",
        "needed": "users:read",
        "provided": "chat:write,im:history",
    }
    channel = slack.channel("incidents")
    assert (await refusal(client.conversations_history(channel=channel.id)))["needed"] == "channels:history"


async def test_the_scopes_of_a_token_are_in_the_headers(slack: FakeSlack, client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert "chat:write" in answer.headers["x-oauth-scopes"].split(",")


async def test_an_unknown_method_is_refused_and_so_is_one_the_workspace_lacks(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    assert await code(client.api_call("chat.shout")) == "unknown_method"
    slack.absent.add("auth.test")
    assert await code(client.auth_test()) == "unknown_method"


async def test_an_argument_the_method_does_not_have_is_refused(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents").id
    answer = await refusal(client.chat_postMessage(channel=channel, text="a", client_msg_id="u1"))
    assert answer["error"] == "invalid_arguments"
    assert answer["response_metadata"]["messages"] == ["[ERROR] unknown argument: client_msg_id"]


async def test_every_call_is_in_the_log_without_its_token(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents").id
    await client.chat_postMessage(channel=channel, text="Hello")
    await code(client.chat_postMessage(channel="C404", text="Hello"))
    first, second = slack.calls.of("chat.postMessage")
    assert (first.args, first.token, first.team) == (
        {"channel": channel, "text": "Hello"},
        slack.bot_token,
        slack.installation.team.id,
    )
    assert [call.outcome for call in (first, second)] == ["ok", "channel_not_found"]
    assert slack.calls.refused() == [second]


async def test_a_second_workspace_has_its_own_token_people_and_places(slack: FakeSlack, session: ClientSession) -> None:
    other = slack.install(Team("T0OTHER", "Other", "other"))
    client = AsyncWebClient(token=other.token, base_url=slack.url, session=session, retry_handlers=[])
    channel = slack.channel("incidents")
    assert (await client.auth_test())["team_id"] == "T0OTHER"
    assert await code(client.chat_postMessage(channel=channel.id, text="x")) == "channel_not_found"


# How often


async def test_posts_in_a_channel_come_in_a_short_burst_and_then_one_a_second(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.clock.stop()
    one, two = slack.channel("one").id, slack.channel("two").id
    for _ in range(5):
        await client.chat_postMessage(channel=one, text="x")
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=one, text="x")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "1"
    assert caught.value.response["error"] == "ratelimited"
    await client.chat_postMessage(channel=two, text="x")
    slack.clock.advance(1)
    await client.chat_postMessage(channel=one, text="x")
    assert await code(client.chat_postMessage(channel=one, text="x")) == "ratelimited"


@pytest.mark.parametrize(
    ("method", "most"),
    [
        *(("usergroups.list", 20), ("usergroups.users.list", 20), ("reactions.remove", 20)),
        *(("chat.startStream", 20), ("chat.stopStream", 20)),
        *(("chat.update", 50), ("chat.delete", 50), ("conversations.replies", 50), ("conversations.info", 50)),
        *(("reactions.add", 50), ("agents.sessions.setStatus", 50)),
        *(("users.info", 100), ("chat.appendStream", 100), ("chat.postEphemeral", 100), ("views.publish", 100)),
        *(("files.getUploadURLExternal", 100), ("conversations.members", 100)),
    ],
)
async def test_a_method_is_granted_so_many_calls_a_minute_in_a_workspace(
    slack: FakeSlack, method: str, most: int
) -> None:
    slack.clock.stop()
    tier = METHODS[method].tier
    assert [slack.pace.wait_for("T1", method, tier) for _ in range(most + 1)] == [0] * most + [60]
    assert slack.pace.wait_for("T2", method, tier) == 0
    slack.clock.advance(59.5)
    assert slack.pace.wait_for("T1", method, tier) == 1
    slack.clock.advance(1)
    assert slack.pace.wait_for("T1", method, tier) == 0


async def test_a_call_too_many_is_answered_with_429_unless_limits_are_lifted(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.clock.stop()
    slack.pace.per_minute["tier2"] = 1
    await client.usergroups_list()
    with pytest.raises(SlackApiError) as caught:
        await client.usergroups_list()
    assert (caught.value.response.status_code, caught.value.response.headers["Retry-After"]) == (429, "60")
    slack.pace.strict = False
    await client.usergroups_list()


async def test_the_real_client_waits_as_long_as_it_is_told(slack: FakeSlack, session: ClientSession) -> None:
    handlers = [AsyncRateLimitErrorRetryHandler(max_retry_count=1)]
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=handlers)  # type: ignore[arg-type]
    slack.fail("auth.test", TooMany(0))
    await client.auth_test()
    assert [call.outcome for call in slack.calls] == ["ratelimited", "ok"]


# What may go wrong


async def test_faults_meet_the_next_calls_and_then_no_more(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")

    async def posted() -> object:
        return await client.chat_postMessage(channel=channel.id, text="x")

    slack.fail("chat.postMessage", Fails("fatal_error"), times=2)
    slack.fail("chat.postMessage", Answers(500))
    slack.fail("chat.postMessage", Cut())
    slack.fail("chat.postMessage", Lost())
    assert [await code(posted()) for _ in range(2)] == ["fatal_error", "fatal_error"]
    with pytest.raises((SlackApiError, ClientError)):
        await posted()
    for _ in range(2):
        with pytest.raises(ClientError):
            await posted()
    assert len(slack.posted(channel)) == 1
    await posted()
    outcomes = ["fatal_error", "fatal_error", "http 500", "cut", "lost", "ok"]
    assert [call.outcome for call in slack.calls] == outcomes


async def test_a_call_may_hang_until_its_caller_gives_up(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.fail("auth.test", Hangs())
    calling = asyncio.ensure_future(client.auth_test())
    await slack.until(lambda: any(slack.calls))
    done, _ = await asyncio.wait({calling}, timeout=0.1)
    assert not done
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert slack.calls[0].outcome == "hung"


async def test_a_slow_call_is_done_before_it_is_answered(slack: FakeSlack, client: AsyncWebClient) -> None:
    channel = slack.channel("incidents")
    slack.fail("chat.postMessage", Slow(5))
    calling = asyncio.ensure_future(client.chat_postMessage(channel=channel.id, text="x"))
    await slack.until(lambda: slack.posted(channel))
    assert len(slack.posted(channel)) == 1
    assert not calling.done()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_the_real_clients_retry_what_broke(slack: FakeSlack, session: ClientSession) -> None:
    handlers = [AsyncConnectionErrorRetryHandler(), AsyncServerErrorRetryHandler()]
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=handlers)
    slack.fail("auth.test", Answers(503, "{}"))
    await client.auth_test()
    assert [call.outcome for call in slack.calls] == ["http 503", "ok"]


async def test_an_error_of_the_fake_itself_ends_the_test(session: ClientSession) -> None:
    with pytest.raises(KeyError, match="T404"):  # noqa: PT012 - leaving the workspace is what raises
        async with FakeSlack() as slack:
            slack.installation.team = Team("T404", "Lost", "lost")
            client = AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=[])
            with pytest.raises(SlackApiError):
                await client.users_info(user="U1")

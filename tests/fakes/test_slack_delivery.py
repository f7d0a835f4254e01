"""How events reach an app: the real Bolt by Socket Mode and by HTTP, and what happens when it does not answer."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession, WSServerHandshakeError
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack
from tests.fakes.slack_bolt_app import BoltApp, by_http, by_socket, listening


@pytest.fixture
def bolt(slack: FakeSlack, session: ClientSession) -> BoltApp:
    return BoltApp(slack, session)


def outcomes(slack: FakeSlack, index: int = 0) -> list[str | None]:
    return [attempt.outcome for attempt in slack.sent[index].attempts]


# Socket Mode


async def test_a_mention_arrives_as_two_events_with_one_ts(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    async with by_socket(slack, bolt):
        said = slack.say(priya, channel, f"{slack.bot.mention} why?")
        await slack.post.idle()
        await slack.until(lambda: len(bolt.heard) == 2)
    assert sorted(bolt.kinds()) == ["app_mention", "message"]
    assert {body["event"]["ts"] for _, body in bolt.heard} == {said.ts}
    assert len({body["event_id"] for _, body in bolt.heard}) == 2
    assert {body["event"]["client_msg_id"] for _, body in bolt.heard} == {said.client_msg_id}


async def test_what_is_not_acknowledged_comes_again_at_once_then_after_one_minute_and_five(
    slack: FakeSlack, bolt: BoltApp
) -> None:
    priya = slack.user("Priya")
    slack.post.within = 0.05
    async with by_socket(slack, bolt):
        slack.sockets.connections[0].muted = True
        slack.say(priya, slack.dm(priya), "hello")
        await slack.until(lambda: len(slack.sent[0].attempts) == 2 and outcomes(slack)[1])
        slack.clock.advance(61)
        await slack.until(lambda: len(slack.sent[0].attempts) == 3 and outcomes(slack)[2])
        slack.clock.advance(301)
        await slack.post.idle()
        await slack.until(lambda: len(bolt.heard) == 4)
    assert outcomes(slack) == ["timeout"] * 4
    assert not slack.sent[0].acknowledged
    retries = [body["event_id"] for _, body in bolt.heard]
    assert len(retries) == 4
    assert len(set(retries)) == 1


async def test_a_retry_says_which_it_is_and_why(slack: FakeSlack, session: ClientSession) -> None:
    priya = slack.user("Priya")
    slack.post.within = 0.05
    async with session.ws_connect(slack.sockets_url()) as socket:
        hello = await socket.receive_json()
        assert (hello["type"], hello["num_connections"]) == ("hello", 1)
        await slack.sockets.connected()
        slack.say(priya, slack.dm(priya), "hello")
        first, second = await socket.receive_json(), await socket.receive_json()
        await socket.send_json({"envelope_id": second["envelope_id"]})
        await slack.post.idle()
    assert (first["retry_attempt"], first["retry_reason"]) == (0, "")
    assert (second["retry_attempt"], second["retry_reason"]) == (1, "timeout")
    assert first["payload"] == second["payload"]
    assert first["envelope_id"] != second["envelope_id"]
    assert outcomes(slack) == ["timeout", "acknowledged"]


async def test_a_late_acknowledgement_counts_for_nothing(slack: FakeSlack, session: ClientSession) -> None:
    priya = slack.user("Priya")
    slack.post.within, slack.post.retries = 0.05, ()
    async with session.ws_connect(slack.sockets_url()) as socket:
        await slack.sockets.connected()
        await socket.receive_json()
        slack.say(priya, slack.dm(priya), "hello")
        envelope = await socket.receive_json()
        await slack.post.idle()
        await socket.send_json({"envelope_id": envelope["envelope_id"]})
        await slack.until(lambda: slack.sockets.connections[0].acknowledged)
    assert outcomes(slack) == ["timeout"]


async def test_an_event_without_a_connection_waits_for_one(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    slack.say(priya, slack.dm(priya), "hello")
    await slack.until(lambda: outcomes(slack) == ["connection_failed"] * 2)
    async with by_socket(slack, bolt):
        slack.clock.advance(61)
        await slack.post.idle()
        await slack.until(lambda: bolt.heard)
    assert outcomes(slack)[-1] == "acknowledged"


async def test_each_event_goes_to_one_connection_and_they_take_turns(
    slack: FakeSlack, bolt: BoltApp, session: ClientSession
) -> None:
    priya, other = slack.user("Priya"), BoltApp(slack, session)
    async with by_socket(slack, bolt), by_socket(slack, other, count=2):
        for n in range(4):
            slack.say(priya, slack.dm(priya), str(n))
            await slack.post.idle()
        await slack.until(lambda: len(bolt.heard) + len(other.heard) == 4)
        assert len(bolt.heard) == len(other.heard) == 2
        slack.sockets.choose = lambda connections: connections[0]
        slack.post.again(slack.sent[3])
        slack.sockets.choose = lambda connections: connections[1]
        await slack.until(lambda: len(bolt.heard) + len(other.heard) == 5)


async def test_the_same_event_can_be_given_to_both_of_two_processes(
    slack: FakeSlack, bolt: BoltApp, session: ClientSession
) -> None:
    priya, other = slack.user("Priya"), BoltApp(slack, session)
    async with by_socket(slack, bolt), by_socket(slack, other, count=2):
        slack.say(priya, slack.dm(priya), "hello")
        slack.post.again(slack.sent[0])
        await slack.until(lambda: bolt.heard and other.heard)
    assert bolt.heard[0][1]["event_id"] == other.heard[0][1]["event_id"]


async def test_the_real_client_comes_back_after_a_refresh_and_after_a_broken_connection(
    slack: FakeSlack, bolt: BoltApp
) -> None:
    priya = slack.user("Priya")
    async with by_socket(slack, bolt):
        await slack.sockets.disconnect()
        await slack.sockets.opened(2)
        await slack.sockets.drop()
        await slack.sockets.opened(3)
        slack.say(priya, slack.dm(priya), "still there?")
        await slack.post.idle()
        await slack.until(lambda: bolt.heard)
    assert slack.sent[0].attempts[-1].by == "connection 3"


async def test_the_real_client_comes_back_when_slack_was_away(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    async with by_socket(slack, bolt):
        await slack.go_down()
        slack.say(priya, slack.dm(priya), "anybody?")
        await slack.until(lambda: outcomes(slack) == ["connection_failed"] * 2)
        await slack.come_back()
        await slack.sockets.opened(2)
        slack.clock.advance(61)
        await slack.post.idle()
        await slack.until(lambda: bolt.heard)


async def test_an_envelope_on_a_connection_that_breaks_is_sent_again(slack: FakeSlack, session: ClientSession) -> None:
    priya = slack.user("Priya")
    async with session.ws_connect(slack.sockets_url()) as socket:
        await slack.sockets.connected()
        await socket.receive_json()
        slack.say(priya, slack.dm(priya), "hello")
        await socket.receive_json()
        await slack.sockets.drop()
        await slack.until(lambda: outcomes(slack)[0] == "connection_failed")


async def test_a_ticket_is_good_for_one_connection(slack: FakeSlack, session: ClientSession) -> None:
    url = slack.sockets_url()
    async with session.ws_connect(url):
        await slack.sockets.connected()
        with pytest.raises(WSServerHandshakeError):
            await session.ws_connect(url)


async def test_an_app_has_no_more_than_ten_connections(slack: FakeSlack, session: ClientSession) -> None:
    sockets = [await session.ws_connect(slack.sockets_url()) for _ in range(11)]
    told = [await socket.receive_json() for socket in sockets]
    assert [message["type"] for message in told] == ["hello"] * 10 + ["disconnect"]
    assert told[-1]["reason"] == "too_many_websockets"
    for socket in sockets:
        await socket.close()


async def test_nobody_acknowledges_in_place_of_a_dead_connection(slack: FakeSlack, session: ClientSession) -> None:
    socket = await session.ws_connect(slack.sockets_url())
    await slack.sockets.connected()
    await socket.close()
    await slack.until(lambda: not slack.sockets.connections)
    priya = slack.user("Priya")
    slack.say(priya, slack.dm(priya), "hello")
    await slack.until(lambda: outcomes(slack)[:1] == ["connection_failed"])


# HTTP


async def test_bolt_takes_signed_events_commands_and_interactions_by_http(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    channel = slack.channel("incidents", priya)
    async with by_http(slack, bolt):
        slack.say(priya, channel, f"{slack.bot.mention} why?")
        await slack.post.idle()
        delivery = await slack.command(priya, "/mcp", "list servers", channel)
        await slack.shortcut(priya, "ask")
        await slack.until(lambda: len(bolt.heard) == 4)
    assert sorted(bolt.kinds()) == ["app_mention", "command", "message", "shortcut"]
    assert delivery.answer == "ok list servers"
    assert slack.what_user_sees(priya, channel)[-1].words == "ok list servers"


async def test_bolt_answers_the_question_for_its_address(slack: FakeSlack, bolt: BoltApp) -> None:
    async with by_http(slack, bolt):
        assert slack.posts is not None
        answer = await slack.posts.verify(slack.app.verification_token)
    assert (answer["status"], answer["answer"]["challenge"]) == (200, answer["challenge"])


@pytest.mark.parametrize(("secret", "skew"), [("another secret", 0.0), ("", 301.0), ("", -301.0)])
async def test_bolt_refuses_a_wrong_signature_and_one_that_is_too_old_or_too_new(
    slack: FakeSlack, bolt: BoltApp, secret: str, skew: float
) -> None:
    priya = slack.user("Priya")
    slack.post.retries = ()
    async with by_http(slack, bolt):
        assert slack.posts is not None
        slack.posts.secret = secret or slack.posts.secret
        slack.posts.skew = skew
        slack.say(priya, slack.dm(priya), "hello")
        await slack.post.idle()
    assert [(a.outcome, a.status) for a in slack.sent[0].attempts] == [("http_error", 401)]
    assert bolt.heard == []


async def test_a_retry_by_http_carries_its_number_and_reason(slack: FakeSlack, session: ClientSession) -> None:
    priya = slack.user("Priya")
    async with listening(slack, [500, 503, 200]) as requests:
        slack.post.retries = (0.0, 0.0, 0.0)
        slack.say(priya, slack.dm(priya), "hello")
        await slack.post.idle()
    numbers = [(r.headers.get("X-Slack-Retry-Num"), r.headers.get("X-Slack-Retry-Reason")) for r in requests]
    assert numbers == [(None, None), ("1", "http_error"), ("2", "http_error")]


async def test_an_app_can_ask_not_to_be_asked_again(slack: FakeSlack, session: ClientSession) -> None:
    priya = slack.user("Priya")
    async with listening(slack, [500], {"X-Slack-No-Retry": "1"}) as requests:
        slack.say(priya, slack.dm(priya), "hello")
        await slack.post.idle()
    assert len(requests) == 1


async def test_a_slow_app_and_one_that_is_not_there_are_told_apart(slack: FakeSlack) -> None:
    priya = slack.user("Priya")
    slack.post.retries, slack.post.within = (), 0.1
    async with listening(slack, [0]):
        slack.say(priya, slack.dm(priya), "hello")
        await slack.post.idle()
    slack.say(priya, slack.dm(priya), "hello")
    await slack.post.idle()
    assert [outcomes(slack, 0), outcomes(slack, 1)] == [["timeout"], ["connection_failed"]]


async def test_commands_and_interactions_are_never_tried_again(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    slack.post.within = 0.05
    async with by_socket(slack, bolt):
        slack.sockets.connections[0].muted = True
        delivery = await slack.command(priya, "/mcp", "list", slack.channel("incidents", priya))
    assert [attempt.outcome for attempt in delivery.attempts] == ["timeout"]


async def test_bolt_acknowledges_an_event_before_its_listener_is_done(slack: FakeSlack, bolt: BoltApp) -> None:
    priya = slack.user("Priya")
    bolt.released.clear()
    async with by_socket(slack, bolt):
        slack.say(priya, slack.dm(priya), "hello")
        await slack.post.idle()
        assert outcomes(slack) == ["acknowledged"]
        bolt.released.set()


async def test_the_real_client_finds_the_socket_by_one_setting(slack: FakeSlack, session: ClientSession) -> None:
    client = AsyncWebClient(token=slack.app.app_token, base_url=slack.url, session=session)
    answer = await client.apps_connections_open(app_token=slack.app.app_token)
    assert answer["url"].startswith("ws://127.0.0.1:")

"""Events by Socket Mode and over HTTP are handled once, despite errors."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web

from bot.domain.health import ListenerStatus
from bot.errors import DeliveryFailed, SettingsError
from bot.platforms.slack.listener import BAD_REQUEST, LARGEST_BODY, EventsEndpoint, HttpResponse, SlackListener
from tests.fakes.slack import Answers, Fails
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot


@asynccontextmanager
async def over_http(place: ConnectedBot) -> AsyncIterator[tuple[str, EventsEndpoint]]:
    """A listener behind a small HTTP server that gets the fake's events."""
    listener = SlackListener(place.workspaces, place.api, signing_secret=place.slack.app.signing_secret)
    hook = listener.hook
    assert hook is not None

    async def events(request: web.Request) -> web.Response:
        answer = await hook.respond(request.headers, await request.read())
        return web.Response(status=answer.status, headers=answer.headers, text=answer.body)

    app = web.Application(client_max_size=4 * LARGEST_BODY)
    app.router.add_post(hook.path, events)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (socket,) = site._server.sockets  # type: ignore[union-attr]
    url = f"http://127.0.0.1:{socket.getsockname()[1]}{hook.path}"
    place.slack.deliver_by_http(url)
    listening = asyncio.create_task(listener.run(place.engine, place.commands))
    try:
        await place.slack.until(lambda: hook.ready)
        yield url, hook
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await runner.cleanup()


async def test_events_commands_and_presses_arrive_over_http() -> None:
    async with connected_bot(listening=False) as place, over_http(place):
        assert place.slack.posts is not None
        verified = await place.slack.posts.verify(place.slack.app.verification_token)
        assert verified["status"] == 200
        assert "challenge" in str(verified["answer"])
        place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} why?")
        await place.wait_for_responses()
        assert [each.text for each in place.engine.received] == ["why?"]
        typed = await place.slack.command(place.priya, "/mcp", "list", place.channel)
        assert typed.is_acknowledged
        await place.slack.until(lambda: place.commands.requests)


@pytest.mark.parametrize(("skew", "secret"), [(-301.0, ""), (301.0, ""), (0.0, "another secret")])
async def test_requests_that_slack_did_not_sign_just_now_are_refused(skew: float, secret: str) -> None:
    async with connected_bot(listening=False) as place, over_http(place):
        assert place.slack.posts is not None
        place.slack.posts.skew = skew
        place.slack.posts.secret = secret or place.slack.posts.secret
        place.slack.post.retries = ()
        place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} why?")
        await place.wait_for_responses()
        assert {attempt.status for each in place.slack.sent_deliveries for attempt in each.attempts} == {401}
        assert place.engine.received == []


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"{}", 401),
        ({"X-Slack-Request-Timestamp": "now", "X-Slack-Signature": "v0=1"}, b"{}", 401),
        ({"X-Slack-Request-Timestamp": "1" * 400, "X-Slack-Signature": "v0=ü"}, b"{}", 401),
        ({}, b"\xff", 400),
        ({}, b"x" * (LARGEST_BODY + 1), 413),
    ],
)
async def test_a_request_without_slacks_signature_is_refused_unread(
    headers: dict[str, str], body: bytes, status: int
) -> None:
    async with connected_bot(listening=False) as place, over_http(place) as (_, hook):
        assert (await hook.respond(headers, body)).status == status


def json_variants(value: Any, new: Any) -> Iterator[Any]:
    """Yield the JSON value with each of its objects, lists and texts replaced by another one."""
    yield new
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        for other in json_variants(inner, new):
            copied = copy.copy(value)
            copied[key] = other
            yield copied


async def test_a_signed_request_that_is_none_of_slack_is_refused_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected_bot(listening=False) as place, over_http(place) as (_, hook):
        posts = place.slack.posts
        assert posts is not None

        async def answer(body: str, content_type: str = "application/x-www-form-urlencoded") -> HttpResponse:
            return await hook.respond(posts.signature_headers(body) | {"Content-Type": content_type}, body.encode())

        bodies = ["", "null", "[]", "5", "{", "{}", '{"type": 5}', "x", "[" * 100_000, '{"type": "url_verification"']
        bodies += [f"payload={form}" for form in ("", "null", "[]", "x", "%7B", "[" * 100_000)]
        for body in bodies:
            for content_type in ("application/json", "application/x-www-form-urlencoded"):
                assert await answer(body, content_type) == BAD_REQUEST
        root = place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} why?")
        await place.wait_for_responses()
        await place.slack.shortcut(place.priya, "cs.ask", root)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        await place.slack.submit(place.priya, {"question": "why?"})
        payloads = [delivery.payload for delivery in place.slack.sent_deliveries if isinstance(delivery.payload, dict)]
        caplog.set_level(logging.CRITICAL)
        kinds = {str(payload.get("type")): payload for payload in payloads}
        assert {"event_callback", "message_action", "view_submission"} <= kinds.keys()
        for kind, payload in kinds.items():
            for new in (None, [], 5, [None]):
                for other in json_variants(payload, new):
                    text = json.dumps(other)
                    is_event = kind == "event_callback"
                    response = await (
                        answer(text, "application/json") if is_event else answer(urlencode({"payload": text}))
                    )
                    assert response.status in (200, 400), (kind, text)


async def test_before_the_listener_starts_slack_is_asked_to_retry(worker: ConnectedBot) -> None:
    hook = EventsEndpoint(worker.slack.app.signing_secret)
    posts = worker.slack.deliver_by_http("http://127.0.0.1:9/")
    assert (await hook.respond(posts.signature_headers("{}"), b"{}")).status == 503


async def test_it_says_whether_messages_arrive(worker: ConnectedBot) -> None:
    over_http_alone = SlackListener(worker.workspaces, worker.api, signing_secret="s")
    for listener in (worker.listener, over_http_alone):
        assert await listener.listening() is ListenerStatus.CONNECTING
        listening = asyncio.create_task(listener.run(worker.engine, worker.commands))
        async with asyncio.timeout(10):
            while await listener.listening() is not ListenerStatus.CONNECTED:
                await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert await listener.listening() is ListenerStatus.CONNECTING


async def test_a_refreshed_connection_loses_nothing(place: ConnectedBot) -> None:
    place.slack.pace.strict = False
    await place.slack.sockets.disconnect()
    await place.slack.sockets.wait_for_reconnect(2)
    place.slack.say(place.priya, place.slack.dm(place.priya), "still there?")
    await place.wait_for_responses()
    assert [each.text for each in place.engine.received] == ["still there?"]


async def test_two_processes_make_one_turn_of_a_message_that_reaches_both(place: ConnectedBot) -> None:
    second = SlackListener(place.workspaces, place.api, app_token=place.slack.app.app_token)
    place.slack.pace.strict = False
    other = asyncio.create_task(second.run(place.engine, place.commands))
    await place.slack.sockets.wait_for_connections(2)
    place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} why?")
    await place.wait_for_responses()
    for delivery in list(place.slack.sent_deliveries):
        for connection in place.slack.sockets.connections:
            place.slack.sockets.choose = lambda all_, chosen=connection: chosen
            place.slack.post.again(delivery)
            await place.wait_for_responses()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert [each.text for each in place.engine.received] == ["why?"]


async def test_the_acknowledgement_waits_for_the_insert_and_not_for_the_turn(place: ConnectedBot) -> None:
    place.engine.opened.clear()
    place.slack.say(place.priya, place.slack.dm(place.priya), "hello")
    await place.slack.until(lambda: place.engine.arrived)
    assert not place.slack.sent_deliveries[-1].is_acknowledged
    place.engine.opened.set()
    await place.wait_for_responses()
    assert place.slack.sent_deliveries[-1].is_acknowledged


async def test_a_wrong_app_token_ends_the_listener_with_a_cause_and_a_fix(worker: ConnectedBot) -> None:
    listener = SlackListener(worker.workspaces, worker.api, app_token="xapp-wrong")
    with pytest.raises(DeliveryFailed) as failure:
        await listener.run(worker.engine, worker.commands)
    assert failure.value.permanent
    assert "SLACK_APP_TOKEN" in failure.value.fix
    assert "xapp-wrong" not in str(failure.value)


async def test_a_revoked_bot_token_ends_the_listener_with_a_cause_and_a_fix(worker: ConnectedBot) -> None:
    worker.slack.installation.revoked = True
    listener = SlackListener(worker.workspaces, worker.api, app_token=worker.slack.app.app_token)
    with pytest.raises(DeliveryFailed) as failure:
        await listener.run(worker.engine, worker.commands)
    assert failure.value.permanent


@pytest.mark.parametrize(
    "event",
    [{"type": "app_uninstalled"}, {"type": "tokens_revoked", "tokens": {"bot": ["U1"], "oauth": []}}],
    ids=lambda event: event["type"],
)
async def test_when_the_app_is_removed_the_listener_ends_with_a_cause_and_a_fix(
    worker: ConnectedBot, event: dict[str, Any]
) -> None:
    listening = asyncio.create_task(worker.listener.run(worker.engine, worker.commands))
    await worker.slack.sockets.wait_for_connections()
    worker.slack.fail("auth.test", Fails("account_inactive"))
    worker.slack.tell(event["type"], event)
    with pytest.raises(DeliveryFailed) as failure:
        async with asyncio.timeout(10):
            await listening
    assert failure.value.permanent
    assert "The app was removed from Slack" in failure.value.cause
    assert "SLACK_BOT_TOKEN" in failure.value.fix


async def test_a_token_that_was_revoked_without_a_word_ends_the_listener_at_the_first_message(
    worker: ConnectedBot,
) -> None:
    listening = asyncio.create_task(worker.listener.run(worker.engine, worker.commands))
    await worker.slack.sockets.wait_for_connections()
    for method in ("users.info", "auth.test"):
        worker.slack.fail(method, Fails("token_revoked"), times=10)
    worker.slack.say(worker.priya, worker.slack.dm(worker.priya), "hello?")
    with pytest.raises(DeliveryFailed, match="The app was removed from Slack"):
        async with asyncio.timeout(10):
            await listening
    assert not worker.slack.sent_deliveries[0].is_acknowledged


async def test_when_a_persons_token_is_revoked_the_bot_goes_on(place: ConnectedBot) -> None:
    asked = len(place.slack.calls.of("auth.test"))
    place.slack.tell("tokens_revoked", {"type": "tokens_revoked", "tokens": {"oauth": [place.priya.id]}})
    await place.slack.until(lambda: len(place.slack.calls.of("auth.test")) > asked)
    place.slack.say(place.priya, place.slack.dm(place.priya), "still there?")
    await place.wait_for_responses()
    assert [each.text for each in place.engine.received] == ["still there?"]


async def test_an_app_token_that_is_revoked_meanwhile_ends_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.slack.listener.CHECK_SECONDS", 0.05)
    async with connected_bot(listening=False) as place:
        place.slack.pace.strict = False
        listening = asyncio.create_task(place.listener.run(place.engine, place.commands))
        await place.slack.sockets.wait_for_connections()
        place.slack.fail("apps.connections.open", Fails("invalid_auth"), times=1000)
        await place.slack.sockets.drop()
        with pytest.raises(DeliveryFailed) as failure:
            async with asyncio.timeout(20):
                await listening
        assert failure.value.permanent
        assert "SLACK_APP_TOKEN" in failure.value.fix


async def test_a_listener_that_nothing_could_reach_is_not_built(worker: ConnectedBot) -> None:
    with pytest.raises(SettingsError, match="SLACK_APP_TOKEN"):
        SlackListener(worker.workspaces, worker.api)


async def test_nothing_keeps_running_and_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    before = asyncio.all_tasks()
    async with connected_bot() as place:
        place.slack.say(place.priya, place.slack.dm(place.priya), "my word is hunter2")
        await place.wait_for_responses()
        token, app_token = place.slack.bot_token, place.slack.app.app_token
    left = {task for task in asyncio.all_tasks() - before if "slack_" in repr(task) or "bot/" in repr(task)}
    assert left == set()
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("bot."))
    assert not any(secret in ours for secret in (token, app_token, "hunter2", "ticket="))


async def test_a_slack_that_is_away_at_the_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.chat.background_tasks.FIRST_PAUSE", 0.01)
    async with connected_bot(listening=False) as place:
        place.slack.fail("auth.test", Answers(503), times=2)
        place.slack.fail("apps.connections.open", Fails("internal_error"), times=1)
        listening = asyncio.create_task(place.listener.run(place.engine, place.commands))
        await place.slack.sockets.wait_for_connections()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_a_command_whose_two_events_reach_two_processes_is_answered_once(place: ConnectedBot) -> None:
    second = SlackListener(place.workspaces, place.api, app_token=place.slack.app.app_token)
    place.slack.pace.strict = False
    other = asyncio.create_task(second.run(place.engine, place.commands))
    await place.slack.sockets.wait_for_connections(2)
    place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} mcp list")
    await place.wait_for_responses()
    await place.slack.until(lambda: place.commands.requests)
    assert len({each.attempts[0].by for each in place.slack.sent_deliveries}) == 2
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert len(place.commands.requests) == 1

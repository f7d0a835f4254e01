"""Limits of one API client that keeps streams and requests open, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from bot.app.web import serve_web
from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.completions import Completion, ModelRequest
from bot.errors import SettingsError
from bot.settings import read_settings
from bot.web.limits import CallerLimits, CallerShares
from tests.fakes.parts import ScriptedModel, say, until
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.streams import Stream, open_reply_stream, open_stream

ASK = "/api/responses/stream"
STREAMS, REQUESTS = 3, 6
SETTINGS: dict[str, Any] = {"api_streams_per_token": STREAMS, "api_requests_per_token": REQUESTS}
PATIENCE = 60.0


class Held:
    """A model that answers once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def answer(self, _request: ModelRequest) -> Completion:
        await self.go_on.wait()
        return say("done")

    def choice(self) -> Any:
        return scripted_choice(ScriptedModel([self.answer] * 100))


def question(text: str = "hello", **more: object) -> dict[str, Any]:
    return {"payload": {"messages": [{"role": "user", "content": text}], **more}}


def assert_refused(answer: httpx2.Response, said: str) -> None:
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["code"] == "too_many_requests"
    assert said in answer.json()["error"]["message"]


@asynccontextmanager
async def following(api: Api, token: str, count: int) -> AsyncIterator[list[Stream]]:
    """Send messages with one token and yield their streams, which stay open."""
    async with AsyncExitStack() as stack, httpx2.AsyncClient(base_url=api.client.base_url, timeout=30) as client:
        streams = [
            await stack.enter_async_context(open_reply_stream(client, "hello", token=token)) for _ in range(count)
        ]
        for stream in streams:
            await stream.until("init")
        yield streams


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def api(folder: Path, held: Held) -> AsyncIterator[Api]:
    async with opened_api(folder, model=held.choice(), **SETTINGS) as api:
        try:
            yield api
        finally:
            held.go_on.set()


async def test_a_token_with_all_of_its_streams_gets_429_and_others_are_served(api: Api, held: Held) -> None:
    greedy, other = await api.token("greedy", ApiRole.ADMIN), await api.token("other", ApiRole.MEMBER)
    async with following(api, greedy, STREAMS) as streams:
        assert_refused(await api.post(ASK, json=question(), token=greedy), f"keeps {STREAMS} requests open")
        assert_refused(await api.post(ASK, json=question(stream=False), token=greedy), "requests open")
        first = streams[0].seen[0].data["responseId"]
        assert_refused(await api.get(f"/api/responses/{first}/stream", token=greedy), "requests open")
        assert_refused(await api.get("/api/mcp/servers/fake/status/stream", token=greedy), "requests open")
        # Short requests do not count as streams, so that a client can always read and stop its turns.
        assert (await api.get(f"/api/responses/{first}", token=greedy)).status_code == 200
        async with following(api, other, 1) as others:
            waiting = asyncio.create_task(api.post(ASK, json=question(stream=False), token=other))
            await until(lambda: api.parts.surface.subscriptions.subscriber_count == STREAMS + 2)
            held.go_on.set()
            assert (await waiting).status_code == 200
            assert (await others[0].read_to_end())[-1].data["text"].strip() == "done"
        await asyncio.gather(*(stream.read_to_end() for stream in streams))
    async with following(api, greedy, STREAMS):
        pass


async def test_a_request_that_waits_for_its_response_counts_like_a_stream(api: Api, held: Held) -> None:
    token = await api.token("greedy", ApiRole.ADMIN)
    asking = [asyncio.create_task(api.post(ASK, json=question(stream=False), token=token)) for _ in range(STREAMS)]
    await until(lambda: api.parts.surface.subscriptions.subscriber_count == STREAMS)
    assert_refused(await api.post(ASK, json=question(stream=False), token=token), "requests open")
    assert_refused(
        await api.post("/api/mcp/tools/execute", json={"serverId": "fake", "toolName": "look"}, token=token), ""
    )
    held.go_on.set()
    assert [(await each).status_code for each in asking] == [200] * STREAMS
    assert (await api.post(ASK, json=question(stream=False), token=token)).status_code == 200


async def test_a_client_that_goes_away_gives_its_places_back(api: Api) -> None:
    token = await api.token("hasty", ApiRole.MEMBER)
    for _ in range(3):
        async with following(api, token, STREAMS):
            assert (await api.post(ASK, json=question(), token=token)).status_code == 429
        await until(lambda: api.parts.surface.subscriptions.subscriber_count == 0)
    for _ in range(STREAMS + 1):
        with pytest.raises(httpx2.TimeoutException):
            await api.post(ASK, json=question(stream=False), token=token, timeout=0.2)
        await until(lambda: api.parts.surface.subscriptions.subscriber_count == 0)


async def test_one_response_is_followed_by_one_token_ten_times_at_most(folder: Path) -> None:
    held = Held()
    async with opened_api(folder, model=held.choice()) as api, AsyncExitStack() as stack:
        mine, admin = await api.token("mine", ApiRole.MEMBER), await api.token("admin", ApiRole.ADMIN)
        [stream] = await stack.enter_async_context(following(api, mine, 1))
        path = f"/api/responses/{stream.seen[0].data['responseId']}/stream"
        streams = [stream]
        while len(streams) < 10:
            streams.append(await stack.enter_async_context(open_stream(api.client, "GET", path, token=mine)))
            await streams[-1].until("init")
        assert_refused(await api.get(path, token=mine), "follows this 10 times")
        other = await stack.enter_async_context(open_stream(api.client, "GET", path, token=admin))
        await other.until("init")
        held.go_on.set()
        assert (await other.read_to_end())[-1].data["text"].strip() == "done"


async def test_a_client_that_stops_following_a_response_may_follow_it_again(folder: Path) -> None:
    async with opened_api(folder, model=Held().choice()) as api, AsyncExitStack() as stack:
        mine = await api.token("mine", ApiRole.MEMBER)
        [stream] = await stack.enter_async_context(following(api, mine, 1))
        path = f"/api/responses/{stream.seen[0].data['responseId']}/stream"
        for _ in range(11):
            async with open_stream(api.client, "GET", path, token=mine) as again:
                await again.until("init")
            await until(lambda: api.parts.surface.subscriptions.subscriber_count == 1)


async def test_bodies_that_do_not_end_count_as_requests_in_flight(api: Api) -> None:
    token, other = await api.token("slow", ApiRole.MEMBER), await api.token("other", ApiRole.MEMBER)
    head = f"POST {ASK} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n"
    writers = []
    for _ in range(REQUESTS):
        _reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writers.append(writer)
        writer.write(head.encode())
    try:
        async with asyncio.timeout(PATIENCE):
            while (refused := await api.get("/api/usage", token=token)).status_code == 200:
                await asyncio.sleep(0.01)
        assert_refused(refused, f"{REQUESTS} requests in flight")
        assert (await api.get("/api/usage", token=other)).status_code == 200
    finally:
        for writer in writers:
            writer.transport.abort()
    async with asyncio.timeout(PATIENCE):
        while (await api.get("/api/usage", token=token)).status_code == 429:
            await asyncio.sleep(0.01)


async def test_a_request_that_is_one_too_many_does_not_reach_its_route() -> None:
    """The test calls the application directly: over HTTP, a route that runs after the response sees a disconnected
    client.
    """
    reached: list[str] = []
    sent: list[Message] = []
    finish = asyncio.Event()

    async def route(scope: Scope, _receive: Receive, _send: Send) -> None:
        reached.append(scope["path"])
        await finish.wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    limits = CallerLimits(route, CallerShares(requests=1))

    async def request(path: str) -> None:
        state = {"caller": ApiClient("ci", ApiRole.MEMBER), "request_id": "r"}
        await limits({"type": "http", "method": "DELETE", "path": path, "headers": [], "state": state}, receive, send)

    first = asyncio.create_task(request("/first"))
    await until(lambda: reached == ["/first"])
    async with asyncio.timeout(PATIENCE):
        await request("/second")
    assert [message["status"] for message in sent if "status" in message] == [429]
    assert reached == ["/first"]
    finish.set()
    await first
    await request("/third")
    assert reached == ["/first", "/third"]


async def test_where_all_tokens_have_every_stream_a_question_is_still_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.web.limits._MOST_STREAMS", 2)
    held = Held()
    async with opened_api(folder, model=held.choice()) as api:
        async with following(api, await api.token("one", ApiRole.MEMBER), 2):
            refused = await api.post(ASK, json=question())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_streams")
            taken = await api.post(ASK, json=question("later", stream=False))
            assert taken.status_code == 202
            assert taken.headers["location"] == f"/api/responses/{taken.json()['responseId']}"
            held.go_on.set()
        async with asyncio.timeout(PATIENCE):
            while (await api.get(taken.headers["location"])).json()["status"] != "COMPLETED":
                await asyncio.sleep(0.01)


async def test_when_the_server_leaves_every_place_is_given_back(folder: Path, api: Api) -> None:
    token = await api.token("long", ApiRole.MEMBER)
    settings = read_settings(
        admin_api_token="the-operators-own-token-of-the-tests", port=0, database_url="sqlite://", **SETTINGS
    )
    async with serve_web(settings, dependencies=api.parts) as port, AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30))
        streams = [
            await stack.enter_async_context(open_reply_stream(client, "hello", token=token)) for _ in range(STREAMS)
        ]
        for stream in streams:
            await stream.until("init")
        leaving = stack.pop_all()
    await leaving.aclose()
    await until(lambda: api.parts.surface.subscriptions.subscriber_count == 0)


def test_streams_leave_room_for_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_STREAMS_PER_TOKEN", "100")
    with pytest.raises(SettingsError, match="is not less than API_REQUESTS_PER_TOKEN"):
        read_settings()

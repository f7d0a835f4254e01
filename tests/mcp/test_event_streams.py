"""Servers of HTTP+SSE, and answers in a stream that belongs to no request: listings, calls, and broken streams, which
end waiting calls at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, ServerStatus
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import OK, Answer, Message, Reaction, Silence, error, result
from tests.fakes.mcp.event_stream import FakeEventStream, FakeSideStream
from tests.mcp.toolboxes import (
    call,
    connected_toolbox,
    error_text,
    http_server,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unknown,
    until,
)

HTML = Answer(200, b"<html>hello</html>", {"content-type": "text/html"})
NOT_SSE = "with a stream of events. Fix: check its url, and that its transport is the right one."


def older(url: str, name: str = "s", **fields: Any) -> ServerConfig:
    return ServerConfig(name, HttpTransport(url, {"Authorization": "Bearer t0p-secret"}, HttpKind.SSE), **fields)


def speaking(server: FakeEventStream) -> FakeEventStream:
    server.speak_legacy("t", "other")
    return server


def status(box: McpToolbox, name: str = "s") -> ServerStatus:
    return next(state.status for state in box.servers() if state.config.name == name)


@pytest.mark.parametrize("kind", [HttpKind.SSE, HttpKind.AUTO])
async def test_the_librarys_own_server_is_spoken_to_and_its_death_is_seen_at_once(kind: HttpKind) -> None:
    with http_server(transport="sse") as (url, process):
        async with connected_toolbox(ServerConfig("s", HttpTransport(url, kind=kind), tool_timeout=600.0)) as box:
            assert text(await call(tool_by_name(box, "echo"), box, text="hello")) == "hello"
            process.kill()
            await until(lambda: status(box) is not ServerStatus.CONNECTED)


async def test_an_answer_of_several_megabytes_comes_through() -> None:
    large = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
    async with FakeEventStream() as server:
        speaking(server).on["tools/call"] = lambda message: result(message, large)
        async with connected_toolbox(older(server.url)) as box:
            assert "characters left out" in text(await call(tool_by_name(box, "t"), box))


async def test_a_change_that_the_server_tells_of_is_fetched() -> None:
    async with FakeEventStream() as server, running_toolbox(older(speaking(server).url)) as box:
        await box.offer()
        server.speak_legacy("t", "other", "third")
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(lambda: len(tools_of(box)) == 3)


@pytest.mark.parametrize(
    ("reaction", "said"),
    [
        (
            Answer(405),
            "Error calling MCP server: MCP server request failed: 405 Method Not Allowed. Fix: check the url",
        ),
        (Answer(400, b"<html>"), "Error calling MCP server: MCP server request failed: 400 Bad Request"),
        (lambda m: error(m, -32603, "Internal error", "Location not found", status=400), "Internal error - Location"),
        (lambda m: error(m, -32603, "Internal error", "Location not found"), "Internal error - Location not found"),
    ],
)
async def test_a_request_that_is_refused_says_so_at_once_and_ends_no_other(
    reaction: Reaction | Callable[[Message], Reaction], said: str
) -> None:
    async with FakeEventStream() as server, FakeEventStream() as neighbour:
        release = asyncio.Event()
        arrived = neighbour.hold("tools/call", release)

        def react(message: Message) -> Reaction:
            if message["params"]["name"] == "other":
                sibling.append(message)
                return Silence()
            return reaction(message) if callable(reaction) else reaction

        sibling: list[Message] = []
        speaking(neighbour)
        speaking(server).on["tools/call"] = react
        async with connected_toolbox(older(server.url), older(neighbour.url, "n")) as box:
            beside = asyncio.create_task(call(tool_by_name(box, "t", "n"), box))
            same = asyncio.create_task(call(tool_by_name(box, "other"), box))
            await arrived.wait()
            await until(lambda: sibling)
            assert said in error_text(await call(tool_by_name(box, "t"), box))
            release.set()
            server.say(result(sibling[0], OK).body)
            assert text(await same) == "ok"
            assert text(await beside) == "ok"
        assert server.opened == 1


async def test_a_server_that_takes_no_requests_any_more_loses_its_session_at_once() -> None:
    async with FakeEventStream() as server, running_toolbox(older(speaking(server).url)) as box:
        await box.offer()
        server.on["tools/call"] = server.on["tools/list"] = Answer(500)
        assert "500" in unknown(await call(tool_by_name(box, "t"), box))
        await until(lambda: server.opened >= 2)
        server.speak_legacy("t")
        await until(lambda: status(box) is ServerStatus.CONNECTED)


async def test_a_forgotten_session_is_made_again_and_the_call_repeated_once() -> None:
    async with FakeEventStream() as server:
        answers = iter([Answer(404)])
        speaking(server).on["tools/call"] = lambda message: next(answers, None) or result(message, OK)
        async with connected_toolbox(older(server.url)) as box:
            assert text(await call(tool_by_name(box, "t"), box)) == "ok"
        assert server.opened == 2


async def test_a_stream_that_is_cut_ends_the_calls_on_it_at_once_and_no_others() -> None:
    async with FakeEventStream() as server, FakeEventStream() as neighbour:
        release = asyncio.Event()
        arrived = neighbour.hold("tools/call", release)
        speaking(neighbour)
        speaking(server).on["tools/call"] = Silence()
        async with connected_toolbox(older(server.url, tool_timeout=600.0), older(neighbour.url, "n")) as box:
            beside = asyncio.create_task(call(tool_by_name(box, "t", "n"), box))
            here = asyncio.create_task(call(tool_by_name(box, "t"), box))
            await arrived.wait()
            await until(lambda: "tools/call" in server.methods())
            server.cut()
            assert "was lost before it answered" in unknown(await here)
            release.set()
            assert text(await beside) == "ok"
            await until(lambda: server.opened >= 2 and status(box) is ServerStatus.CONNECTED)
        assert neighbour.opened == 1


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (HTML, f"Server s: Its url answers with text/html and not {NOT_SSE}"),
        (Answer(302, None, {"location": "https://evil.example/"}), "Its url leads to another address. Fix: use that"),
        (Answer(405), "MCP server request failed: 405 Method Not Allowed. Fix: check the url of server s, and that"),
        (Answer(500), "Server s: MCP server request failed: 500 Internal Server Error. Fix: check its log."),
        (Answer(401), "MCP server request failed: 401 Unauthorized. Fix: check the headers of server s."),
    ],
)
async def test_an_address_without_an_event_stream_is_described(instead: Answer, said: str) -> None:
    async with FakeEventStream(instead=instead) as server, running_toolbox(older(server.url)) as box:
        [absent] = (await box.offer()).absent
        assert said in absent


@pytest.mark.parametrize(
    "address", ["https://evil.example/steal", "//evil.example/steal", "http://ana:x@127.0.0.1:{port}/"]
)
async def test_a_stream_that_wants_to_be_written_to_elsewhere_is_not_trusted(address: str) -> None:
    async with FakeEventStream() as server:
        speaking(server).first = f"event: endpoint\ndata: {address.replace('{port}', str(server.port))}\n\n"
        async with running_toolbox(older(server.url)) as box:
            [absent] = (await box.offer()).absent
        assert "Its stream of events wants to be written to at another host. Fix: use the url of that host." in absent
        assert set(server.methods()) == {"GET"}


@pytest.mark.parametrize("first", ["", ": nothing\n\n", "event: message\ndata: {}\n\n"])
async def test_a_stream_that_does_not_say_where_to_write_to_is_not_waited_for_for_ever(first: str) -> None:
    async with FakeEventStream() as server:
        speaking(server).first = first
        async with running_toolbox(older(server.url, connect_timeout=0.3)) as box:
            [absent] = (await box.offer()).absent
        assert "Server s did not answer within 0.3 s." in absent
        assert "initialize" not in server.methods()


async def test_nothing_is_asked_of_a_private_address_that_an_admin_has_defined() -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async with FakeEventStream() as server:
        url = f"https://tools.example:{server.port}/sse"
        async with running_toolbox(older(url, id="u1"), resolve=resolve) as box:
            [absent] = (await box.offer()).absent
        assert "is on this machine or in a private network" in absent
        assert server.seen == []


@pytest.mark.parametrize("early", [False, True])
async def test_an_answer_in_the_stream_of_no_request_reaches_its_call(*, early: bool) -> None:
    async with FakeSideStream(early=early) as server:
        server.speak_legacy("t", session="s1")
        server.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": m["params"]["name"]}]})
        async with running_toolbox(ServerConfig("s", HttpTransport(server.url))) as box:
            await until(lambda: tools_of(box))
            await until(lambda: server.opened)
            for _ in range(2):
                calls = await asyncio.gather(*(call(tool_by_name(box, "t"), box) for _ in range(5)))
                assert [text(outcome) for outcome in calls] == ["t"] * 5
            assert server.opened == 1
            server.cut()
            server.on["tools/call"] = lambda m: error(m, -32603, "No disk")
            await until(lambda: server.opened == 2)
            assert error_text(await call(tool_by_name(box, "t"), box)) == "Error calling MCP server: No disk"
            assert status(box) is ServerStatus.CONNECTED


async def test_a_call_ends_with_the_stream_that_its_answer_should_come_in() -> None:
    async with FakeSideStream() as server:
        server.speak_legacy("t", session="s1")
        server.on["tools/call"] = lambda m: result({**m, "id": 4711}, OK)
        async with running_toolbox(ServerConfig("s", HttpTransport(server.url))) as box:
            await until(lambda: tools_of(box))
            waiting = asyncio.create_task(call(tool_by_name(box, "t"), box))
            await until(lambda: server.opened and "tools/call" in server.methods())
            server.cut()
            assert unknown(await waiting) == "The connection to server s was lost before it answered."

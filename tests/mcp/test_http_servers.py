"""Servers at an address: outcomes of HTTP statuses and broken connections."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bot.domain.servers import ServerStatus
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import OK, Answer, FakeEndpoint, HangUp, Message, Reaction, error, result
from tests.mcp.toolboxes import (
    LIMIT,
    call,
    connected_toolbox,
    error_text,
    faster,
    http_server,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    unknown,
    unsent_reason,
    until,
)


def status(box: McpToolbox) -> ServerStatus:
    return box.servers()[0].status


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (401, "MCP server request failed: 401 Unauthorized. Fix: check the headers of server s."),
        (403, "MCP server request failed: 403 Forbidden. Fix: check the headers of server s."),
        (404, "404 Not Found. Fix: check the url of server s, and that its transport is the right one."),
        (405, "405 Method Not Allowed. Fix: check the url of server s"),
        (500, "Server s: MCP server request failed: 500 Internal Server Error. Fix: check its log."),
    ],
)
async def test_a_refused_connection_has_its_status_and_a_fix(endpoint: FakeEndpoint, code: int, said: str) -> None:
    for method in ("server/discover", "initialize"):
        endpoint.on[method] = Answer(code, b"<html>no</html>", {"content-type": "text/html"})
    async with running_toolbox(remote("s", endpoint.url)) as box:
        [absent] = (await box.offer()).absent
        assert said in absent
        cause, _, fix = absent.partition(" Fix:")
        assert box.servers()[0].problem == f'{cause} It says: "no". Fix:{fix}', "of the server: for people only"


async def test_an_unreachable_address_is_named_without_its_secrets(endpoint: FakeEndpoint) -> None:
    port = endpoint.port
    await endpoint.stop()
    config = remote("s", f"http://ana:passw0rd@127.0.0.1:{port}/mcp?key=abcdefg")
    async with running_toolbox(config) as box:
        [absent] = (await box.offer()).absent
    assert f"cannot be reached at http://127.0.0.1:{port}/mcp" in absent
    assert "passw0rd" not in absent
    assert "abcdefg" not in absent


async def test_headers_are_sent_and_never_shown(endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bot")

    def echoing(message: Message) -> Reaction:
        return error(message, -32603, "the token top-secret-1 is too old")

    endpoint.speak_modern("t")
    endpoint.on["tools/call"] = echoing
    async with connected_toolbox(remote("s", endpoint.url, {"Authorization": "Bearer top-secret-1"})) as box:
        said = error_text(await call(tool_by_name(box, "t"), box))
        endpoint.on["server/discover"] = endpoint.on["initialize"] = echoing
        endpoint.on["tools/call"] = HangUp()
    assert all(headers["authorization"] == "Bearer top-secret-1" for headers, _ in endpoint.seen)
    assert {headers["accept-encoding"] for headers, _ in endpoint.seen} == {"identity"}
    async with running_toolbox(remote("s", endpoint.url, {"Authorization": "Bearer top-secret-1"})) as box:
        [absent] = (await box.offer()).absent
        problem = box.servers()[0].problem
    assert "***" in said
    assert "***" in problem
    assert "top-secret-1" not in said + absent + problem + caplog.text


@pytest.mark.parametrize("broken", ["no answer", "half an answer", "not an answer"])
async def test_a_broken_answer_fails_one_call_and_not_its_siblings(endpoint: FakeEndpoint, broken: str) -> None:
    reactions: dict[str, Reaction] = {
        "no answer": HangUp(),
        "half an answer": Answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {}}', cut=10),
        "not an answer": Answer(200, b"{nonsense"),
    }
    held = asyncio.Event()

    def by_name(message: Message) -> Reaction:
        if message["params"]["name"] == "t":
            return reactions[broken]
        held.set()
        return result(message, OK)

    endpoint.speak_modern("t", "other")
    endpoint.on["tools/call"] = by_name
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        first = box.servers()[0].connected_at
        bad, good = await asyncio.gather(call(tool_by_name(box, "t"), box), call(tool_by_name(box, "other"), box))
        unknown(bad)
        assert text(good) == "ok"
        assert text(await call(tool_by_name(box, "other"), box)) == "ok"
        assert box.servers()[0].connected_at == first
        assert endpoint.methods().count("tools/call") == 3


async def test_a_call_that_was_not_accepted_counts_as_unsent_and_a_later_one_connects_again(
    endpoint: FakeEndpoint,
) -> None:
    endpoint.speak_modern("t")
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        tool = tool_by_name(box, "t")
        await endpoint.stop()
        assert "cannot be reached" in unsent_reason(await call(tool, box))
        assert status(box) in (ServerStatus.FAILED, ServerStatus.CONNECTING)
        await endpoint.listen()
        assert text(await call(tool, box)) == "ok"


async def test_a_call_that_finds_the_port_closed_for_a_moment_is_sent_once_more(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with connected_toolbox(remote("s", endpoint.url), pacing=faster(quick_pause=0.3)) as box:
        tool = tool_by_name(box, "t")
        await endpoint.stop()
        calling = asyncio.create_task(call(tool, box))
        await until(lambda: status(box) is ServerStatus.FAILED)
        await endpoint.listen()
        assert text(await calling) == "ok"
        assert endpoint.methods().count("tools/call") == 1


async def test_a_killed_server_is_noticed_without_a_call() -> None:
    with http_server() as (url, process):
        async with connected_toolbox(remote("s", url)) as box:
            process.kill()
            process.wait_for(LIMIT)
            await until(lambda: status(box) is ServerStatus.FAILED)
            assert (await box.offer()).tools == ()
            assert "cannot be reached" in box.servers()[0].problem


async def test_a_dead_stream_of_changes_is_not_a_dead_server(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    hello = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
    endpoint.on["server/discover"] = lambda m: result(m, hello)
    endpoint.on["subscriptions/listen"] = HangUp()
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        first = box.servers()[0].connected_at
        await until(lambda: endpoint.methods().count("subscriptions/listen") > 2)
        assert box.servers()[0].connected_at == first
        assert len((await box.offer()).tools) == 1


async def test_a_server_that_asks_to_be_left_alone_is_not_connected_until_then_but_by_an_admin(
    endpoint: FakeEndpoint,
) -> None:
    moment = [1000.0]
    endpoint.on = dict.fromkeys(("server/discover", "initialize"), Answer(503, headers={"retry-after": "60"}))
    async with running_toolbox(remote("s", endpoint.url), clock=lambda: moment[0]) as box:
        await until(lambda: "It asks to wait 60 s." in box.servers()[0].problem)
        tried = len(endpoint.seen)
        moment[0] += 59
        await box.offer()
        assert len(endpoint.seen) == tried
        endpoint.speak_modern("t")
        await box.connect("file:s")
        assert status(box) is ServerStatus.CONNECTED

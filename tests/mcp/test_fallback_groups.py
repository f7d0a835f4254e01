"""Fallback groups of servers, tools without a prefix, and tools of different servers with one name."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.messages import ToolCall
from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, ServerStatus, ToolNaming
from bot.domain.tools import Tool, ToolKind, ToolOutcome, ToolSet
from bot.examination import CheckStatus
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.server.retry import ConnectionTiming
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, result
from tests.fakes.mcp.event_stream import FakeEventStream
from tests.mcp.toolboxes import (
    ANA,
    connected_toolbox,
    raw,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    unsent_reason,
    until,
)

PLAIN = ToolNaming.PLAIN
OF_A_WORKSPACE: dict[str, Any] = {"workspace": "slack:T1", "id": "1"}
PROGRAMS = AllowedTargets(commands=frozenset({"python"}))
"""Targets that let an admin's server be a Python program."""


def server(name: str, *tools: str, answers: str = "", **fields: Any) -> ServerConfig:
    listing = {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in tools]}
    answer = {"result": {"content": [{"type": "text", "text": answers or name}]}}
    return raw(name, script={"listings": [[listing]], "calls": dict.fromkeys(tools, answer)}, **fields)


async def servers_by_tool(box: McpToolbox, workspace: str = "") -> dict[str, str]:
    """Return the servers of the offered tools, by the tools' names."""
    return {each.name: each.server for each in (await box.offer(workspace)).tools}


def find(offer: ToolSet, name: str) -> Tool:
    found = offer.find(name)
    assert found is not None
    return found


# fallback groups


async def test_a_tool_of_several_servers_in_a_group_is_offered_once_by_the_first() -> None:
    async with running_toolbox(
        server("one", "find", "count", fallback_group="web", fallback_order=2),
        server("two", "find", "look", fallback_group="web", fallback_order=1),
        server("other", "find"),
    ) as box:
        assert await servers_by_tool(box) == {
            "other__find": "other",
            "web__count": "one",
            "web__find": "two",
            "web__look": "two",
        }
        assert all(not snapshot.left_out for snapshot in box.servers()), "standing in is no collision"


async def test_the_next_server_of_a_group_answers_while_the_first_is_away(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("find")
    endpoint.on["tools/call"] = lambda message: result(message, {"content": [{"type": "text", "text": "first"}]})
    first = remote("first", endpoint.url, fallback_group="web", connect_timeout=2.0)
    async with connected_toolbox(first, server("second", "find", fallback_group="web", fallback_order=2)) as box:
        await until(lambda: all(snapshot.tool_count for snapshot in box.servers()))
        of_first = find(await box.offer(), "web__find")
        assert text(await run(box, of_first)) == "first"
        await endpoint.stop()
        reason = unsent_reason(await run(box, of_first))
        assert reason.endswith("Server second has the same tool. Call it again to use that one.")
        of_second = find(await box.offer(), "web__find")
        assert of_second.server == "second"
        assert text(await run(box, of_second)) == "second"
        await endpoint.listen()
        await box.connect("file:first")
        assert (await servers_by_tool(box))["web__find"] == "first"


@pytest.mark.parametrize("kind", [HttpKind.STREAMABLE, HttpKind.SSE])
@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, 401, 403, 599])
async def test_a_server_that_answers_calls_with_http_errors_is_stood_in_for(kind: HttpKind, status: int) -> None:
    now = [1_000.0]
    async with FakeEventStream() if kind is HttpKind.SSE else FakeEndpoint() as endpoint:
        endpoint.speak_legacy("find")
        endpoint.on["tools/call"] = Answer(status, {"detail": "The disk is full"})
        first = ServerConfig("first", HttpTransport(endpoint.url, kind=kind), fallback_group="web")
        second = server("second", "find", fallback_group="web", fallback_order=2)
        timing = ConnectionTiming(idle_after=None, quiet_after=None)
        async with running_toolbox(first, second, pacing=timing, clock=lambda: now[0]) as box:
            await until(lambda: named_tools(box))
            sent, used = 0, []
            for _ in range(36):
                tool = find(await box.offer(), "web__find")
                used.append(tool.server)
                await run(box, tool)
                if tool.server == "first":
                    sent += 1
                    assert box.servers()[0].status is ServerStatus.FAILED
                    assert f"{status}" in box.servers()[0].problem
                    assert "The disk is full" in box.servers()[0].problem
                now[0] += 2.0
            assert used[:2] == ["first", "second"]
            assert sent <= 5
            checks = [check async for check in box.diagnose("file:first")]
            calls = next(check for check in checks if check.name == "calls")
            assert calls.finding is CheckStatus.DOUBTFUL
            assert f"s ago: Error calling MCP server: MCP server request failed: {status}" in calls.detail or (
                "the tool reported an error" in calls.detail
            )
            endpoint.on["tools/call"] = lambda message: result(message, {"content": []})
            now[0] += 600.0
            assert box.servers()[0].status is ServerStatus.CONNECTED
            tool = find(await box.offer(), "web__find")
            assert tool.server == "first"
            text(await run(box, tool))


async def test_a_plain_json_rpc_server_that_keeps_failing_is_left_alone_for_a_while(endpoint: FakeEndpoint) -> None:
    now = [1_000.0]
    endpoint.on["find"] = Answer(502, b"<h1>Bad Gateway</h1>", {"content-type": "text/html"})
    first = ServerConfig("first", HttpTransport(endpoint.url, kind=HttpKind.JSONRPC))
    async with running_toolbox(first, pacing=ConnectionTiming(), clock=lambda: now[0]) as box:
        await until(lambda: named_tools(box))
        [tool] = (await box.offer()).tools
        for _ in range(5):
            await run(box, tool, method="find")
        assert endpoint.methods() == ["find"] * 3
        assert (await box.offer()).tools == ()
        assert '502 Bad Gateway. It says: "Bad Gateway".' in box.servers()[0].problem
        now[0] += 30.0
        endpoint.on["find"] = lambda message: Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": "ok"})
        assert text(await run(box, tool, method="find")) == "ok"
        assert box.servers()[0].status is ServerStatus.CONNECTED


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"retry-after": "60"}),
        (429, {"retry-after": " 59.5 "}),
        (403, {"retry-after": "60"}),
        (500, {"retry-after": "60"}),
        (503, {"retry-after": "Wed, 21 Oct 2099 07:29:00 GMT", "date": "Wed, 21 Oct 2099 07:28:00 GMT"}),
    ],
)
async def test_calls_wait_for_the_end_of_a_short_pause_and_are_not_sent_within_a_long_one(
    endpoint: FakeEndpoint, status: int, headers: dict[str, str]
) -> None:
    endpoint.speak_modern("find")
    endpoint.on["tools/call"] = Answer(status, headers=headers)
    async with running_toolbox(remote("first", endpoint.url)) as box:
        await until(lambda: named_tools(box))
        tool = find(await box.offer(), "first__find")
        await run(box, tool)
        for _ in range(3):
            unsent_reason(await run(box, tool))
        assert endpoint.methods().count("tools/call") == 1
        assert (await box.offer()).tools == ()
        assert f"{status}" in (await box.offer()).absent[0]
        await box.connect("file:first")
        endpoint.on["tools/call"] = lambda message: result(message, {"content": []})
        text(await run(box, tool))


async def test_the_time_of_a_pause_counts_without_a_clock_of_the_server_and_is_bounded(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("find")
    late = {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT", "date": "today"}
    endpoint.on["tools/call"] = Answer(429, headers=late)
    now = [1_000.0]
    timing = ConnectionTiming(idle_after=None, quiet_after=None)
    async with running_toolbox(remote("first", endpoint.url), pacing=timing, clock=lambda: now[0]) as box:
        await until(lambda: named_tools(box))
        tool = find(await box.offer(), "first__find")
        await run(box, tool)
        now[0] += 899.0
        unsent_reason(await run(box, tool))
        now[0] += 2.0
        endpoint.on["tools/call"] = lambda message: result(message, {"content": []})
        text(await run(box, tool))


async def test_a_group_whose_servers_are_all_away_says_so_of_the_first() -> None:
    async with running_toolbox(
        server("one", "find", fallback_group="web"), server("two", "find", fallback_group="web"), first_wait=30.0
    ) as box:
        tool_of_one = find(await box.offer(), "web__find")
        await box.reconcile([])
        assert "MCP server one not found" in unsent_reason(await run(box, tool_of_one))


# names without a prefix


async def test_tools_keep_their_own_names_where_that_is_wanted_and_possible() -> None:
    names = ("find", "look__up", "mcp_x", "a.b", "countersign_help")
    async with running_toolbox(server("s", *names, tool_names=PLAIN)) as box:
        seen = await servers_by_tool(box)
    assert "find" in seen
    assert "s__find" not in seen
    assert len(seen) == len(names)
    assert all(name.startswith("s__") for name in seen if name != "find"), seen


async def test_a_plain_name_that_another_server_has_is_refused_with_the_reason() -> None:
    async with running_toolbox(
        server("a", "find", "count", tool_names=PLAIN), server("b", "find", "look", tool_names=PLAIN)
    ) as box:
        offer = await box.offer()
        assert {each.name: each.server for each in offer.tools} == {"count": "a", "find": "a", "look": "b"}
        assert offer.absent == (
            "A tool of server b has the name of another server's. Fix: /mcp show b, or tool_names = prefixed",
        )
        [a, b] = box.servers()
        assert a.left_out == ()
        assert b.left_out == ("find: server a has a tool that the model knows as find",)


async def test_a_call_by_hand_reaches_the_server_that_is_named_also_if_models_reach_another() -> None:
    async with connected_toolbox(
        server("a", "find", tool_names=PLAIN),
        server("b", "find", tool_names=PLAIN),
        server("one", "look", fallback_group="web"),
        server("two", "look", fallback_group="web"),
        server("usual", "look"),
    ) as box:
        for name, original in (("a", "find"), ("b", "find"), ("one", "look"), ("two", "look"), ("usual", "look")):
            by_hand = box.by_server(tool_by_name(box, original, name))
            assert by_hand.name == f"{name}__{original}"
            offer = await box.offer()
            assert text(await run(box, find(offer, by_hand.name))) == name
        assert {each.name for each in offer.tools} == {"find", "web__look", "usual__look"}


async def test_the_doctor_names_tools_that_are_not_offered_because_of_their_names() -> None:
    async with connected_toolbox(server("a", "find", tool_names=PLAIN), server("b", "find", tool_names=PLAIN)) as box:
        [check] = [check async for check in box.diagnose("file:b") if check.name == "names"]
        assert check.finding is CheckStatus.DOUBTFUL
        assert "server a has a tool that the model knows as find" in check.detail
        assert [check async for check in box.diagnose("file:a") if check.name == "names"] == []


async def test_a_group_cannot_take_the_names_of_a_server() -> None:
    async with running_toolbox(server("web", "find"), server("other", "find", fallback_group="web")) as box:
        offer = await box.offer()
        assert [(each.name, each.server) for each in offer.tools] == [("web__find", "other")]
        assert "A tool of server web has the name" in offer.absent[0]


async def test_a_call_by_hand_reaches_the_named_server_also_if_a_group_is_called_like_it() -> None:
    theirs = server("theirs", "find", "read_mcp_resource", fallback_group="docs", **OF_A_WORKSPACE)
    own_group = server("mail", "find", fallback_group="mail"), server("first", "find", fallback_group="mail")
    async with running_toolbox(
        server("docs", "find", fallback_group="g"), theirs, *own_group, allowances=PROGRAMS
    ) as box:
        offer = await box.offer("slack:T1")
        assert find(offer, "docs__find").server == "theirs", "the group may have the name for models"
        for name in ("docs", "mail", "first"):
            by_hand = box.by_server(tool_by_name(box, "find", name))
            assert find(offer, by_hand.name).server == name
            assert text(await run(box, find(offer, by_hand.name))) == name


async def test_a_resource_is_read_from_the_named_server_also_if_a_group_is_called_like_it() -> None:
    async with FakeEndpoint(capabilities={"tools": {}, "resources": {}}) as endpoint:
        endpoint.speak_modern("find")
        endpoint.on["resources/list"] = lambda message: result(message, {"resources": [{"uri": "docs://1"}]})
        endpoint.on["resources/templates/list"] = lambda message: result(message, {"resourceTemplates": []})
        theirs = server("theirs", "read_mcp_resource", fallback_group="docs", **OF_A_WORKSPACE)
        async with running_toolbox(remote("docs", endpoint.url), theirs, allowances=PROGRAMS) as box:
            await box.offer("slack:T1")
            await box.sync("file:docs")
            offer = await box.offer("slack:T1")
            [reading] = [each for each in box.requests("file:docs") if each.kind is ToolKind.READ_RESOURCE]
            assert find(offer, reading.name).server == "docs"


async def test_a_server_of_a_workspace_cannot_take_a_name_of_a_shared_one() -> None:
    home = server("a", "find", tool_names=PLAIN, **OF_A_WORKSPACE)
    async with running_toolbox(home, server("b", "find", tool_names=PLAIN), allowances=PROGRAMS) as box:
        await box.offer("slack:T1")
        assert await servers_by_tool(box, "slack:T1") == {"find": "b"}
        assert box.servers()[1].left_out == ()


async def test_a_server_of_a_workspace_has_no_precedence_from_its_group() -> None:
    joins = server("a", "find", "look", fallback_group="g", tool_names=PLAIN, **OF_A_WORKSPACE)
    of_file = server("b", "find", fallback_group="g", tool_names=PLAIN), server("c", "look", tool_names=PLAIN)
    async with running_toolbox(joins, *of_file, allowances=PROGRAMS) as box:
        await box.offer("slack:T1")
        assert await servers_by_tool(box, "slack:T1") == {"find": "b", "look": "c"}


def named_tools(box: McpToolbox) -> bool:
    return all(snapshot.tool_count for snapshot in box.servers())


async def run(box: McpToolbox, tool: Tool, **arguments: str) -> ToolOutcome:
    return await box.call(tool, ToolCall("c1", tool.name, arguments), CallContext(ANA, "turn:1"))

"""Servers of plain JSON-RPC 2.0: their one tool, the request of a call, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import ConversationKey
from bot.domain.policies import Rule
from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, ServerStatus
from bot.engine.policy.evaluation import PolicyRequest, RuleMatch, match_rule
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, HangUp, Message, Reaction, Silence
from tests.mcp.toolboxes import (
    call,
    connected_toolbox,
    error_text,
    running_toolbox,
    text,
    tools_of,
    unknown,
    unsent_reason,
    until,
)

FIX = " Fix: check the url of server weather, and that its transport is the right one."


def plain(url: str, name: str = "weather", **fields: Any) -> ServerConfig:
    return ServerConfig(name, HttpTransport(url, {"Authorization": "Bearer t0p-secret"}, HttpKind.JSONRPC), **fields)


def answer(message: Message, result: Any) -> Answer:
    return Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


def error_answer(request: Message, status: int = 200, **error: Any) -> Answer:
    return Answer(status, {"jsonrpc": "2.0", "id": request["id"], "error": error})


async def call_method(box: McpToolbox, method: str = "get_weather", server: str = "weather", **more: Any) -> Any:
    [tool] = tools_of(box, server)
    return await call(tool, box, method=method, **more)


async def test_the_server_has_one_tool_with_these_words_and_is_asked_nothing(endpoint: FakeEndpoint) -> None:
    async with running_toolbox(plain(endpoint.url, "server-123", title="Weather API")) as box:
        [tool] = (await box.offer()).tools
        [state] = box.servers()
    assert endpoint.seen == []
    assert tool.name == tool.original_name == "mcp_server-123"
    assert tool.description == (
        "Call the MCP server 'Weather API'. Provide the MCP method name and optional parameters."
    )
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "method": {"type": "string", "description": "The MCP method to call"},
            "params": {"type": "object", "description": "Optional parameters for the MCP method"},
        },
        "required": ["method"],
    }
    assert (state.status, state.protocol) == (ServerStatus.CONNECTED, "JSON-RPC 2.0")
    assert (tool.read_only, tool.destructive, tool.repeatable) == (False, True, False)


@pytest.mark.parametrize(
    ("method", "found"), [("get_weather", RuleMatch.YES), ("set_alarm", RuleMatch.NO), ("x get_weather", RuleMatch.NO)]
)
async def test_a_rule_may_be_about_some_of_its_methods(method: str, found: RuleMatch) -> None:
    rule = Rule(ApprovalPolicy.ALWAYS_ALLOW, server="weather", tool="mcp_weather", arguments={"method": "get_*"})
    async with FakeEndpoint() as endpoint, running_toolbox(plain(endpoint.url)) as box:
        [tool] = (await box.offer()).tools
    place = ConversationKey("console", "here", "terminal", "1")
    assert (
        match_rule(rule, PolicyRequest(tool, place, {"method": method, "params": {"method": "get_weather"}})) is found
    )


async def test_a_call_sends_the_method_and_its_parameters_and_returns_the_result(endpoint: FakeEndpoint) -> None:
    endpoint.on["get_weather"] = lambda message: answer(message, {"data": {"sky": "bedeckt, 9 °C"}})
    async with connected_toolbox(plain(endpoint.url)) as box:
        said = await asyncio.gather(*(call_method(box, params={"location": "London"}) for _ in range(2)))
    assert [text(each) for each in said] == ['{"data": {"sky": "bedeckt, 9 °C"}}'] * 2
    ids = [message.pop("id") for _, message in endpoint.seen]
    assert len(set(ids)) == 2
    for headers, message in endpoint.seen:
        assert headers["authorization"] == "Bearer t0p-secret"
        assert headers["content-type"] == "application/json"
        assert message == {"jsonrpc": "2.0", "method": "get_weather", "params": {"location": "London"}}
    assert all(isinstance(request_id, str) and request_id for request_id in ids)


@pytest.mark.parametrize(
    ("result", "said"),
    [("It rains.", "It rains."), (None, "null"), (3, "3"), ([1, "a"], '[1, "a"]'), ({}, "{}")],
)
async def test_a_result_is_a_text(endpoint: FakeEndpoint, result: Any, said: str) -> None:
    endpoint.on["get_weather"] = lambda message: answer(message, result)
    async with connected_toolbox(plain(endpoint.url)) as box:
        assert text(await call_method(box)) == said
    assert "params" not in endpoint.seen[0][1]


@pytest.mark.parametrize(
    ("reaction", "said"),
    [
        (
            lambda m: error_answer(m, code=-32603, message="Internal error", data="Location not found"),
            "Error calling MCP server: Internal error - Location not found",
        ),
        (
            lambda m: error_answer(m, 500, code=-32603, message="Internal error", data="Location not found"),
            "Error calling MCP server: Internal error - Location not found",
        ),
        # Numbers with a meaning of their own in MCP have none here: nothing is repeated.
        (lambda m: error_answer(m, code=-32020, message="No"), "Error calling MCP server: No"),
        (
            lambda m: error_answer(m, code=-32000, message="Connection closed"),
            "Error calling MCP server: Connection closed",
        ),
        (Answer(302), "Error calling MCP server: MCP server request failed: 302 Found"),
        (Answer(404), f"Error calling MCP server: MCP server request failed: 404 Not Found.{FIX}"),
        (Answer(405, b"no"), f"Error calling MCP server: MCP server request failed: 405 Method Not Allowed.{FIX}"),
    ],
)
async def test_an_error_has_its_cause_and_touches_no_other_call(
    endpoint: FakeEndpoint, reaction: Reaction | Callable[[Message], Reaction], said: str
) -> None:
    release = asyncio.Event()
    arrived = endpoint.hold("slow", release)
    endpoint.on["get_weather"] = reaction
    endpoint.on["slow"] = lambda message: answer(message, "ok")
    async with connected_toolbox(plain(endpoint.url)) as box:
        beside = asyncio.create_task(call_method(box, "slow"))
        await arrived.wait()
        assert error_text(await call_method(box)) == said
        release.set()
        assert text(await beside) == "ok"
    assert endpoint.methods().count("get_weather") == 1


NO_JSON_RPC = "Server weather answered, but its answer is not JSON-RPC 2.0."
NO_ANSWERS: list[Any] = [
    b"<html>hello</html>",
    b"",
    {"jsonrpc": "2.0", "id": "another", "result": "ok"},
    {"jsonrpc": "2.0", "id": None, "result": "ok"},
    {"id": "x", "result": "ok"},
    {"jsonrpc": "2.0", "id": "x"},
    [],
]


@pytest.mark.parametrize(
    ("reaction", "said"),
    [
        *((Answer(200, body), NO_JSON_RPC) for body in NO_ANSWERS),
        (Answer(500, b"<html>"), "500 Internal Server Error. The call may have arrived."),
        (HangUp(), "broke before it answered"),
        (Silence(), "did not answer within 0.3 s"),
    ],
)
async def test_without_an_answer_the_outcome_is_unknown_and_the_call_is_sent_once(
    endpoint: FakeEndpoint, reaction: Reaction, said: str
) -> None:
    endpoint.on["get_weather"] = reaction
    seconds = 0.3 if isinstance(reaction, Silence) else 30.0
    async with connected_toolbox(plain(endpoint.url, tool_timeout=seconds)) as box:
        assert said in unknown(await call_method(box))
        assert endpoint.methods() == ["get_weather"]
        if isinstance(reaction, Silence):
            await until(lambda: not endpoint._tasks)


async def test_a_server_that_is_not_there_was_sent_nothing(endpoint: FakeEndpoint) -> None:
    await endpoint.stop()
    async with connected_toolbox(plain(endpoint.url)) as box:
        assert "could not be reached" in unsent_reason(await call_method(box))


async def test_a_private_address_that_an_admin_has_defined_is_not_called() -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return ["169.254.169.254"]

    config = plain("https://tools.example/rpc", id="u1")
    async with connected_toolbox(config, resolve=resolve) as box:
        [tool] = box.capabilities("u1").tools
        assert "metadata service" in unsent_reason(await call(tool, box, method="get_weather"))

"""Messages that the MCP library cannot parse, during other calls of the same session."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCResponse

from bot.mcp.server.output import StrayLine
from bot.mcp.transports.messages import DEEPEST, read_messages
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, Reaction, Silence, result
from tests.mcp.faulty_servers import BOTH, DONE, SOUND, tool_definition
from tests.mcp.toolboxes import (
    ANA,
    call,
    call_with,
    raw,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unknown,
    until,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
ODD_ANSWERS = st.fixed_dictionaries(
    {}, optional={"jsonrpc": JSON, "id": JSON, "result": JSON, "error": JSON, "method": JSON, "params": JSON}
)


@pytest.mark.parametrize("odd", ['{"jsonrpc":"2.0","id":ID,"result":null}', '{"jsonrpc":"2.0","id":ID,"result":{'])
async def test_an_answer_that_cannot_be_read_ends_its_own_call_alone(odd: str) -> None:
    calls = {"badly": {"do": "write", "line": odd}, "well": {"do": "slow", "seconds": 0.3}}
    script = {"listings": [[{"tools": BOTH}]], "calls": calls}
    async with running_toolbox(raw("s", script=script)) as box:
        await until(lambda: tools_of(box, "s"))
        outcomes = await asyncio.gather(
            *(call(tool_by_name(box, name), box) for name in ("badly", "well", "badly", "well"))
        )
        assert [unknown(outcome).startswith("Server s answered, but") for outcome in outcomes[::2]] == [True, True]
        assert [text(outcome) for outcome in outcomes[1::2]] == [DONE, DONE]


async def test_each_answer_of_a_batch_reaches_its_call() -> None:
    names = ["first", "second", "third"]
    calls = {name: {"do": "together", "calls": 3} for name in names}
    listing = [[{"tools": [tool_definition(name) for name in names]}]]
    async with running_toolbox(raw("s", script={"listings": listing, "calls": calls, "era": "legacy"})) as box:
        await until(lambda: tools_of(box, "s"))
        outcomes = await asyncio.gather(*(call(tool_by_name(box, name), box) for name in names))
        assert [text(outcome) for outcome in outcomes] == names


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_call_is_not_given_the_answer_to_another(
    endpoint: FakeEndpoint, content_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    waiting: list[Message] = []

    def react(message: Message) -> Reaction:
        if message["params"]["name"] == "badly":
            waiting.append(message)
            return Silence()
        answer = result(waiting[0], SOUND, {"content-type": content_type})
        if content_type == "application/json":
            return answer
        return type(answer)(200, f"data: {json.dumps(answer.body)}\n\n".encode(), answer.headers)

    endpoint.speak_modern("badly", "well")
    endpoint.on["tools/call"] = react
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await until(lambda: tools_of(box, "s"))
        waits = asyncio.create_task(call_with(tool_by_name(box, "badly"), box, CallContext(ANA, "k", deadline=1.0)))
        await until(lambda: bool(waiting))
        mistaken = unknown(await call(tool_by_name(box, "well"), box))
        assert mistaken.endswith(("its answer is for another request.", "was lost before it answered."))
        assert unknown(await waits) == "Server s did not answer within 1 s."
    assert "answered another request than the one that was sent" in caplog.text


async def test_an_answer_to_a_request_that_was_never_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    script = {"listings": [[{"tools": BOTH}]], "calls": {"badly": {"do": "foreign"}, "well": {"result": SOUND}}}
    async with running_toolbox(raw("s", script=script)) as box:
        await until(lambda: tools_of(box, "s"))
        for name in ("badly", "badly", "well"):
            assert text(await call(tool_by_name(box, name), box)) == DONE
    assert caplog.text.count("MCP server s answered a request that was never sent") == 1


async def test_the_content_of_an_answer_is_bounded_in_pieces(endpoint: FakeEndpoint) -> None:
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[' + '"a",' * 10_004 + '"b"]}}'
    endpoint.speak_modern("t")
    endpoint.on["tools/call"] = lambda message: Answer(200, line.replace("ID", str(message["id"])).encode())
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await until(lambda: tools_of(box, "s"))
        words = text(await call(tool_by_name(box, "t"), box)).splitlines()
    assert words == [*"a" * 10_000, "(5 more pieces of content were left out.)"]


def read(line: str | bytes, request_id: int | None = None) -> list[Any]:
    return asyncio.run(read_messages(line, request_id))


@given(st.text() | ODD_ANSWERS.map(json.dumps) | st.lists(ODD_ANSWERS, max_size=4).map(json.dumps))
def test_any_output_of_a_server_is_a_message_or_a_stray_line(line: str) -> None:
    messages = read(line)
    assert messages
    assert all(isinstance(item, SessionMessage | StrayLine) for item in messages)


@given(ODD_ANSWERS)
def test_an_odd_answer_in_a_response_is_one_to_its_request(answer: dict[str, Any]) -> None:
    answer = {**answer, "jsonrpc": "2.0", "id": 5}
    answer.pop("method", None)
    [item] = read(json.dumps(answer), 5)
    assert isinstance(item.message, JSONRPCResponse | JSONRPCError)
    assert item.message.id == 5


@pytest.mark.parametrize("depth", [DEEPEST - 2, DEEPEST - 1, 400, 100_000])
def test_an_answer_is_read_as_deeply_as_the_library_reads_it(depth: int) -> None:
    nested = "[" * depth + '"]{[\\"}]"' + "]" * depth
    [item] = read(f'{{"jsonrpc":"2.0","id":5,"result":{{"a":{nested},"b":[{{}}]}}}}')
    levels, value = 0, item.message.result["a"]
    while value and isinstance(value, list):
        levels, value = levels + 1, value[0]
    assert levels == min(depth, DEEPEST - 2)
    assert item.message.result["b"] == [{}]


def test_many_messages_on_one_line_are_bounded() -> None:
    assert len(read("[" + ",".join(["{}"] * 100_000) + "]")) <= 1001
    assert len(read("{}" * 100_000)) <= 1001


def test_a_text_that_is_dumped_again_and_again_is_read() -> None:
    line = '{"jsonrpc":"2.0","id":5,"result":{}}'
    for _ in range(12):
        line = json.dumps(line)
    [item] = read(line)
    assert (item.message.id, item.message.result) == (5, {})

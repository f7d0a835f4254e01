"""Calls to real servers over both transports: outcomes, and the server's state afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.domain.tools import CallReturned, Tool
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import FakeEndpoint, error
from tests.mcp.toolboxes import (
    ANA,
    call,
    call_with,
    connected_toolbox,
    error_text,
    http_server,
    raw,
    real,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unknown,
    until,
)


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield one real HTTP server for all tests that do not stop it: its address and the file of its counter."""
    counted = tmp_path_factory.mktemp("http") / "count"
    with http_server({"COUNT_FILE": str(counted)}) as (url, _):
        yield url, counted


@pytest.fixture
async def box(over_http: tuple[str, Path]) -> AsyncIterator[McpToolbox]:
    async with running_toolbox(remote("s", over_http[0])) as toolbox:
        await toolbox.offer()
        yield toolbox


@pytest.fixture(params=["stdio", "http"])
async def either(
    request: pytest.FixtureRequest, over_http: tuple[str, Path], tmp_path: Path
) -> AsyncIterator[tuple[McpToolbox, Path]]:
    """Yield a toolbox on each transport, and the file of its server's counter."""
    url, counted = over_http
    counted.unlink(missing_ok=True)
    if request.param == "stdio":
        counted = tmp_path / "count"
    configs = {"stdio": real(env={"COUNT_FILE": str(counted)}), "http": remote("s", url)}
    async with running_toolbox(configs[request.param]) as toolbox:
        await toolbox.offer()
        yield toolbox, counted


def scripted_server(tmp_path: Path, era: str = "modern", **calls: Any) -> Any:
    """Return a scripted server with the tools of `calls`, and the file to which it appends its messages."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in calls]
    record = tmp_path / "record"
    script = {"era": era, "listings": [[{"tools": tools}]], "calls": calls, "record": str(record)}
    return raw(script=script), record


def heard(record: Path, method: str) -> list[dict[str, Any]]:
    """Return the messages of one method that a scripted server has received."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return [message for message in map(json.loads, lines) if message["method"] == method]


async def test_a_tool_that_does_not_exist_is_an_answer_that_says_so(box: McpToolbox) -> None:
    gone = Tool("s__gone", "s", "gone", server_id="file:s")
    assert "gone" in error_text(await call(gone, box))


async def test_progress_is_passed_on_as_text(box: McpToolbox) -> None:
    heard: list[str] = []
    context = CallContext(ANA, "k", on_progress=heard.append)
    assert text(await call_with(tool_by_name(box, "slow"), box, context, seconds=0.05)) == "done"
    await until(lambda: "5/5 copying" in heard)
    assert sorted(heard) == [f"{step}/5 copying" for step in range(1, 6)]


async def test_a_progress_listener_that_fails_does_not_harm_the_call(box: McpToolbox) -> None:
    def raise_error(_text: str) -> None:
        raise RuntimeError("no room on the screen")

    context = CallContext(ANA, "k", on_progress=raise_error)
    assert text(await call_with(tool_by_name(box, "slow"), box, context, seconds=0.05)) == "done"


async def test_the_idempotency_key_travels_with_the_call(box: McpToolbox) -> None:
    outcome = await call(tool_by_name(box, "whoami"), box, key="turn-7:3")
    assert json.loads(text(outcome))["key"] == "turn-7:3"


async def test_cancelling_the_caller_reaches_the_server_and_leaves_the_connection_usable(
    either: tuple[McpToolbox, Path],
) -> None:
    box, counted = either
    begun = asyncio.Event()
    context = CallContext(ANA, "k", on_progress=lambda _text: begun.set())
    task = asyncio.create_task(call_with(tool_by_name(box, "slow"), box, context, seconds=30))
    await asyncio.wait_for(begun.wait(), 10)
    before = box.servers()[0].connected_at
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: counted.exists() and counted.read_text() == "cancelled\n")
    assert text(await call(tool_by_name(box, "echo"), box, text="still here")) == "still here"
    assert box.servers()[0].connected_at == before


async def test_a_servers_own_error_with_the_librarys_code_is_still_an_answer(tmp_path: Path) -> None:
    config, _ = scripted_server(tmp_path, forecast={"error": {"code": -32000, "message": "quota used up"}})
    async with connected_toolbox(config) as box:
        assert error_text(await call(tool_by_name(box, "forecast"), box)).endswith("quota used up")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_child_is_told_of_a_call_that_was_given_up(tmp_path: Path, era: str) -> None:
    config, record = scripted_server(tmp_path, era, t={"do": "silence"})
    async with connected_toolbox(config) as box:
        unknown(await call_with(tool_by_name(box, "t"), box, CallContext(ANA, "k", deadline=0.1)))
        await until(lambda: heard(record, "notifications/cancelled"))
        [sent] = heard(record, "tools/call")
        [told] = heard(record, "notifications/cancelled")
        assert told["params"]["requestId"] == sent["id"]
        assert sent["params"]["_meta"]["countersign/idempotencyKey"] == "k"


async def test_the_servers_time_limit_counts_where_the_call_has_none(tmp_path: Path) -> None:
    config, _ = scripted_server(tmp_path, t={"do": "silence"})
    quick = raw(script=json.loads(config.transport.args[-1]), tool_timeout=0.1)
    async with connected_toolbox(quick) as box:
        assert "within 0.1 s" in unknown(await call(tool_by_name(box, "t"), box))


async def test_the_code_of_an_error_is_in_the_log_and_in_the_result(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.speak_modern("t")
    endpoint.on["tools/call"] = lambda message: error(message, -32603, "Internal error", "Location not found")
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await until(lambda: tools_of(box))
        with caplog.at_level("INFO"):
            outcome = await call(tool_by_name(box, "t"), box)
    assert error_text(outcome) == "Error calling MCP server: Internal error - Location not found"
    assert isinstance(outcome, CallReturned)
    assert outcome.result.structured == {"code": -32603}
    assert "MCP server s, tool t: error -32603" in caplog.text

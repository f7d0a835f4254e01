"""The toolbox as a whole: its offer, the names of servers, and the tools that it withholds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bot.domain.servers import DesiredServer, HttpTransport, ServerConfig, StdioTransport
from bot.domain.tools import ServerGuidance
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext, ServerAdmin, Toolbox
from tests.mcp.toolboxes import ANA, connected_toolbox, raw, real, running_toolbox


def offering(*names: str, **hints: Any) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name in names]
    answer = {"result": {"content": [{"type": "text", "text": "yes"}]}}
    return {"listings": [[{"tools": tools}]], "calls": dict.fromkeys(names, answer)}


def test_the_toolbox_is_both_of_its_ports() -> None:
    box = McpToolbox([])
    toolbox: Toolbox = box
    admin: ServerAdmin = box
    assert admin.enabled
    assert toolbox is box


async def test_tools_come_by_name_and_always_in_the_same_order() -> None:
    configs = raw("b", script=offering("y", "x")), raw("a", script=offering("z", "same")), raw("c", script=offering())
    async with running_toolbox(*configs) as box:
        one = await box.offer()
    async with running_toolbox(*reversed(configs)) as box:
        other = await box.offer()
    assert [tool.name for tool in one.tools] == ["a__same", "a__z", "b__x", "b__y"]
    assert one == other
    assert one.absent == ()


async def test_hints_count_only_for_a_trusted_server() -> None:
    script = offering("t", readOnlyHint=True, idempotentHint=True)
    async with running_toolbox(raw("a", script=script), raw("b", script=script, trusted=True)) as box:
        untrusted, trusted = (await box.offer()).tools
    assert not untrusted.read_only
    assert not untrusted.repeatable
    assert trusted.read_only
    assert trusted.repeatable
    assert untrusted.annotations == trusted.annotations


async def test_guidance_names_the_context_tool_as_it_is_offered(caplog: pytest.LogCaptureFixture) -> None:
    configs = [
        raw("a", script=offering("look up"), system_instruction="Be exact.", auto_context_tool="look up"),
        raw("b", script=offering("t"), response_instruction="Name the source.", auto_context_tool="no such tool"),
        raw("c", script=offering("t")),
        raw("d", script={"probe": "exit"}, system_instruction="Nobody hears this."),
    ]
    async with running_toolbox(*configs) as box:
        offer = await box.offer()
    expected = next(tool.name for tool in offer.tools if tool.original_name == "look up")
    assert offer.guidance_for("a") == ServerGuidance("a", "Be exact.", "", expected)
    assert offer.guidance_for("b") == ServerGuidance("b", "", "Name the source.", "")
    assert [guidance.server for guidance in offer.guidance] == ["a", "b"]
    assert "no such tool" in caplog.text


async def test_the_state_of_a_server_tells_versions_and_since_when() -> None:
    async with connected_toolbox(real()) as box:
        [state] = box.servers()
    assert (state.protocol, state.server_version, state.problem) == ("2026-07-28", "1.2.3", "")
    assert state.tool_count == 12
    assert state.connected_at is not None


async def test_the_state_of_a_server_shows_no_secret() -> None:
    process = StdioTransport("no-such-command", ("--token", "tok-en-123"), {"KEY": "tok-en-123"})
    endpoint = HttpTransport("http://ana:passw0rd@127.0.0.1:9/mcp?key=abcdefg", {"Authorization": "Bearer top-secret"})
    known = frozenset(("tok-en-123",))
    async with connected_toolbox(
        DesiredServer(ServerConfig("a", process), secrets=known), ServerConfig("b", endpoint)
    ) as box:
        one, other = box.servers()
    assert one.config.transport == StdioTransport("no-such-command", ("--token", "***"))
    assert other.config.transport == HttpTransport("http://127.0.0.1:9/mcp")
    for secret in ("tok-en-123", "passw0rd", "abcdefg", "top-secret"):
        assert secret not in repr((one, other))


async def test_log_lines_of_the_library_are_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[str] = []
    terminal = logging.Handler(logging.INFO)
    terminal.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(terminal)
    try:
        async with running_toolbox():
            for name in ("mcp.client.stdio", "client"):
                logging.getLogger(name).error("Failed to parse JSONRPC message from server")
    finally:
        logging.getLogger().removeHandler(terminal)
    assert shown == []
    caplog.set_level(logging.DEBUG, logger="bot")
    logging.getLogger("mcp.client.stdio").error("Failed to parse JSONRPC message from server")
    assert "mcp.client.stdio: Failed to parse" in caplog.text


def context() -> CallContext:
    return CallContext(ANA, "k")

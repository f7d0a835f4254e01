"""Log messages of servers."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.characters import visible
from bot.domain.servers import DesiredServer, ServerConfig
from bot.mcp.server.output import ServerLog
from tests.mcp.test_list_changes import Clock
from tests.mcp.toolboxes import call, connected_toolbox, http_server, real, remote, tool_by_name


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_log_lines_of_a_server_are_in_the_doctors_report_without_secrets(transport: str) -> None:
    async def diagnose_log(server: ServerConfig) -> str:
        async with connected_toolbox(DesiredServer(server, secrets=frozenset(["hunter22"]))) as box:
            complain = tool_by_name(box, "complain")
            await call(complain, box, level="info", text="all is well")
            await call(complain, box, level="error", text="disk full,\nkey hunter22 \x1b[31mred")
            async with asyncio.timeout(30):
                while True:
                    details = [check.detail async for check in box.diagnose("file:s") if check.name == "its log"]
                    if details:
                        return details[0]

    if transport == "stdio":
        said = await diagnose_log(real())
    else:
        with http_server() as (url, _):
            said = await diagnose_log(remote("s", url))
    assert "error: disk full, key *** " in said
    assert "all is well" not in said
    assert said.isprintable()


def test_only_the_last_few_are_kept_and_a_flood_is_not_listened_to() -> None:
    clock = Clock()
    words = ServerLog(clock)
    for n in range(1_000):
        words.add("warning", f"message {n}", visible)
    assert [line for _, line in words.last] == [f"message {n}" for n in range(15, 20)]
    clock.ahead += 61
    words.add("error", {"code": 7}, visible)
    assert words.last[-1] == ("error", '{"code": 7}')


def test_a_long_message_is_shown_short() -> None:
    words = ServerLog()
    words.add("alert", "x" * 5_000, visible)
    assert len(words.last[0][1]) == 201

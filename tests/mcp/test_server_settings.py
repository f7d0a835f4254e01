"""Settings of single servers: reconnects, attempts within a connect, and the length of results."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bot.domain.messages import FilePart
from bot.domain.servers import ServerConfig, ServerStatus, StdioTransport
from bot.domain.tools import CallReturned
from bot.mcp.server.retry import ConnectionTiming
from bot.mcp.toolbox import McpToolbox
from tests.fakes.programs import python
from tests.mcp.toolboxes import FAKES, FAST, call, connected_toolbox, real, running_toolbox, text, tool_by_name, until

NO_RECONNECTS = FAST.without_reconnecting()


def status(box: McpToolbox) -> ServerStatus:
    return box.servers()[0].status


def works_at(attempt: int, folder: Path, **fields: Any) -> ServerConfig:
    """Return a server that fails at its start before this attempt."""
    starts = folder / "starts"
    run = (
        f"echo x >> {starts}; test $(wc -l < {starts}) -ge {attempt} && "
        f"exec {python()} {FAKES / 'server.py'} stdio; exit 1"
    )
    return ServerConfig("s", StdioTransport("sh", ("-c", run)), **fields)


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().split())


async def test_further_attempts_within_a_connect_end_with_the_first_that_works(tmp_path: Path) -> None:
    async with connected_toolbox(works_at(3, tmp_path, connect_retries=3), pacing=NO_RECONNECTS) as box:
        assert status(box) is ServerStatus.CONNECTED
        assert starts(tmp_path) == 3


async def test_without_them_one_attempt_decides(tmp_path: Path) -> None:
    async with connected_toolbox(works_at(2, tmp_path), pacing=NO_RECONNECTS) as box:
        assert status(box) is ServerStatus.FAILED
        assert starts(tmp_path) == 1


async def test_further_attempts_do_not_exceed_the_time_to_connect(tmp_path: Path) -> None:
    config = works_at(100, tmp_path, connect_retries=10, connect_timeout=1.0)
    async with running_toolbox(config, pacing=NO_RECONNECTS) as box:
        began = time.monotonic()
        await box.offer()
        assert status(box) is ServerStatus.FAILED
        assert time.monotonic() - began < 5.0
        assert 1 < starts(tmp_path) < 10


@pytest.mark.parametrize(
    ("pacing", "reconnect", "comes_back"),
    [(FAST, None, True), (FAST, False, False), (NO_RECONNECTS, None, False), (NO_RECONNECTS, True, True)],
)
async def test_a_server_reconnects_as_it_says_itself_else_as_all_do(
    pacing: ConnectionTiming, reconnect: bool | None, comes_back: bool
) -> None:
    async with connected_toolbox(real(reconnect=reconnect), pacing=pacing) as box:
        await call(tool_by_name(box, "die"), box)
        if comes_back:
            await until(lambda: status(box) is ServerStatus.CONNECTED and text_of_echo(box))
        else:
            await until(lambda: status(box) is ServerStatus.FAILED)
            await asyncio.sleep(4 * FAST.retries.first_pause)
            assert status(box) is ServerStatus.FAILED


def text_of_echo(box: McpToolbox) -> bool:
    return box.servers()[0].problem == ""


async def test_a_result_is_as_long_as_its_server_may_have_it_and_the_rest_is_a_file() -> None:
    long = "x" * 1_500
    async with connected_toolbox(real(output_limit=1_000)) as box:
        outcome = await call(tool_by_name(box, "echo"), box, text=long)
    assert isinstance(outcome, CallReturned)
    assert len(text(outcome)) < 1_100
    assert [part.data.decode() for part in outcome.result.parts if isinstance(part, FilePart)] == [long]
    async with connected_toolbox(real(output_limit=2_000)) as box:
        assert text(await call(tool_by_name(box, "echo"), box, text=long)) == long

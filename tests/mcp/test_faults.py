"""One test for each row of `faults`: outcome of the call, state of the server, and no effect on another server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, ToolOutcome
from bot.examination import CheckStatus
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.mcp.faults import FAULTS, USELESS, Afterwards, Fault, Useless, odd_answers
from tests.mcp.faulty_servers import DONE, SOUND, TRANSPORTS, Bad, writing
from tests.mcp.toolboxes import (
    ANA,
    call,
    call_with,
    faster,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unsent_reason,
    until,
)

SOON = 10.0
"""Seconds within which a neighbour's call is answered, on a slow machine."""
PACING = faster(quiet_limit=1.0, leave=0.3)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Form of tool names that all models accept."""


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
async def test_a_fault_has_the_cost_of_its_row_and_harms_no_other_call(fault: Fault, tmp_path: Path) -> None:
    async with fault.served(tmp_path) as bad, _with_neighbour(bad) as box:
        await until(lambda: tools_of(box, "bad"))
        offered = tools_of(box, "bad")
        assert tuple(tool.original_name for tool in offered) == fault.offers
        assert all(NAME.fullmatch(tool.name) for tool in offered)
        since = _state(box, "bad").connected_at
        context = CallContext(ANA, "k", deadline=fault.deadline)
        outcome = await call_with(tool_by_name(box, "badly", "bad"), box, context)
        assert (type(outcome), _outcome_text(outcome)) == (fault.kind, fault.words)
        assert bad.sent() == fault.sent
        match fault.afterwards:
            case Afterwards.KEPT:
                assert text(await call(tool_by_name(box, "well", "bad"), box)) == DONE
                assert (_state(box, "bad").status, _state(box, "bad").connected_at) == (ServerStatus.CONNECTED, since)
                assert await _complaint(box) == fault.left_out
            case Afterwards.ANEW:
                await until(lambda: _state(box, "bad").connected_at not in (None, since))
                assert text(await call(tool_by_name(box, "well", "bad"), box)) == DONE
            case Afterwards.PAUSED:
                assert _state(box, "bad").status is ServerStatus.FAILED
                reason = unsent_reason(await call(tool_by_name(box, "well", "bad"), box))
                assert reason.startswith("Server bad does not work and is not tried again for ")
                assert "It asks to wait" in reason
                assert (_state(box, "bad").connected_at, bad.sent()) == (since, fault.sent)
            case Afterwards.AWAY:
                await until(lambda: _state(box, "bad").status is ServerStatus.FAILED)
                assert "cannot be reached" in unsent_reason(await call(tool_by_name(box, "well", "bad"), box))


@pytest.mark.parametrize("fault", USELESS, ids=[fault.name for fault in USELESS])
async def test_an_unusable_server_has_its_reason_and_harms_no_other(fault: Useless, tmp_path: Path) -> None:
    async with fault.served(tmp_path) as bad, _with_neighbour(bad) as box:
        assert len((await box.offer()).absent) == 1
        assert _state(box, "bad").problem == fault.words
        await until(lambda: _state(box, "bad").status is fault.status)
        assert tools_of(box, "bad") == ()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_odd_answer_fails_its_call_and_no_other(transport: str, tmp_path: Path) -> None:
    odd = odd_answers(transport)
    tools = {f"odd-{number}": name for number, name in enumerate(odd)}
    lines = {tool: odd[name][0] for tool, name in tools.items()}
    async with writing(lines, transport)(tmp_path) as bad, _with_neighbour(bad) as box:
        await until(lambda: tools_of(box, "bad"))
        since = _state(box, "bad").connected_at
        outcomes = {}
        for tool, name in tools.items():
            outcome = await call_with(tool_by_name(box, tool, "bad"), box, CallContext(ANA, "k", deadline=SOON))
            outcomes[name] = type(outcome), _outcome_text(outcome)
            assert text(await call(tool_by_name(box, "well", "bad"), box)) == DONE, name
        assert outcomes == {name: (kind, words) for name, (_, kind, words) in odd.items()}
        assert bad.sent() == len(odd)
        assert (_state(box, "bad").status, _state(box, "bad").connected_at) == (ServerStatus.CONNECTED, since)
        assert await _complaint(box) == ""


async def test_a_flood_of_changes_is_asked_about_a_few_times(tmp_path: Path) -> None:
    [flood] = [fault for fault in FAULTS if fault.name == "flood of changes"]
    async with flood.served(tmp_path) as bad, running_toolbox(bad.config) as box:
        await box.offer()
        for name in ("badly", "well"):
            assert text(await call(tool_by_name(box, name, "bad"), box)) == DONE
        assert (tmp_path / "record").read_text().count('"tools/list"') < 50


@asynccontextmanager
async def _with_neighbour(bad: Bad) -> AsyncIterator[McpToolbox]:
    """Call a server beside the bad one repeatedly while the block runs."""
    async with FakeEndpoint() as good:
        good.speak_modern("well")
        good.on["tools/call"] = lambda message: result(message, SOUND)
        async with running_toolbox(bad.config, remote("good", good.url), pacing=PACING) as box:
            await until(lambda: tools_of(box, "good"))
            since = _state(box, "good").connected_at
            over = asyncio.Event()

            async def call_repeatedly() -> None:
                while not over.is_set():
                    async with asyncio.timeout(SOON):
                        assert text(await call(tool_by_name(box, "well", "good"), box)) == DONE
                    await asyncio.sleep(0.05)

            beside = asyncio.create_task(call_repeatedly())
            try:
                yield box
            finally:
                over.set()
                await beside
            assert (_state(box, "good").status, _state(box, "good").connected_at) == (ServerStatus.CONNECTED, since)


async def _complaint(box: McpToolbox) -> str:
    """Return the doctor's findings on the bad server's tools; empty without a problem."""
    [tools] = [check async for check in box.diagnose("file:bad") if check.name == "tools"]
    if tools.finding is CheckStatus.WELL:
        return ""
    return tools.detail.partition("; ")[2].removeprefix("not offered: ")


def _state(box: McpToolbox, name: str) -> ServerSnapshot:
    return next(server for server in box.servers() if server.config.name == name)


def _outcome_text(outcome: ToolOutcome) -> str:
    match outcome:
        case CallReturned(result):
            return result.text
        case CallNotSent(reason) | CallOutcomeUnknown(reason):
            assert reason.startswith("Error calling MCP server: ")
            return reason.removeprefix("Error calling MCP server: ")
        case asks_back:
            return repr(asks_back)

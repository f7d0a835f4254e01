"""Life of a connection: connect, reconnect, back off, close, and ping."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.servers import (
    CachedCapabilities,
    ConnectPolicy,
    DesiredServer,
    ServerCapabilities,
    ServerStatus,
    SyncStatus,
)
from bot.domain.tools import Tool
from bot.mcp.server.retry import BreakerSettings
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import OK, Answer, FakeEndpoint, result
from tests.mcp.toolboxes import (
    FAST,
    LIMIT,
    Clock,
    alive,
    call,
    connected_toolbox,
    faster,
    raw,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unknown,
    unsent_reason,
    until,
)

KNOWN = CachedCapabilities(SyncStatus.SYNCED, ServerCapabilities((Tool("s__t", "s", "t"),)), at=1000.0)
LAZY = ConnectPolicy.LAZY
NEVER = 3600.0


async def test_a_server_that_was_down_at_the_start_has_its_tools_at_the_next_question_after_it_is_up(
    endpoint: FakeEndpoint,
) -> None:
    pacing = faster(first_pause=NEVER, longest_pause=NEVER, tries=1, look_again=0.0, look_limit=LIMIT)
    endpoint.speak_modern("t")
    await endpoint.stop()
    async with running_toolbox(remote("s", endpoint.url), pacing=pacing) as box:
        for _ in range(4):
            assert (await box.offer()).absent
        await endpoint.listen()
        offered = await box.offer()
        assert [tool.original_name for tool in offered.tools] == ["t"]
        assert offered.absent == ()


async def test_a_server_whose_tools_were_never_seen_is_tried_without_a_question_beyond_the_limit_of_tries(
    endpoint: FakeEndpoint,
) -> None:
    pacing = faster(tries=1, longest_pause=0.1)
    endpoint.on = dict.fromkeys(("server/discover", "initialize"), Answer(500))
    async with running_toolbox(remote("s", endpoint.url), pacing=pacing) as box:
        await until(lambda: endpoint.methods().count("server/discover") > 5)
        endpoint.speak_modern("t")
        await until(lambda: tools_of(box))


async def test_a_server_that_hangs_delays_no_question_but_the_first() -> None:
    pacing = faster(first_pause=NEVER, longest_pause=NEVER, look_again=0.0, look_limit=0.2)
    async with running_toolbox(raw("s", script={"probe": "silence"}, connect_timeout=0.3), pacing=pacing) as box:
        assert (await box.offer()).absent
        async with asyncio.timeout(0):  # no question waits
            assert (await box.offer()).absent


async def test_questions_start_few_attempts_at_a_server_that_is_down(endpoint: FakeEndpoint) -> None:
    clock = Clock()
    pacing = faster(first_pause=NEVER, longest_pause=NEVER, look_limit=LIMIT)
    endpoint.on = dict.fromkeys(("server/discover", "initialize"), Answer(500))
    async with running_toolbox(remote("s", endpoint.url), pacing=pacing, clock=clock) as box:
        for _ in range(10):
            assert (await box.offer()).absent
        before = len(endpoint.seen)
        clock.now += pacing.waits.look_again
        await box.offer()
        assert len(endpoint.seen) > before
    assert endpoint.methods().count("server/discover") <= 3


def script(tmp_path: Path, *, era: str = "modern", **actions: Any) -> dict[str, Any]:
    """Return the script of a server with the tool `pid` and a tool for each action."""
    calls = {"pid": {"do": "pid"}, **actions}
    tools = [{"name": each, "inputSchema": {"type": "object"}} for each in calls]
    return {
        "era": era,
        "listings": [[{"tools": tools}]],
        "calls": calls,
        "record": str(tmp_path / "record"),
        "pids": str(tmp_path / "pids"),
    }


def pids(tmp_path: Path) -> list[int]:
    """Return the process ids of a scripted server's starts, in order."""
    file = tmp_path / "pids"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def heard(tmp_path: Path) -> list[str]:
    """Return the methods of the messages that a scripted server has received, in order."""
    record = tmp_path / "record"
    return [json.loads(line).get("method", "") for line in record.read_text().splitlines()]


def status(box: McpToolbox, server: str = "s") -> ServerStatus:
    return next(state.status for state in box.servers() if state.config.name == server)


async def offered_names(box: McpToolbox) -> Sequence[str]:
    return [tool.name for tool in (await box.offer()).tools]


def refusing(endpoint: FakeEndpoint) -> FakeEndpoint:
    """Make an endpoint answer every handshake with status 500."""
    endpoint.on = dict.fromkeys(("server/discover", "initialize"), Answer(500))
    return endpoint


def tries(endpoint: FakeEndpoint) -> int:
    """Return the number of attempts to connect."""
    return endpoint.methods().count("server/discover")


# connecting


async def test_four_servers_start_at_the_same_moment_and_the_others_after_them(endpoint: FakeEndpoint) -> None:
    held = asyncio.Event()
    endpoint.speak_modern("t")
    endpoint.hold("server/discover", held)
    configs = [remote(f"s{n}", endpoint.url) for n in range(7)]
    async with running_toolbox(*configs, pacing=faster(start_slot=NEVER)) as box:
        await until(lambda: tries(endpoint) == 4)
        standing = [state.status for state in box.servers()]
        assert standing.count(ServerStatus.CONNECTING) == 4
        assert standing.count(ServerStatus.PENDING) == 3
        held.set()
        await until(lambda: all(state.status is ServerStatus.CONNECTED for state in box.servers()))


# letting go


async def test_an_unused_server_is_stopped_and_started_again_by_a_call(tmp_path: Path) -> None:
    async with running_toolbox(raw(script=script(tmp_path)), pacing=faster(idle_after=0.2)) as box:
        before = await box.offer()
        tool = tool_by_name(box, "pid")
        await until(lambda: status(box) is ServerStatus.IDLE)
        [first] = pids(tmp_path)
        assert not alive(first)
        assert await box.offer() == before
        await box.sync_all()
        assert status(box) is ServerStatus.IDLE
        second = int(text(await call(tool, box)))
        assert second != first
        await until(lambda: status(box) is ServerStatus.IDLE)
        assert pids(tmp_path) == [first, second]


async def test_a_server_with_a_call_under_way_is_not_let_go(tmp_path: Path) -> None:
    slow = {"do": "progress", "steps": 10, "seconds": 0.05}
    async with connected_toolbox(raw(script=script(tmp_path, slow=slow)), pacing=faster(idle_after=0.1)) as box:
        assert text(await call(tool_by_name(box, "slow"), box)) == "done"


async def test_a_call_that_comes_while_a_server_is_let_go_starts_it_again(tmp_path: Path) -> None:
    """The process ignores the end of its input for a while, so that the call meets a closing connection."""
    deaf = {**script(tmp_path), "deaf": True}
    async with connected_toolbox(raw(script=deaf), pacing=faster(idle_after=0.1, call_wait=0.1, leave=0.5)) as box:
        tool = tool_by_name(box, "pid")
        await until(lambda: status(box) is ServerStatus.IDLE)
        assert int(text(await call(tool, box))) == pids(tmp_path)[1]


# giving up for a while


async def test_a_server_is_given_up_after_its_tries_and_each_use_tries_once_more(
    endpoint: FakeEndpoint,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusing(endpoint)
    entry = DesiredServer(remote("s", endpoint.url), synced=KNOWN)
    pacing = faster(first_pause=0.01, longest_pause=0.01, tries=3)
    async with running_toolbox(entry, pacing=pacing) as box:
        [tool] = (await box.offer()).tools
        await until(lambda: "no retries left" in caplog.text)
        assert tries(endpoint) == 4
        for n in (5, 6):
            assert "500 Internal Server Error" in unsent_reason(await call(tool, box))
            assert tries(endpoint) == n
        endpoint.speak_modern("t")
        assert text(await call(tool, box)) == "ok"


async def test_a_server_that_keeps_failing_is_withdrawn_and_left_alone_by_calls_until_one_may_try(
    endpoint: FakeEndpoint,
) -> None:
    clock = Clock()
    refusing(endpoint)
    entry = DesiredServer(remote("s", endpoint.url), synced=KNOWN)
    pacing = faster(first_pause=NEVER, longest_pause=NEVER, tripping=BreakerSettings(failures=2))
    async with running_toolbox(entry, pacing=pacing, policy=LAZY, clock=clock) as box:
        [tool] = (await box.offer()).tools
        for n in (1, 2):
            assert await offered_names(box) == ["s__t"]
            assert "500 Internal Server Error" in unsent_reason(await call(tool, box))
            assert tries(endpoint) == n
        offer = await box.offer()
        assert offer.tools == ()
        assert "500 Internal Server Error" in offer.absent[0]
        for _ in range(20):
            assert "does not work and is not tried again for 30 s. Server s: " in unsent_reason(await call(tool, box))
        assert tries(endpoint) == 2
        clock.now += 30
        assert await offered_names(box) == ["s__t"]
        await asyncio.gather(*(call(tool, box) for _ in range(20)))
        assert tries(endpoint) == 3
        assert "is not tried again for 60 s" in unsent_reason(await call(tool, box))
        endpoint.speak_modern("t")
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
        assert text(await call(tool, box)) == "ok"


async def test_a_program_that_dies_of_every_call_is_left_alone_after_a_few(tmp_path: Path) -> None:
    clock = Clock()
    pacing = faster(first_pause=NEVER, longest_pause=NEVER, quick_pause=NEVER, tripping=BreakerSettings(losses=3))
    config = raw(script=script(tmp_path, bad={"do": "die"}))
    async with connected_toolbox(config, pacing=pacing, clock=clock) as box:
        tool = tool_by_name(box, "bad")
        for n in (1, 2, 3):
            assert "was lost" in unknown(await call(tool, box))
            await until(lambda: status(box) is ServerStatus.FAILED)
            assert len(pids(tmp_path)) == n
        assert await offered_names(box) == []
        for _ in range(20):
            assert "is not tried again for 15 s" in unsent_reason(await call(tool, box))
        assert len(pids(tmp_path)) == 3
        clock.now += 15
        assert "was lost" in unknown(await call(tool, box))
        assert len(pids(tmp_path)) == 4


async def test_without_reconnecting_a_server_that_was_lost_is_gone_until_an_admin_connects_it(tmp_path: Path) -> None:
    async with connected_toolbox(raw(script=script(tmp_path)), pacing=FAST.without_reconnecting()) as box:
        tool = tool_by_name(box, "pid")
        os.kill(int(text(await call(tool, box))), signal.SIGKILL)
        await until(lambda: status(box) is ServerStatus.FAILED)
        assert await offered_names(box) == []
        assert "is left alone until an admin connects it" in unsent_reason(await call(tool, box))
        assert len(pids(tmp_path)) == 1
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
        assert int(text(await call(tool, box))) == pids(tmp_path)[1]


async def test_a_server_that_was_let_go_comes_back_without_reconnecting_too(tmp_path: Path) -> None:
    pacing = replace(FAST.without_reconnecting(), idle_after=0.1)
    async with connected_toolbox(raw(script=script(tmp_path)), pacing=pacing) as box:
        tool = tool_by_name(box, "pid")
        await until(lambda: status(box) is ServerStatus.IDLE)
        assert int(text(await call(tool, box))) == pids(tmp_path)[1]


# asking whether it lives


@pytest.mark.parametrize(("era", "question"), [("legacy", "ping"), ("modern", "server/discover")])
async def test_a_quiet_server_is_asked_whether_it_is_there_in_its_own_protocol(
    tmp_path: Path, era: str, question: str
) -> None:
    async with connected_toolbox(raw(script=script(tmp_path, era=era)), pacing=faster(quiet_after=0.05)) as box:
        since = box.servers()[0].connected_at
        await until(lambda: heard(tmp_path).count(question) >= 4)
        assert box.servers()[0].connected_at == since
        assert heard(tmp_path).count("tools/list") == 1


async def test_an_unused_server_that_hangs_is_found_and_started_again(tmp_path: Path) -> None:
    pacing = faster(quiet_after=0.1, quiet_limit=1.0, leave=0.3)
    async with connected_toolbox(raw(script=script(tmp_path), list_timeout=1.0), pacing=pacing) as box:
        [first] = pids(tmp_path)
        os.kill(first, signal.SIGSTOP)
        await until(lambda: len(pids(tmp_path)) == 2)
        assert int(text(await call(tool_by_name(box, "pid"), box))) == pids(tmp_path)[1]
        assert not alive(first)


async def test_a_session_that_the_server_has_forgotten_is_made_again_before_the_next_call(
    endpoint: FakeEndpoint,
) -> None:
    endpoint.speak_legacy("t")
    endpoint.on["ping"] = endpoint.on["tools/call"] = lambda m: result(m, OK)
    async with connected_toolbox(remote("s", endpoint.url), pacing=faster(quiet_after=0.1)) as box:
        listed, endpoint.on["tools/list"] = endpoint.on["tools/list"], Answer(404)
        endpoint.on["ping"] = Answer(404)
        await until(lambda: status(box) is not ServerStatus.CONNECTED)
        endpoint.on |= {"tools/list": listed, "ping": lambda m: result(m, OK)}
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        assert text(await call(tool_by_name(box, "t"), box)) == "ok"


async def test_a_program_that_ignores_everything_and_a_report_that_never_ends_do_not_hold_up_closing(
    tmp_path: Path,
) -> None:
    async def wait_forever(_server_id: str, _capabilities: ServerCapabilities) -> None:
        await asyncio.Event().wait()

    stubborn = {**script(tmp_path), "deaf": True, "stubborn": True}
    async with connected_toolbox(raw(script=stubborn), on_synced=wait_forever, pacing=faster(leave=0.3)) as box:
        async with asyncio.timeout(12):
            await box.close(limit=0.2)
        assert not any(map(alive, pids(tmp_path)))


async def test_closing_ends_a_connection_that_rests_and_one_that_was_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="bot")
    async with FakeEndpoint() as there, FakeEndpoint() as broken:
        there.speak_modern("t")
        refusing(broken)
        pacing = faster(idle_after=0.05, tries=1, first_pause=0.01)
        known = DesiredServer(remote("b", broken.url), synced=KNOWN)
        async with running_toolbox(remote("a", there.url), known, pacing=pacing) as box:
            await until(lambda: status(box, "a") is ServerStatus.IDLE and "no retries left" in caplog.text)
            async with asyncio.timeout(10):
                await box.close()
        assert {state.status for state in box.servers()} == {ServerStatus.DISCONNECTED}

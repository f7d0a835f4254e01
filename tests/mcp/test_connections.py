"""The life of a connection to a child process: starting, failing, dying, changing, ending."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bot.domain.pins import ReviewPolicy
from bot.domain.servers import DesiredServer, ServerConfig, ServerStatus, StdioTransport
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import tool
from tests.mcp.toolboxes import (
    FAKES,
    alive,
    call,
    entries,
    faster,
    named,
    raw,
    real,
    started,
    text,
    toolbox,
    tools_of,
    unknown,
    unsent,
    until,
)

PID: dict[str, Any] = {
    "listings": [[{"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}]],
    "calls": {"pid": {"do": "pid"}},
}


def status(box: McpToolbox, server: str = "s") -> ServerStatus:
    return next(state.status for state in box.servers() if state.config.name == server)


def listing(*names: str, cursor: str | None = None) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools} | ({} if cursor is None else {"nextCursor": cursor})


async def only_problem(config: ServerConfig | DesiredServer, **options: Any) -> str:
    async with started(config, **options) as box:
        await box.offer()
        return box.servers()[0].problem


# starting


async def test_a_child_gets_its_own_variables_and_none_of_the_parents_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARENT_SECRET", "not yours")
    tells = {"listings": [[{"tools": [tool("tell")]}]], "calls": {"tell": {"do": "environment"}}}
    async with started(raw(script=tells, env={"FAKE_TOKEN": "tok-en"})) as box:
        await box.offer()
        seen = json.loads(text(await call(named(box, "tell"), box)))
    environment = seen["environment"]
    assert environment["FAKE_TOKEN"] == "tok-en"
    assert "PARENT_SECRET" not in environment
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert seen["python"] == sys.executable
    assert alive(int(seen["pid"])) is False


async def test_a_server_that_ends_at_once_is_quoted_without_its_secrets(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="bot")
    config = real("s", "--start", "exit", env={"FAKE_TOKEN": "tok-en-123"})
    said = await only_problem(DesiredServer(config, secrets=frozenset(("tok-en-123",))))
    assert "ended while it was starting" in said
    assert "no licence found, token ***" in said
    assert "Fix:" in said
    assert "tok-en-123" not in caplog.text
    assert capfd.readouterr().err == ""


async def test_people_read_the_last_words_of_a_server_and_models_do_not() -> None:
    async with started(real("s", "--start", "exit", env={"FAKE_TOKEN": "tok-en-123"})) as box:
        [absent] = (await box.offer()).absent
        assert "no licence found" in box.servers()[0].problem
    assert absent.startswith("Server s ended while it was starting. Fix: run its command (")
    assert "no licence found" not in absent


async def test_only_the_end_of_a_servers_log_is_stored() -> None:
    async with started(raw(script={"listings": [[listing("t")]], "calls": {"t": {"do": "stderr"}}})) as box:
        await box.offer()
        tool = named(box, "t")
        unknown(await call(tool, box))
        await until(lambda: box.servers()[0].problem)
        said = box.servers()[0].problem
    assert "the last line" in said
    assert len(said) < 1000


async def test_a_silent_server_is_given_up_after_its_time() -> None:
    said = await only_problem(raw(script={"probe": "silence"}, connect_timeout=0.3))
    assert said.startswith("Server s did not answer within 0.3 s.")
    assert "Fix:" in said


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        (StdioTransport("no-such-command"), "The command no-such-command of server s was not found."),
        (StdioTransport(str(FAKES)), "could not be started: Permission denied."),
        (StdioTransport("python", cwd="/no/such/folder"), "The folder /no/such/folder of server s does not exist."),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(transport: StdioTransport, said: str) -> None:
    assert said in await only_problem(ServerConfig("s", transport))


async def test_a_server_that_dies_of_the_new_protocols_probe_is_spoken_to_in_the_old_one() -> None:
    async with started(raw(script={"era": "legacy", "probe": "exit", "listings": [[listing("t")]]})) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        assert box.servers()[0].protocol == "2025-11-25"


async def test_a_server_that_was_not_there_is_found_when_it_comes(tmp_path: Path) -> None:
    command = tmp_path / "server"
    async with started(ServerConfig("s", StdioTransport(str(command)))) as box:
        assert (await box.offer()).tools == ()
        draft = tmp_path / "draft"
        draft.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E {FAKES / 'raw.py'} '{json.dumps(PID)}'\n")
        draft.chmod(0o700)
        draft.rename(command)
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        assert box.servers()[0].problem == ""
        assert [tool.name for tool in (await box.offer()).tools] == ["s__pid"]


async def test_the_pauses_between_tries_grow_up_to_a_limit() -> None:
    moments: list[float] = []

    def chance() -> float:
        moments.append(asyncio.get_running_loop().time())
        return 0.5

    pacing = faster(first_pause=0.05, factor=2.0, longest_pause=0.1)
    async with started(ServerConfig("s", StdioTransport("no-such-command")), pacing=pacing, chance=chance):
        await until(lambda: len(moments) >= 4)
    first, *others = [later - earlier for earlier, later in pairwise(moments)]
    assert first >= 0.05
    assert all(gap >= 0.1 for gap in others)


# one among others


async def test_a_hanging_server_does_not_delay_the_others() -> None:
    async with started(raw("hung", script={"probe": "silence"}), raw("good", script=PID)) as box:
        await until(lambda: status(box, "good") is ServerStatus.CONNECTED)
        assert int(text(await call(named(box, "pid", "good"), box))) > 0
        assert status(box, "hung") is ServerStatus.CONNECTING


async def test_an_offer_waits_for_the_first_connection_and_not_longer_than_it_may() -> None:
    async with started(raw("hung", script={"probe": "silence"}), raw("good", script=PID), first_wait=1.0) as box:
        await until(lambda: status(box, "good") is ServerStatus.CONNECTED)
        offer = await box.offer()
        assert [tool.name for tool in offer.tools] == ["good__pid"]
        assert offer.absent == ("Server hung is still connecting. Fix: ask again in a moment.",)
        async with asyncio.timeout(0):  # it does not wait at all
            assert await box.offer() == offer


async def test_a_call_waits_for_a_connection_that_is_being_made() -> None:
    async with started(raw(script=PID)) as box:
        await box.offer()
        tool = named(box, "pid")
    async with started(raw(script=PID)) as box:
        assert status(box) is ServerStatus.PENDING
        assert int(text(await call(tool, box))) > 0


async def test_a_call_to_a_server_that_stays_away_is_not_sent() -> None:
    async with started(raw(script=PID)) as box:
        await box.offer()
        tool = named(box, "pid")
    async with started(ServerConfig("s", StdioTransport("no-such-command"))) as box:
        assert "was not found" in unsent(await call(tool, box))
    assert "not connected" in unsent(await call(tool, box))


# dying


async def test_an_idle_child_that_is_killed_is_noticed_and_started_again() -> None:
    async with started(raw(script=PID)) as box:
        await box.offer()
        tool = named(box, "pid")
        first = int(text(await call(tool, box)))
        os.kill(first, signal.SIGKILL)
        await until(lambda: status(box) is not ServerStatus.CONNECTED)
        second = int(text(await call(tool, box)))
        assert second != first
        assert [each.name for each in (await box.offer()).tools] == ["s__pid"]
    assert not alive(second)


async def test_a_call_in_flight_when_the_child_is_killed_is_unknown_and_later_calls_work(tmp_path: Path) -> None:
    record = tmp_path / "record"
    script = {**PID, "calls": {**PID["calls"], "wait": {"do": "silence"}}, "record": str(record)}
    script["listings"] = [[listing("pid", "wait")]]
    async with started(raw(script=script)) as box:
        await box.offer()
        pid = int(text(await call(named(box, "pid"), box)))
        waiting = asyncio.create_task(call(named(box, "wait"), box))
        await until(lambda: '"wait"' in record.read_text())
        again = named(box, "pid")
        os.kill(pid, signal.SIGKILL)
        assert unknown(await waiting) == "The connection to server s was lost before it answered."
        assert int(text(await call(again, box))) != pid
        sent = [line for line in record.read_text().splitlines() if '"wait"' in line]
        assert len(sent) == 1


# changing


async def test_tools_that_change_are_fetched_again_in_the_old_protocol() -> None:
    script = {
        "era": "legacy",
        "listings": [[listing("change")], [listing("change", "new")]],
        "calls": {"change": {"do": "change"}},
    }
    async with started(raw(script=script), review=ReviewPolicy.OFF) as box:
        await box.offer()
        await call(named(box, "change"), box)
        await until(lambda: len(tools_of(box)) == 2)
        assert [tool.original_name for tool in (await box.offer()).tools] == ["change", "new"]
        assert box.servers()[0].tool_count == 2


async def test_tools_that_change_are_fetched_again_in_the_new_protocol() -> None:
    async with started(real()) as box:
        await box.offer()
        # The stream of changes is opened beside the first offer; a change before that is not told on it.
        async with asyncio.timeout(10):
            while not [tool for tool in tools_of(box) if tool.original_name.startswith("extra")]:
                text(await call(named(box, "grow"), box))
                await asyncio.sleep(0.05)


# listings


async def test_all_pages_are_read_and_a_cursor_that_comes_again_is_the_end() -> None:
    pages = [listing("a", cursor="1"), listing("b", cursor="2"), listing("c", cursor="1")]
    async with started(raw(script={"listings": [pages]})) as box:
        assert [tool.original_name for tool in (await box.offer()).tools] == ["a", "b", "c"]


async def test_a_listing_without_an_end_is_cut() -> None:
    pages = [listing(f"t{page}", cursor=str(page + 1)) for page in range(150)]
    async with started(raw(script={"listings": [pages]})) as box:
        assert len((await box.offer()).tools) == 100


async def test_a_malformed_tool_and_a_second_one_of_a_name_do_not_hide_the_others() -> None:
    first = {"name": "a", "description": "first\u200b", "title": "T\u202e", "inputSchema": {"type": "object"}}
    tools = [first, {"name": "a", "description": "second"}, {"name": 5}, {"name": "b", "inputSchema": []}]
    async with started(raw(script={"listings": [[{"tools": tools}]]})) as box:
        await box.offer()
        one, other = tools_of(box)
    assert (one.name, one.description, one.title) == ("s__a", "first", "T")
    assert (other.name, other.description) == ("s__b", "")
    assert other.input_schema == {"type": "object", "properties": {}}


# ending


async def test_closing_ends_all_children_side_by_side(tmp_path: Path) -> None:
    """Each child ignores the end of its input, so that it is killed a second later."""
    pids = tmp_path / "pids"
    configs = [raw(f"s{n}", script={**PID, "deaf": True, "pids": str(pids)}) for n in range(5)]
    box = toolbox(*configs, pacing=faster(leave=1.0))
    await box.start()
    await box.offer()
    children = [int(line) for line in pids.read_text().splitlines()]
    assert len(children) == 5
    async with asyncio.timeout(4.5):
        await box.close()
    assert not any(map(alive, children))
    assert {state.status for state in box.servers()} == {ServerStatus.DISCONNECTED}


async def test_closing_does_not_wait_for_a_server_that_is_still_connecting(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    box = toolbox(raw(script={"probe": "silence", "pids": str(pids)}))
    await box.start()
    await until(pids.exists)
    offering = asyncio.create_task(box.offer())
    async with asyncio.timeout(10):
        await box.close()
        assert "closed" in (await offering).absent[0]
    assert not alive(int(pids.read_text()))
    await box.close()


async def test_a_connection_whose_task_is_cancelled_is_closed_and_its_child_gone(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with started(raw(script={**PID, "pids": str(pids)})) as box:
        await box.offer()
        tool = named(box, "pid")
        (owner,) = [task for task in asyncio.all_tasks() if task.get_name() == "mcp:s"]
        owner.cancel()
        await until(lambda: status(box) is ServerStatus.DISCONNECTED)
        unsent(await call(tool, box))
        assert not alive(int(pids.read_text()))


async def test_closing_before_the_start_is_nothing() -> None:
    box = McpToolbox(entries(raw(script=PID)))
    await box.close()
    assert status(box) is ServerStatus.DISCONNECTED


async def test_a_call_in_flight_at_the_end_has_an_unknown_outcome(tmp_path: Path) -> None:
    record = tmp_path / "record"
    script = {"listings": [[listing("t")]], "calls": {"t": {"do": "silence"}}, "record": str(record)}
    async with started(raw(script=script)) as box:
        await box.offer()
        waiting = asyncio.create_task(call(named(box, "t"), box))
        await until(lambda: "tools/call" in record.read_text())
    assert "before it answered" in unknown(await waiting)


async def test_children_end_when_the_program_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"""
import asyncio, json
from bot.mcp.toolbox import McpToolbox
from tests.mcp.toolboxes import entries, raw
async def main():
    box = McpToolbox(entries(raw(script=json.loads({json.dumps(json.dumps({**PID, "pids": str(pids)}))}))))
    await box.start()
    await box.offer()
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    assert await asyncio.wait_for(parent.stdout.readline(), 15) == b"ready\n"
    child = int(pids.read_text())
    assert alive(child)
    parent.kill()
    await parent.wait()
    await until(lambda: not alive(child))

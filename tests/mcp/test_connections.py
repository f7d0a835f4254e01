"""The life of a connection to a child process: starting, failing, dying, changing, ending."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bot.domain.servers import DesiredServer, ServerConfig, ServerStatus, StdioTransport
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import tool
from tests.mcp.toolboxes import (
    FAKES,
    alive,
    call,
    connected_toolbox,
    entries,
    faster,
    raw,
    real,
    running_toolbox,
    text,
    tool_by_name,
    toolbox,
    tools_of,
    unknown,
    unsent_reason,
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
    async with connected_toolbox(config, **options) as box:
        return box.servers()[0].problem


# starting


async def test_a_child_gets_its_own_variables_and_none_of_the_parents_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARENT_SECRET", "not yours")
    tells = {"listings": [[{"tools": [tool("tell")]}]], "calls": {"tell": {"do": "environment"}}}
    async with connected_toolbox(raw(script=tells, env={"FAKE_TOKEN": "tok-en"})) as box:
        seen = json.loads(text(await call(tool_by_name(box, "tell"), box)))
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
    async with running_toolbox(real("s", "--start", "exit", env={"FAKE_TOKEN": "tok-en-123"})) as box:
        [absent] = (await box.offer()).absent
        assert "no licence found" in box.servers()[0].problem
    assert absent.startswith("Server s ended while it was starting. Fix: run its command (")
    assert "no licence found" not in absent


async def test_only_the_end_of_a_servers_log_is_stored() -> None:
    async with connected_toolbox(raw(script={"listings": [[listing("t")]], "calls": {"t": {"do": "stderr"}}})) as box:
        tool = tool_by_name(box, "t")
        unknown(await call(tool, box))
        await until(lambda: box.servers()[0].problem)
        said = box.servers()[0].problem
    assert "the last line" in said
    assert len(said) < 1000


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


async def test_the_pauses_between_tries_grow_up_to_a_limit() -> None:
    moments: list[float] = []

    def chance() -> float:
        moments.append(asyncio.get_running_loop().time())
        return 0.5

    pacing = faster(first_pause=0.05, factor=2.0, longest_pause=0.1)
    async with running_toolbox(ServerConfig("s", StdioTransport("no-such-command")), pacing=pacing, chance=chance):
        await until(lambda: len(moments) >= 4)
    first, *others = [later - earlier for earlier, later in pairwise(moments)]
    assert first >= 0.05
    assert all(gap >= 0.1 for gap in others)


# one among others


async def test_a_call_waits_for_a_connection_that_is_being_made() -> None:
    async with connected_toolbox(raw(script=PID)) as box:
        tool = tool_by_name(box, "pid")
    async with running_toolbox(raw(script=PID)) as box:
        assert status(box) is ServerStatus.PENDING
        assert int(text(await call(tool, box))) > 0


# dying


# changing


async def test_tools_that_change_are_fetched_again_in_the_new_protocol() -> None:
    async with connected_toolbox(real()) as box:
        # The stream of changes is opened beside the first offer; a change before that is not told on it.
        async with asyncio.timeout(10):
            while not [tool for tool in tools_of(box) if tool.original_name.startswith("extra")]:
                text(await call(tool_by_name(box, "grow"), box))
                await asyncio.sleep(0.05)


# listings


async def test_a_listing_without_an_end_is_cut() -> None:
    pages = [listing(f"t{page}", cursor=str(page + 1)) for page in range(150)]
    async with running_toolbox(raw(script={"listings": [pages]})) as box:
        assert len((await box.offer()).tools) == 100


async def test_a_malformed_tool_and_a_second_one_of_a_name_do_not_hide_the_others() -> None:
    first = {"name": "a", "description": "first\u200b", "title": "T\u202e", "inputSchema": {"type": "object"}}
    tools = [first, {"name": "a", "description": "second"}, {"name": 5}, {"name": "b", "inputSchema": []}]
    async with connected_toolbox(raw(script={"listings": [[{"tools": tools}]]})) as box:
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


async def test_a_connection_whose_task_is_cancelled_is_closed_and_its_child_gone(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with connected_toolbox(raw(script={**PID, "pids": str(pids)})) as box:
        tool = tool_by_name(box, "pid")
        (owner,) = [task for task in asyncio.all_tasks() if task.get_name() == "mcp:s"]
        owner.cancel()
        await until(lambda: status(box) is ServerStatus.DISCONNECTED)
        unsent_reason(await call(tool, box))
        assert not alive(int(pids.read_text()))


async def test_closing_before_the_start_is_nothing() -> None:
    box = McpToolbox(entries(raw(script=PID)))
    await box.close()
    assert status(box) is ServerStatus.DISCONNECTED


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

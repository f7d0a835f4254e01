"""The chat is ended in the middle of a call. No server that it started outlives it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Say
from tests.fakes.terminal import ProgramOnTerminal
from tests.mcp.toolboxes import alive
from tests.stories.installation import PROJECT, Installation, a_tool, becomes, scripted_server


class Servers:
    """Start a server that never answers its call, one that may ignore the end of its input, and a bundled one.
    Remaining processes are killed at the end of the block.
    """

    def __init__(self, folder: Path, *, deaf: bool) -> None:
        self._notes_pid = folder / "notes.pid"
        run = f'echo $$ > "{self._notes_pid}"; cd "{PROJECT}"; exec "{sys.executable}" -m mcp_servers.notes'
        env = {"NOTES_FILE": str(folder / "notes.json")}
        self._office = scripted_server(folder, "office", a_tool("wait"), calls={"wait": {"do": "silence"}})
        self._archive = scripted_server(folder, "archive", deaf=deaf)
        self.entries: dict[str, Any] = {
            "office": self._office.entry,
            "archive": self._archive.entry,
            "notes": {"command": "sh", "args": ["-c", run], "env": env},
        }

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pid in filter(alive, self.pids):
            os.kill(pid, signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        notes = self._notes_pid.read_text().split() if self._notes_pid.exists() else []
        return [*self._office.pids, *self._archive.pids, *map(int, notes)]

    async def run(self, place: Installation) -> None:
        """Wait until all of them run and the call is under way."""
        await becomes(lambda: [name for name, _ in self._office.calls] == ["wait"], "the tool was called")
        await becomes(lambda: place.log.count(": connected") == 3, "every server was connected")
        assert [alive(pid) for pid in self.pids] == [True] * 3

    async def are_gone(self) -> None:
        await becomes(lambda: not any(map(alive, self.pids)), "no server is left", limit=10)


@pytest.mark.parametrize(
    "end", [lambda terminal: terminal.signal(signal.SIGTERM), ProgramOnTerminal.hang_up], ids=["SIGTERM", "hang-up"]
)
async def test_a_chat_that_is_told_to_end_ends_its_servers_even_deaf_ones(
    tmp_path: Path, end: Callable[[ProgramOnTerminal], None]
) -> None:
    with (
        Servers(tmp_path, deaf=True) as servers,
        FakeLanguageModel("openai", Say(calls=(Call("office__wait"),))) as model,
    ):
        place = Installation(tmp_path, servers.entries, model=model, MCP_APPROVAL_DEFAULT_POLICY="ALWAYS_ALLOW")
        async with place.terminal() as terminal:
            await terminal.asks("wait for me")
            await servers.run(place)
            end(terminal)
            assert await terminal.wait_for_exit() > 0, "it ends by itself, and not as if all was well"
            assert not any(map(alive, servers.pids))
            assert "Traceback" not in terminal.text + place.log


async def test_the_servers_of_a_chat_that_was_killed_end_by_themselves(tmp_path: Path) -> None:
    with (
        Servers(tmp_path, deaf=False) as servers,
        FakeLanguageModel("openai", Say(calls=(Call("office__wait"),))) as model,
    ):
        place = Installation(tmp_path, servers.entries, model=model)
        async with place.begun("--approve", "all", "-m", "wait for me") as program:
            await servers.run(place)
            program.kill()
            await program.communicate()
        await servers.are_gone()

"""The operator adds servers at a terminal with the real program, and a turn calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.package_runners import PackageRunners
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import Installation

ADDING = ("servers", "add", "files", "--", "npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv")
QUESTION = "Allow npx on this machine? [y/N]"
SECRET, TYPED = "tk-9f8a7b6c5d4e3f2a1b0c9d8e7f", "tk-0c1d2e3f4a5b6c7d8e9f0a1b2c"
CTRL_C, CTRL_D = "\x03", "\x04"


def clerk(request: Request) -> Reply:
    if request.results:
        return Say(f"It was {request.results[-1]}.")
    return Say("Let me see.", calls=(Call("files__look", {}),))


@pytest.fixture
def runners(tmp_path: Path) -> PackageRunners:
    return PackageRunners(tmp_path)


@pytest.fixture
def place(tmp_path: Path, model: FakeLanguageModel, runners: PackageRunners) -> Installation:
    return Installation(tmp_path, {}, model=model, PATH=runners.path)


def at_terminal(place: Installation, *words: str) -> ProgramOnTerminal:
    environment = {**place.environment, "TERM": "xterm-256color"}
    return ProgramOnTerminal(("bot", *words), place.folder, environment, columns=120, rows=40)


@pytest.mark.parametrize(
    ("keys", "code"), [("n\r", 1), ("\r", 1), (CTRL_D, 1), (CTRL_C, 130)], ids=["no", "nothing", "Ctrl-D", "Ctrl-C"]
)
async def test_a_program_that_the_operator_does_not_allow_is_neither_started_nor_saved(
    place: Installation, runners: PackageRunners, keys: str, code: int
) -> None:
    async with at_terminal(place, *ADDING) as program:
        await program.shows(QUESTION)
        assert "command: npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /srv" in program.text
        program.press(keys)
        assert await program.wait_for_exit() == code
    assert runners.starts("npx") == []
    assert not (place.folder / "config/allowed_commands.txt").exists()
    assert "No servers yet." in place.countersign("servers", "list").out


async def test_the_operator_is_asked_once_and_a_turn_calls_the_added_server(
    place: Installation, runners: PackageRunners
) -> None:
    async with at_terminal(place, *ADDING) as program:
        await program.shows(QUESTION)
        program.type("y")
        assert await program.wait_for_exit() == 0
        await program.shows("`files` is added", "1 tool")
    assert runners.starts("npx")[0] == "-y @modelcontextprotocol/server-filesystem@2026.8.31 /srv"
    said = place.chat("-m", "look", "--approve", "all")
    assert (said.code, said.out) == (0, "Let me see.\n\nIt was seen.\n")
    again = place.countersign("servers", "add", "--", "npx", "@playwright/mcp")
    assert again.code == 0
    assert "`playwright` is added." in again.out
    assert "@playwright/mcp is whatever is published at the moment" in again.out


def test_without_a_terminal_the_refusal_names_the_option_and_the_setting(
    place: Installation, runners: PackageRunners
) -> None:
    refused = place.countersign(*ADDING)
    assert (refused.code, refused.out) == (1, "")
    assert "run `npx` on this machine, which is not allowed yet. Nothing was saved." in refused.err
    assert "add --allow; or name it in MCP_ALLOWED_COMMANDS" in refused.err
    assert f"servers add --allow {' '.join(ADDING[2:])}" in refused.err
    assert runners.starts("npx") == []
    added = place.countersign("servers", "add", "--allow", *ADDING[2:])
    assert (added.code, added.err) == (0, "")
    assert (place.folder / "config/allowed_commands.txt").read_text().splitlines()[-1] == "npx"


def test_commands_of_the_setting_start_without_a_question(place: Installation) -> None:
    place.environment["MCP_ALLOWED_COMMANDS"] = "uvx,npx"
    assert place.countersign(*ADDING).code == 0
    assert not (place.folder / "config/allowed_commands.txt").exists()


async def test_a_running_chat_asks_too_and_follows_what_is_allowed_beside_it(
    place: Installation, runners: PackageRunners
) -> None:
    async with place.terminal() as chat:
        await chat.asks("/mcp add clock -- uvx mcp-server-time@2026.10.19", "Allow uvx on this machine?")
        chat.type("y")
        await chat.shows("clock is added")
        added = place.countersign("servers", "add", "--allow", *ADDING[2:])
        assert added.code == 0
        # Its tools may be stored before the chat has seen it: then it starts when one of them is used.
        while not re.search(r"^\S files ", chat.text, re.MULTILINE):
            lists = chat.raw.count(b"MCP servers")
            await chat.asks("/mcp list")
            await chat.until(lambda lists=lists: chat.raw.count(b"MCP servers") > lists, "the list")  # type: ignore[misc]
        await chat.asks("look", "Look (files)?")
    assert runners.starts("uvx")[0] == "mcp-server-time@2026.10.19"


async def test_a_file_is_imported_after_its_preview_with_the_secrets_typed_unseen(
    place: Installation, runners: PackageRunners
) -> None:
    inputs = [{"id": "key", "type": "promptString", "description": "Key of the desk", "password": True}]
    desk = {"command": "npx", "args": ["-y", "desk@1.0.0"], "env": {"DESK_KEY": "${input:key}", "LOG_LEVEL": "debug"}}
    files = {"command": "npx", "args": ["-y", "files@1.0.0"], "env": {"FILES_KEY": SECRET}}
    (place.folder / "mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"desk": desk, "files": files}}))
    line = ("servers", "add", "--file", "mcp.json")
    async with at_terminal(place, *line) as program:
        await program.shows("Add 2 servers and allow npx on this machine? [y/N]")
        assert "env:DESK_KEY is to be entered: Key of the desk" in program.text
        assert f"FILES_KEY={SECRET}" in program.text
        program.type("n")
        assert await program.wait_for_exit() == 1
    assert "No servers yet." in place.countersign("servers", "list").out
    async with at_terminal(place, *line) as program:
        await program.shows("Add 2 servers and allow npx on this machine? [y/N]")
        program.type("y")
        await program.shows("Enter the secret env:DESK_KEY of desk now? [y/N]")
        program.type("y")
        await program.shows("Secret:")
        program.type(TYPED)
        assert await program.wait_for_exit() == 0
        assert TYPED not in program.text
    assert runners.starts("npx") == ["-y files@1.0.0"]
    assert runners.variable("FILES_KEY") == SECRET
    verified = place.countersign("servers", "verify", "desk")
    assert verified.code == 0, verified.err
    assert (runners.variable("DESK_KEY"), runners.variable("LOG_LEVEL")) == (TYPED, "debug")
    for name, content in place.folder_files().items():
        if name.startswith("data/"):
            assert SECRET.encode() not in content
            assert TYPED.encode() not in content
    said = place.chat("-m", "look", "--approve", "all")
    assert (said.code, said.out) == (0, "Let me see.\n\nIt was seen.\n")

"""Import of servers from the files of other programs: the formats, the report, and the confirmation before a server is
added.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot.admin.command import CommandRejected
from bot.admin.servers.imports import ImportedServer, parse_import_file
from bot.domain.commands import Reply
from bot.domain.servers import HttpKind, HttpTransport, ServerEnablement, StdioTransport
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, command_harness

SECRET = "tk-9f8a7b6c5d4e3f2a1b0c9d8e7f"
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
VS_CODE = """
{
  // Inputs are asked for.
  "inputs": [
    {"id": "gh", "type": "promptString", "description": "GitHub token", "password": true},
    {"id": "folder", "type": "promptString", "default": "/srv"},
    {"id": "zone", "type": "promptString", "description": "Time zone"},
  ],
  "servers": {
    "github": {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${input:gh}"}},
    "files": {"command": "npx", "args": ["-y", "files@1.0.0", "${input:folder}"], "env": {"GH": "${input:gh}"}},
    "time": {"type": "stdio", "command": "uvx", "args": ["time@1.0", "--zone", "${input:zone}"]},
    "old": {"type": "sse", "url": "https://old.example.com/sse", /* later */ "dev": {}},
  },
}
"""


def one(entry: Any, **rest: Any) -> ImportedServer:
    [server] = parse_import_file(json.dumps({"mcpServers": {"desk": entry}, **rest}), {})
    return server


def read(text: str, **answers: str) -> dict[str, ImportedServer]:
    return {server.name: server for server in parse_import_file(text, answers)}


def test_a_program_of_claude_desktop_keeps_its_secrets_apart() -> None:
    env = {"DESK_TOKEN": SECRET, "LOG_LEVEL": "debug", "BASE": "https://desk.example.com/v1", "EMPTY": ""}
    server = one({"command": "npx", "args": ["-y", "desk@1.0.0", 8080], "env": env})
    assert server.argv == ("npx", "-y", "desk@1.0.0", "8080")
    assert server.fields["env"].splitlines() == [
        "DESK_TOKEN=***",
        "LOG_LEVEL=debug",
        "BASE=https://desk.example.com/v1",
    ]
    assert server.values == {"env:DESK_TOKEN": SECRET}
    assert (server.missing, server.notes, server.problem) == ([], [], "")


def test_inputs_of_vs_code_are_asked_for_filled_in_or_have_a_default() -> None:
    servers = read(VS_CODE)
    assert servers["github"].missing == ["auth"]
    assert servers["github"].fields["auth"] == "api_key"
    assert "auth is to be entered: GitHub token" in servers["github"].notes
    assert servers["files"].argv[-1] == "/srv"
    assert servers["files"].missing == ["env:GH"]
    assert servers["time"].problem == "It needs the input zone (Time zone): --input zone=VALUE"
    assert servers["old"].fields["transport"] == "sse"
    assert servers["old"].notes == ["ignored: dev"]
    answered = read(VS_CODE, zone="Asia/Tokyo", folder="/data")
    assert answered["time"].argv[-1] == "Asia/Tokyo"
    assert answered["files"].argv[-1] == "/data"


@pytest.mark.parametrize(
    ("value", "reference"),
    [("${env:DESK_KEY}", "env:DESK_KEY"), ("${DESK_KEY}", "env:DESK_KEY")],
)
def test_a_variable_of_the_environment_becomes_a_reference(value: str, reference: str) -> None:
    server = one({"command": "desk", "env": {"KEY": value}})
    assert server.fields["env"] == f"KEY={reference}"
    assert "MCP_SECRET_VARIABLES has to allow it" in server.notes[0]
    remote = one({"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {value}", "X-Key": value}})
    assert (remote.fields["auth"], remote.fields["secret"]) == ("api_key", reference)
    assert remote.fields["headers"] == f"X-Key={reference}"


def test_ways_to_sign_in_are_recognized() -> None:
    def signing(value: str) -> ImportedServer:
        return one({"url": "https://a.example/mcp", "headers": {"Authorization": value, "X-Team": "red"}})

    bearer, plain, basic = (
        signing(value) for value in (f"Bearer {SECRET}", SECRET, "Basic YW5hOmE4c2Q5LUtxMi16WHA3LXZCM20=")
    )
    assert (bearer.fields["auth"], bearer.hidden) == ("api_key", SECRET)
    assert (plain.fields["auth"], plain.hidden) == ("header", SECRET)
    assert (basic.fields["auth"], basic.hidden) == ("basic", "a8sd9-Kq2-zXp7-vB3m")
    assert basic.values == {"username": "ana"}
    assert bearer.fields["headers"] == "X-Team=red"


@pytest.mark.parametrize("args", [["Authorization: Bearer " + SECRET], ["Authorization:${AUTH}"]])
def test_a_bridge_to_an_address_is_not_needed(args: list[str]) -> None:
    words = ["-y", "mcp-remote@latest", "https://a.example/sse", "--header", *args]
    server = one({"command": "npx", "args": words, "env": {"AUTH": f"Bearer {SECRET}"}})
    assert (server.fields["url"], server.fields["transport"]) == ("https://a.example/sse", "auto")
    assert server.hidden == SECRET
    assert server.argv == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "npx", "args": ["x", "--token", TOKEN]}, "looks like a secret"),
        ({"command": "node", "args": ["${workspaceFolder}/x.js"]}, "${workspaceFolder} in its command line"),
        ({"command": "npx", "args": ["${env:TOKEN}"]}, "${env:TOKEN} in its command line"),
        ({"url": "https://${input:host}/mcp"}, "It needs the input host"),
        ({"command": 5}, "Its command is not a text."),
        ({}, "neither a command nor an address"),
        ("npx", "not an object"),
        ({"command": "x", "args": "y"}, "args are not a list"),
        ({"command": "x", "env": ["y"]}, "env is not an object"),
    ],
)
def test_an_entry_that_cannot_be_imported_has_its_reason(entry: Any, problem: str) -> None:
    server = one(entry)
    assert problem in server.problem
    assert TOKEN not in server.problem


def test_a_secret_input_does_not_become_an_argument() -> None:
    inputs = [{"id": "gh", "password": True}]
    server = one({"command": "npx", "args": ["--token=${input:gh}"]}, inputs=inputs)
    assert "which all could read" in server.problem


@pytest.mark.parametrize("value", ["<YOUR_KEY>", "YOUR_API_KEY", "your-key-here", "", "xxxx"])
def test_placeholders_are_to_be_entered(value: str) -> None:
    server = one({"command": "x", "env": {"API_KEY": value}})
    assert server.missing == ["env:API_KEY"]
    assert "env" not in server.fields


def test_settings_without_a_meaning_here_are_reported() -> None:
    server = one({"command": "x", "envFile": ".env", "alwaysAllow": ["look"], "timeout": 3, "disabled": True})
    assert server.disabled
    assert server.notes == [
        "disabled in the file, and added disabled",
        "envFile: its file of variables is not read: write them under env",
        "alwaysAllow: approvals are not taken over: set a policy",
        "with tool_timeout 3",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON: line 1"),
        ("[]", "does not hold a JSON object"),
        ("{}", "no servers in this file"),
        ('{"mcpServers": []}', "no servers in this file"),
        ("[" * 100_000, "nested too deeply"),
        (json.dumps({"servers": {str(n): {} for n in range(101)}}), "more than 100"),
    ],
)
def test_a_file_that_holds_no_servers_is_refused(text: str, said: str) -> None:
    with pytest.raises(CommandRejected, match=said):
        parse_import_file(text, {})


def test_two_servers_do_not_get_one_name() -> None:
    first, second = parse_import_file(
        json.dumps({"mcpServers": {"My Desk": {"command": "a"}, "my-desk": {"command": "b"}}}), {}
    )
    assert (first.slug, first.fields["title"], first.problem) == ("my-desk", "My Desk", "")
    assert "same name" in second.problem


async def importing(held: CommandHarness, *words: str) -> Reply:
    return await held.run("mcp", "add", *words, member=OPERATOR, hidden_input=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "desk.json"
    servers = {
        "desk": {"command": "npx", "args": ["desk@1.0.0"], "env": {"DESK_TOKEN": SECRET, "LOG_LEVEL": "debug"}},
        "wiki": {"url": "https://wiki.example/sse", "type": "sse", "disabled": True},
        "notes": {"url": "https://notes.example/mcp"},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def test_a_preview_adds_nothing_and_shows_what_would_be_added_whole(held: CommandHarness, file: Path) -> None:
    reply = await importing(held, "--file", str(file))
    assert reply.text == "2 servers of 3 in this file can be added. Nothing was added yet."
    assert reply.table is not None
    assert reply.table.rows == (
        ("desk", "yes"),
        ("wiki", "disabled"),
        ("notes", "no"),
    )
    assert {
        ("desk", "command: npx desk@1.0.0"),
        ("desk", "variable: LOG_LEVEL=debug"),
        ("desk", f"variable: DESK_TOKEN={SECRET}"),
        ("wiki", "address: https://wiki.example/sse"),
        ("notes", "cannot be added: name: This is taken by notes."),
    } <= set(reply.details)
    [action] = reply.actions
    assert action.question == "Add 2 servers and allow npx on this machine?"
    assert not held.store.entries
    assert not held.programs


async def test_the_confirmed_servers_are_added_as_shown(held: CommandHarness, file: Path) -> None:
    [action] = (await importing(held, "--file", str(file))).actions
    reply = await importing(held, *action.words[2:], "--no-verify")
    assert reply.text == "2 servers are added."
    assert held.programs == {"npx"}
    records = {record.config.name: record for record in held.store.entries.values()}
    assert records["desk"].config.transport == StdioTransport("npx", ("desk@1.0.0",), {"LOG_LEVEL": "debug"})
    assert records["wiki"].config.transport == HttpTransport("https://wiki.example/sse", {}, HttpKind.SSE)
    assert records["wiki"].enablement is ServerEnablement.DISABLED
    assert held.store.values[records["desk"].id] == {"env:DESK_TOKEN": SECRET}


def test_a_file_that_has_changed_since_is_shown_again(held: CommandHarness, file: Path) -> None:
    [action] = asyncio.run(importing(held, "--file", str(file))).actions
    file.write_text(file.read_text().replace("desk@1.0.0", "evil@1.0.0"))
    reply = asyncio.run(importing(held, *action.words[2:]))
    assert "not what it was when it was shown" in reply.text
    assert not held.store.entries


async def test_scripts_say_yes_and_allow_programs_apart(held: CommandHarness, file: Path) -> None:
    refused = await importing(held, "--file", str(file), "--yes")
    assert "programs that are not allowed" in refused.text
    assert not held.store.entries
    only = await importing(held, "--file", str(file), "--yes", "--only", "wiki")
    assert only.text == "1 server is added."
    renamed = await importing(held, "notes-2", "--file", str(file), "--yes", "--only", "notes", "--no-verify")
    assert renamed.text == "1 server is added."
    assert {record.config.name for record in held.store.entries.values()} == {"wiki", "notes-2"}
    unknown = await importing(held, "--file", str(file), "--only", "nothing")
    assert "There are: `desk`, `wiki`, `notes`." in unknown.text


async def test_only_the_operator_at_a_terminal_names_a_file(held: CommandHarness, file: Path) -> None:
    for member, hidden_input in ((ADMIN, True), (OPERATOR, False)):
        line = ("mcp", "add", "--file", str(file), "--yes", "--allow")
        reply = await held.run(*line, member=member, hidden_input=hidden_input)
        assert "Only the operator may import a file, at a terminal" in reply.text
    assert not held.store.entries


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b" " * 1_100_000])
async def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    assert (await importing(command_harness(), "--file", str(path))).failed


async def test_a_file_of_an_unknown_user_is_refused() -> None:
    assert (await importing(command_harness(), "--file", "~no-such-user/x.json")).failed


def test_settings_are_imported_under_their_names_here_and_reported() -> None:
    entry = {"command": "npx", "connectionTimeoutMs": 20_000, "autoConnect": False, "sessions": "person"}
    server = one(entry)
    assert server.fields["connect_timeout"] == "20"
    assert (server.fields["auto_connect"], server.fields["sessions"]) == ("no", "person")
    assert server.notes == ["with auto_connect no, connect_timeout 20, sessions person"]

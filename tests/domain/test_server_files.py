"""Spellings of other programs: the import and the operator's own file read them alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.admin.command import CommandRejected
from bot.admin.servers.imports import parse_import_file
from bot.domain.commands import Reply
from bot.domain.servers import HttpKind, HttpTransport, StdioTransport, Transport
from bot.errors import SettingsError
from bot.mcp.config.file import load_servers
from tests.admin.servers import OPERATOR, command_harness

URL = "https://a.example/mcp"
PROGRAM = StdioTransport("npx", ("-y", "desk@1.0.0"), {"PORT": "8080", "DEBUG": "true"})


def imported_transport(document: Any) -> Transport:
    [server] = parse_import_file(json.dumps(document), {})
    assert not server.problem
    fields = server.fields
    if url := fields.get("url", ""):
        return HttpTransport(url, {}, HttpKind(fields.get("transport", "streamable_http")))
    env = dict(line.split("=", 1) for line in fields.get("env", "").splitlines())
    return StdioTransport(server.argv[0], server.argv[1:], env, fields.get("cwd"))


def own(document: Any, folder: Path) -> Transport:
    path = folder / "mcp_servers.json"
    path.write_text(json.dumps(document))
    [entry] = load_servers(path, {}).entries
    assert not entry.problem
    return entry.config.transport


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"serverUrl": URL}, HttpTransport(URL)),
        ({"httpUrl": URL}, HttpTransport(URL)),
        ({"baseUrl": URL, "type": "streamableHttp"}, HttpTransport(URL)),
        ({"url": URL, "type": "streamable-http"}, HttpTransport(URL)),
        ({"url": URL, "type": "STREAMABLE_HTTP"}, HttpTransport(URL)),
        ({"url": URL, "transportType": "SSE"}, HttpTransport(URL, kind=HttpKind.SSE)),
        ({"url": URL, "type": "remote", "enabled": True}, HttpTransport(URL, kind=HttpKind.AUTO)),
        ({"transport": {"type": "sse", "url": URL}}, HttpTransport(URL, kind=HttpKind.SSE)),
        ({"transport": {"type": "stdio", "command": "npx", "args": ["x@1.0.0"]}}, StdioTransport("npx", ("x@1.0.0",))),
        (
            {"type": "local", "command": ["npx", "-y", "desk@1.0.0"], "environment": {"PORT": 8080, "DEBUG": True}},
            PROGRAM,
        ),
        ({"command": "npx", "args": ["-y", "desk@1.0.0"], "env": {"PORT": 8080, "DEBUG": True}}, PROGRAM),
        (
            {"command": {"path": "npx", "args": ["-y", "desk@1.0.0"], "env": {"PORT": 8080, "DEBUG": "true"}}},
            PROGRAM,
        ),
        (
            {"command": "x", "args": ["--port", 8080, False, 1.5]},
            StdioTransport("x", ("--port", "8080", "false", "1.5")),
        ),
        ({"command": "x", "workingDirectory": "/srv"}, StdioTransport("x", cwd="/srv")),
        ({"cmd": "npx", "args": ["-y", "desk@1.0.0"], "envs": {"PORT": 8080, "DEBUG": True}, "type": "stdio"}, PROGRAM),
        ({"uri": URL, "type": "streamable_http", "envs": {}, "cmd": None}, HttpTransport(URL)),
        ({"endpoint": URL, "type": "http-stream"}, HttpTransport(URL)),
        ({"url": None, "serverUrl": URL, "type": None, "headers": {}, "env": None}, HttpTransport(URL)),
        ({"command": "x", "args": None, "env": None, "cwd": None}, StdioTransport("x")),
        ({"command": "x", "args": ["a", None], "env": {"PORT": None}}, StdioTransport("x", ("a",))),
        ({"type": "stdio", "command": "x", "url": URL}, StdioTransport("x")),
    ],
)
def test_an_entry_is_read_alike_from_both_files(entry: Any, transport: Transport, tmp_path: Path) -> None:
    document = {"mcpServers": {"desk": entry}}
    assert (imported_transport(document), own(document, tmp_path)) == (transport, transport)


@pytest.mark.parametrize(
    "document",
    [
        {"servers": {"a": {"url": URL}}, "inputs": []},
        {"mcp": {"servers": {"a": {"url": URL}}}},
        {"context_servers": {"a": {"source": "custom", "url": URL}}},
        {"$schema": "https://opencode.ai/config.json", "mcp": {"a": {"type": "remote", "url": URL}}},
        {"numStartups": 3, "mcpServers": {}, "projects": {"/home/ana/desk": {"mcpServers": {"a": {"url": URL}}}}},
        {"projects": {"/home/ana/desk": {"history": []}, "/srv": {"mcpServers": {"a": {"url": URL}}}}},
        {"extensions": {"a": {"enabled": True, "type": "sse", "uri": URL, "name": "a", "timeout": 300}}},
        {"name": "Desk", "version": "1.0.0", "mcpServers": [{"name": "a", "type": "streamable-http", "url": URL}]},
        {"$schema": "https://schema.example", "a": {"serverUrl": URL}},
    ],
)
def test_servers_are_found_alike_in_both_files(document: Any, tmp_path: Path) -> None:
    for transport in (imported_transport(document), own(document, tmp_path)):
        assert isinstance(transport, HttpTransport)
        assert transport.url == URL


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"mcpServers": {"a": {"comand": "npx"}}}, "'comand'. Did you mean 'command'?"),
        ({"mcpServers": {"a": {"sreverUrl": URL}}}, "'sreverUrl'. Did you mean 'serverUrl'?"),
        ({"mcpServers": {"a": {"Command\u202e": "x"}}}, "'Command\\u{202e}'. Did you mean 'command'?"),
        ({"mcpServers": {"a": {"kommando": "npx", "zzz": 1}}}, "'kommando', 'zzz'"),
        ({"mcpServers": {"a": {"serverUrl": 5}}}, "serverUrl"),
        ({"mcpServers": {"a": {"command": "x", "environment": 5}}}, "environment"),
        ({"mcpServer": {"a": {"command": "x"}}}, "'mcpServer'. Did you mean 'mcpServers'?"),
        ({"mcpServers": {"a": {"command": "x", "serverUrl": URL}}}, "serverUrl"),
        ({"mcpServers": {"a": {"cmd": "x", "uri": URL}}}, "cmd"),
        ({"mcpServers": {"a": {"cmd": "x", "enabled": "no"}}}, "enabled"),
        ({"mcpServers": {"a": {"cmd": "x", "envs": {"A": []}}}}, "envs"),
        ({"mcpServers": {"a": {"command": "x", "args": ["${input:key}"]}}}, "input"),
        ({"mcpServers": {"a": {"command": "x", "args": ["${config:key}"]}}}, "${config:key}"),
        ({"mcpServers": None}, "mcpServers"),
        ({"mcpServers": [1]}, "mcpServers"),
    ],
)
def test_an_error_names_the_key_that_was_seen(document: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    path.write_text(json.dumps(document))
    assert said in _problem(lambda: load_servers(path, {}).entries[0].problem)
    assert said in _problem(lambda: parse_import_file(json.dumps(document), {})[0].problem)


def _problem(read: Any) -> str:
    try:
        return str(read())
    except (SettingsError, CommandRejected) as error:
        return str(error)


def test_codex_writes_toml() -> None:
    table = f'[mcp_servers.docs]\nurl = "{URL}"\nbearer_token_env_var = "DOCS_TOKEN"\ntool_timeout_sec = 30\n'
    [server] = parse_import_file(table, {})
    assert (server.fields["url"], server.fields["secret"]) == (URL, "env:DOCS_TOKEN")
    assert server.fields["tool_timeout"] == "30"
    with pytest.raises(CommandRejected, match='A text needs quotes, such as name = "value"'):
        parse_import_file("[mcp_servers.docs]\ncommand = npx\n", {})


def test_a_variable_of_opencode_or_cursor_is_one_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    for written in ("{env:DESK}", "${env:DESK}", "${DESK}", "$DESK"):
        path.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"KEY": written}}}}))
        [entry] = load_servers(path, {"DESK": "tk-1"}).entries
        assert entry.config.transport == StdioTransport("x", env={"KEY": "tk-1"})
        [server] = parse_import_file(path.read_text(), {})
        assert server.fields["env"] == "KEY=env:DESK"


@pytest.mark.parametrize("written", ["${DESK:-8080}", "${env:DESK:-8080}", "${env:DESK:8080}"])
def test_a_variable_has_a_default_in_each_spelling(written: str, tmp_path: Path) -> None:
    document = {"mcpServers": {"a": {"command": "x", "env": {"PORT": written}}}}
    transport = StdioTransport("x", env={"PORT": "8080"})
    assert (imported_transport(document), own(document, tmp_path)) == (transport, transport)


async def test_an_error_of_an_imported_value_names_its_key(tmp_path: Path) -> None:
    path = tmp_path / "desk.json"
    entries = {"a": {"uri": "localhost:8000/mcp"}, "b": {"url": URL, "timeout": "5s"}, "c": {"url": URL, "type": "ws"}}
    path.write_text(json.dumps({"mcpServers": entries}))
    line = ("mcp", "add", "--file", str(path))
    reply = (await command_harness().answers(*line, member=OPERATOR, hidden_input=True))[-1]
    assert isinstance(reply, Reply)
    assert [text.removeprefix("cannot be added: ").split(": ")[0] for _name, text in reply.details] == [
        "uri",
        "timeout",
        "type",
    ]


def test_a_variable_without_braces_is_one_if_it_is_the_end_of_a_value() -> None:
    values = {"A": "$DESK", "PASSWORD": "pa$WORD", "KEY": "$lower-1"}
    [server] = parse_import_file(json.dumps({"mcpServers": {"a": {"command": "x", "env": values}}}), {})
    assert server.fields["env"].splitlines()[0] == "A=env:DESK"
    assert server.values == {"env:PASSWORD": "pa$WORD", "env:KEY": "$lower-1"}


@pytest.mark.parametrize(
    ("key", "value", "field", "seconds"),
    [
        ("timeout", 300, "tool_timeout", 300),
        ("timeout", 600_000, "tool_timeout", 600),
        ("initTimeout", 15_000, "connect_timeout", 15),
        ("startup_timeout_ms", 20_000, "connect_timeout", 20),
        ("startup_timeout_sec", 20, "connect_timeout", 20),
        ("tool_timeout_sec", 30.5, "tool_timeout", 30.5),
    ],
)
def test_a_time_is_taken_over_in_seconds(key: str, value: float, field: str, seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"url": URL, key: value}}}))
    file = load_servers(path, {})
    assert getattr(file.entries[0].config, field) == seconds
    assert file.warnings == ()
    assert parse_import_file(path.read_text(), {})[0].fields[field] == f"{seconds:g}"


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("envFile", "its file of variables is not read"),
        ("env_keys", "these variables are not passed on"),
        ("autoApprove", "approvals are not taken over"),
        ("disabledTools", "all its tools are offered"),
        ("enabled_tools", "all its tools are offered"),
    ],
)
def test_a_key_without_a_setting_here_is_named_with_its_effect(key: str, effect: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"url": URL, key: ["x"]}}}))
    [warning] = load_servers(path, {}).warnings
    assert f"'{key}' of server 'a': {effect}" in warning
    [note] = parse_import_file(path.read_text(), {})[0].notes
    assert note.startswith(f"{key}: {effect}")


def test_a_token_of_codex_signs_in_from_both_files(tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"url": URL, "bearer_token_env_var": "DESK"}}}))
    file = load_servers(path, {"DESK": "tk-1"})
    assert file.entries[0].config.transport == HttpTransport(URL, {"Authorization": "Bearer tk-1"})
    assert file.warnings == ()


def test_an_input_of_vs_code_has_no_value_in_the_operators_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.json"
    path.write_text(json.dumps({"servers": {"a": {"url": URL, "headers": {"X-Key": "${input:key}"}}}}, indent=1))
    problem = load_servers(path, {}).entries[0].problem
    assert "'headers.X-Key' has the wrong type or value" in problem
    assert "make it a value with ${NAME}, a variable set in .env, for ${input:key}" in problem
    assert "line 6" in problem


def test_comments_and_trailing_commas_are_read_from_both_files(tmp_path: Path) -> None:
    text = f'\ufeff{{ // mine\n"mcpServers": {{/* two\nlines */ "a": {{"url": "{URL}", "title": 5,}},}}}}'
    path = tmp_path / "mcp_servers.json"
    path.write_text(text)
    assert "line 3" in load_servers(path, {}).entries[0].problem
    [server] = parse_import_file(text.removeprefix("\ufeff").replace("5", '"a // b, }"'), {})
    assert server.fields["title"] == "a // b, }"


def test_servers_of_a_list_with_one_name_are_all_there() -> None:
    listed = [{"name": "a", "url": URL}, {"name": "a", "url": URL}, {"url": URL}]
    servers = parse_import_file(json.dumps({"mcpServers": listed}), {})
    assert [server.slug for server in servers] == ["a", "a-2", "3"]

"""Spellings of other programs: the import and the operator's own file read them alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.commands.command import CommandRejected
from bot.commands.server_import import parse_import_file
from bot.domain.servers import HttpKind, HttpTransport, StdioTransport, Transport
from bot.errors import SettingsError
from bot.mcp.config.file import load_servers

URL = "https://a.example/mcp"
PROGRAM = StdioTransport("npx", ("-y", "desk@1.0.0"), {"PORT": "8080", "DEBUG": "true"})


def imported(document: Any) -> Transport:
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
    ],
)
def test_an_entry_is_read_alike_from_both_files(entry: Any, transport: Transport, tmp_path: Path) -> None:
    document = {"mcpServers": {"desk": entry}}
    assert (imported(document), own(document, tmp_path)) == (transport, transport)


@pytest.mark.parametrize(
    "document",
    [
        {"servers": {"a": {"url": URL}}, "inputs": []},
        {"mcp": {"servers": {"a": {"url": URL}}}},
        {"context_servers": {"a": {"source": "custom", "url": URL}}},
        {"$schema": "https://opencode.ai/config.json", "mcp": {"a": {"type": "remote", "url": URL}}},
        {"numStartups": 3, "mcpServers": {}, "projects": {"/home/ana/desk": {"mcpServers": {"a": {"url": URL}}}}},
        {"projects": {"/home/ana/desk": {"history": []}, "/srv": {"mcpServers": {"a": {"url": URL}}}}},
    ],
)
def test_servers_are_found_alike_in_both_files(document: Any, tmp_path: Path) -> None:
    for transport in (imported(document), own(document, tmp_path)):
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
    for written in ("{env:DESK}", "${env:DESK}", "${DESK}"):
        path.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"KEY": written}}}}))
        [entry] = load_servers(path, {"DESK": "tk-1"}).entries
        assert entry.config.transport == StdioTransport("x", env={"KEY": "tk-1"})
        [server] = parse_import_file(path.read_text(), {})
        assert server.fields["env"] == "KEY=env:DESK"

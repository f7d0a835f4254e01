"""The operator's file of servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.domain.flows import Flow, Sends, Words
from bot.domain.servers import (
    AuthenticationKind,
    DesiredServer,
    HttpTransport,
    OAuthTerms,
    Protocol,
    ServerConfig,
    ServerEnablement,
    SessionScope,
    StdioTransport,
    ToolNaming,
)
from bot.errors import SettingsError
from bot.mcp.config.file import ServersFile, load_servers


def read(tmp_path: Path, servers: Any, **environment: str) -> ServersFile:
    path = tmp_path / "mcp_servers.json"
    path.write_text(servers if isinstance(servers, str) else json.dumps({"mcpServers": servers}), encoding="utf-8")
    return load_servers(path, environment)


def only_problem(file: ServersFile) -> str:
    [problem] = problems(file).values()
    assert len(file.entries) == 1
    assert "Fix:" in problem
    return problem


def problems(file: ServersFile) -> dict[str, str]:
    return {entry.config.name: entry.problem for entry in file.entries if entry.problem}


def usable(file: ServersFile) -> list[str]:
    return [entry.config.name for entry in file.entries if not entry.problem]


def test_a_missing_file_means_no_servers(tmp_path: Path) -> None:
    assert load_servers(tmp_path / "none.json", {}) == ServersFile()


def test_every_key_of_a_stdio_server_is_read(tmp_path: Path) -> None:
    entry = {
        "transport": "stdio",
        "command": "python",
        "args": ["-m", "weather"],
        "env": {"A": "1"},
        "cwd": "/srv",
        "system_instruction": "Be exact.",
        "response_instruction": "Name the source.",
        "auto_context_tool": "search",
        "trusted": True,
        "connect_timeout": 5,
        "list_timeout": 6,
        "tool_timeout": 7.5,
        "tool_timeout_max": 70,
        "tool_timeouts": {"export": 20},
        "protocol": "2025-06-18",
        "roots": ["/srv/shared", "/srv/drafts"],
        "reconnect": False,
        "connect_retries": 3,
        "output_limit": 20_000,
        "fallback_group": "weather-eu",
        "fallback_order": 2,
        "tool_names": "plain",
        "sessions": "person",
        "max_sessions": 4,
        "session_idle_timeout": 90,
    }
    expected = ServerConfig(
        "weather",
        StdioTransport("python", ("-m", "weather"), {"A": "1"}, "/srv"),
        trusted=True,
        system_instruction="Be exact.",
        response_instruction="Name the source.",
        auto_context_tool="search",
        connect_timeout=5.0,
        list_timeout=6.0,
        tool_timeout=7.5,
        tool_timeout_max=70.0,
        tool_timeouts={"export": 20.0},
        protocol=Protocol.V2025_06_18,
        roots=("/srv/shared", "/srv/drafts"),
        reconnect=False,
        connect_retries=3,
        output_limit=20_000,
        fallback_group="weather-eu",
        fallback_order=2,
        tool_names=ToolNaming.PLAIN,
        sessions=SessionScope.PERSON,
        max_sessions=4,
        session_idle_timeout=90.0,
    )
    assert read(tmp_path, {"weather": entry}) == ServersFile((DesiredServer(expected),))


def test_keys_of_other_programs_are_read_and_give_way_to_those_of_this_one(tmp_path: Path) -> None:
    others = {"command": "x", "autoConnect": False, "connectionTimeoutMs": 30_000, "requestTimeout": 14}
    [kept] = read(tmp_path, {"a": others}).entries
    assert (kept.config.auto_connect, kept.config.connect_timeout, kept.config.tool_timeout) == (False, 30.0, 14.0)
    [kept] = read(tmp_path, {"a": {**others, "connect_timeout": 5, "initializationTimeout": 2}}).entries
    assert kept.config.connect_timeout == 5.0


def test_variables_are_filled_in_and_remembered_as_secrets(tmp_path: Path) -> None:
    entry = {
        "command": "${RUNNER:-python}",
        "args": ["--home", "${HOME}", "--port=${PORT:-80}"],
        "env": {"TOKEN": "x-${TOKEN}"},
    }
    file = read(tmp_path, {"a": entry}, TOKEN="very-secret", HOME="/home/ana")
    assert file.entries[0].config.transport == StdioTransport(
        "python", ("--home", "/home/ana", "--port=80"), {"TOKEN": "x-very-secret"}
    )
    assert file.entries[0].secrets == {"very-secret"}


def test_a_plain_word_is_a_setting_unless_its_name_says_otherwise(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"A": "${SAMPLE}", "B": "${DB_PASSWORD}", "C": "${PLACE}"}}
    [kept] = read(tmp_path, {"a": entry}, SAMPLE="always", DB_PASSWORD="swordfish", PLACE="Kyoto-7").entries
    assert kept.secrets == {"swordfish", "Kyoto-7"}


def test_variables_are_filled_in_for_http(tmp_path: Path) -> None:
    entry = {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    [kept] = read(tmp_path, {"a": entry}, HOST="example.org", TOKEN="t0ken!").entries
    assert kept.config.transport == HttpTransport("https://example.org/mcp", {"Authorization": "Bearer t0ken!"})


def test_a_variable_that_is_not_set_costs_that_server_alone(tmp_path: Path) -> None:
    file = read(tmp_path, {"a": {"command": "x", "env": {"T": "${MISSING}"}}, "b": {"command": "y"}})
    assert usable(file) == ["b"]
    [(name, sentence)] = problems(file).items()
    assert name == "a"
    assert "MISSING" in sentence
    assert "env.T" in sentence
    assert "Fix: set MISSING" in sentence


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ([], "'a' is not an object"),
        ({}, "neither or both"),
        ({"command": "x", "url": "https://example.org"}, "neither or both"),
        ({"transport": "carrier-pigeon"}, "carrier-pigeon"),
        ({"transport": "stdio"}, "'command'"),
        ({"transport": "http"}, "'url'"),
        ({"transport": "sse", "command": "x"}, "'url'"),
        ({"url": "ftp://example.org"}, "'url'"),
        ({"url": "https://exa mple.org"}, "'url'"),
        ({"url": "https://[::1"}, "'url'"),
        ({"url": "https://example.org", "headers": {"X": "a\nb"}}, "headers.X"),
        ({"command": 5}, "'command'"),
        ({"command": "x", "args": "y"}, "'args'"),
        ({"command": "x", "args": ["y", {}]}, "args[1]"),
        ({"command": "x", "env": {"PORT": []}}, "env.PORT"),
        ({"command": "x", "environment": {"PORT": []}}, "environment.PORT"),
        ({"httpUrl": "ftp://example.org"}, "'httpUrl'"),
        ({"command": "x", "env": []}, ""),
        ({"command": "x\0y"}, "NUL"),
        ({"command": "x", "trusted": "yes"}, "'trusted'"),
        ({"command": "x", "disabled": "no"}, "'disabled'"),
        ({"command": "x", "tool_timeout": 0}, "'tool_timeout'"),
        ({"command": "x", "tool_timeout": True}, "'tool_timeout'"),
        ({"command": "x", "tool_timeouts": 60}, "'tool_timeouts'"),
        ({"command": "x", "tool_timeouts": {"export": "long"}}, "'tool_timeouts.export'"),
        ({"command": "x", "connect_timeout": "5"}, "'connect_timeout'"),
        ({"command": "x", "sessions": "each"}, "'sessions'"),
        ({"command": "x", "max_sessions": 0}, "a whole number from 1 to 100"),
        ({"command": "x", "max_sessions": 2.5}, "'max_sessions'"),
        ({"command": "x", "connect_retries": 11}, "a whole number from 0 to 10"),
        ({"command": "x", "connect_retries": True}, "'connect_retries'"),
        ({"command": "x", "output_limit": 999}, "a whole number from 1000 to 200000"),
        ({"command": "x", "reconnect": "no"}, "'reconnect'"),
        ({"command": "x", "fallback_group": "My Group"}, "'fallback_group'"),
        ({"command": "x", "fallback_order": 100}, "a whole number from 1 to 99"),
        ({"command": "x", "tool_names": "short"}, "'tool_names'"),
    ],
)
def test_a_wrong_entry_is_a_problem_that_names_server_and_key(tmp_path: Path, entry: Any, named: str) -> None:
    file = read(tmp_path, {"a": entry, "good": {"command": "y"}})
    assert usable(file)[-1] == "good"
    if named:
        [(name, sentence)] = problems(file).items()
        assert name == "a"
        assert named in sentence
        assert "'a'" in sentence
        assert "mcp_servers.json" in sentence


@pytest.mark.parametrize("name", ["", "two words", "ä", "x" * 65, "a.b"])
def test_a_name_that_no_tool_could_carry_is_a_problem(tmp_path: Path, name: str) -> None:
    assert "name" in only_problem(read(tmp_path, {name: {"command": "x"}}))


def test_a_disabled_server_is_there_and_switched_off(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"TOKEN": "${TOKEN}"}, "trusted": True, "disabled": True}
    expected = ServerConfig("a", StdioTransport("x", env={"TOKEN": "very-secret"}), trusted=True)
    [kept] = read(tmp_path, {"a": entry}, TOKEN="very-secret").entries
    assert kept == DesiredServer(expected, ServerEnablement.DISABLED, secrets=frozenset({"very-secret"}))


@pytest.mark.parametrize("unfinished", [{}, {"command": "x", "env": {"T": "${MISSING}"}}, {"transport": "sse"}])
def test_an_unfinished_entry_of_a_disabled_server_is_no_problem(tmp_path: Path, unfinished: Any) -> None:
    [kept] = read(tmp_path, {"a": {**unfinished, "disabled": True}}).entries
    assert (kept.config.name, kept.enablement, kept.problem) == ("a", ServerEnablement.DISABLED, "")


def test_an_unknown_key_is_a_warning_that_names_it(tmp_path: Path) -> None:
    file = read(tmp_path, {"a": {"command": "x", "comand": "y"}})
    assert len(file.entries) == 1
    [warning] = file.warnings
    assert "'comand'" in warning
    assert "'a'" in warning


def test_a_server_that_is_there_twice_is_a_warning(tmp_path: Path) -> None:
    file = read(tmp_path, '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    assert file.entries[0].config.transport == StdioTransport("y")
    assert "'a' appears twice" in file.warnings[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"mcpServers": {\n  "a": {}\n "b"}}', "line 3"),
        ("[]", "JSON object"),
        ('{"mcpServers": []}', "mcpServers"),
        ('{"mcpServer": {}}', "unknown: 'mcpServer'. Did you mean 'mcpServers'?"),
        ("[" * 100_000, "nested"),
    ],
)
def test_a_file_that_cannot_be_read_as_such_is_an_error_that_names_it(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, content)
    assert said in caught.value.cause
    assert "mcp_servers.json" in caught.value.cause
    assert caught.value.fix


def test_a_file_in_another_encoding_or_a_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"\xe4": 1}')
    with pytest.raises(SettingsError, match="UTF-8"):
        load_servers(path, {})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_servers(tmp_path, {})


def test_an_empty_object_means_no_servers(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff{}") == ServersFile()


def test_a_server_may_be_signed_in_to_by_oauth(tmp_path: Path) -> None:
    plain = {"url": "https://a.example/mcp", "auth": {"type": "oauth"}}
    full = {
        "url": "https://b.example/mcp",
        "auth": {
            "type": "client-credentials",
            "client_id": "bot",
            "client_secret": "${DESK_SECRET}",
            "scope": "read write",
        },
    }
    file = read(tmp_path, {"a": plain, "b": full}, DESK_SECRET="hunter2-of-the-desk")
    assert [entry.config.sign_in for entry in file.entries] == [
        OAuthTerms(),
        OAuthTerms(AuthenticationKind.CLIENT_CREDENTIALS, "bot", "hunter2-of-the-desk", "read write"),
    ]
    assert file.entries[1].secrets == frozenset({"hunter2-of-the-desk"})
    assert "hunter2" not in repr(file.entries[1].config)


@pytest.mark.parametrize(
    ("auth", "more", "said"),
    [
        ({"type": "magic"}, {}, "neither oauth nor client_credentials"),
        ({"client_id": "bot"}, {}, "neither oauth nor client_credentials"),
        ({"type": "oauth", "secret": "x"}, {}, "'auth' has no 'secret'"),
        ({"type": "client_credentials", "client_id": "bot"}, {}, "lacks a client_id or a client_secret"),
        ({"type": "oauth", "client_secret": "x"}, {}, "a client_secret and no client_id"),
        ({"type": "oauth"}, {"headers": {"authorization": "Bearer x"}}, "both 'auth' and a header Authorization"),
        ("oauth", {}, "'auth' has the wrong type"),
        ({"type": "oauth"}, {"url": None, "command": "python"}, "is a program, which has no sign-in"),
    ],
)
def test_an_invalid_sign_in_by_oauth_has_its_reason(tmp_path: Path, auth: Any, more: dict[str, Any], said: str) -> None:
    assert said in only_problem(read(tmp_path, {"a": {"url": "https://a.example/mcp", "auth": auth, **more}}))


def test_information_flow_is_set_for_a_server_and_for_its_tools(tmp_path: Path) -> None:
    entry = {
        "command": "python",
        "words": "shared",
        "sends": "team",
        "tool_words": {"inbox": "strangers"},
        "tool_sends": {"send": "world"},
        "tool_recipients": {"send": ["to", "cc"]},
    }
    flows = read(tmp_path, {"a": entry}).entries[0].config.flows
    assert flows.flow_of("list") == Flow(Words.SHARED, Sends.TEAM)
    assert flows.flow_of("inbox") == Flow(Words.STRANGERS, Sends.TEAM)
    assert flows.flow_of("send") == Flow(Words.SHARED, Sends.WORLD, ("to", "cc"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"words": "mine"', "'words' has the wrong type or value. Fix: make it own, shared or strangers"),
        ('"sends": 5', "'sends' has the wrong type or value. Fix: make it closed, team or world"),
        ('"protocol": "2025"', "Fix: make it auto, 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 or 2026-07-28"),
        ('"roots": ["shared"]', "'shared' in 'roots' is not an absolute path"),
        ('"roots": ["/srv"], "transport": "http", "url": "https://a.example"', "for a server that runs here"),
        ('"protocol": "2026-07-28", "transport": "jsonrpc_http", "url": "https://a.example"', "does not speak"),
        ('"tool_words": ["own"]', "'tool_words' has the wrong type or value. Fix: make it an object of tools"),
        ('"tool_sends": {"a.b": "none"}', "'tool_sends.a.b' has the wrong type or value"),
        ('"tool_recipients": {"send": []}', "'tool_recipients.send' has the wrong type or value"),
        ('"tool_recipients": {"send": "to"}', "'tool_recipients.send' has the wrong type or value"),
    ],
)
def test_an_invalid_key_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    text = (
        f'{{"mcpServers": {{\n  "b": {{"url": "https://b.example", "words": "own"}},\n  "a": {{\n\n{line},\n"command":'
    )
    problem = problems(read(tmp_path, f'{text} "[,]:{{"}}}}}}'))["a"]
    assert said in problem
    assert problem.endswith(", line 5).")

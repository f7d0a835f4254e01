"""The bundled configuration names existing tools and variables. Servers that an operator adds are ignored."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.server import GUIDES
from mcp_servers.knowledge.server import create_server as knowledge
from mcp_servers.notes.server import create_server as notes
from mcp_servers.weather.server import create_server as weather
from mcp_servers.weather.settings import InvalidSetting, SampleMode, Settings, read_settings
from tests.mcp_servers.processes import REPOSITORY

SERVERS = json.loads((REPOSITORY / "config" / "mcp_servers.json").read_text())["mcpServers"]
POLICY = tomllib.loads((REPOSITORY / "config" / "policy.toml").read_text())
BUNDLED = {path.parent.name for path in REPOSITORY.glob("mcp_servers/*/__main__.py")}


async def test_the_policy_names_tools_that_exist_and_lets_only_readers_run_unasked(tmp_path: Path) -> None:
    assert POLICY["default"] == "ASK_USER"
    running: dict[str, MCPServer[Any]] = {
        "weather": weather(Settings(sample=SampleMode.ALWAYS)),
        "notes": notes(tmp_path / "notes.json"),
        "knowledge": knowledge(Library(GUIDES, None)),
    }
    assert set(running) == BUNDLED <= SERVERS.keys()
    for name, server in running.items():
        async with Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        readers = {each for each, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert POLICY["servers"][name]["tools"] == dict.fromkeys(readers, "ALWAYS_ALLOW")


async def test_the_search_of_documents_may_be_asked_every_question_but_no_server_is_unless_the_operator_says_so() -> (
    None
):
    async with Client(knowledge(Library(GUIDES, None))) as client:
        (tool,) = (each for each in (await client.list_tools()).tools if each.name == "search")
    assert [name for name in BUNDLED if "auto_context_tool" in SERVERS[name]] == []
    assert SERVERS["knowledge"]["trusted"] is True
    assert POLICY["servers"]["knowledge"]["tools"]["search"] == "ALWAYS_ALLOW"
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
    (wanted,) = tool.input_schema["required"]
    assert tool.input_schema["properties"][wanted]["type"] == "string"


def test_no_bundled_server_is_switched_off() -> None:
    assert [name for name in BUNDLED if SERVERS[name].get("disabled")] == []


def test_every_variable_handed_to_a_server_has_a_default() -> None:
    values = [value for name in BUNDLED for value in SERVERS[name]["env"].values()]
    assert len(values) == 5
    assert all(re.fullmatch(r"\$\{[A-Z_]+:-[^}]*\}", value) for value in values)


def test_empty_settings_are_the_defaults() -> None:
    assert read_settings({}) == read_settings({"WEATHER_BASE_URL": "", "WEATHER_SAMPLE": " "}) == Settings()
    assert read_settings({"WEATHER_BASE_URL": "http://[::1]:80/"}).base_url == "http://[::1]:80"
    assert read_settings({"WEATHER_SAMPLE": "NEVER"}).sample is SampleMode.NEVER


@pytest.mark.parametrize(
    "address", ["ftp://example.invalid", "http://[::1", "http://x:99999", "www.jma.go.jp", "http://"]
)
def test_an_address_that_is_none_is_refused_with_one_that_would_do(address: str) -> None:
    with pytest.raises(
        InvalidSetting, match=r"WEATHER_BASE_URL is '.+', which is not an http or https address; unset it"
    ):
        read_settings({"WEATHER_BASE_URL": address})

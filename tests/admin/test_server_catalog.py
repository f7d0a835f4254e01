"""`/mcp catalog`, and servers that are added by their catalog names."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.catalog import CatalogServer
from bot.domain.commands import Reply
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import AuthenticationKind, HttpTransport, StdioTransport
from bot.mcp.config.catalog import Catalog, parse_server
from tests.admin.servers import ADMIN, GUEST, OPERATOR, CommandHarness, command_harness


def catalog_server(**fields: Any) -> CatalogServer:
    server = parse_server({"server": {"name": "io.github.ana/desk-mcp", "title": "Desk", **fields}})
    assert server is not None
    return server


def with_registry(*servers: CatalogServer) -> CommandHarness:
    async def search(_words: str) -> list[CatalogServer]:
        return list(servers)

    held = command_harness()
    held.catalog = Catalog(search)
    return held


async def at_terminal(held: CommandHarness, line: str) -> Reply:
    return await held.run(*line.split(), member=OPERATOR, hidden_input=True)


async def test_the_catalog_is_listed_searched_and_explained(held: CommandHarness) -> None:
    listed = await held.ask("mcp catalog")
    assert "can be added by name" in listed.text
    assert listed.page is not None
    searched = await held.ask("mcp catalog workflow")
    assert searched.table is not None
    assert [row[0] for row in searched.table.rows] == ["n8n", "n8n-workflow"]
    assert searched.table.rows[0][2] == "host=VALUE, a secret"
    explained = await held.ask("mcp catalog n8n")
    assert dict(explained.details)["address"] == "https://{host}/mcp-server/http"
    assert dict(explained.details)["add it"] == "/mcp add n8n host=VALUE"
    assert (await held.ask("mcp catalog nosuchthing")).failed
    assert (await held.ask("mcp catalog", GUEST)).failed


async def test_a_server_with_an_address_is_added_by_its_name_and_its_secret_later(held: CommandHarness) -> None:
    missing = await held.ask("mcp add n8n")
    assert dict(missing.details)["host="].startswith("It is missing: host of the instance")
    strange = await held.ask("mcp add n8n host=a.example hots=b")
    assert dict(strange.details)["hots="] == "n8n takes host=, token=."
    assert not held.store.entries
    await at_terminal(held, "mcp add n8n host=acme.app.n8n.cloud --policy ask")
    record = held.record
    assert record.config.transport == HttpTransport("https://acme.app.n8n.cloud/mcp-server/http")
    assert record.authentication.kind is AuthenticationKind.API_KEY
    assert record.secrets == {"auth": SecretReference(SecretSource.STORED)}


async def test_a_secret_is_a_reference_and_the_name_another(held: CommandHarness) -> None:
    reply = await held.ask("mcp add gh --from github token=env:MCP_SECRET_GH --no-verify")
    assert reply.text == "`gh` is added."
    record = held.record
    assert (record.config.name, record.config.title) == ("gh", "")
    assert str(record.secrets["auth"]) == "env:MCP_SECRET_GH"
    in_clear = await held.ask("mcp add github token=hunter2")
    assert "Write env:NAME" in dict(in_clear.details)["--secret"]


async def test_a_sign_in_by_a_browser_is_set_and_options_win(held: CommandHarness) -> None:
    await held.ask("mcp add linear --no-verify --title Issues --description Ours")
    record = held.record
    assert record.authentication.kind is AuthenticationKind.OAUTH
    assert (record.config.title, record.config.description) == ("Issues", "Ours")


async def test_in_a_chat_no_name_starts_a_program(held: CommandHarness) -> None:
    for line in ("mcp add filesystem folder=/srv", "mcp add x --from time"):
        reply = await held.ask(line, ADMIN)
        assert "Only the operator may have programs started" in str(reply.details)
    assert not held.store.entries


async def test_the_operator_starts_a_bundled_package(held: CommandHarness) -> None:
    held.programs.add("npx")
    await at_terminal(held, "mcp add filesystem folder=/srv --no-verify")
    args = ("-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv")
    assert held.record.config.transport == StdioTransport("npx", args)


async def test_a_published_command_line_is_shown_before_it_is_started_though_its_program_is_allowed() -> None:
    variables = [
        {"name": "DESK_TOKEN", "isRequired": True, "isSecret": True},
        {"name": "MODE", "default": "quiet"},
        {"name": "EXTRA"},
    ]
    package = {"registryType": "npm", "identifier": "desk", "version": "1.0.0", "environmentVariables": variables}
    held = with_registry(catalog_server(packages=[package]))
    held.programs.add("npx")
    asked = await at_terminal(held, "mcp add io.github.ana/desk-mcp")
    assert dict(asked.details)["command"] == "npx -y desk@1.0.0"
    [action] = asked.actions
    assert action.question == "Start this on this machine with npx?"
    assert not held.store.entries
    await at_terminal(held, " ".join(action.words))
    record = held.record
    assert (record.config.name, record.config.title) == ("desk", "Desk")
    assert record.config.transport == StdioTransport("npx", ("-y", "desk@1.0.0"), {"MODE": "quiet"})
    assert record.secrets == {"env:DESK_TOKEN": SecretReference(SecretSource.STORED)}


async def test_a_published_command_line_that_has_changed_since_it_was_shown_is_not_started() -> None:
    held = with_registry(catalog_server(packages=[{"registryType": "npm", "identifier": "desk", "version": "1.0.0"}]))
    held.programs.add("npx")
    [action] = (await at_terminal(held, "mcp add io.github.ana/desk-mcp")).actions
    others = [catalog_server(packages=[{"registryType": "npm", "identifier": "evil", "version": "1.0.0"}])]

    async def search(_words: str) -> list[CatalogServer]:
        return others

    held.catalog = Catalog(search)
    reply = await at_terminal(held, " ".join(action.words))
    assert (reply.failed, "another command now" in reply.text) == (True, True)
    assert not held.store.entries


async def test_a_secret_of_a_published_server_never_becomes_part_of_an_address() -> None:
    remote = {"type": "sse", "url": "https://a.example/{token}/sse", "variables": {"token": {"isSecret": True}}}
    held = with_registry(catalog_server(remotes=[remote]))
    reply = await held.ask("mcp add io.github.ana/desk-mcp token=env:MCP_SECRET_X")
    assert "which all can read" in dict(reply.details)["token="]
    assert not held.store.entries


@pytest.mark.parametrize(
    "header",
    [
        {"name": "Authorization", "isSecret": True, "default": "env:SLACK_BOT_TOKEN"},
        {"name": "X-Key", "isSecret": True, "isRequired": True, "default": "file:/etc/countersign/key"},
        {"name": "X-Region", "value": " env:SLACK_BOT_TOKEN"},
        {"name": "X-Region", "value": "{region}", "variables": {"region": {"default": "env:SLACK_BOT_TOKEN"}}},
    ],
)
async def test_a_published_server_names_no_secret_of_this_machine(header: dict[str, Any]) -> None:
    remote = {"type": "streamable-http", "url": "https://a.example/mcp", "headers": [header]}
    held = with_registry(catalog_server(remotes=[remote]))
    await at_terminal(held, "mcp add io.github.ana/desk-mcp --no-verify")
    assert [record for record in held.store.entries.values() if any(map(_is_reference, record.secrets.values()))] == []


def _is_reference(secret: SecretReference) -> bool:
    return secret.source is not SecretSource.STORED


@pytest.mark.parametrize("line", ["mcp add x --from nothing", "mcp add io.github.ana/other"])
async def test_a_name_that_is_not_there_is_said(line: str) -> None:
    reply = await with_registry().ask(line)
    assert "no server of that name in the catalog" in reply.text


async def test_a_name_of_the_catalog_with_an_address_is_a_server_of_ones_own(held: CommandHarness) -> None:
    await held.ask("mcp add github https://github.example/mcp --no-verify")
    assert held.record.config.transport == HttpTransport("https://github.example/mcp")

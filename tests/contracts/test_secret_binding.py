"""Secrets can be decrypted only for the endpoint that they were set for, on both databases."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from bot.domain.secret_binding import SecretGrant, SecretGrants, binding_of
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    Authentication,
    AuthenticationKind,
    HttpKind,
    HttpTransport,
    ServerConfig,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
)
from bot.errors import SecretUnavailable
from bot.storage.admin.servers import SqlServerStore
from bot.storage.encryption import make_box
from tests.fakes.parts import ANA
from tests.turn_log_harness import Harness

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
STORED = SecretReference(SecretSource.STORED)
JIRA = SecretReference(SecretSource.ENVIRONMENT, "MCP_SECRET_JIRA")
VOUCHED = dataclasses.replace(JIRA, vouched=True)
THERE = HttpTransport("https://jira.example/mcp")
HOME = "slack:T1"
GRANT = SecretGrant(JIRA, frozenset({HOME}), frozenset({"https://jira.example:443"}), frozenset({"jira"}), 1)

ELSEWHERE: dict[str, Transport] = {
    "another host": HttpTransport("https://evil.example/mcp"),
    "another port": HttpTransport("https://jira.example:8443/mcp"),
    "in clear text": HttpTransport("http://jira.example:443/mcp"),
    "a host that begins alike": HttpTransport("https://jira.example.evil.example/mcp"),
    "a host behind a user name": HttpTransport("https://jira.example@evil.example/mcp"),
    "a program": StdioTransport("python", ("-m", "jira")),
    "a launch template": StdioTransport("", launch=TemplateLaunch("jira", {"team": "red"})),
}
THE_SAME = {
    "another path": HttpTransport("https://jira.example/v2/mcp"),
    "another spelling": HttpTransport("https://JIRA.example:443/mcp"),
    "another transport at the origin": HttpTransport("https://jira.example/sse", kind=HttpKind.AUTO),
}


def store(harness: Harness, *grants: SecretGrant) -> SqlServerStore:
    environment = {"MCP_SECRET_JIRA": "the-operators-key"}
    return SqlServerStore(harness.database, make_box(KEY), environment, grants=lambda: SecretGrants(grants))


def record(reference: SecretReference = STORED, transport: Transport = THERE, workspace: str = HOME) -> ServerRecord:
    slot = AUTH_SECRET if isinstance(transport, HttpTransport) else "env:TOKEN"
    kind = AuthenticationKind.API_KEY if slot == AUTH_SECRET else AuthenticationKind.NONE
    config = ServerConfig("jira", transport, id="id-1", workspace=workspace)
    return ServerRecord(config, Authentication(kind), {slot: reference})


def moved_server(known: ServerRecord, transport: Transport) -> ServerRecord:
    return dataclasses.replace(known, config=dataclasses.replace(known.config, transport=transport))


async def execute(harness: Harness, statement: str, **values: object) -> None:
    await harness.database.run(lambda connection: connection.execute(sa.text(statement), values))


@pytest.mark.parametrize("where", ELSEWHERE)
async def test_a_stored_secret_is_deleted_when_its_server_moves(harness: Harness, where: str) -> None:
    servers = store(harness)
    added = await servers.add(record(), {AUTH_SECRET: "typed"}, ANA)
    assert added.missing == set()
    changed = await servers.change(moved_server(added, ELSEWHERE[where]), {}, ANA, changes={})
    assert changed.missing == {AUTH_SECRET}
    with pytest.raises(SecretUnavailable, match="it is not set"):
        await servers.read_secrets(changed)
    back = await servers.change(moved_server(changed, THERE), {}, ANA, changes={})
    with pytest.raises(SecretUnavailable, match="it is not set"):
        await servers.read_secrets(back)
    again = await servers.change(back, {AUTH_SECRET: "typed again"}, ANA, changes={})
    assert again.missing == set()
    assert await servers.read_secrets(again) == {AUTH_SECRET: "typed again"}


@pytest.mark.parametrize("where", THE_SAME)
async def test_a_stored_secret_stays_while_its_server_stays_at_its_origin(harness: Harness, where: str) -> None:
    servers = store(harness)
    added = await servers.add(record(), {AUTH_SECRET: "typed"}, ANA)
    changed = await servers.change(moved_server(added, THE_SAME[where]), {}, ANA, changes={})
    assert await servers.read_secrets(changed) == {AUTH_SECRET: "typed"}


@pytest.mark.parametrize(
    "other",
    [
        StdioTransport("python", ("-m", "jira", "--verbose")),
        StdioTransport("python3", ("-m", "jira")),
        StdioTransport("python", ("-m", "jira"), cwd="/tmp/elsewhere"),
        StdioTransport("", launch=TemplateLaunch("jira", {})),
        THERE,
    ],
)
async def test_a_variable_of_a_program_is_deleted_when_another_program_would_get_it(
    harness: Harness, other: Transport
) -> None:
    servers = store(harness)
    added = await servers.add(record(transport=StdioTransport("python", ("-m", "jira"))), {"env:TOKEN": "typed"}, ANA)
    changed = await servers.change(moved_server(added, other), {}, ANA, changes={})
    assert changed.missing == {"env:TOKEN"}


async def test_the_secret_of_an_oauth_client_belongs_to_the_client_and_the_whole_address(harness: Harness) -> None:
    servers = store(harness)
    client = Authentication(AuthenticationKind.CLIENT_CREDENTIALS, client_id="bot")
    first = dataclasses.replace(record(), authentication=client)
    added = await servers.add(first, {AUTH_SECRET: "typed"}, ANA)
    for other in (
        dataclasses.replace(added, authentication=dataclasses.replace(client, client_id="robot")),
        moved_server(added, HttpTransport("https://jira.example/tenant-2/mcp")),
        dataclasses.replace(added, authentication=Authentication(AuthenticationKind.HEADER)),
    ):
        with pytest.raises(SecretUnavailable, match="it was entered for"):
            await servers.read_secrets(other)


async def test_a_row_whose_address_was_changed_by_hand_does_not_open(harness: Harness) -> None:
    servers = store(harness)
    await servers.add(record(), {AUTH_SECRET: "typed"}, ANA)
    await execute(harness, "update mcp_servers set definition = replace(definition, 'jira.example', 'evil.example')")
    (kept,) = await servers.records()
    assert kept.missing == {AUTH_SECRET}
    with pytest.raises(SecretUnavailable, match=r"entered for https://jira\.example:443"):
        await servers.read_secrets(kept)
    await execute(harness, "update mcp_secrets set bound_to = :place", place=binding_of(kept, AUTH_SECRET))
    with pytest.raises(SecretUnavailable, match="tampered"):
        await servers.read_secrets(kept)


async def test_a_reference_takes_a_grant_for_its_workspace_and_its_host(harness: Harness) -> None:
    bare, granted = store(harness), store(harness, GRANT)
    added = await bare.add(record(JIRA), {}, ANA)
    with pytest.raises(SecretUnavailable, match=r"not granted to servers of slack:T1 at jira\.example") as refused:
        await bare.read_secrets(added)
    assert 'secret = "env:MCP_SECRET_JIRA", workspaces = ["slack:T1"], hosts = ["jira.example"]' in refused.value.fix
    assert await granted.read_secrets(added) == {AUTH_SECRET: "the-operators-key"}
    for other in (*ELSEWHERE.values(), HttpTransport("https://jira.example.:443/mcp")):
        if not isinstance(other, StdioTransport):
            with pytest.raises(SecretUnavailable, match="not granted"):
                await granted.read_secrets(moved_server(added, other))
    for reference, workspace in (
        (JIRA, "slack:T2"),
        (JIRA, ""),
        (SecretReference(SecretSource.ENVIRONMENT, "MCP_SECRET_JIRA_2"), HOME),
        (SecretReference(SecretSource.FILE, "/run/secrets/MCP_SECRET_JIRA"), HOME),
    ):
        with pytest.raises(SecretUnavailable, match="not granted"):
            await granted.read_secrets(record(reference, workspace=workspace))


async def test_a_program_gets_a_reference_only_by_its_launch_template(harness: Harness) -> None:
    granted = store(harness, GRANT)
    launched = StdioTransport("", launch=TemplateLaunch("jira", {"team": "red"}))
    assert await granted.read_secrets(record(JIRA, launched)) == {"env:TOKEN": "the-operators-key"}
    for other in (StdioTransport("", launch=TemplateLaunch("git", {})), StdioTransport("jira")):
        with pytest.raises(SecretUnavailable, match="not granted"):
            await granted.read_secrets(record(JIRA, other))


async def test_a_reference_that_the_operator_has_given_holds_for_the_place_it_was_given_for(harness: Harness) -> None:
    servers = store(harness)
    added = await servers.add(record(VOUCHED), {}, ANA)
    assert await servers.read_secrets(added) == {AUTH_SECRET: "the-operators-key"}
    await execute(harness, "update mcp_servers set definition = replace(definition, 'jira.example', 'evil.example')")
    (kept,) = await servers.records()
    with pytest.raises(SecretUnavailable, match="not granted"):
        await servers.read_secrets(kept)


async def test_a_rotation_keeps_secrets_where_they_are_bound(harness: Harness) -> None:
    servers = store(harness)
    added = await servers.add(record(), {AUTH_SECRET: "typed"}, ANA)
    assert await servers.reseal(ANA) == (1, [])
    assert await servers.read_secrets(added) == {AUTH_SECRET: "typed"}
    with pytest.raises(SecretUnavailable):
        await servers.read_secrets(moved_server(added, HttpTransport("https://evil.example/mcp")))


async def test_a_server_of_the_same_name_that_is_added_again_has_no_secret(harness: Harness) -> None:
    servers = store(harness)
    added = await servers.add(record(), {AUTH_SECRET: "typed"}, ANA)
    await servers.remove(added.id, added.version, ANA)
    again = await servers.add(record(), {}, ANA)
    assert again.missing == {AUTH_SECRET}

"""Changes by admins apply at once in this process, and in the others at their next poll."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.app.components import AppServices
from bot.app.database import open_migrated_database
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_services
from bot.app.secrets import UsableSecrets, secret_box
from bot.app.stores import Stores
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Profile
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    Authentication,
    AuthenticationKind,
    ConnectPolicy,
    HttpTransport,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
    StdioTransport,
    Transport,
)
from bot.domain.tools import Tool
from bot.errors import SecretUnavailable, SettingsError
from bot.settings import Settings, read_settings
from tests.fakes.parts import until
from tests.rules import plain

ANA = Author("console", "ana", "ana")
HALL = ConversationKey("console", "local", "ana", "1")
TOOL = Tool("tickets__lookup", "tickets", "lookup", server_id="t1")


def record(slug: str = "tickets", **more: Any) -> ServerRecord:
    config = ServerConfig(
        slug, HttpTransport("https://tickets.example/mcp"), id=more.pop("id", "t1"), auto_connect=False
    )
    return ServerRecord(config, **more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    return tmp_path


@asynccontextmanager
async def office(**environment: Any) -> AsyncIterator[tuple[AppServices, Stores]]:
    """Yield the services of one process, and the stores of another process."""
    settings = read_settings(**environment)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_migrated_database(settings, migrate=True))
        opened = open_services(
            settings, read_operator_files(settings), database, operator=ANA.principal, connect=ConnectPolicy.LAZY
        )
        yield await stack.enter_async_context(opened), elsewhere(settings, database)


def elsewhere(settings: Settings, database: Any) -> Stores:
    return Stores(settings, database)


def states(made: AppServices) -> dict[str, ServerSnapshot]:
    return {state.config.name: state for state in made.toolbox.servers()}


@pytest.mark.usefixtures("folder")
async def test_a_change_by_another_process_is_followed_without_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 0.1)
    async with office() as (here, there):
        task = asyncio.create_task(here.administration.run())
        await there.servers.add(record(), {}, ANA)
        await until(lambda: "tickets" in states(here))
        await there.policies.set_rule(plain("t1", "lookup", ApprovalPolicy.ALWAYS_DENY), ANA)
        await until(lambda: here.administration.rules(HALL).policy_of(TOOL) is ApprovalPolicy.ALWAYS_DENY)
        profile = await there.profiles.save(Profile("p1", "pilot", servers=frozenset()), ANA)
        await there.profiles.bind(HALL.workspace_key, profile.id, ANA)
        await until(lambda: here.rules.rules(HALL).profile.name == "pilot")
        await there.servers.set_enablement("t1", ServerEnablement.DISABLED, ANA)
        await until(lambda: states(here)["tickets"].status is ServerStatus.DISABLED)
        await there.servers.remove("t1", 2, ANA)
        await until(lambda: states(here) == {})
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("mode", "policy", "authors"),
    [("ask", "runs, except after words of others", "shared or strangers"), ("off", "runs", "nobody")],
)
async def test_an_explanation_of_an_allowed_call_names_the_sources_after_which_it_asks(
    mode: str, policy: str, authors: str
) -> None:
    async with office(taint_mode=mode) as (here, there):
        await there.servers.add(record(), {}, ANA)
        await there.servers.save_capabilities("t1", ServerCapabilities((TOOL,)))
        await there.policies.set_rule(plain("t1", "lookup", ApprovalPolicy.ALWAYS_ALLOW), ANA)
        await here.administration.refresh()
        asked = Invocation("mcp", ("policy", "explain", "tickets", "lookup"), Member(ANA), HALL)
        (reply,) = [reply async for reply in here.commands.handle(asked)]
    assert isinstance(reply, Reply)
    facts = {str(name): str(fact) for name, fact in reply.details}
    assert (facts["policy"], facts["asks after words of"]) == (policy, authors)


@pytest.mark.usefixtures("folder")
async def test_pins_of_another_process_are_followed() -> None:
    changed = replace(TOOL, description="Something else.")
    async with office() as (here, there):
        await there.servers.add(record(), {}, ANA)
        await there.servers.save_capabilities("t1", ServerCapabilities((TOOL,)))
        await here.administration.refresh()
        assert here.toolbox.is_pinned(TOOL)
        assert here.toolbox.unpinned_tools("t1") == ()
        await there.pins.pin("t1", [changed], ANA)
        await here.administration.refresh()
        assert [tool.original_name for tool in here.toolbox.unpinned_tools("t1")] == ["lookup"]
        assert (here.toolbox.is_pinned(TOOL), here.toolbox.is_pinned(changed)) == (False, True)


@pytest.mark.usefixtures("folder")
async def test_a_look_that_is_asked_for_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 3600.0)
    async with office() as (here, there):
        await there.servers.add(record(), {}, ANA)
        task = asyncio.create_task(here.administration.run())
        await until(lambda: "tickets" in states(here))
        await there.servers.add(record("orders", id="t2"), {}, ANA)
        here.administration.wake()
        await until(lambda: "orders" in states(here))
        task.cancel()
        await asyncio.wait({task})


async def test_the_files_server_goes_first_and_the_other_says_why_it_does_not(folder: Path) -> None:
    (folder / "config/mcp_servers.json").write_text(json.dumps({"mcpServers": {"tickets": {"command": "serve"}}}))
    async with office() as (here, there):
        await there.servers.add(record(), {}, ANA)
        await here.administration.refresh()
        found = {state.config.id: state.problem for state in here.toolbox.servers()}
    assert found["file:tickets"] == ""
    assert found["t1"].startswith("The operator's file has a server tickets too")
    assert found["t1"].endswith("this one goes by its id, t1")


@pytest.mark.usefixtures("folder")
async def test_a_secret_that_cannot_be_had_is_that_servers_problem_alone() -> None:
    secret = {AUTH_SECRET: SecretReference.parse("env:MCP_SECRET_GONE")}
    authentication = Authentication(AuthenticationKind.API_KEY)
    async with office() as (here, there):
        await there.servers.add(record(authentication=authentication, secrets=secret), {}, ANA)
        await there.servers.add(record("notes", id="n1"), {}, ANA)
        await here.administration.refresh()
        found = states(here)
    assert found["tickets"].status is ServerStatus.FAILED
    assert "MCP_SECRET_GONE" in found["tickets"].problem
    assert found["notes"].problem == ""


@pytest.mark.usefixtures("folder")
async def test_a_wrong_key_fails_the_server_with_a_reason_and_leaves_the_rest_alone() -> None:
    stored = {AUTH_SECRET: SecretReference(SecretSource.STORED)}
    authentication = Authentication(AuthenticationKind.API_KEY)
    first, second = ("A" * 43 + "=", "B" * 42 + "A=")
    async with office(mcp_encryption_key=first) as (_, there):
        await there.servers.add(record(authentication=authentication, secrets=stored), {AUTH_SECRET: "hush-hush"}, ANA)
    async with office(mcp_encryption_key=second) as (here, _):
        assert states(here)["tickets"].status is ServerStatus.FAILED
        assert "encrypted with another key" in states(here)["tickets"].problem
    async with office(mcp_encryption_key=f"{second},{first}") as (here, _):
        assert states(here)["tickets"].problem == ""


async def test_the_operators_files_are_read_again_on_demand_and_the_difference_is_told_first(folder: Path) -> None:
    file = folder / "config/mcp_servers.json"
    old = {"weather": {"command": "serve"}, "notes": {"command": "serve"}}
    file.write_text(json.dumps({"mcpServers": old}))
    async with office() as (here, _):
        new = {"weather": {"command": "serve", "trusted": True}, "jira": {"url": "https://jira.example/mcp"}}
        file.write_text(json.dumps({"mcpServers": new}))
        (folder / "config/policy.toml").write_text('default = "ALWAYS_DENY"')
        difference = await here.administration.difference()
        assert (difference.added, difference.removed) == (("jira",), ("notes",))
        assert dict(difference.changed) == {"weather": "trusted", "policies": "other rules"}
        assert set(states(here)) == {"weather", "notes"}
        assert here.administration.rules(HALL).policy_of(TOOL) is ApprovalPolicy.ASK_USER
        assert await here.administration.reload() == difference
        assert set(states(here)) == {"weather", "jira"}
        assert here.administration.rules(HALL).policy_of(TOOL) is ApprovalPolicy.ALWAYS_DENY
        assert (await here.administration.difference()).is_empty


async def test_a_file_that_cannot_be_read_again_changes_nothing(folder: Path) -> None:
    file = folder / "config/mcp_servers.json"
    file.write_text(json.dumps({"mcpServers": {"notes": {"command": "serve"}}}))
    async with office() as (here, _):
        file.write_text("{")
        with pytest.raises(SettingsError):
            await here.administration.reload()
        await here.administration.refresh()
        assert set(states(here)) == {"notes"}


def test_a_definition_beyond_an_admins_rights_is_refused_with_the_fix(folder: Path) -> None:
    async def ask() -> list[str]:
        async with office(mcp_allowed_commands=frozenset({"npx"})) as (here, _):
            transports: list[Transport] = [
                HttpTransport("https://tickets.example/mcp"),
                HttpTransport("http://127.0.0.1/mcp"),
                StdioTransport("npx"),
                StdioTransport("sh"),
            ]
            return [
                here.administration.rejection_reason(ServerConfig("x", transport, id="x")) for transport in transports
            ]

    fine, private, listed, program = asyncio.run(ask())
    assert fine == listed == ""
    assert "MCP_ALLOWED_HOSTS" in private
    assert "run a program" in program


def test_the_bots_own_secrets_are_none_that_a_server_may_refer_to(tmp_path: Path) -> None:
    environment = {"MCP_SECRET_JIRA": "a", "OPENAI_API_KEY": "b", "AWS_SECRET": "c", "JIRA_TOKEN": "d"}
    settings = read_settings(mcp_secret_variables=frozenset({"MCP_SECRET_*", "*_KEY", "JIRA_TOKEN"}))
    assert UsableSecrets(settings, environment).environment == {"MCP_SECRET_JIRA": "a", "JIRA_TOKEN": "d"}


def test_a_file_is_read_from_the_secrets_folder_and_from_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "jira").write_text("j")
    (tmp_path / "key").write_text("k")
    (folder / "link").symlink_to(tmp_path / "key")
    usable = UsableSecrets(read_settings(mcp_secret_folder=folder), {})
    with usable.open_file(str(folder / "jira")) as file:
        assert file.read() == b"j"
    for path in (tmp_path / "key", folder / "link", folder / "../key"):
        with pytest.raises(SecretUnavailable, match="which is where servers' secrets are read from"):
            usable.open_file(str(path))


def test_a_key_is_made_beside_a_file_when_it_is_first_needed_and_not_before(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = secret_box(read_settings(database_url="sqlite:///data/x.db"))
    assert not (folder / "data").exists()
    sealed = box.seal("hush", "here")
    assert (folder / "data/x.db.key").stat().st_mode & 0o777 == 0o600
    assert "keep a copy of it" in caplog.text
    assert secret_box(read_settings(database_url="sqlite:///data/x.db")).open(sealed, "here") == "hush"


def test_a_server_needs_a_key_of_the_operators() -> None:
    with pytest.raises(SecretUnavailable, match="MCP_ENCRYPTION_KEY"):
        secret_box(read_settings(database_url="postgresql://u@h/d")).seal("hush", "here")


async def test_a_rule_of_the_file_that_fits_no_tool_of_its_server_is_warned_of_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = ("lokup", "look*", "lookup")
    text = "\n".join(f'[[rules]]\npolicy = "ALWAYS_DENY"\nserver = "tickets"\ntool = "{tool}"' for tool in rules)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    async with office(policy_file="policy.toml") as (here, there):
        await there.servers.add(record(), {}, ANA)
        await here.administration.refresh()
        assert caplog.messages == []
        await there.servers.save_capabilities("t1", ServerCapabilities((TOOL,)))
        for _ in range(2):
            await here.administration.refresh()
    assert caplog.messages == ["policy.toml:1 (ALWAYS_DENY: tickets.lokup) matches no tool of its server"]

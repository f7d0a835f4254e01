"""Reloads while the configuration changes, and with invalid secrets."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.app.secrets import UsableSecrets
from bot.domain.approvals import ApprovalPolicy
from bot.domain.profiles import Binding, Profile
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import AUTH_SECRET, Authentication, AuthenticationKind, ServerStatus
from bot.errors import DatabaseUnavailable, SecretUnavailable
from bot.ports import PolicyStore, ProfileStore
from bot.settings import read_settings
from tests.app.test_config_reload import ANA, HALL, TOOL, folder, office, record, states
from tests.fakes.parts import until
from tests.rules import plain

__all__ = ["folder"]


class Overtaken:
    """A store whose rows change during their first read."""

    def __init__(self, inner: Any, method: str, change: Any) -> None:
        self._inner = inner
        self._method = method
        self._change = change

    def __getattr__(self, name: str) -> Any:
        async def read() -> Sequence[Any]:
            found: Sequence[Any] = await getattr(self._inner, name)()
            change, self._change = self._change, None
            if change is not None:
                await change()
            return found

        return read if name == self._method else getattr(self._inner, name)


@pytest.mark.usefixtures("folder")
async def test_a_server_is_never_taken_over_without_its_rules() -> None:
    async with office() as (here, there):

        async def added_meanwhile() -> None:
            await there.servers.add(record(), {}, ANA)
            await there.policies.set_rule(plain("t1", "lookup", ApprovalPolicy.ALWAYS_DENY), ANA)

        policies: PolicyStore = Overtaken(here.administration.policies, "rules", added_meanwhile)
        here.administration.policies = policies
        await here.administration.refresh()
        assert set(states(here)) == {"tickets"}
        assert here.administration.rules(HALL).policy_of(TOOL) is ApprovalPolicy.ALWAYS_DENY


@pytest.mark.usefixtures("folder")
async def test_a_channel_whose_profile_is_being_replaced_is_never_without_one() -> None:
    async with office() as (here, there):

        async def bound_meanwhile() -> None:
            await there.profiles.save(Profile("p2", "closed", servers=frozenset()), ANA)
            await there.profiles.bind(HALL.workspace_key, "p2", ANA)

        profiles: ProfileStore = Overtaken(here.administration.profiles, "profiles", bound_meanwhile)
        here.administration.profiles = profiles
        await here.administration.refresh()
        assert await there.profiles.bindings() == [Binding(HALL.workspace_key, "p2")]
        assert not here.rules.rules(HALL).profile.enables(TOOL)


async def test_a_file_read_again_while_the_database_is_away_is_in_force_when_it_is_back(folder: Path) -> None:
    async with office() as (here, there):
        await there.servers.add(record(), {}, ANA)
        task = asyncio.create_task(here.administration.run())
        await until(lambda: "tickets" in states(here))

        async def away() -> None:
            raise DatabaseUnavailable("away")

        policies = here.administration.policies
        here.administration.policies = Overtaken(policies, "rules", away)
        (folder / "config/mcp_servers.json").write_text(json.dumps({"mcpServers": {"weather": {"command": "serve"}}}))
        with pytest.raises(DatabaseUnavailable):
            await here.administration.reload()
        here.administration.policies = policies
        here.administration.wake()
        await until(lambda: "weather" in states(here))
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", [AuthenticationKind.BASIC, AuthenticationKind.HEADER, AuthenticationKind.API_KEY])
async def test_a_variable_that_is_no_text_is_that_servers_problem_alone(
    kind: AuthenticationKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "MCP_SECRET_BYTES", os.fsdecode(b"\xff\xfe not text"))
    secret = {AUTH_SECRET: SecretReference(SecretSource.ENVIRONMENT, "MCP_SECRET_BYTES", vouched=True)}
    authentication = Authentication(kind)
    async with office() as (here, there):
        await there.servers.add(record(authentication=authentication, secrets=secret), {}, ANA)
        await there.servers.add(record("notes", id="n1"), {}, ANA)
        await here.administration.refresh()
        assert states(here)["notes"].problem == ""
        assert states(here)["tickets"].status is ServerStatus.FAILED
        assert "tickets" in states(here)["tickets"].problem


async def test_a_file_that_leads_round_in_a_circle_is_that_servers_problem_alone(folder: Path) -> None:
    (folder / "secrets").mkdir()
    (folder / "secrets/ring").symlink_to(folder / "secrets/ring")
    secret = {AUTH_SECRET: SecretReference(SecretSource.FILE, f"{folder}/secrets/ring", vouched=True)}
    authentication = Authentication(AuthenticationKind.HEADER)
    async with office(mcp_secret_folder=folder / "secrets") as (here, there):
        await there.servers.add(record(authentication=authentication, secrets=secret), {}, ANA)
        await there.servers.add(record("notes", id="n1"), {}, ANA)
        await here.administration.refresh()
        assert states(here)["notes"].problem == ""
        assert "cannot be read" in states(here)["tickets"].problem


def test_a_path_outside_the_secrets_folder_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = UsableSecrets(read_settings(mcp_secret_folder=tmp_path / "secrets"), {})
    looked_at: list[str] = []
    lstat = os.lstat

    def record_lstat(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        looked_at.append(str(path))
        return lstat(path, *rest, **more)

    monkeypatch.setattr(os, "lstat", record_lstat)
    for path in ("/net/evil.example/share", str(tmp_path / "secrets/../../net/evil"), "/proc/self/environ"):
        with pytest.raises(SecretUnavailable):
            usable.open_file(path)
    assert not [path for path in looked_at if "evil" in path or path.startswith("/proc")]


def test_the_bots_own_secrets_are_kept_in_any_case() -> None:
    settings = read_settings(mcp_secret_variables=frozenset({"*"}))
    environment = {"openai_api_key": "a", "Mcp_Encryption_Key": "b", "JIRA": "c"}
    assert UsableSecrets(settings, environment).environment == {"JIRA": "c"}

"""The compose files fit the program and the image: settings, commands, folders, ports, and rights."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes with the test tools

from bot.app.service import COMPONENTS
from bot.settings import Settings, read_settings
from bot.storage.address import PostgresServer, read_address
from tests.app.program import bare
from tests.deploy.files import (
    DEPLOY,
    PROJECT,
    bots,
    compose,
    image,
    image_environment,
    interpolated_value,
    is_a_command,
    stage,
)
from tests.stories.installation import Installation

FILES = sorted(path.name for path in DEPLOY.glob("compose*.yaml"))
STANDALONE = [name for name in FILES if "n8n" not in name]
FOLDER = next(each.rest for each in image() if each.name == "WORKDIR")

_EACH = pytest.mark.parametrize("name", FILES)
_EACH_ALONE = pytest.mark.parametrize("name", STANDALONE)


MAKES_SECRETS = "secrets"
"""The one step that is not the bot: it writes into a folder of the operator's, before anything else runs."""


def mounts(service: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Mounted sources, their targets and modes."""
    parts = [each.split(":") for each in service.get("volumes", ())]
    return {part[1]: (part[0], part[2] if len(part) > 2 else "rw") for part in parts}


def test_these_are_the_files_there_are() -> None:
    assert FILES == ["compose.n8n.yaml", "compose.postgresql.yaml", "compose.yaml"]


@_EACH
def test_every_variable_is_a_setting_or_a_secret_that_servers_may_refer_to(name: str) -> None:
    fields = {field.upper() for field in Settings.model_fields}
    for service in bots(compose(name)).values():
        unknown = {each for each in service.get("environment", {}) if each not in fields}
        assert all(each.startswith(("MCP_SECRET_", "N8N_MCP_")) for each in unknown), unknown


@_EACH
def test_every_command_exists_and_has_the_services_it_waits_for(name: str) -> None:
    file = compose(name)
    others = {**compose("compose.yaml")["services"], **file["services"]} if "n8n" in name else file["services"]
    for service in bots(file).values():
        if "command" in service and "entrypoint" not in service:
            assert is_a_command(service["command"])
    for service in file["services"].values():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                # The image brings a health check, other images do not.
                assert other in bots({"services": others}) or "healthcheck" in others[other]
            elif how["condition"] == "service_completed_successfully":
                assert others[other]["restart"] == "no"


@_EACH
def test_mounted_files_exist_or_are_left_out_of_the_repository(name: str) -> None:
    file = compose(name)
    volumes = {**(file.get("volumes") or {}), **(compose("compose.yaml")["volumes"] if "n8n" in name else {})}
    ignored = {
        (PROJECT / line.strip("/")) for line in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines()
    }
    for service in file["services"].values():
        sources = [source for source, _ in mounts(service).values()]
        sources += [each["path"] for each in service.get("env_file", ())]
        for source in sources:
            if not source.startswith("."):
                assert source in volumes
                continue
            path = (DEPLOY / source).resolve()
            assert path.is_dir() or not ignored.isdisjoint({path, *path.parents}), source
    for secret in file.get("secrets", {}).values():
        assert (DEPLOY / secret["file"]).resolve().is_relative_to(DEPLOY / "secrets")


@_EACH
def test_bots_write_into_their_data_alone_and_read_the_operators_files(name: str) -> None:
    for service in (each for step, each in bots(compose(name)).items() if step != MAKES_SECRETS):
        if "volumes" not in service:
            continue  # what it adds to stands in the other file
        mounted = mounts(service)
        assert mounted[f"{FOLDER}/data"] == ("data", "rw")
        assert mounted[f"{FOLDER}/config"] == ("../config", "ro")
        assert [how for where, (_, how) in mounted.items() if where != f"{FOLDER}/data"] == ["ro"] * (len(mounted) - 1)


@_EACH_ALONE
def test_a_bot_may_do_nothing_that_it_need_not(name: str) -> None:
    for step, service in bots(compose(name)).items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["stop_grace_period"] == "30s"
        assert "privileged" not in service
        assert {"user", "cap_add"}.isdisjoint(service) == (step != MAKES_SECRETS)
        build = {key: value for key, value in service["build"].items() if key != "target"}
        assert build == {"context": "..", "dockerfile": "deploy/Dockerfile"}
        assert stage(interpolated_value(service["build"].get("target", "bot")))


@_EACH
def test_ports_are_published_to_this_machine_alone_and_fit_the_image(name: str) -> None:
    file = compose(name)
    published = [port for service in file["services"].values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    for service in bots(file).values():
        assert {port.rpartition(":")[2] for port in service.get("ports", ())} <= {image_environment()["PORT"]}
        for variable in ("PORT", "WEB_HOST"):
            given = service.get("environment", {}).get(variable, image_environment()[variable])
            assert given == image_environment()[variable]


def test_on_a_server_every_part_runs_apart_drawing_is_done_by_two_and_one_command_migrates_first() -> None:
    services = bots(compose("compose.postgresql.yaml"))
    assert services.pop(MAKES_SECRETS)["restart"] == "no"
    migrate = services.pop("migrate")
    assert migrate["command"] == ["db", "upgrade"]
    for name, service in services.items():
        assert service["command"] == ["run", "--only", name]
        assert service["environment"]["AUTO_MIGRATE"] == "false"
        assert "migrate" in service["depends_on"]
    assert sorted(services) == sorted(COMPONENTS)
    assert services["worker"]["deploy"]["replicas"] == 2


def test_the_database_is_the_one_that_is_started_with_the_password_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = compose("compose.postgresql.yaml")
    worker, postgres = file["services"]["worker"], file["services"]["postgres"]
    bare(tmp_path, monkeypatch)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "db_password").write_text("a+long/one=\n")
    (secrets / "mcp_encryption_key").write_text("x" * 43 + "=\n")
    [folder] = [where for where, (source, _) in mounts(worker).items() if source == "./secrets"]
    assert worker["environment"]["SETTINGS_FOLDER"] == folder
    monkeypatch.setenv("DATABASE_URL", "sqlite:///from-env.db")  # as somebody's .env may have it
    for name, value in worker["environment"].items():
        monkeypatch.setenv(name, str(secrets) if name == "SETTINGS_FOLDER" else str(value))
    settings = read_settings()
    assert settings.database_url == "postgresql://countersign:a%2Blong%2Fone%3D@postgres:5432/countersign"
    assert isinstance(read_address(settings.database_url), PostgresServer)
    assert (settings.db_name, settings.db_user) == (
        postgres["environment"]["POSTGRES_DB"],
        postgres["environment"]["POSTGRES_USER"],
    )
    assert settings.db_host in file["services"]
    assert mounts(postgres)["/run/secrets"] == ("./secrets/database", "ro")
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/password"
    assert MAKES_SECRETS in postgres["depends_on"]
    assert settings.mcp_encryption_key is not None


def test_one_command_in_the_projects_folder_is_that_on_sqlite() -> None:
    root = yaml.safe_load((PROJECT / "compose.yaml").read_text(encoding="utf-8"))
    assert root == {"name": compose("compose.yaml")["name"], "include": ["deploy/compose.yaml"]}


def test_the_terminal_chat_is_a_step_of_its_own_with_the_bots_data() -> None:
    services = compose("compose.yaml")["services"]
    chat, bot = services["chat"], services["bot"]
    assert (chat["command"], chat["profiles"], chat["restart"], chat["ports"]) == (["chat"], ["chat"], "no", [])
    assert chat["tty"] is chat["stdin_open"] is True
    assert mounts(chat) == mounts(bot)


class TestSecrets:
    """The step that makes the secrets of PostgreSQL's file, run as Compose would, by a program that prints anything."""

    def step(self, folder: Path) -> None:
        service = compose("compose.postgresql.yaml")["services"][MAKES_SECRETS]
        programs = folder / "programs"
        programs.mkdir(exist_ok=True)
        for name, line in {
            "countersign": "head -c 12 /dev/urandom | base64",
            "chown": f"echo $@ >>{folder}/owners",
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        (folder / "secrets/database").mkdir(parents=True, exist_ok=True)
        [script] = service["command"]
        assert list(mounts(service)) == ["/secrets", "/secrets/database"]
        subprocess.run(
            [*service["entrypoint"], interpolated_value(script).replace("cd /secrets", f"cd {folder}/secrets")],
            env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
            check=True,
            timeout=30,
        )

    def contents(self, folder: Path) -> dict[str, str]:
        paths = [path for path in (folder / "secrets").rglob("*") if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o400}
        return {str(path.relative_to(folder / "secrets")): path.read_text() for path in paths}

    def test_they_are_made_once_and_only_the_bot_reads_them(self, tmp_path: Path) -> None:
        self.step(tmp_path)
        made = self.contents(tmp_path)
        assert sorted(made) == ["database/password", "db_password", "mcp_encryption_key"]
        assert made["database/password"] == made["db_password"] != made["mcp_encryption_key"]
        assert len((tmp_path / "owners").read_text().splitlines()) == len(made)
        [user] = [each.rest for each in image() if each.name == "USER"]
        assert all(line.startswith(f"{user} ") for line in (tmp_path / "owners").read_text().splitlines())
        self.step(tmp_path)
        assert self.contents(tmp_path) == made

    def test_those_of_the_operator_stay(self, tmp_path: Path) -> None:
        (tmp_path / "secrets").mkdir()
        path = tmp_path / "secrets/db_password"
        path.write_text("chosen\n")
        path.chmod(0o400)
        self.step(tmp_path)
        assert self.contents(tmp_path)["db_password"] == self.contents(tmp_path)["database/password"] == "chosen\n"


class TestN8n:
    """The step that adds n8n as a server, run as Compose does, with a program that records its arguments."""

    def step(self, folder: Path, *, there: bool = False, **variables: str) -> tuple[list[list[str]], dict[str, str]]:
        """Run it, and return its arguments for `countersign` and the environment."""
        service = compose("compose.n8n.yaml")["services"]["n8n-server"]
        given = {name: interpolated_value(value, **variables) for name, value in service["environment"].items()}
        noted = folder / "noted"
        noted.write_text("")
        shim = folder / "countersign"
        shim.write_text(f'#!/bin/sh\necho "$@" >>"{noted}"\ntest "$2" != show || exit {0 if there else 1}\n')
        shim.chmod(0o755)
        [line] = service["command"]
        subprocess.run(
            [*service["entrypoint"], interpolated_value(line)],
            env={**given, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
            check=True,
            timeout=30,
        )
        return [asked.split(" ") for asked in noted.read_text().splitlines()], given

    def test_it_is_added_with_its_token_by_reference(self, tmp_path: Path) -> None:
        (show, add), given = self.step(tmp_path, N8N_MCP_TOKEN="a-token-of-theirs")
        assert show == ["servers", "show", "n8n-server-1"]
        assert "a-token-of-theirs" not in add
        title = add.index("--title")
        (tmp_path / "place").mkdir()
        place = Installation(tmp_path / "place", {})
        place.environment.update(given)
        added = place.countersign(*add[: title + 1], " ".join(add[title + 1 : title + 3]), *add[title + 3 :])
        assert added.code == 0, added.err
        shown = place.countersign(*show).out
        assert "http://n8n:5678/mcp/countersign" in shown
        assert "env:MCP_SECRET_N8N" in shown
        assert given["MCP_SECRET_N8N"] not in shown

    def test_one_that_is_there_is_left_alone_and_it_may_be_switched_off_and_called_otherwise(
        self, tmp_path: Path
    ) -> None:
        assert self.step(tmp_path, N8N_MCP_SERVER_ID="flows", there=True)[0] == [["servers", "show", "flows"]]
        assert self.step(tmp_path, N8N_MCP_ENABLED="false")[0] == []

"""The Dockerfile fits the program: copied files and commands exist, and nothing else gets in."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tomllib

from packaging.specifiers import SpecifierSet

from bot.folders import HOME_VARIABLE
from bot.settings import Settings
from bot.web.application import application
from bot.web.server import serve
from tests.deploy.files import PROJECT, image, image_environment, is_a_command, procfile, stage, stages

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHECK_SECONDS = 30.0


def copied_paths() -> list[str]:
    """Paths that are copied from the project."""
    words = [each.words for lines in stages() for each in lines if each.name == "COPY"]
    return [source for word in words if not word[0].startswith("--from") for source in word[:-1]]


def test_copied_files_exist_and_are_all_that_docker_sees() -> None:
    ignoring = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in ignoring if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    assert let_in == set(copied_paths())
    for source in copied_paths():
        assert (PROJECT / source).exists(), source


def test_its_python_is_one_that_the_project_allows() -> None:
    for name in ("build", "bot"):
        arguments = dict(each.rest.split("=", 1) for each in stage(name) if each.name == "ARG")
        [base] = [each.words[0] for each in stage(name) if each.name == "FROM"]
        version = re.match(r"python:([0-9.]+)-slim", base.replace("${PYTHON}", arguments["PYTHON"]))
        assert version is not None
        assert version[1] in SpecifierSet(PYPROJECT["requires-python"])


def test_every_package_is_installed_by_its_hash_and_none_is_built() -> None:
    build, end = stage("build"), image()
    installs = [each.rest for lines in (build, end) for each in lines if " install --" in each.rest]
    [lock] = [line for each in installs for line in each.split("&&") if "requirements.lock" in line]
    assert "--only-binary :all:" in lock
    assert "--require-hashes" in lock
    [itself] = [line for each in installs for line in each.split("&&") if "--no-build-isolation" in line]
    assert "--no-deps" in itself
    assert not [each for each in end if "pip" in each.rest]
    assert not re.search(r"build-essential|gcc|python3-dev", str(stages()))


def test_its_user_is_not_root_and_owns_its_data() -> None:
    end = image()
    [user] = [each.rest for each in end if each.name == "USER"]
    made = next(each.rest for each in end if "useradd" in each.rest)
    assert int(user) > 0
    assert f"--uid {user}" in made
    [folder] = [each.rest for each in end if each.name == "WORKDIR"]
    [volume] = [each.rest for each in end if each.name == "VOLUME"]
    assert volume == f"{folder}/data"
    assert re.search(rf"--owner=countersign .* {volume}$", made)
    assert str(Settings.model_construct().database_url).startswith("sqlite:///data/")
    assert [each.rest for each in end if each.name == "COPY"][-1] == "config ./config"


def test_it_runs_a_command_that_exists_behind_something_that_collects_orphans() -> None:
    end = image()
    [entry] = [each.words for each in end if each.name == "ENTRYPOINT"]
    [command] = [each.words for each in end if each.name == "CMD"]
    assert entry[:2] == ["tini", "--"]
    assert "tini" in next(each.rest for each in end if "apt-get install" in each.rest)
    assert entry[2:] == [PYPROJECT["name"]]
    assert PYPROJECT["name"] in PYPROJECT["scripts"]
    assert is_a_command(command)


def test_its_variables_are_settings_and_its_port_is_the_one_it_shows() -> None:
    environment = image_environment()
    own = {"PATH", "PYTHONDONTWRITEBYTECODE", HOME_VARIABLE}
    assert {name.lower() for name in environment.keys() - own} <= Settings.model_fields.keys()
    assert environment["PATH"].startswith("/opt/countersign/bin:")
    [folder] = [each.rest for each in image() if each.name == "WORKDIR"]
    assert environment[HOME_VARIABLE] == folder
    assert environment["WEB_HOST"] == "0.0.0.0"
    [exposed] = [each.rest for each in image() if each.name == "EXPOSE"]
    assert exposed == environment["PORT"]
    assert not re.search(r"(TOKEN|KEY|PASSWORD|SECRET)\s*=", (PROJECT / "deploy/Dockerfile").read_text())


def test_it_describes_itself_in_labels() -> None:
    [labels] = [each.rest for each in image() if each.name == "LABEL"]
    assert f'version="{PYPROJECT["version"]}"' in labels
    assert f'licenses="{PYPROJECT["license"]}"' in labels


def test_the_variant_with_node_is_the_same_with_npx() -> None:
    lines = stage("node")
    [base] = [each.words[0] for each in lines if each.name == "FROM"]
    assert base == "bot"
    assert [each.rest for each in lines if each.name == "USER"][-1] == [
        each.rest for each in image() if each.name == "USER"
    ][-1]
    [environment] = [each.words for each in lines if each.name == "ENV"]
    [volume] = [each.rest for each in image() if each.name == "VOLUME"]
    # The rest of the image is not the bot's to write, and may be read-only.
    assert any(word.startswith(f"NPM_CONFIG_CACHE={volume}/") for word in environment)
    links = next(each.rest for each in lines if "ln -s" in each.rest)
    [modules] = [each.words[-1] for each in lines if each.name == "COPY" and each.words[-1].endswith("npm")]
    for name in ("npm", "npx"):
        assert f"ln -s {os.path.relpath(modules, '/usr/local/bin')}/bin/{name}-cli.js /usr/local/bin/{name}" in links


async def health(port: int) -> int:
    """The exit code of the image's own health check."""
    [check] = [each.words for each in image() if each.name == "HEALTHCHECK"]
    assert check[0] == "python"
    program = await asyncio.create_subprocess_exec(
        sys.executable, *check[1:], env={**os.environ, "PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(CHECK_SECONDS):
        return await program.wait()


async def test_its_health_check_tells_a_bot_that_serves_from_one_that_does_not() -> None:
    async with serve(application(), "127.0.0.1", 0) as port:
        assert await health(port) == 0
    assert await health(port) != 0


def test_every_process_of_the_procfile_is_a_command_of_the_program() -> None:
    processes = dict(procfile())
    assert set(processes) == {"main", "slack", "discord", "worker", "web"}
    for name, words in processes.items():
        assert words[0] == "countersign"
        assert is_a_command(words[1:]), name
        assert words[1:] == ["run"] if name == "main" else ["run", "--only", name]

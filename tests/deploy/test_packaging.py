"""The wheel holds every file that the program and its servers read, and the installed program works by itself: in any
working folder, with its files where they belong.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.deploy.files import PROJECT
from tests.fakes.fork_server import alone

LIMIT_SECONDS = 120.0
PACKAGES = ("bot", "mcp_servers")
FILES = sorted(path.name for path in (PROJECT / "config").glob("*.example.toml"))
FILES += ["mcp_servers.json", "policy.toml", "slack_manifest.yaml", "system_prompt.md"]


@dataclass(frozen=True)
class Wheel:
    """An environment with the project from a wheel. Its dependencies are those of this interpreter."""

    folder: Path

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def command(self, name: str) -> Path:
        return self.folder / "bin" / name


@dataclass(frozen=True)
class Person:
    """A user with a home and a working folder whose names are no plain letters."""

    wheel: Wheel
    home: Path
    folder: Path

    @property
    def config(self) -> Path:
        return self.home / ".config/countersign"

    @property
    def data(self) -> Path:
        return self.home / ".local/share/countersign"

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.wheel.command("countersign"), *words],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def run_in_terminal(self, *words: str, typed: str) -> tuple[int, str]:
        """Return the exit code and the output of the terminal."""
        master, terminal = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        command = [str(self.wheel.command("countersign")), *words]
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
        ) as process:
            os.close(terminal)
            os.write(master, typed.encode())
            shown = b""
            with suppress(OSError):  # as Linux ends the output of a terminal that nobody has open
                while piece := os.read(master, 4096):
                    shown += piece
            code = process.wait(LIMIT_SECONDS)
        os.close(master)
        return code, shown.decode()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The wheel, installed once for all workers of this run."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return _install(tmp_path_factory.mktemp("wheel"))
    shared = tmp_path_factory.getbasetemp().parent / "wheel"
    with alone(shared):
        installed = Wheel(shared / "environment")
        return installed if (shared / "ready").exists() else _install(shared)


def _install(folder: Path) -> Wheel:
    source = folder / "source"
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "bot/defaults/limits.toml").write_text("# An operator's own, which is nobody else's.\n")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    pip = [sys.executable, "-m", "pip"]
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), "."]
    _run(*pip, *build, folder=source)
    [path] = folder.glob("countersign-*.whl")
    installed = Wheel(folder / "environment")
    _run(sys.executable, "-m", "venv", "--without-pip", str(installed.folder), folder=folder)
    environment = ["--python", str(installed.folder)]
    _run(*pip, *environment, "install", "--quiet", "--no-deps", "--no-index", str(path), folder=folder)
    # Where this interpreter has what the project depends on, which may be several folders.
    others = {str(Path(module.__file__ or "").parents[1]) for module in (mcp, pytest)}
    (installed.site / "dependencies.pth").write_text("\n".join(sorted(others)))
    (folder / "ready").touch()
    return installed


@pytest.fixture
def person(wheel: Wheel, tmp_path: Path) -> Person:
    home, folder = tmp_path / "家 of Ana", tmp_path / "Übung 1"
    home.mkdir()
    folder.mkdir()
    return Person(wheel, home, folder)


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wheel_has_every_file_of_the_packages_and_none_of_an_operator(wheel: Wheel) -> None:
    def files(folder: Path) -> set[str]:
        paths = (path for name in PACKAGES for path in (folder / name).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)) for path in paths if "__pycache__" not in path.parts}

    assert files(PROJECT) - files(wheel.site) == set()
    assert sorted(path.name for path in (wheel.site / "bot/defaults").iterdir()) == sorted(FILES)
    for name in FILES:
        assert (wheel.site / "bot/defaults" / name).read_bytes() == (PROJECT / "config" / name).read_bytes()


PROJECT_OF_ONE_PACKAGE = """
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"
[project]
name = "small"
version = "1"
[tool.setuptools]
packages = ["bot"]
package-data = {bot = ["defaults/*"]}
"""


def _build(source: Path) -> subprocess.CompletedProcess[str]:
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "made", ".")
    command = (sys.executable, "-m", "pip", *words)
    return subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)


def test_a_wheel_of_an_edited_clone_has_the_committed_files(tmp_path: Path) -> None:
    for folder in ("bot", "config"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bot/__init__.py").touch()
    (tmp_path / "bot/defaults").symlink_to("../config")
    policy, private = tmp_path / "config/policy.toml", tmp_path / "config/private.json"
    policy.write_text("# for everybody\n")
    (tmp_path / "pyproject.toml").write_text(PROJECT_OF_ONE_PACKAGE)
    shutil.copy(PROJECT / "setup.py", tmp_path)
    git = ("git", "-c", "user.name=Ana", "-c", "user.email=ana@example.org")
    _run(*git, "init", "--quiet", folder=tmp_path)
    no_commit = _build(tmp_path)
    assert no_commit.returncode != 0
    assert "git cannot tell which are committed" in no_commit.stderr
    _run(*git, "add", ".", folder=tmp_path)
    _run(*git, "commit", "--quiet", "--message", "All", folder=tmp_path)
    policy.write_text("# an operator's own\n")
    private.write_text("{}")
    built = _build(tmp_path)
    assert built.returncode == 0, built.stderr
    [path] = tmp_path.glob("made/small-*.whl")
    with zipfile.ZipFile(path) as wheel_file:
        assert wheel_file.read("bot/defaults/policy.toml") == b"# for everybody\n"
        assert "bot/defaults/private.json" not in wheel_file.namelist()
    assert (policy.read_text(), private.read_text()) == ("# an operator's own\n", "{}")


def test_a_wheel_has_the_guides_that_people_read(wheel: Wheel) -> None:
    def guides(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}

    wanted = {name for name in guides(PROJECT / "docs") if not name.startswith(("adr/", "pictures/"))}
    assert guides(wheel.site / "mcp_servers/knowledge/guides") == wanted


def test_the_first_start_puts_files_and_data_where_they_belong_says_so_once_and_answers(person: Person) -> None:
    # What lies about in a working folder is not what the bundled servers import.
    for name in ("mcp.py", "json.py", "mcp_servers.py"):
        (person.folder / name).write_text("raise SystemExit('this is not what was meant')")
    (person.folder / ".env").write_text("DATABASE_URL=sqlite:///their-own.db\nPORT=many\n")
    before = sorted(person.folder.iterdir())
    first = person.run("chat", "-m", "Please note: the office closes early", "--approve", "all")
    assert first.returncode == 0, first.stderr
    assert f"are in {person.config}, your data is in {person.data}." in first.stderr
    again = person.run("chat", "-m", "Show my notes")
    assert (again.returncode, str(person.config) in again.stderr) == (0, False)
    assert "the office closes early" in again.stdout
    assert sorted(path.name for path in person.config.iterdir()) == sorted(FILES)
    assert (person.data / "countersign.db").exists()
    assert [folder.stat().st_mode & 0o777 for folder in (person.config, person.data)] == [0o700, 0o700]
    assert "closes early" in (person.data / "notes.json").read_text()
    assert sorted(person.folder.iterdir()) == before


def test_an_own_server_starts_beside_the_file_that_names_it(person: Person) -> None:
    person.run("config", "path")
    shutil.copy(person.wheel.site / "mcp_servers/notes/server.py", person.config / "mine.py")
    servers = '{"mcpServers": {"mine": {"command": "python", "args": ["-c", "import os, sys; sys.exit(os.getcwd())"]}}}'
    (person.config / "mcp_servers.json").write_text(servers)
    listed = person.run("doctor")
    assert str(person.config) in re.sub(r"\s+", " ", listed.stdout)


def test_without_a_place_for_its_files_it_works_with_those_of_the_program(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.symlink_to("/nowhere/at/all")
    said = person.run("chat", "-m", "Show my notes")
    assert said.returncode == 0, said.stderr
    assert "no notes" in said.stdout.lower()


def test_a_working_folder_can_be_made_one_that_counts(person: Person) -> None:
    made = person.run("config", "init", "--here")
    assert made.stdout.split() == [f"config/{name}" for name in sorted(FILES)]
    assert person.run("config", "init", "--here").stdout == f"All files are there already, in {person.folder}/config.\n"
    (person.folder / "config/policy.toml").unlink()
    report = person.run("config", "path", DATA_FOLDER="elsewhere").stdout
    assert f"servers    {person.folder}/config/mcp_servers.json\n" in report
    assert f"policies   {person.folder}/config/policy.toml  (not there)\n" in report
    assert f"data       {person.folder}/elsewhere  (set by DATA_FOLDER, not there)\n" in report
    assert report.endswith("\nThey count because the working folder has config/mcp_servers.json.\n")
    assert person.run("config", "path", "env").stdout == f"{person.folder}/.env\n"
    assert not person.config.exists()
    answered = person.run("chat", "-m", "hello")
    assert (answered.returncode, person.config.exists()) == (0, False), answered.stderr


def _with_a_program_of_a_stranger(folder: Path) -> Path:
    """Put files into a folder as a cloned repository may have them. Return a file that its program makes."""
    trace = folder / "started"
    server = {"command": "python", "args": ["-c", f"open({str(trace)!r}, 'w')"]}
    (folder / "config").mkdir()
    (folder / "config/mcp_servers.json").write_text(json.dumps({"mcpServers": {"helper": server}}))
    (folder / ".env").write_text("BOT_MODEL=openai:stolen\nOPENAI_BASE_URL=https://example.invalid/\n")
    return trace


def test_files_of_a_folder_that_was_never_used_count_only_with_a_yes(person: Person) -> None:
    trace = _with_a_program_of_a_stranger(person.folder)
    for words in (("chat", "-m", "hello"), ("doctor",), ("servers", "list"), ("run",), ("setup", "model", "--print")):
        refused = person.run(*words)
        assert refused.returncode == 2, words
        assert (
            "has files for Countersign that you have not used before: config/mcp_servers.json, .env." in refused.stderr
        )
        assert "set COUNTERSIGN_HOME=." in refused.stderr
    assert person.run("config", "path").returncode == 0
    # To want files here is no consent to those that are there.
    assert person.run("config", "init", "--here").returncode == 0
    assert person.run("chat", "-m", "hello").returncode == 2
    assert not trace.exists()
    assert not (person.folder / "data").exists()


@pytest.mark.parametrize("answer", ["", "n", "y"])
def test_a_person_at_the_terminal_is_asked_once(person: Person, answer: str) -> None:
    trace = _with_a_program_of_a_stranger(person.folder)
    (person.folder / ".env").unlink()
    code, shown = person.run_in_terminal("chat", "-m", "hello", typed=f"{answer}\n")
    assert "They decide which programs start" in shown
    assert shown.count("Use them?") == 1
    assert trace.exists() == (answer == "y")
    again = person.run("chat", "-m", "hello")
    assert (code, again.returncode) == ((0, 0) if answer == "y" else (2, 2)), shown
    memory = person.data / "folders.txt"
    assert memory.exists() == (answer == "y")
    if memory.exists():
        assert memory.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("name", "tool"), [("weather", "forecast"), ("notes", "add"), ("knowledge", "search")])
async def test_each_bundled_server_is_a_command(person: Person, name: str, tool: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(person.home)}
    command = str(person.wheel.command(f"countersign-{name}"))
    server = StdioServerParameters(command=command, cwd=person.folder, env=environment)
    async with Client(stdio_client(server)) as client:
        assert tool in {each.name for each in (await client.list_tools()).tools}

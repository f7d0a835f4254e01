"""The wheel holds every file that the program and its servers read, and works by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.deploy.files import PROJECT

LIMIT_SECONDS = 120.0
PACKAGES = ("bot", "mcp_servers")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel of the project comes to; nothing of the project is beside it."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    wheel = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    built = subprocess.run(
        [sys.executable, *wheel, str(made), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [path] = made.glob("countersign-*.whl")
    with zipfile.ZipFile(path) as wheel_file:
        wheel_file.extractall(made / "site")
    return made / "site"


def test_a_wheel_has_every_file_of_the_packages(installed: Path) -> None:
    def files(folder: Path) -> set[str]:
        paths = (path for name in PACKAGES for path in (folder / name).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)) for path in paths if "__pycache__" not in path.parts}

    assert files(PROJECT) - files(installed) == set()


def test_it_makes_its_database_and_answers_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    # What the project depends on is the interpreter's.
    start = f"import sys; sys.path.insert(0, {str(installed)!r}); import bot.cli; bot.cli.main()"
    said = subprocess.run(
        [sys.executable, "-P", "-c", start, "chat", "-m", "hello"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert "demo model" in said.stdout
    assert (tmp_path / "data" / "countersign.db").exists()

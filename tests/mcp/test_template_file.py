"""The operator's file of launch templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.domain.catalog import unpinned_package
from bot.errors import SettingsError
from bot.mcp.config.templates import TemplatesFile, load_templates

ROOT = Path(__file__).parents[2]
GOOD = """
[templates.git]
title = "Git"
command = "uvx"
args = ["mcp-server-git@1.2.3", "{repo}"]
env = { TZ = "UTC" }
[templates.git.slots.repo]
type = "path"
below = "/srv/repos"
"""


def read(folder: Path, text: str) -> TemplatesFile:
    path = folder / "launch_templates.toml"
    path.write_text(text)
    return load_templates(path)


def problem(folder: Path, slot: str, *, args: str = '"{a}"', more: str = "") -> str:
    [found] = read(
        folder, f'[templates.x]\ncommand = "run"\nargs = [{args}]\n{more}\n[templates.x.slots.a]\n{slot}\n'
    ).problems
    return found


def test_a_missing_file_has_no_templates(tmp_path: Path) -> None:
    assert load_templates(tmp_path / "none.toml") == TemplatesFile()


def test_a_template_is_read_with_its_slots(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert (found.problems, found.warnings) == ((), ())
    git = found.templates["git"]
    assert git.fill_slots({"repo": "docs"}).args == ("mcp-server-git@1.2.3", "/srv/repos/docs")
    assert (git.title, dict(git.env)) == ("Git", {"TZ": "UTC"})


def test_the_example_can_be_used_as_it_is() -> None:
    templates = load_templates(ROOT / "config/launch_templates.example.toml")
    assert (templates.problems, templates.warnings) == ((), ())
    assert set(templates.templates) == {"git", "time", "files"}
    assert templates.templates["time"].fill_slots({}).args[-1] == "Etc/UTC"


@pytest.mark.parametrize("text", ["[templates", "\xff", '[git]\ncommand = "x"', "templates = 3"])
def test_a_file_that_is_none_is_an_error_of_the_settings(text: str, tmp_path: Path) -> None:
    path = tmp_path / "launch_templates.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"launch_templates\.toml"):
        load_templates(path)


def test_an_error_in_one_template_leaves_the_others_usable(tmp_path: Path) -> None:
    found = read(tmp_path, f'{GOOD}\n[templates.bad]\nargs = ["x"]\n[templates.Odd]\ncommand = "x"\n')
    assert set(found.templates) == {"git"}
    assert [each.partition("used: ")[2] for each in found.problems] == [
        "it has no command.",
        "its name has to be of lower-case letters, digits and dashes, at most 40 of them.",
    ]


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        ('type = "words"', "needs a type"),
        ('type = "text"', "pattern is missing"),
        ('type = "text"\npattern = "("', "not a regular expression"),
        ('type = "text"\npattern = "a"\ndefault = "b"', "does not take 'b' itself"),
        ('type = "choice"\nchoices = []', "choices is missing"),
        ('type = "choice"\nchoices = ["-v"]', "does not take '-v' itself"),
        ('type = "integer"\nmin = 1', "max must be a whole number"),
        ('type = "integer"\nmin = 1\nmax = 3\ndefault = 4', "does not take '4' itself"),
        ('type = "path"\nbelow = "srv"', "absolute path"),
        ('type = "path"\nbelow = "/srv/../etc"', "absolute path"),
        ('type = "path"\nbelow = "/srv"\npattern = "x"', "'pattern', which is unknown"),
        ('type = "secret"\nvariable = "A"', "have a place {a}, which is not a defined slot"),
    ],
)
def test_a_slot_that_cannot_be_used_is_named_with_its_reason(slot: str, said: str, tmp_path: Path) -> None:
    assert said in problem(tmp_path, slot)


@pytest.mark.parametrize(
    "variable",
    ["LD_PRELOAD", "PATH", "PYTHONSTARTUP", "NODE_OPTIONS", "GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS", "A B", ""],
)
def test_a_secret_decides_over_no_program(variable: str, tmp_path: Path) -> None:
    assert "variable must be" in problem(tmp_path, f'type = "secret"\nvariable = "{variable}"', args="")


def test_every_slot_has_its_place_and_every_variable_one_source(tmp_path: Path) -> None:
    assert "no place {a}" in problem(tmp_path, 'type = "text"\npattern = "a"', args="")
    twice = problem(tmp_path, 'type = "secret"\nvariable = "KEY"', args="", more='env = { KEY = "x" }')
    assert "the variable KEY is set twice" in twice


def test_a_package_without_a_fixed_version_is_reported(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD.replace("@1.2.3", ""))
    [warning] = found.warnings
    assert "'git' starts mcp-server-git, whose version is not fixed" in warning
    assert "git" in found.templates


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (["npx", "-y", "pkg"], "pkg"),
        (["npx", "-y", "@scope/pkg"], "@scope/pkg"),
        (["npx", "@scope/pkg@latest", "x@1.2.3"], "@scope/pkg@latest"),
        (["npx", "pkg@1.2"], "pkg@1.2"),
        (["npx", "pkg@^1.2.3"], "pkg@^1.2.3"),
        (["npx", "pkg@1.x"], "pkg@1.x"),
        (["npx", "-p", "pkg", "run"], "pkg"),
        (["/usr/bin/npx", "--package=pkg", "run"], "pkg"),
        (["npm", "exec", "pkg"], "pkg"),
        (["uvx", "pkg"], "pkg"),
        (["uvx", "--from", "pkg>=1", "run"], "pkg>=1"),
        (["uv", "tool", "run", "pkg"], "pkg"),
        (["pipx", "run", "pkg"], "pkg"),
        (["uvx", "pkg@{version}"], "pkg@{version}"),
    ],
)
def test_ranges_and_words_fix_no_version(command: Sequence[str], package: str) -> None:
    assert unpinned_package(command[0], command[1:]) == package


@pytest.mark.parametrize(
    "command",
    [
        ["npx", "-y", "@scope/pkg@1.2.3", "/srv"],
        ["npx", "pkg@1.2.3-beta.1"],
        ["uvx", "pkg@2026.10.19"],
        ["uvx", "--from", "pkg==1.2", "run"],
        ["uvx", "--from=git@1.0", "run"],
        ["uvx", "--python", "3.12", "pkg==1.2.3rc1"],
        ["pipx", "run", "--spec", "pkg==1.2.3", "run"],
        ["pipx", "install"],
        ["python", "-m", "pkg"],
        ["docker", "run", "image"],
        ["npx"],
    ],
)
def test_a_fixed_version_and_a_local_program_are_not_reported(command: Sequence[str]) -> None:
    assert unpinned_package(command[0], command[1:]) == ""

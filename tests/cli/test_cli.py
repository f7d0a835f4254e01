"""The command line: options, one-line errors, and exit codes."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import bot
from bot.app import database
from bot.cli import main
from bot.llm.providers import PROVIDERS
from tests.app.program import LIMIT_SECONDS, environment, program
from tests.cli.invocation import Countersign, Ended

VERSION = f"countersign {bot.__version__} (Python {platform.python_version()}, mcp {version('mcp')})\n"

SECRET = "sk-test-4711-do-not-show"


# ---------------------------------------------------------------------- help and version


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command(countersign: Countersign, option: str) -> None:
    ended = countersign(option)
    assert ended.code == 0
    assert ended.err == ""
    for command in ("chat", "run", "db"):
        assert re.search(rf"^  {command}\s+\S", ended.out, re.MULTILINE)


def test_help_for_chat_names_every_option_of_the_contract(countersign: Countersign) -> None:
    ended = countersign("chat", "--help")
    assert ended.code == 0
    for option in (
        "-m, --message",
        "--model",
        "--approve <ask|never|reads|all>",
        "--user",
        "--new",
        "--conversation",
        "--list",
        "--json",
    ):
        assert option in ended.out


def test_help_for_chat_names_every_provider_of_models(countersign: Countersign) -> None:
    said = " ".join(countersign("chat", "--help").out.split())
    assert all(f" {name}" in said for name in PROVIDERS)


def test_help_for_the_database_names_both_verbs(countersign: Countersign) -> None:
    ended = countersign("db", "--help")
    assert ended.code == 0
    assert "upgrade" in ended.out
    assert "current" in ended.out


def test_without_a_command_the_help_is_shown_and_that_is_a_usage_error(countersign: Countersign) -> None:
    ended = countersign()
    assert ended.code == 2
    assert ended.out == ""
    assert "Commands:" in ended.err


def test_the_version_is_the_packages(countersign: Countersign) -> None:
    assert countersign("--version") == Ended(0, VERSION, "")


# ---------------------------------------------------------------------- usage errors


@pytest.mark.parametrize(
    ("words", "said", "helped"),
    [
        (("chta",), "No such command 'chta'. Did you mean 'chat'?", "countersign"),
        (("db",), "Missing command.", "countersign db"),
        (("db", "downgrade"), "No such command 'downgrade'.", "countersign db"),
        (("chat", "--modle", "demo"), "No such option: --modle (Possible options: --model).", "countersign chat"),
        (("chat", "--approve", "maybe"), "'maybe' is not one of 'ask', 'never', 'reads', 'all'.", "countersign chat"),
        (("chat", "hello"), "Got unexpected extra argument(s) (hello).", "countersign chat"),
        (("chat", "--list", "-m", "x"), "--list goes with no message and no conversation.", "countersign chat"),
        (("chat", "-m", " \n"), "Invalid value for -m: the message is empty.", "countersign chat"),
        (("chat", "-m"), "Option '-m' requires an argument.", "countersign"),
        (("run", "--debug", "now"), "Got unexpected extra argument(s) (now).", "countersign run"),
    ],
)
def test_a_usage_error_is_one_line_with_the_help_to_read_and_exit_code_2(
    countersign: Countersign, words: tuple[str, ...], said: str, helped: str
) -> None:
    ended = countersign(*words)
    assert ended.code == 2
    assert said in ended.complaint
    assert ended.complaint.endswith(f" Fix: see `{helped} --help`")


def test_a_word_that_could_move_the_cursor_is_made_harmless(countersign: Countersign) -> None:
    ended = countersign("chat", "\x1b[2J\nhello\u202e")
    assert ended.code == 2
    assert "\x1b" not in ended.complaint
    assert "\u202e" not in ended.complaint


def test_a_part_that_does_not_exist_is_a_usage_error_that_names_those_that_do(countersign: Countersign) -> None:
    ended = countersign("run", "--only", "worker,wroker")
    assert ended.code == 2
    assert ended.complaint == "There is no component called 'wroker'. Fix: use --only discord,slack,web,worker"


@pytest.mark.parametrize("words", [("chat", "-m", "hi"), ("run",), ("db", "current"), ("db", "upgrade")])
def test_an_environment_that_cannot_be_used_is_a_usage_error_of_every_command(
    countersign: Countersign, folder: Path, words: tuple[str, ...]
) -> None:
    ended = countersign(*words, LOG_LEVEL="loud", MCP_APPROVAL_TIMEOUT="soon", OPENAI_API_KEY=SECRET)
    assert ended.code == 2
    assert "LOG_LEVEL is 'loud'" in ended.complaint
    assert "MCP_APPROVAL_TIMEOUT is 'soon'" in ended.complaint
    assert " Fix: " in ended.complaint
    assert SECRET not in ended.complaint
    assert not list(folder.iterdir())


@pytest.mark.parametrize("words", [("chat", "-m", "hi", "--model", "opnai:small"), ("run",)])
def test_a_model_that_does_not_exist_is_a_usage_error(countersign: Countersign, words: tuple[str, ...]) -> None:
    ended = countersign(*words, BOT_MODEL="opnai:small")
    assert ended.code == 2
    assert "There is no model provider called 'opnai'. Did you mean openai?" in ended.complaint


@pytest.mark.parametrize("words", [("chat", "-m", "hi"), ("run",)])
def test_a_file_that_cannot_be_used_is_a_usage_error(
    countersign: Countersign, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "policy.toml").write_text('defualt = "ASK_USER"\n', encoding="utf-8")
    ended = countersign(*words, POLICY_FILE="policy.toml")
    assert ended.code == 2
    assert (
        ended.complaint
        == "policy.toml, line 1: defualt means nothing here. Fix: use one of default, rules, self_approval, servers"
    )
    (folder / "servers.json").write_text("[]", encoding="utf-8")
    ended = countersign(*words, POLICY_FILE="", MCP_SERVERS_FILE="servers.json")
    assert ended.code == 2
    assert "servers.json does not hold a JSON object." in ended.complaint


# ---------------------------------------------------------------------- the database


def test_a_database_is_brought_to_this_releases_schema(countersign: Countersign, folder: Path) -> None:
    before = countersign("db", "current")
    assert before.code == 1
    assert re.fullmatch(r"database: empty, this release: \d{4}\n", before.out)
    assert not list(folder.iterdir())
    for _ in range(2):
        upgraded = countersign("db", "upgrade")
        assert upgraded.code == 0
        assert re.fullmatch(r"The database has schema \d{4} now\.\n", upgraded.out)
    after = countersign("db", "current")
    assert after.code == 0
    assert re.fullmatch(r"database: (\d{4}), this release: \1\n", after.out)
    assert (folder / "data/countersign.db").exists()


def test_looking_at_a_file_that_is_no_database_leaves_it_as_it_is(countersign: Countersign, folder: Path) -> None:
    (folder / "notes.txt").write_text("shopping list, and more than a header's length of it" * 9, encoding="utf-8")
    before = (folder / "notes.txt").read_bytes()
    for verb in ("current", "upgrade"):
        ended = countersign("db", verb, DATABASE_URL="sqlite:///notes.txt")
        assert ended.code == 1
        assert "notes.txt" in ended.complaint
        assert " Fix: " in ended.complaint
    assert (folder / "notes.txt").read_bytes() == before


@pytest.mark.parametrize("words", [("db", "current"), ("db", "upgrade"), ("run",), ("chat", "-m", "hi")])
def test_an_address_of_another_kind_is_an_error_without_its_password(
    countersign: Countersign, words: tuple[str, ...]
) -> None:
    ended = countersign(*words, DATABASE_URL=f"mysql://user:{SECRET}@host/db")
    assert ended.code == 1
    assert ended.complaint == (
        "DATABASE_URL (mysql:…) is not a supported database address. "
        "Fix: use sqlite:///path/to/file.db or postgresql://user:password@host/database"
    )


def test_an_address_without_a_scheme_is_repeated_in_no_part(countersign: Countersign) -> None:
    ended = countersign("db", "current", DATABASE_URL=f"host=db user=bot password={SECRET} dbname=bot")
    assert ended.complaint.startswith("DATABASE_URL is not a supported database address.")


# ---------------------------------------------------------------------- errors


def test_an_understood_error_has_a_traceback_only_with_debug(countersign: Countersign) -> None:
    plain = countersign("db", "current", DATABASE_URL="mysql://host/db")
    assert plain.code == 1
    assert "Traceback" not in plain.err
    debugged = countersign("db", "current", "--debug")
    assert debugged.code == 1
    assert debugged.err.startswith("Traceback (most recent call last):")
    assert debugged.err.splitlines()[-1] == f"countersign: {plain.complaint}"


def test_an_unforeseen_error_is_one_line_too(countersign: Countersign, monkeypatch: pytest.MonkeyPatch) -> None:
    async def raise_error(_settings: object) -> str:
        raise RuntimeError("two\nlines \x1b[2J")

    monkeypatch.setattr(database, "upgrade", raise_error)
    ended = countersign("db", "upgrade")
    assert ended.code == 1
    assert ended.complaint == ("Something broke (RuntimeError: two lines [2J). Fix: run it with --debug to see where")
    monkeypatch.setattr(sys, "argv", ["countersign", "db", "upgrade", "--debug"])
    with pytest.raises(RuntimeError, match="two"):
        main()


def test_an_interruption_has_its_own_exit_code(countersign: Countersign, monkeypatch: pytest.MonkeyPatch) -> None:
    async def raise_interrupt(_settings: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "upgrade", raise_interrupt)
    assert countersign("db", "upgrade") == Ended(130, "", "")


# ---------------------------------------------------------------------- the process


def test_the_module_and_the_command_are_one_program(folder: Path) -> None:
    ended = program(folder, "--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, VERSION, "")
    ended = program(folder, "chat", "--frobnicate")
    assert ended.returncode == 2
    assert ended.stderr == "countersign: No such option: --frobnicate. Fix: see `countersign chat --help`\n"
    assert program(folder, "chat", "--help").stdout.startswith("Usage: countersign chat ")


@pytest.mark.parametrize("words", [("--help",), ("chat", "--help")])
def test_help_loads_none_of_the_heavy_libraries(folder: Path, words: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bot", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.stderr.splitlines()}
    assert {"bot", "typer", "pydantic_settings"} <= imported
    heavy = {"alembic", "anthropic", "discord", "httpx2", "mcp", "openai", "prompt_toolkit", "rich", "sqlalchemy"}
    assert not imported & heavy

"""Every piece of configuration in README and the guides, read by the program as it stands there.

Settings are read from `.env`, and parts of the operator's files from these files. Files of other programs and answers
are in `NOT_READ`, with the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.llm import providers
from bot.platforms.slack.installer import REDIRECT_PATH
from bot.settings import Settings, read_settings
from tests.app.program import bare
from tests.docs.blocks import PROJECT, Block, Kind, blocks

NOT_READ: Mapping[tuple[str, str], str] = {
    ("docs/data.md", "alter table"): "PostgreSQL reads it",
    ("docs/deployment.md", "FROM countersign"): "Docker reads it",
    ("docs/deployment.md", "[Unit]"): "systemd reads it; tests/docs/test_guides.py compares its credentials",
    ("docs/deployment.md", "server {"): "nginx reads it; tests/docs/test_guides.py compares its paths",
    ("docs/http-api.md", '{\n  "error"'): "an answer of the API: tests/web/test_validation_errors.py",
    ("docs/http-api.md", '{"action"'): "a body for the API: tests/web/test_elicitations.py",
    ("docs/operations.md", '{\n  "status"'): "an answer of the program: tests/web/test_health.py",
    ("docs/servers.md", '{"text"'): "an answer of the program: tests/cli/test_servers.py",
    ("docs/usage.md", '{"inputTokens"'): "an answer of the program: tests/stories/test_usage.py",
}
"""Blocks by their document and how they begin."""

FILES = {
    "currency": "prices.toml",
    "default": "policy.toml",
    "grant": "secret_grants.toml",
    "limits": "limits.toml",
    "models": "prices.toml",
    "rules": "policy.toml",
    "self_approval": "policy.toml",
    "servers": "policy.toml",
    "templates": "launch_templates.toml",
}
"""The operator's files, by the keys at their top."""
PRICES = 'currency = "EUR"\n[[models]]\nmodel = "*"\ninput = 1\noutput = 1\n'
"""Limits on money need some."""
VARIABLE = re.compile(r"\$\{(\w+)")


def is_read(block: Block) -> bool:
    return not any(block.document == document and block.text.startswith(start) for document, start in NOT_READ)


def examples(*kinds: Kind) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [block for block in blocks(*kinds) if is_read(block)], ids=str)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    (tmp_path / "config").mkdir()
    return tmp_path


def files_of(folder: Path, name: str, text: str) -> OperatorFiles:
    """Read the operator's files, one of which has this text."""
    (folder / "config" / name).write_text(text, encoding="utf-8")
    return read_operator_files(read_settings())


def test_examples_that_are_not_read_are_in_the_documents() -> None:
    every = blocks()
    for document, start in NOT_READ:
        assert any(block.document == document and block.text.startswith(start) for block in every), (document, start)
    kinds = {block.kind for block in every if is_read(block)}
    assert Kind.OTHER not in kinds


@examples(Kind.SETTINGS)
def test_settings_are_read_from_the_file_that_they_are_for(block: Block, folder: Path) -> None:
    (folder / ".env").write_text(block.text, encoding="utf-8")
    settings = read_settings()
    names = re.findall(r"^([A-Z_]+)=", block.text, re.MULTILINE)
    of_servers = VARIABLE.findall((PROJECT / "config" / "mcp_servers.json").read_text(encoding="utf-8"))
    for name in names:
        assert name in of_servers or name.lower() in settings.model_fields_set & set(Settings.model_fields), name


@examples(Kind.JSON)
def test_servers_are_read_without_a_problem(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLE.findall(block.text):
        monkeypatch.setenv(name, "tk-5d0e2f19ab3c-documented")
    text = block.text if block.text.startswith("{") else f'{{"mcpServers": {{{block.text}}}}}'
    servers = files_of(folder, "mcp_servers.json", text).servers
    assert servers.entries
    assert [entry.problem for entry in servers.entries if entry.problem] == []
    assert servers.warnings == ()


@examples(Kind.TOML)
def test_files_of_the_operator_are_read_without_a_problem(block: Block, folder: Path) -> None:
    [name] = {FILES[key] for key in tomllib.loads(block.text)}
    (folder / "config" / "prices.toml").write_text(PRICES, encoding="utf-8")
    files = files_of(folder, name, block.text)
    assert files.launches.problems == ()
    assert files.secret_grants.problems == ()
    assert files != files_of(folder, name, "")


@examples(Kind.YAML)
def test_parts_of_the_manifest_of_slack_are_yaml_and_name_the_page_that_there_is(block: Block) -> None:
    [[address]] = (part["redirect_urls"] for part in yaml.safe_load(block.text).values())
    assert address.endswith(REDIRECT_PATH)


def test_the_provider_that_contributors_add_is_one() -> None:
    [block] = (block for block in blocks(Kind.PYTHON) if block.document == "CONTRIBUTING.md")
    [(name, provider)] = eval(f"{{{block.text}}}", dict(vars(providers))).items()
    assert name == "groq"
    assert isinstance(provider, providers.Provider)

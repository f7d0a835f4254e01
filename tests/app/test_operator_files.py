"""The files that an operator edits are read before a database or network connection is opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.app.operator_files import read_operator_files
from bot.domain.approvals import ApprovalPolicy
from bot.domain.completions import Usage
from bot.domain.servers import HttpTransport
from bot.domain.usage import NO_PRICES, LimitUnit
from bot.engine.policy.rules import Policies
from bot.errors import SettingsError
from bot.mcp.config.file import ServersFile
from bot.settings import read_settings
from tests.app.program import PROJECT
from tests.rules import policy_of

ALLOW, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER


def policies(**settings: object) -> Policies:
    return read_operator_files(read_settings(**settings)).policies


def prompt(path: Path) -> str:
    return read_operator_files(read_settings(system_prompt_file=path)).system_prompt


def test_without_a_policy_file_everything_asks() -> None:
    assert policy_of(policies(), "notes", "list") is ASK


def test_the_variable_is_the_default_without_a_file_too() -> None:
    assert policy_of(policies(mcp_approval_default_policy="ALWAYS_ALLOW"), "notes", "list") is ALLOW


def test_the_bundled_policy_lets_reading_run_and_asks_before_writing() -> None:
    bundled = policies(policy_file=PROJECT / "config/policy.toml")
    for tool in ("find_area", "forecast", "overview"):
        assert policy_of(bundled, "weather", tool) is ALLOW
    assert policy_of(bundled, "notes", "list") is policy_of(bundled, "notes", "search") is ALLOW
    assert policy_of(bundled, "notes", "add") is policy_of(bundled, "notes", "delete") is ASK
    assert policy_of(bundled, "somebody", "else") is ASK


def test_a_file_from_an_editor_that_marks_utf8_is_read(folder: Path) -> None:
    (folder / "policy.toml").write_bytes(b'\xef\xbb\xbfdefault = "ALWAYS_ALLOW"\n')
    assert policies(policy_file="policy.toml").default is ALLOW
    (folder / "prompt.md").write_bytes(b"\xef\xbb\xbfBe useful.")
    assert prompt(folder / "prompt.md") == "Be useful."


def test_a_card_that_is_sent_to_all_members_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rule = '[[rules]]\npolicy = "ASK_USER"\napprovers = ["members", "slack:U1"]\ndeliver = "approvers"\n'
    (folder / "policy.toml").write_text(rule, encoding="utf-8")
    settings = read_settings(policy_file="policy.toml")
    read_operator_files(settings).warn(settings)
    (said,) = [record.getMessage() for record in caplog.records if "written to" in record.getMessage()]
    assert said == "policy.toml:1: all members cannot be written to, so the card stays in the thread"


def test_a_file_that_is_no_toml_is_refused_with_the_line(folder: Path) -> None:
    (folder / "policy.toml").write_text('default = "ASK_USER"\n[servers\n', encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        policies(policy_file="policy.toml")
    assert caught.value.cause.startswith("policy.toml cannot be read: ")
    assert "line 2" in caught.value.cause
    assert caught.value.fix == "correct the file or POLICY_FILE"


def test_an_entry_that_cannot_be_used_is_named_with_its_file(folder: Path) -> None:
    (folder / "policy.toml").write_text('[servers.notes.tools]\nadd = "ALLOW"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"^policy\.toml, line 2: servers\.notes\.tools\.add is 'ALLOW'\."):
        policies(policy_file="policy.toml")


def test_files_in_another_encoding_and_folders_are_refused(folder: Path) -> None:
    latin = folder / "latin"
    latin.write_bytes(b"# f\xfcr alle\n")
    for path, cause in ((latin, "cannot be read"), (folder, "is not a regular file")):
        with pytest.raises(SettingsError, match=cause):
            policies(policy_file=path)
        with pytest.raises(SettingsError, match=cause):
            prompt(path)


def test_without_a_system_prompt_there_is_none(folder: Path) -> None:
    assert prompt(folder / "missing.md") == ""
    assert prompt(PROJECT / "config/system_prompt.md").startswith("You are Countersign")


def test_everything_is_empty_where_there_are_no_files() -> None:
    files = read_operator_files(read_settings())
    assert files.policies == Policies()
    assert files.servers == ServersFile()
    assert files.unknown_servers() == []


def test_a_file_of_servers_that_cannot_be_read_is_refused_but_only_if_it_is_used(folder: Path) -> None:
    (folder / "servers.json").write_text("{", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"servers\.json is not valid JSON"):
        read_operator_files(read_settings(mcp_servers_file="servers.json"))
    files = read_operator_files(read_settings(mcp_servers_file="servers.json", mcp_enabled=False))
    assert files.servers == ServersFile()


def test_the_environment_is_filled_in_and_remembered_as_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "a-token")
    text = '{"mcpServers": {"notes": {"command": "serve", "args": ["${NOTES_TOKEN}"]}}}'
    (folder / "servers.json").write_text(text, encoding="utf-8")
    (entry,) = read_operator_files(read_settings(mcp_servers_file="servers.json")).servers.entries
    assert entry.secrets == {"a-token"}


def test_policies_of_servers_that_do_not_exist_are_strangers(folder: Path) -> None:
    servers = {"notes": {"command": "serve"}, "unusable": {}, "off": {"command": "serve", "disabled": True}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    names = ("ntoes", "notes", "unusable", "off")
    (folder / "policy.toml").write_text("".join(f"[servers.{name}]\n" for name in names), encoding="utf-8")
    files = {"mcp_servers_file": "servers.json", "policy_file": "policy.toml"}
    assert read_operator_files(read_settings(**files)).unknown_servers() == ["ntoes"]
    assert read_operator_files(read_settings(**files, mcp_enabled=False)).unknown_servers() == []


def test_rules_about_servers_that_do_not_exist_are_stray_and_patterns_that_fit_one_are_not(folder: Path) -> None:
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"notes": {"command": "serve"}}}), encoding="utf-8")
    rules = "".join(f'[[rules]]\npolicy = "ALWAYS_DENY"\nserver = "{name}"\n' for name in ("ntoes", "n*", "*", "x*"))
    (folder / "policy.toml").write_text(rules, encoding="utf-8")
    files = read_operator_files(read_settings(mcp_servers_file="servers.json", policy_file="policy.toml"))
    assert [rule.server for rule in files.unused_rules()] == ["ntoes", "x*"]


def test_variables_of_the_servers_file_may_stand_in_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("SEARCH_TOKEN=from-the-file\nSEARCH_HOST=search.example\n")
    monkeypatch.setenv("SEARCH_TOKEN", "from-the-process")
    server = {"url": "https://${SEARCH_HOST}/mcp", "headers": {"Authorization": "Bearer ${SEARCH_TOKEN}"}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"search": server}}))
    files = read_operator_files(read_settings(mcp_servers_file=tmp_path / "servers.json"))
    (entry,) = files.servers.entries
    assert entry.config.transport == HttpTransport(
        "https://search.example/mcp", {"Authorization": "Bearer from-the-process"}
    )


@pytest.mark.parametrize("name", ["prices", "limits"])
def test_a_file_of_prices_or_limits_that_is_named_has_to_exist_and_the_usual_one_need_not(
    folder: Path, name: str
) -> None:
    assert (read_operator_files(read_settings()).prices, read_operator_files(read_settings()).limits) == (NO_PRICES, ())
    with pytest.raises(SettingsError, match=f"^{name.upper()}_FILE names .*{name}.toml, and there is no such file"):
        read_operator_files(read_settings(**{f"{name}_file": folder / f"{name}.toml"}))


def test_the_examples_of_prices_and_limits_can_be_used_as_they_are() -> None:
    config = PROJECT / "config"
    files = read_operator_files(
        read_settings(prices_file=config / "prices.example.toml", limits_file=config / "limits.example.toml")
    )
    assert {price.cost_of(Usage(10, 10)) for price in files.prices.prices} == {0}, "there are no invented prices in it"
    assert [limit.unit for limit in files.limits] == [LimitUnit.TOKENS, LimitUnit.MONEY]
    assert files.unpriced_models(["PROVIDER:NAME", "demo"]) == ["demo"]

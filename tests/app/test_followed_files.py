"""Reload of the operator's files: a valid change applies at once and is reported, an invalid one has no effect."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bot.app.components import AppServices
from bot.app.config_reload import EMPTY_SETTLE_SECONDS, SETTLE_SECONDS, ConfigReloader
from bot.app.operator_files import FileChange, read_operator_files
from bot.domain.approvals import ApprovalPolicy
from bot.domain.audit import AuditQuery
from bot.domain.health import HealthStatus
from bot.domain.tools import Tool
from bot.domain.usage import UsageOwner
from bot.engine.policy.rules import Policies, Rules, ServerPolicy
from bot.errors import DatabaseUnavailable, SettingsError
from bot.settings import read_settings
from tests.app.test_config_reload import ANA, HALL, folder, office, states
from tests.fakes.parts import until

__all__ = ["folder"]

DICE = Tool("dice__roll", "dice", "roll")
POLICY, SERVERS = "config/policy.toml", "config/mcp_servers.json"
ALLOWED = '[servers.dice.tools]\nroll = "ALWAYS_ALLOW"\n'
MISSPELT = '[servers.dice.tools]\nroll = "ALWAYS_ALOW"\n'


def servers(**entries: Any) -> str:
    return json.dumps({"mcpServers": entries}, indent=1)


@dataclass
class Followed:
    """A process that follows the files of a folder, its reports, and its waits for complete files."""

    services: AppServices
    folder: Path
    told: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    @property
    def administration(self) -> ConfigReloader:
        return self.services.administration

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    async def saves(self, name: str, text: str) -> None:
        """Save a file, and check the files as before a turn."""
        self.save(name, text)
        await self.check_files()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()

    async def check_files(self) -> None:
        """Check the files as the engine does before a turn."""
        await self.services.administration.follow()

    async def tells(self, *lines: str) -> None:
        await until(lambda: len(self.told) >= len(lines))
        assert self.told == list(lines)
        self.told.clear()

    def policy(self) -> ApprovalPolicy:
        return self.services.administration.rules(HALL).policy_of(DICE)

    async def audit_facts(self) -> list[dict[str, Any]]:
        entries, _ = await self.services.stores.reporting.audit(AuditQuery(kinds=("changed files",)), 10, 0)
        assert all(entry.actor == "operator" for entry in entries)
        return [dict(entry.facts) for entry in entries]


@pytest.fixture(autouse=True)
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 3600.0)


@asynccontextmanager
async def following(folder: Path, **environment: Any) -> AsyncIterator[Followed]:
    async with office(**environment) as (services, _):
        followed = Followed(services, folder)
        services.administration.pause = followed.pause
        services.administration.notify = followed.told.append
        running = asyncio.create_task(services.administration.run())
        try:
            yield followed
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_a_saved_policy_counts_for_the_next_question_and_the_tools_it_changes_are_named(folder: Path) -> None:
    async with following(folder) as here:
        assert here.policy() is ApprovalPolicy.ASK_USER
        await here.saves(POLICY, ALLOWED)
        assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW
        await here.tells("policy.toml changed: dice.roll now runs without a card, except after words of others.")
        await here.saves(POLICY, ALLOWED.replace("ALLOW", "DENY"))
        assert here.policy() is ApprovalPolicy.ALWAYS_DENY
        await here.tells("policy.toml changed: dice.roll is now forbidden.")
        await here.saves(POLICY, '[[rules]]\npolicy = "ASK_USER"\ntool = "roll"\narguments = { sides = "6" }\n')
        await here.tells("policy.toml changed: dice.roll now needs an approval.")
        await here.saves(POLICY, '[[rules]]\npolicy = "ALWAYS_DENY"\ntool = "roll"\narguments = { sides = "6" }\n')
        await here.tells("policy.toml changed: rules for some arguments, places or people.")
        await here.saves(POLICY, "self_approval = false\n")
        await here.tells("policy.toml changed: only approvers approve calls.")
        names = "".join(f'{name} = "ALWAYS_ALLOW"\n' for name in "abcde")
        await here.saves(POLICY, f"self_approval = false\n[servers.dice.tools]\n{names}")
        await here.tells(
            "policy.toml changed: dice.a, dice.b, dice.c and 2 more now run without a card, "
            "except after words of others."
        )


@pytest.mark.parametrize(
    ("flow", "exception"),
    [
        ({}, ", except after words of others"),
        ({"words": "own", "sends": "closed"}, ", except after words of strangers"),
    ],
)
async def test_the_notice_of_an_allowed_call_names_the_sources_after_which_it_asks(
    folder: Path, flow: dict[str, str], exception: str
) -> None:
    async with following(folder) as here:
        await here.saves(SERVERS, servers(dice={"command": "dice", "disabled": True, **flow}))
        await until(lambda: bool(here.told))
        here.told.clear()
        await here.saves(POLICY, ALLOWED)
        await here.tells(f"policy.toml changed: dice.roll now runs without a card{exception}.")


def test_a_tool_that_its_server_does_not_have_is_told_as_that_with_the_one_that_was_meant() -> None:
    settings = read_settings()
    files = read_operator_files(settings)

    def change_sentences(before: str, after: str, *tools: Tool) -> list[str]:
        old, new = (
            replace(
                files,
                policies=Policies(servers={"dice": ServerPolicy({name: ApprovalPolicy.ALWAYS_ALLOW} if name else {})}),
            )
            for name in (before, after)
        )
        return FileChange(settings, old, new, Rules(), tools).sentences(lambda _server: "")

    assert change_sentences("", "rol", DICE) == ["policy.toml changed: dice has no tool rol (did you mean roll?)."]
    assert change_sentences("", "weather", DICE) == ["policy.toml changed: dice has no tool weather."]
    assert change_sentences("rol", "roll", DICE) == [
        "policy.toml changed: dice.roll now runs without a card, except after words of others."
    ]
    assert change_sentences("", "rol") == [
        "policy.toml changed: dice.rol now runs without a card, except after words of others."
    ]  # the server's tools are not known yet


async def test_a_change_is_told_without_a_question_too(folder: Path) -> None:
    async with following(folder) as here:
        here.save(POLICY, ALLOWED)
        here.administration.wake()  # as at every poll
        await here.tells("policy.toml changed: dice.roll now runs without a card, except after words of others.")


async def test_servers_are_added_changed_and_removed_while_the_bot_runs(folder: Path) -> None:
    command = {"command": "no-such-program", "auto_connect": False}
    async with following(folder) as here:
        await here.saves(SERVERS, servers(dice=command, cards=command, off={**command, "disabled": True}))
        assert set(states(here.services)) == {"dice", "cards", "off"}
        await here.tells("mcp_servers.json changed: server cards added; server dice added; server off added, disabled.")
        await here.saves(SERVERS, servers(dice={**command, "trusted": True}, off=command))
        assert set(states(here.services)) == {"dice", "off"}
        await here.tells(
            "mcp_servers.json changed: server dice changed (trusted); server off changed (on); server cards removed."
        )


async def test_a_new_server_that_does_not_start_is_told_with_the_cause_and_the_fix(folder: Path) -> None:
    async with following(folder) as here:
        toolbox = here.services.toolbox

        async def ready() -> None:
            await toolbox.connect("file:dice")

        toolbox.wait_ready = ready  # type: ignore[method-assign]
        await here.saves(SERVERS, servers(dice={"command": "no-such-program"}))
        await until(lambda: len(here.told) == 2)
        assert here.told[0] == "mcp_servers.json changed: server dice added, not connected."
        assert here.told[1].startswith("The command no-such-program of server dice was not found. Fix: ")


async def test_all_other_files_are_followed_too(folder: Path) -> None:
    files = {
        "system_prompt.md": ("Be brief.", "other instructions"),
        "prices.toml": ('currency = "EUR"\n[[models]]\nmodel = "*"\ninput = 1\noutput = 2\n', "other prices"),
        "limits.toml": ('[[limits]]\nper = "person"\nevery = "day"\nmoney = 1\n', "1 limit"),
        "secret_grants.toml": (
            '[[grant]]\nsecret = "env:MCP_SECRET_X"\nworkspaces = ["slack:T1"]\nhosts = ["x.example"]\n',
            "1 grant",
        ),
        "launch_templates.toml": ('[templates.git]\ncommand = "git"\n', "launch template git"),
        "allowed_commands.txt": ("npx\nuvx\n", "npx and uvx may be started"),
    }
    async with following(folder) as here:
        for name, (text, what) in files.items():
            await here.saves(f"config/{name}", text)
            await here.tells(f"{name} changed: {what}.")
        used = here.administration.files
        assert (used.system_prompt, used.prices.currency, len(used.limits)) == ("Be brief.", "EUR", 1)
        assert here.administration.allows_program("npx")
        assert here.services.turn_log._prices == used.prices
        statuses = await here.services.usage_limiter.statuses(UsageOwner.of(ANA, HALL))
        assert [status.limit for status in statuses] == list(used.limits)
        assert "git" in used.launches.templates
        assert here.services.command_dependencies.operator.templates() == used.launches.templates


async def test_a_variable_of_a_server_is_followed_and_neither_it_nor_its_fingerprint_is_stored(folder: Path) -> None:
    (folder / ".env").write_text("TICKETS_TOKEN=7391\n")
    header = {"Authorization": "Bearer ${TICKETS_TOKEN}"}
    (folder / SERVERS).write_text(servers(tickets={"url": "https://tickets.example/mcp", "headers": header}))
    async with following(folder, mcp_connect_policy="lazy") as here:
        await here.saves(".env", "TICKETS_TOKEN=4410\n")
        assert "4410" in repr(here.services.toolbox.definition("file:tickets").transport)
        await here.tells(".env changed: server tickets changed (transport).")
        (facts,) = await here.audit_facts()
        assert facts["changed"] == ["tickets"]
        assert facts["files"][".env"]["after"] == ""
        await here.saves(".env", "")
        await until(lambda: bool(here.told))
        assert "needs the environment variable TICKETS_TOKEN" in here.told[0]
        assert "4410" in repr(here.services.toolbox.definition("file:tickets").transport)


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        (POLICY, MISSPELT, "config/policy.toml, line 2: servers.dice.tools.roll is 'ALWAYS_ALOW'."),
        (POLICY, "\n[servers.dice\n", "(at line 2, column 14)"),
        (POLICY, "\nnonsense", "in a key/value pair (at line 2, the last)."),
        (POLICY, '\ndefualt = "ASK_USER"\n', "config/policy.toml, line 2: defualt means nothing here."),
        (POLICY, '[[rules]]\npolicy = "ALWAYS_DENY"\ntol = "x"\n', "config/policy.toml, line 3: "),
        (SERVERS, '{"mcpServers": {\n"dice": {"command": "x"}\n,,}}', "in line 3, column "),
        (SERVERS, "[]", "does not hold a JSON object."),
        (SERVERS, servers(dice={"transport": "carrier-pigeon"}), "there is no transport 'carrier-pigeon'. Fix: "),
        (SERVERS, servers(dice={"command": "x", "trusted": "yes"}), "'trusted' has the wrong type or value. Fix: "),
        ("config/prices.toml", 'currency = "EUR"\n[[models]]\n', "config/prices.toml, line 2: models names no model."),
        ("config/limits.toml", "\n[[limits]]\n", "config/limits.toml, line 2: limits has no per."),
        (
            "config/launch_templates.toml",
            "[templates.git]\n",
            "config/launch_templates.toml, line 1: the launch template 'git' cannot be used",
        ),
        ("config/launch_templates.toml", "git = \n", "(at line 1, column 7)"),
        ("config/secret_grants.toml", "\n[[grant]]\n", "config/secret_grants.toml: Line 2: "),
        ("config/allowed_commands.txt", "x" * 70_000, "config/allowed_commands.txt is too large."),
    ],
)
async def test_an_invalid_file_changes_nothing_and_is_told_once_until_it_is_corrected(
    folder: Path, name: str, text: str, cause: str
) -> None:
    (folder / POLICY).write_text(ALLOWED)
    (folder / SERVERS).write_text(servers(notes={"command": "no-such-program", "auto_connect": False}))
    async with following(folder) as here:
        used = here.administration.files
        before = (folder / name).read_text() if (folder / name).exists() else None
        here.save(name, text)
        here.save("config/system_prompt.md", "It is not in use without the other.")
        for _ in range(3):
            await here.check_files()
        assert here.administration.files is used
        assert (here.policy(), set(states(here.services))) == (ApprovalPolicy.ALWAYS_ALLOW, {"notes"})
        await until(lambda: bool(here.told))
        (line,) = here.told
        assert cause in line
        assert " Fix: " in line
        assert line.endswith(". Nothing has changed: the previous files stay in use.")
        here.told.clear()
        assert cause in here.administration.files_rejection
        health = await here.services.health.check()
        assert (health.files_are_older, health.condition) == (True, HealthStatus.DEGRADED)
        with pytest.raises(SettingsError):
            await here.administration.reload()

        (folder / "config/system_prompt.md").unlink()
        here.save(name, before or "")
        if name.endswith("launch_templates.toml"):
            here.save(name, "[templates]\n")
        await here.check_files()
        assert here.administration.files_rejection == ""
        assert (await here.services.health.check()).condition is HealthStatus.READY
        await until(lambda: bool(here.told))
        assert here.told[0] == "The operator's files can be used again."
        assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW


async def test_another_invalid_content_is_told_again(folder: Path) -> None:
    async with following(folder) as here:
        for line in (1, 2, 3):
            await here.saves(POLICY, "\n" * line + 'defualt = "x"\n')
        await until(lambda: len(here.told) == 3)
        assert [f"line {line + 1}:" in text for line, text in zip((1, 2, 3), here.told, strict=True)] == [True] * 3


async def test_a_server_that_could_not_be_used_before_does_not_keep_other_changes_away(folder: Path) -> None:
    broken = {"command": "x", "env": {"KEY": "${NOT_SET_ANYWHERE}"}}
    (folder / SERVERS).write_text(servers(broken=broken))
    fine = {"command": "no-such-program", "auto_connect": False}
    async with following(folder) as here:
        await here.saves(SERVERS, servers(dice=fine, broken=broken))
        assert set(states(here.services)) == {"dice", "broken"}
        await here.saves(SERVERS, servers(dice=broken, broken=broken))
        assert states(here.services)["dice"].problem == ""
        assert "Server 'dice' needs" in here.administration.files_rejection


async def test_an_unknown_key_of_a_server_is_told_with_the_change(folder: Path) -> None:
    async with following(folder) as here:
        await here.saves(SERVERS, servers(dice={"command": "no-such-program", "auto_connect": False, "comand": "x"}))
        await until(lambda: len(here.told) == 2)
        assert here.told[0] == "mcp_servers.json changed: server dice added."
        place = f"config/mcp_servers.json, line {servers(dice={'x': 0, 'y': 0, 'comand': 0}).count(chr(10), 0, -9) + 1}"
        assert here.told[1].startswith(f"{place}: a key of server 'dice' is ignored, because it is unknown: 'comand'.")


async def test_a_file_is_not_read_before_it_is_whole(folder: Path) -> None:
    async with following(folder) as here:
        half = '[servers.dice]\ndefault = "ALWAYS_ALLOW"\n'
        here.save(POLICY, half)
        here.meanwhile = lambda: here.save(POLICY, f'{half}tools.roll = "ALWAYS_DENY"\n')
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ALWAYS_DENY
        assert here.pauses == [SETTLE_SECONDS] * 2
        await here.tells("policy.toml changed: dice.roll is now forbidden.")


async def test_a_file_that_is_emptied_to_be_written_anew_is_waited_for_longer(folder: Path) -> None:
    (folder / POLICY).write_text(ALLOWED)
    async with following(folder) as here:
        for is_deleted in (False, True):
            here.pauses.clear()
            if is_deleted:
                (folder / POLICY).unlink()
            else:
                here.save(POLICY, "")
            here.meanwhile = lambda: here.save(POLICY, ALLOWED)
            await here.check_files()
            assert here.pauses == [EMPTY_SETTLE_SECONDS]
            assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW
        assert here.told == []
        await here.saves(POLICY, "")
        assert here.policy() is ApprovalPolicy.ASK_USER


async def test_a_file_that_is_gone_takes_nothing_away_until_it_is_back(folder: Path) -> None:
    (folder / POLICY).write_text(ALLOWED.replace("ALLOW", "DENY"))
    async with following(folder) as here:
        (folder / POLICY).unlink()
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ALWAYS_DENY
        await here.tells(
            "config/policy.toml is gone. Fix: bring it back, or save an empty file if that is meant. "
            "Nothing has changed: the previous files stay in use."
        )
        await here.saves(POLICY, ALLOWED)
        await here.tells(
            "The operator's files can be used again.",
            "policy.toml changed: dice.roll now runs without a card, except after words of others.",
        )


async def test_a_file_that_everybody_may_write_to_is_not_followed(folder: Path) -> None:
    (folder / POLICY).write_text("")
    async with following(folder) as here:
        (folder / POLICY).chmod(0o666)
        await here.check_files()
        assert here.administration.files_rejection == "", "its content is that in use"
        await here.saves(POLICY, ALLOWED)
        assert here.policy() is ApprovalPolicy.ASK_USER
        assert "Fix: run chmod o-w config/policy.toml" in here.administration.files_rejection
        (folder / POLICY).chmod(0o644)
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "huge"])
@pytest.mark.parametrize("name", [POLICY, SERVERS, "config/limits.toml", "config/allowed_commands.txt"])
async def test_a_path_that_is_no_readable_file_is_reported_and_not_waited_for(
    folder: Path, kind: str, name: str
) -> None:
    async with following(folder, MCP_ALLOWED_COMMANDS_FILE="config/allowed_commands.txt") as here:
        path = folder / name
        path.unlink(missing_ok=True)
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "endless":
                path.symlink_to("/dev/zero")
            case _:
                with path.open("wb") as file:
                    file.truncate(1 << 40)
        async with asyncio.timeout(5):
            await here.check_files()
        reason = "is larger than 16 MiB." if kind == "huge" else "is not a regular file."
        assert f"{path.name} {reason} Fix: replace it by the right file" in here.administration.files_rejection
        async with asyncio.timeout(5):
            with pytest.raises(SettingsError, match=re.escape(reason)):
                await here.administration.difference()
        await here.check_files()
        assert len(here.told) == 1


@pytest.mark.parametrize("text", [f"a = {'9' * 5000}", f"a = {'[' * 3000}"])
@pytest.mark.parametrize("name", [POLICY, "config/limits.toml", "config/prices.toml", "config/launch_templates.toml"])
async def test_toml_beyond_the_limits_of_its_parser_is_invalid(folder: Path, name: str, text: str) -> None:
    async with following(folder) as here:
        await here.saves(name, text)
        assert f"{Path(name).name} cannot be read" in here.administration.files_rejection


async def test_json_beyond_the_limits_of_its_parser_is_invalid(folder: Path) -> None:
    async with following(folder) as here:
        await here.saves(SERVERS, '{"mcpServers": {"dice": {"command": "x", "connect_timeout": %s}}}' % ("9" * 5000))
        assert "mcp_servers.json has a number that is too long to be read." in here.administration.files_rejection


async def test_a_file_that_is_written_without_end_does_not_hold_a_question_up(folder: Path) -> None:
    async with following(folder) as here:
        writes = 0

        def again() -> None:
            nonlocal writes
            writes += 1
            here.save(POLICY, f"# {writes}\n{ALLOWED}")
            here.meanwhile = again

        again()
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ASK_USER
        assert writes < 10
        here.meanwhile = lambda: None
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW


async def test_every_change_is_in_the_audit_before_it_counts(folder: Path) -> None:
    (folder / SERVERS).write_text(servers(notes={"command": "no-such-program", "auto_connect": False}))
    async with following(folder) as here:
        record = here.administration.record

        async def unwritable(_facts: object) -> None:
            raise DatabaseUnavailable("The database is away.")

        here.administration.record = unwritable
        here.save(POLICY, ALLOWED)
        await here.saves(SERVERS, servers(dice={"command": "no-such-program", "auto_connect": False}))
        assert (here.policy(), set(states(here.services))) == (ApprovalPolicy.ASK_USER, {"notes"})
        here.administration.record = record
        await here.check_files()
        assert (here.policy(), set(states(here.services))) == (ApprovalPolicy.ALWAYS_ALLOW, {"dice"})
        (facts,) = await here.audit_facts()
        assert (facts["added"], facts["removed"], facts["changed"]) == (["dice"], ["notes"], ["policies"])
        assert set(facts["files"]) == {POLICY, SERVERS}
        assert len(facts["files"][POLICY]["after"]) == 64
        assert facts["files"][POLICY]["before"] == ""
        assert facts["files"][POLICY]["owner"] == (folder / POLICY).stat().st_uid
        await here.saves(POLICY, MISSPELT)
        assert len(await here.audit_facts()) == 1


async def test_questions_at_the_same_moment_apply_a_change_once_and_all_wait_for_it(folder: Path) -> None:
    async with following(folder) as here:
        here.save(POLICY, ALLOWED)

        async def question() -> ApprovalPolicy:
            await here.check_files()
            return here.policy()

        assert set(await asyncio.gather(*(question() for _ in range(20)))) == {ApprovalPolicy.ALWAYS_ALLOW}
        assert len(await here.audit_facts()) == 1
        await here.tells("policy.toml changed: dice.roll now runs without a card, except after words of others.")


async def test_a_disk_that_does_not_answer_holds_one_thread_and_no_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bot.app.config_reload.DISK_SECONDS", 0.01)
    async with following(folder) as here:
        answers, looks = threading.Event(), list[int]()
        look = here.administration.watch.look

        def hanging() -> Any:
            looks.append(1)
            answers.wait(60)
            return look()

        here.administration.watch.look = hanging  # type: ignore[method-assign]
        here.save(POLICY, ALLOWED)
        for _ in range(5):
            await here.check_files()
        assert (len(looks), here.policy()) == (1, ApprovalPolicy.ASK_USER)
        assert sum("their disk does not answer" in message for message in caplog.messages) == 1
        answers.set()
        monkeypatch.setattr("bot.app.config_reload.DISK_SECONDS", 60.0)
        await here.check_files()
        assert here.policy() is ApprovalPolicy.ALWAYS_ALLOW


async def test_nothing_is_read_or_waited_for_if_nothing_was_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / POLICY).write_text(ALLOWED)
    async with following(folder) as here:
        here.administration.read_files = lambda: pytest.fail("read again")
        for _ in range(3):
            await here.check_files()
        assert here.pauses == []

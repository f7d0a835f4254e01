"""`countersign servers`, `secrets` and `doctor`: output and exit codes for a shell and its scripts."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bot.domain.secrets import LEAST_OPERATOR_BITS, weakness
from tests.cli.invocation import Countersign, Ended
from tests.fakes.oauth import FakeOAuth

SECRET = "tk-8c1f0a52-typed"
URL = "https://tickets.example/mcp"
ADD = ("servers", "add", "tickets", "--url", URL, "--no-verify")
SIGNING_IN = ("--auth", "api_key", "--secret", "env:MCP_SECRET_TICKETS")


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the operator's name. The tests send no requests, so no host name is looked up."""
    monkeypatch.setenv("LOGNAME", "owner")


def test_without_servers_it_says_how_to_add_one_and_succeeds(countersign: Countersign) -> None:
    for words in (("servers",), ("servers", "list")):
        ended = countersign(*words)
        assert (ended.code, ended.err) == (0, "")
    assert "No servers yet." in ended.out


def test_a_server_is_added_listed_shown_changed_and_removed(countersign: Countersign) -> None:
    assert countersign(*ADD).code == 0
    listed = countersign("servers", "list")
    assert re.search(r"^○ tickets +\w+ +streamable HTTP +0$", listed.out, re.MULTILINE)
    edited = countersign("servers", "edit", "tickets", "--description", "Tickets", "--no-verify")
    assert "nothing → Tickets" in edited.out
    shown = countersign("servers", "show", "tickets")
    assert "description: Tickets\n" in shown.out
    assert "changed: just now by console:owner\n" in shown.out
    asked = countersign("servers", "remove", "tickets")
    assert (asked.code, asked.out) == (1, "")
    assert "Type its name to confirm." in asked.err
    assert "--version 2 --confirm tickets   Remove tickets\n" in asked.err
    assert countersign("servers", "remove", "tickets", "--confirm", "ticket").code == 1
    removed = countersign("servers", "remove", "tickets", "--confirm", "tickets")
    assert (removed.code, removed.err) == (0, "")
    gone = countersign("servers", "show", "tickets")
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith("MCP server `tickets` not found.")


def test_a_shell_cannot_have_a_bot_read_its_file_again(countersign: Countersign) -> None:
    ended = countersign("servers", "reload")
    assert ended.code == 2
    assert "which follows its files, or use `/mcp reload` in a chat" in ended.complaint


def test_json_is_one_object_at_every_outcome(countersign: Countersign) -> None:
    assert countersign(*ADD, "--json").json_output["failed"] is False
    listed = countersign("servers", "list", "--json")
    assert listed.code == 0
    assert [row["server"] for row in listed.json_output["rows"]] == ["○ tickets"]
    refused = countersign("servers", "show", "jira", "--json")
    assert (refused.code, refused.err) == (1, "")
    assert refused.json_output["failed"] is True
    form = countersign("servers", "add", "--json")
    assert form.code == 1
    assert [field["name"] for field in form.json_output["fields"]] == ["title", "transport", "where", "auth", "policy"]


def test_all_errors_are_printed_at_once_on_standard_error(countersign: Countersign) -> None:
    ended = countersign("servers", "add", "tickets", "--url", "nowhere", "--tool-timeout", "never")
    assert (ended.code, ended.out) == (1, "")
    assert "--url: That is no http or https address." in ended.err
    assert "--tool-timeout: 'never' is not valid. A number of seconds" in ended.err
    assert "Traceback" not in ended.err
    unknown = countersign("servers", "lst")
    assert (unknown.code, unknown.out) == (1, "")
    assert "Did you mean" in unknown.err


def test_a_token_on_the_command_line_is_refused_and_kept_nowhere(countersign: Countersign, folder: Path) -> None:
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
    ended = countersign(*ADD, "--header", f"Authorization={token}")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("That looks like a token. It was not saved.")
    assert token not in ended.err
    assert not any(token.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_call_by_hand_belongs_in_a_chat(countersign: Countersign) -> None:
    countersign(*ADD)
    ended = countersign("servers", "run", "tickets", "lookup")
    assert (ended.code, ended.out) == (1, "")


def test_a_generated_key_is_32_bytes_and_another_each_time(countersign: Countersign) -> None:
    keys = [countersign("secrets", "generate-key") for _ in range(2)]
    assert all((key.code, key.err) == (0, "") for key in keys)
    assert [len(base64.b64decode(key.out.strip(), validate=True)) for key in keys] == [32, 32]
    assert keys[0].out != keys[1].out


def test_a_generated_password_is_hard_to_guess_and_another_each_time(countersign: Countersign) -> None:
    made = [countersign("secrets", "generate-password") for _ in range(2)]
    assert all((each.code, each.err) == (0, "") for each in made)
    assert made[0].out != made[1].out
    assert not weakness(made[0].out, LEAST_OPERATOR_BITS)


def test_a_secret_is_read_from_a_pipe_kept_encrypted_and_encrypted_anew(
    countersign: Countersign, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (countersign("secrets", "generate-key").out.strip() for _ in range(2))
    monkeypatch.setenv("MCP_ENCRYPTION_KEY", old)
    assert countersign(*ADD, *SIGNING_IN).code == 0
    ended = countersign("secrets", "set", "tickets", "auth", typed=f"{SECRET}\n")
    assert (ended.code, ended.err) == (0, "")
    assert SECRET not in ended.out
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not any(SECRET.encode() in file.read_bytes() for file in files)

    both = countersign("secrets", "rotate", MCP_ENCRYPTION_KEY=f"{new},{old}")
    assert (both.code, both.out) == (0, "1 stored secret is encrypted with the first key now.\n")
    assert countersign("secrets", "rotate", MCP_ENCRYPTION_KEY=new).code == 0
    lost = countersign("secrets", "rotate", MCP_ENCRYPTION_KEY=old)
    assert lost.code == 1
    assert "no key opens" in lost.err
    assert "Fix: " in lost.err


def test_a_missing_secret_is_refused(countersign: Countersign) -> None:
    assert countersign(*ADD, *SIGNING_IN).code == 0
    ended = countersign("secrets", "set", "tickets", "auth", typed="")
    assert ended.code == 1
    assert countersign("secrets", "set", "jira", "auth", typed=SECRET).code == 1
    assert countersign("secrets", "set", "tickets").code == 2


def test_the_doctor_names_cause_and_fix_and_exits_by_its_findings(countersign: Countersign, folder: Path) -> None:
    assert countersign("db", "upgrade").code == 0
    well = countersign("doctor")
    assert (well.code, well.err) == (0, "")
    (folder / "config").mkdir()
    broken = {"mcpServers": {"tickets": {"command": "no-such-program-anywhere"}}}
    (folder / "config/mcp_servers.json").write_text(json.dumps(broken))
    ill = countersign("doctor", "--json")
    assert ill.code == 1
    checks = [json.loads(line) for line in ill.out.splitlines()]
    wrong = [check for check in checks if check["finding"] == "failed"]
    assert wrong
    assert all(check["detail"] and check["fix"] for check in wrong)
    assert any("no-such-program-anywhere" in check["detail"] for check in wrong)


def test_the_doctor_says_if_the_asker_may_approve(countersign: Countersign, folder: Path) -> None:
    assert "approvals  The user who asked may approve a call that deletes nothing" in countersign("doctor").out
    (folder / "config").mkdir()
    (folder / "config/policy.toml").write_text('default = "ASK_USER"\nself_approval = false\n')
    assert "approvals  Only approvers approve: policy.toml has self_approval = false." in countersign("doctor").out


def test_the_doctor_succeeds_before_the_first_start_and_creates_no_files(
    countersign: Countersign, folder: Path
) -> None:
    ill = countersign("doctor", AUTO_MIGRATE="false")
    assert ill.code == 1
    assert "countersign db upgrade" in ill.out
    well = countersign("doctor", AUTO_MIGRATE="true")
    assert (well.code, well.err) == (0, "")
    assert countersign("db", "current").code == 0


@pytest.mark.parametrize(
    "words", [("servers", "list"), ("doctor",), ("secrets", "rotate"), ("secrets", "set", "a", "b")]
)
def test_an_environment_that_cannot_be_used_is_a_usage_error_here_too(
    countersign: Countersign, words: tuple[str, ...]
) -> None:
    ended = countersign(*words, LOG_LEVEL="loud")
    assert ended.code == 2
    assert "LOG_LEVEL is 'loud'" in ended.complaint


async def test_the_operator_gets_the_link_to_a_sign_in(countersign: Countersign) -> None:
    async with FakeOAuth() as oauth:
        hosts = ",".join(urlsplit(each).netloc for each in (oauth.url, oauth.issuer))

        def shell(*words: str) -> Ended:
            return countersign("servers", *words, PUBLIC_URL="https://bot.example.com", MCP_ALLOWED_HOSTS=hosts)

        added = await asyncio.to_thread(shell, "add", "guarded", "--url", oauth.url, "--auth", "oauth")
        assert "countersign servers connect guarded" in added.out + added.err
        linked = await asyncio.to_thread(shell, "connect", "guarded")
        assert (linked.code, linked.err) == (0, "")
        [address] = re.findall(r"^whole address: (\S+)$", linked.out, re.MULTILINE)
        assert address.startswith(f"{oauth.issuer}/authorize?")
        assert set(await oauth.browser(address)) == {"state", "code", "iss", "to"}
        assert f"leads to: {urlsplit(oauth.issuer).netloc}\n" in linked.out

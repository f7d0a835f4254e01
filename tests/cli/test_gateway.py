"""`countersign ask`, `hook` and `connect`: what an agent's side sends, prints and ends with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from threading import Event
from typing import Any

import jwt
import pytest
import yaml  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from bot.app import gateway_client
from bot.web.gateway.receipts import digest_arguments
from tests.cli.gateway import TOKEN, FakeGateway, fake_gateway
from tests.cli.invocation import Countersign, Ended
from tests.fakes.programs import ROOT

PENDING = {"approvalId": "a1", "status": "pending", "waitingFor": "#release", "url": "https://bot.example.com/a1"}
APPROVED = {"approvalId": "a1", "status": "approved", "arguments": {"env": "prod"}, "receipt": "head.claims.signature"}
DENIED = {"approvalId": "a1", "status": "denied", "reason": "Not on a Friday.", "deciders": ["slack:U1"]}
GIVEN = {
    "hook_event_name": "PreToolUse",
    "session_id": "s1",
    "cwd": "/srv/shop",
    "tool_name": "Bash",
    "tool_input": {"command": "git push"},
    "tool_use_id": "toolu_1",
}
EVENT = json.dumps(GIVEN)


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are not repeated for long."""
    monkeypatch.setattr(gateway_client, "_PATIENCE", 0.05)
    monkeypatch.setattr(gateway_client, "_FIRST_PAUSE", 0.01)


def test_an_approved_call_prints_its_receipt_alone(countersign: Countersign, gateway: FakeGateway) -> None:
    gateway.answers = [(201, PENDING), (200, PENDING), (200, APPROVED)]
    words = ("--tool", "deploy", "--arg", "env=prod", "--title", "Deploy", "--effect", "deploy:7", "--wait", "30m")
    ended = countersign("ask", *words, **gateway.variables)
    assert (ended.code, ended.out) == (0, "head.claims.signature\n")
    assert "a1: pending; waiting for #release; see https://bot.example.com/a1" in ended.err
    assert gateway.lines == ["POST /api/approvals", *["GET /api/approvals/a1?wait=50"] * 2]
    asked = gateway.requests[0]
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert asked.body | {"cwd": ""} == {
        "tool": "deploy",
        "arguments": {"env": "prod"},
        "title": "Deploy",
        "effect": "deploy:7",
        "cwd": "",
    }
    assert TOKEN not in ended.err


def test_arguments_are_json_or_else_texts_and_stay_as_they_were_written(
    countersign: Countersign, gateway: FakeGateway
) -> None:
    gateway.answers = [(200, APPROVED)]
    given = {
        "a": "3",
        "b": "true",
        "c": '{"x": [1, null]}',
        "d": '"3"',
        "version": "1.10",
        "big": "1e400",
        "nan": "NaN",
        "text": "{half",
        "empty": "",
        "equation": "a=b",
    }
    words = [word for name, value in given.items() for word in ("--arg", f"{name}={value}")]
    assert countersign("ask", "--tool", "t", *words, **gateway.variables).code == 0
    assert gateway.requests[0].body["arguments"] == {
        **given,
        "a": 3,
        "b": True,
        "c": {"x": [1, None]},
        "d": "3",
    }


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ([(201, PENDING), (200, DENIED)], 3, "a1: denied; by slack:U1; because Not on a Friday."),
        ([(201, PENDING), (200, {**PENDING, "status": "expired"})], 3, "a1: expired"),
        ([(201, PENDING)], 3, "a1: pending"),
        ([(200, {**APPROVED, "edited": True, "arguments": {"env": "test"}})], 0, 'other arguments: {"env": "test"}'),
    ],
)
def test_the_exit_code_says_if_the_call_is_approved(
    countersign: Countersign, gateway: FakeGateway, answers: list[Any], code: int, said: str
) -> None:
    gateway.answers = answers
    wait = "0s" if len(answers) == 1 else "5m"
    ended = countersign("ask", "--tool", "deploy", "--arg", "env=prod", "--wait", wait, **gateway.variables)
    assert (ended.code, bool(ended.out)) == (code, code == 0)
    assert said in ended.err


def test_json_is_the_whole_answer_whatever_it_is(countersign: Countersign, gateway: FakeGateway) -> None:
    gateway.answers = [(201, PENDING), (200, DENIED)]
    ended = countersign("ask", "--tool", "deploy", "--json", **gateway.variables)
    assert (ended.code, ended.json_output) == (3, DENIED)


@pytest.mark.usefixtures("impatient")
def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    countersign: Countersign, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_client, "_PATIENCE", 30.0)
    gateway.answers = [lambda: None, (503, b"busy"), (200, PENDING), lambda: None, (200, APPROVED)]
    assert countersign("ask", "--tool", "deploy", **gateway.variables).code == 0
    assert gateway.lines == ["POST /api/approvals"] * 3 + ["GET /api/approvals/a1?wait=50"] * 2
    keys = {request.headers.get("Idempotency-Key") for request in gateway.requests[:3]}
    assert len(keys) == 1
    assert None not in keys
    assert countersign("ask", "--tool", "d", "--idempotency-key", "run-7", **gateway.variables).code == 0
    assert gateway.requests[-1].headers["Idempotency-Key"] == "run-7"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("answer", "code", "complaint"),
    [
        (
            (401, {"error": {"message": "The token is not good.", "fix": "use another"}}),
            1,
            "The token is not good. Fix: ",
        ),
        (
            (422, {"error": {"message": "No.", "fix": "do", "fields": {"tool": "too long"}}}),
            2,
            "No. tool: too long Fix: do",
        ),
        ((409, {"error": {"message": "The key is used.", "fix": "take another"}}), 1, "The key is used. Fix: "),
        ((301, b""), 1, "The answer (HTTP 301) is not one of Countersign's gateway. Fix: check COUNTERSIGN_URL"),
        ((200, b"<html>"), 1, "The answer (HTTP 200) is not one of Countersign's gateway."),
        ((200, b"[" * 100_000), 1, "The answer (HTTP 200) is not one of Countersign's gateway."),
        ((503, {"error": {"message": "Not now.", "fix": "wait"}}), 1, "Not now. Fix: wait"),
        (lambda: None, 1, "127.0.0.1:"),
    ],
)
def test_every_other_answer_is_an_error_with_a_fix(
    countersign: Countersign, gateway: FakeGateway, answer: Any, code: int, complaint: str
) -> None:
    gateway.answers, gateway.headers = [answer], {"Location": f"{gateway.url}/elsewhere"}
    ended = countersign("ask", "--tool", "deploy", **gateway.variables)
    assert ended.code == code
    assert ended.complaint.startswith(complaint)
    assert "Fix: " in ended.complaint
    assert "elsewhere" not in "".join(gateway.lines)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("variables", "code", "complaint"),
    [
        ({"COUNTERSIGN_TOKEN": ""}, 2, "COUNTERSIGN_TOKEN is not set."),
        ({"COUNTERSIGN_TOKEN": "two\nlines"}, 2, "COUNTERSIGN_TOKEN is not the text of a token."),
        ({"COUNTERSIGN_URL": ""}, 2, "COUNTERSIGN_URL is not set."),
        ({"COUNTERSIGN_URL": "bot.example.com"}, 2, "COUNTERSIGN_URL is not the address of a gateway."),
        (
            {"COUNTERSIGN_URL": "https://me:secret@bot.example.com"},
            2,
            "COUNTERSIGN_URL is not the address of a gateway.",
        ),
        ({"COUNTERSIGN_URL": "http://127.0.0.1:1"}, 1, "127.0.0.1:1 cannot be reached: "),
    ],
)
def test_a_gateway_that_is_missing_is_named(
    countersign: Countersign, gateway: FakeGateway, variables: dict[str, str], code: int, complaint: str
) -> None:
    ended = countersign("ask", "--tool", "deploy", **{**gateway.variables, **variables})
    assert (ended.code, ended.complaint.startswith(complaint)) == (code, True), ended.err
    assert "secret" not in ended.err
    hooked = countersign("hook", typed=EVENT, **{**gateway.variables, **variables})
    assert (hooked.code, hooked.complaint.startswith(complaint)) == (2, True), hooked.err


@pytest.mark.parametrize(
    "words", [("--arg", "env"), ("--arg", "=x"), ("--arg", "a=1", "--arg", "a=2"), ("--wait", "soon")]
)
def test_options_that_cannot_be_used_ask_nothing(
    countersign: Countersign, gateway: FakeGateway, words: tuple[str, ...]
) -> None:
    assert countersign("ask", "--tool", "t", *words, **gateway.variables).code == 2
    assert gateway.requests == []


@dataclass
class Interrupted:
    """A program on an agent's side that gets a signal while it waits for an answer."""

    gateway: FakeGateway
    process: subprocess.Popen[bytes] | None = None

    def run(self, number: signal.Signals, *words: str, typed: str = "") -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **self.gateway.variables}
        started = Event()

        def interrupt() -> None:
            assert started.wait(60)
            assert self.process is not None
            self.process.send_signal(number)
            self.process.wait(60)

        self.gateway.answers.append(interrupt)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bot", *words], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=variables
        )
        started.set()
        out, err = self.process.communicate(typed.encode(), 60)
        return subprocess.CompletedProcess(words, self.process.returncode, out, err)


def test_an_interrupted_wait_leaves_the_approval_and_says_how_to_come_back(gateway: FakeGateway) -> None:
    gateway.answers = [(201, PENDING)]
    ended = Interrupted(gateway).run(signal.SIGINT, "ask", "--tool", "deploy", "--idempotency-key", "run-7")
    assert (ended.returncode, ended.stdout) == (130, b"")
    assert b"stays. Fix: attach to it with --idempotency-key run-7" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_hook_blocks_the_call(gateway: FakeGateway, number: signal.Signals) -> None:
    gateway.answers = [(201, PENDING)]
    ended = Interrupted(gateway).run(number, "hook", typed=EVENT)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"The approval stays." in ended.stderr


def test_the_env_file_of_a_working_folder_sends_nothing_elsewhere(
    countersign: Countersign, gateway: FakeGateway, folder: Path
) -> None:
    gateway.answers = [(200, APPROVED)]
    (folder / ".env").write_text("COUNTERSIGN_URL=http://127.0.0.1:1\nBOT_MODEL=broken\n")
    assert countersign("ask", "--tool", "deploy", **gateway.variables).code == 0


def _decision(ended: Ended) -> dict[str, Any]:
    assert (ended.code, ended.err) == (0, "")
    output: dict[str, Any] = ended.json_output["hookSpecificOutput"]
    assert output.pop("hookEventName") == "PreToolUse"
    return output


def test_a_hook_prints_the_decision_and_nothing_else(countersign: Countersign, gateway: FakeGateway) -> None:
    edited = {**APPROVED, "arguments": {"command": "git push --dry-run"}, "deciders": ["Priya"]}
    gateway.answers = [(201, PENDING), (200, PENDING), (200, edited)]
    assert _decision(countersign("hook", typed=EVENT, **gateway.variables)) == {
        "permissionDecision": "allow",
        "permissionDecisionReason": "Approved by Priya.",
        "updatedInput": {"command": "git push --dry-run"},
    }
    assert gateway.lines == ["POST /api/approvals", *["GET /api/approvals/a1?wait=50"] * 2]
    asked = gateway.requests[0]
    assert asked.body == {"tool": "Bash", "arguments": GIVEN["tool_input"], "session": "s1", "cwd": "/srv/shop"}
    assert asked.headers["Idempotency-Key"] == "hook s1 toolu_1"


def test_a_hook_denies_with_the_reason_of_people(countersign: Countersign, gateway: FakeGateway) -> None:
    gateway.answers = [(200, DENIED)]
    assert _decision(countersign("hook", typed=EVENT, **gateway.variables)) == {
        "permissionDecision": "deny",
        "permissionDecisionReason": "Not on a Friday.",
    }


def test_a_call_that_still_waits_at_the_end_of_the_wait_is_denied_or_deferred(
    countersign: Countersign, gateway: FakeGateway
) -> None:
    gateway.answers = [(201, PENDING)]
    denied = _decision(countersign("hook", "--wait", "0", typed=EVENT, **gateway.variables))
    assert denied["permissionDecision"] == "deny"
    assert "still waits for #release" in denied["permissionDecisionReason"]
    deferred = _decision(countersign("hook", "--defer", typed=EVENT, **gateway.variables))
    assert deferred["permissionDecision"] == "defer"
    # Resumed, the client runs the hook again for the same call.
    assert [request.headers["Idempotency-Key"] for request in gateway.requests] == ["hook s1 toolu_1"] * 2


@pytest.mark.parametrize("typed", ["", "[]", "{", "{}", '{"tool_name": "Bash"}', "[" * 100_000])
def test_input_that_is_no_hooks_asks_nothing_and_blocks_the_call(
    countersign: Countersign, gateway: FakeGateway, typed: str
) -> None:
    ended = countersign("hook", typed=typed, **gateway.variables)
    assert (ended.code, gateway.requests) == (2, [])
    assert ended.complaint.startswith("Standard input is not the JSON of a PreToolUse hook.")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": {"message": "The body is not JSON.", "fix": "send JSON"}}),
        (401, {"error": {"message": "The token is not good.", "fix": "use another"}}),
        (200, {"status": "approved"}),
        (200, b"<html>"),
        (500, b""),
        lambda: None,
    ],
)
def test_a_hook_without_a_decision_blocks_the_call(countersign: Countersign, gateway: FakeGateway, answer: Any) -> None:
    gateway.answers = [answer]
    ended = countersign("hook", typed=EVENT, **gateway.variables)
    assert (ended.code, ended.out) == (2, "")
    assert ended.complaint


def test_a_hook_whose_output_is_closed_blocks_the_call(gateway: FakeGateway, tmp_path: Path) -> None:
    gateway.answers = [(200, APPROVED)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "bot", "hook"],
            input=EVENT.encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **gateway.variables},
            timeout=60,
            check=False,
        )
    assert ended.returncode == 2


def test_a_program_on_an_agents_side_loads_no_settings_and_no_engine() -> None:
    code = "import sys, bot.cli\nsys.argv[1:] = ['hook']\ntry: bot.cli.main()\nfinally: print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    loaded = set(ended.stdout.split())
    assert "bot.app.gateway_client" in loaded
    heavy = {
        "asyncio",
        "mcp",
        "pydantic_settings",
        "sqlalchemy",
        "yaml",
        "bot.domain.turns",
        "bot.engine",
        "bot.settings",
    }
    assert not loaded & heavy


@pytest.mark.parametrize(
    ("client", "files"),
    [
        ("claude-code", (".mcp.json", ".claude/settings.json")),
        ("cursor", (".cursor/mcp.json",)),
        ("vscode", (".vscode/mcp.json",)),
        ("goose", (".config/goose/config.yaml",)),
        ("codex", (".codex/config.toml",)),
    ],
)
def test_connect_writes_what_it_prints_once_and_never_a_token(
    countersign: Countersign, folder: Path, client: str, files: tuple[str, ...]
) -> None:
    variables = {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": "",
        "CODEX_HOME": "",
        "COUNTERSIGN_URL": "https://bot.example.com/",
        "COUNTERSIGN_TOKEN": TOKEN,
    }
    printed = countersign("connect", client, **variables)
    assert (printed.code, printed.err) == (0, "")
    assert not any((folder / name).exists() for name in files)
    written = countersign("connect", client, "--write", **variables)
    assert written.code == 0
    texts = [(folder / name).read_text() for name in files]
    assert all(text in printed.out for text in texts)
    assert "https://bot.example.com/mcp" in texts[0]
    assert TOKEN not in printed.out + "".join(texts)
    again = countersign("connect", client, "--write", **variables)
    assert again.err.count("has it already") == len(files)
    assert [(folder / name).read_text() for name in files] == texts


def test_claude_code_gets_a_hook_that_blocks_and_the_line_of_its_prompt_tool(
    countersign: Countersign, folder: Path
) -> None:
    words = ("connect", "claude-code", "--url", "https://bot.example.com", "--token-env", "AGENT_TOKEN")
    assert "--permission-prompt-tool mcp__countersign__approve" in countersign(*words).out
    assert countersign(*words, "--write").code == 0
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["countersign"]
    assert server["headers"] == {"Authorization": "Bearer ${AGENT_TOKEN}"}
    settings = json.loads((folder / ".claude/settings.json").read_text())
    (entry,) = settings["hooks"]["PreToolUse"]
    assert settings["env"] == {"COUNTERSIGN_URL": "https://bot.example.com"}
    assert entry["hooks"][0]["onFailure"] == "block"
    assert entry["hooks"][0]["command"].startswith('COUNTERSIGN_TOKEN="$AGENT_TOKEN" ')


BEFORE = {
    ".claude/settings.json": json.dumps(
        {
            "model": "opus",
            "hooks": {
                "PreToolUse": [
                    {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]},
                    {"matcher": "*", "hooks": [{"type": "command", "command": "countersign hook"}]},
                ]
            },
        }
    ),
    ".config/goose/config.yaml": "# mine\nGOOSE_MODEL: x\nextensions:  # all\n    memory: {enabled: true}\n# end\n",
    ".codex/config.toml": 'model = "x"  # mine\n[mcp_servers.other]\nurl = "https://other.example.com"',
}


def test_connect_keeps_what_a_file_has_and_a_copy_of_it(countersign: Countersign, folder: Path) -> None:
    for name, text in BEFORE.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    for client in ("claude-code", "goose", "codex"):
        assert countersign("connect", client, "--write", HOME=str(folder), XDG_CONFIG_HOME="").code == 0
    for name, text in BEFORE.items():
        assert (folder / f"{name}.bak").read_text() == text
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    settings = json.loads((folder / ".claude/settings.json").read_text())
    assert settings["model"] == "opus"
    commands = [entry["hooks"][0]["command"] for entry in settings["hooks"]["PreToolUse"]]
    assert commands[0] == "lint"
    assert len(commands) == 2
    goose = (folder / ".config/goose/config.yaml").read_text()
    assert "# mine" in goose
    assert list(yaml.safe_load(goose)["extensions"]) == ["countersign", "memory"]
    codex = (folder / ".codex/config.toml").read_text()
    assert "# mine" in codex
    assert list(tomllib.loads(codex)["mcp_servers"]) == ["other", "countersign"]


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("cursor", ".cursor/mcp.json", "{"),
        ("cursor", ".cursor/mcp.json", "[]"),
        ("vscode", ".vscode/mcp.json", "{} // with a comment"),
        ("codex", ".codex/config.toml", "= 1"),
        ("codex", ".codex/config.toml", '[mcp_servers.countersign]\nurl = "https://else.example.com"\n'),
        ("goose", ".config/goose/config.yaml", "a: ["),
        ("goose", ".config/goose/config.yaml", "extensions: {}\n"),
    ],
)
def test_connect_leaves_a_file_that_it_cannot_change_with_certainty(
    countersign: Countersign, folder: Path, client: str, name: str, text: str
) -> None:
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(text)
    ended = countersign("connect", client, "--write", HOME=str(folder), XDG_CONFIG_HOME="")
    assert ended.code == 1
    assert "is left as it is: " in ended.complaint
    assert "Fix: add the entries by hand" in ended.complaint
    assert [path.name for path in (folder / name).parent.iterdir()] == [Path(name).name]
    assert (folder / name).read_text() == text


def test_connect_takes_the_name_of_a_variable_and_no_token(countersign: Countersign) -> None:
    for name in (TOKEN, "two words"):
        ended = countersign("connect", "cursor", "--token-env", name)
        assert ended.code == 2
        assert TOKEN not in ended.err


@pytest.fixture
def signed(tmp_path: Path) -> tuple[str, str]:
    """A receipt for the executor `deployer` in a file, and the file of its public key."""
    private = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True) | {"kid": "k1"}
    claims = {
        "iss": "https://bot.example.com", "sub": "api:ci", "aud": "deployer", "jti": "a1", "iat": 1, "exp": 4 * 10**9,
        "server": "ci", "tool": "deploy", "arguments_sha256": digest_arguments({"env": "prod"}),
        "decision": "approved", "deciders": ["Sam"],
    }  # fmt: skip
    receipt, keys = tmp_path / "receipt", tmp_path / "keys.json"
    receipt.write_text(jwt.encode(claims, jwt.PyJWK(private, "EdDSA"), "EdDSA", {"kid": "k1"}))
    keys.write_text(json.dumps({"keys": [{name: value for name, value in private.items() if name != "d"}]}))
    return str(receipt), str(keys)


def test_a_receipt_is_checked_without_the_gateway(countersign: Countersign, signed: tuple[str, str]) -> None:
    receipt, keys = signed
    facts = ("--audience", "deployer", "--tool", "deploy", "--arguments", '{"env": "prod"}')
    ended = countersign("receipt", "verify", receipt, "--jwks", keys, *facts)
    assert (ended.code, json.loads(ended.out)["deciders"], ended.err) == (0, ["Sam"], "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--audience", "other"), "does not count"),
        (("--audience", "deployer", "--tool", "drop"), "about the tool 'deploy'"),
        (("--audience", "deployer", "--arguments", '{"env": "test"}'), "other arguments"),
    ],
)
def test_a_receipt_about_something_else_is_refused(
    countersign: Countersign, signed: tuple[str, str], words: tuple[str, ...], reason: str
) -> None:
    receipt, keys = signed
    ended = countersign("receipt", "verify", receipt, "--jwks", keys, *words)
    assert (ended.code, ended.out) == (1, "")
    assert reason in ended.err


def test_a_missing_receipt_is_named(countersign: Countersign, signed: tuple[str, str]) -> None:
    ended = countersign("receipt", "verify", "none.txt", "--jwks", signed[1], "--audience", "deployer")
    assert ended.code == 1
    assert "none.txt cannot be read" in ended.err

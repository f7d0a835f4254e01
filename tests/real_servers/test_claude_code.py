"""Claude Code from its package, without a person at the terminal: its calls ask a gateway by the hook that
`countersign connect` writes.

The model is a fake, and so is the gateway.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.gateway import TOKEN, FakeGateway, fake_gateway
from tests.fakes import llm_anthropic
from tests.fakes.llm import Call, FakeLanguageModel, Request, Say
from tests.fakes.programs import ROOT
from tests.node import MODULES

pytestmark = pytest.mark.real_servers

CLAUDE = next(MODULES.glob("@anthropic-ai/claude-code-*-*/claude"), None)
COMMAND = "touch asked"
PENDING = {"approvalId": "a1", "status": "pending", "waitingFor": "#release"}
APPROVED = {"approvalId": "a1", "status": "approved", "arguments": {"command": COMMAND}, "deciders": ["Priya"]}


def _reply(request: Request) -> Say:
    """Call Bash once, in the main conversation."""
    if "Bash" not in [tool.get("name") for tool in request.body.get("tools", ())]:
        return Say("A title")
    has_result = "tool_result" in json.dumps(request.body["messages"])
    return Say("The end.") if has_result else Say(calls=(Call("Bash", {"command": COMMAND, "description": "try"}),))


@dataclass(frozen=True)
class ClaudeCode:
    """The program in a project."""

    folder: Path
    gateway: FakeGateway
    model: FakeLanguageModel

    def run(self, *options: str) -> dict[str, Any]:
        """Run it to its end, and return its report."""
        assert CLAUDE is not None, "Fix: make conformance brings it"
        ended = self._start(str(CLAUDE), "-p", "--output-format", "json", *options)
        assert ended.returncode == 0, ended.stderr + ended.stdout
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    def connect(self) -> None:
        """Write the hook. The server of tools is none of this story."""
        assert self._start(sys.executable, "-m", "bot", "connect", "claude-code", "--write").returncode == 0
        (self.folder / ".mcp.json").unlink()

    @property
    def made(self) -> set[str]:
        """Files that calls have made."""
        return {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}

    @property
    def result(self) -> str:
        """The result of the call as the model has read it."""
        texts = [json.dumps(message) for message in self.model.requests[-1].body["messages"]]
        return next(text for text in texts if "tool_result" in text)

    def _start(self, *words: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "ANTHROPIC_BASE_URL": self.model.base_url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **self.gateway.variables,
        }
        run = partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        ended: subprocess.CompletedProcess[str] = run(words, cwd=self.folder, env=variables, timeout=100)
        return ended


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClaudeCode]:
    with FakeLanguageModel("anthropic", rule=_reply) as model, fake_gateway() as gateway:
        # The program sends fields that the fake of the vendor's service does not know.
        known = {name: getattr(llm_anthropic, name) for name in ("frames", "event", "error_event", "error_body")}
        lenient = SimpleNamespace(**known, PATH="/v1/messages?beta=true", complaint=lambda _request: None)
        monkeypatch.setattr(model, "_protocol", lenient)
        claude = ClaudeCode(tmp_path, gateway, model)
        claude.connect()
        yield claude


def test_a_call_runs_once_it_is_approved_as_it_was_edited(claude: ClaudeCode) -> None:
    claude.gateway.answers = [(201, PENDING), (200, {**APPROVED, "arguments": {"command": "touch edited"}})]
    report = claude.run("try it")
    assert (report["result"], report["permission_denials"], claude.made) == ("The end.", [], {"edited"})
    asked = claude.gateway.requests[0]
    assert asked.body == {
        "tool": "Bash",
        "arguments": {"command": COMMAND, "description": "try"},
        "session": report["session_id"],
        "cwd": str(claude.folder),
    }
    assert TOKEN not in "".join(path.read_text() for path in (claude.folder / ".claude").glob("*.json*"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {**APPROVED, "status": "denied", "reason": "Not on a Friday."}), "Not on a Friday."),
        ((200, {**APPROVED, "status": "expired", "reason": ""}), "The call is expired."),
        ((401, {"error": {"message": "The token is not good.", "fix": "use another"}}), "The token is not good."),
    ],
    ids=("denied", "expired", "without a decision"),
)
def test_a_call_that_is_not_approved_does_not_run_and_the_model_reads_why(
    claude: ClaudeCode, answer: tuple[int, Any], reason: str
) -> None:
    claude.gateway.answers = [answer]
    report = claude.run("try it", "--allowedTools", "Bash")  # the client's own rules allow it
    assert (claude.made, len(report["permission_denials"])) == (set(), 1)
    assert reason in claude.result


def test_a_deferred_call_ends_the_run_and_a_resumed_one_goes_on_with_the_decision(claude: ClaudeCode) -> None:
    settings = claude.folder / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace("hook --wait 30m", "hook --defer"))
    claude.gateway.answers = [(201, PENDING)]
    deferred = claude.run("try it")
    assert (deferred["stop_reason"], claude.made) == ("tool_deferred", set())
    claude.gateway.answers = [(200, APPROVED)]
    resumed = claude.run("--resume", deferred["session_id"])
    assert (resumed["result"], claude.made) == ("The end.", {"asked"})
    first, second = (request.headers["Idempotency-Key"] for request in claude.gateway.requests)
    assert first == second

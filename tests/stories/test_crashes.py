"""kill -9 at every step boundary: nothing that matters happens twice, and the answer always reaches the person."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Rule, Say

PROJECT = Path(__file__).parents[2]
UNSURE = "may or may not have happened"


class Desk:
    """A working folder with the counting tool, and the program run in it."""

    def __init__(self, folder: Path, model: FakeLanguageModel, *, trusted: bool) -> None:
        self.folder = folder
        self.count_file = folder / "count.txt"
        server = {
            "command": sys.executable,
            "args": [str(PROJECT / "tests/fakes/mcp_server.py"), "stdio"],
            "env": {"COUNT_FILE": str(self.count_file)},
            "trusted": trusted,
        }
        (folder / "servers.json").write_text(json.dumps({"mcpServers": {"test": server}}))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DATABASE_URL": f"sqlite:///{folder / 'chat.db'}",
            "MCP_SERVERS_FILE": str(folder / "servers.json"),
            "BOT_MODEL": "openai:test",
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": model.base_url,
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def die(self, boundary: str) -> None:
        ended = self.run(str(PROJECT / "tests/stories/crashing_chat.py"), boundary, "count it", "c1")
        assert ended.returncode == -signal.SIGKILL, ended.stderr

    def come_back(self) -> str:
        """Everything the person sees at the next start."""
        ended = self.run("-m", "bot", "chat", "-m", "and now?", "--approve", "all", "--conversation", "c1")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    @property
    def counted(self) -> int:
        return len(self.count_file.read_text().splitlines()) if self.count_file.exists() else 0


def answering(tool: str) -> Rule:
    """A model that calls the tool for the first question and reports what came of it."""

    def rule(request: Request) -> Reply:
        last = request.messages[-1]
        if last["role"] == "tool":
            return Say(f"It said: {last['content']}.")
        if last["content"] == "count it":
            return Say(calls=(Call(f"test__{tool}", {"label": "once"}),))
        return Say("Nothing new.")

    return rule


# boundary, calls of the unsafe tool, questions put to the model about the first turn in all
UNSAFE = [
    pytest.param("after:enqueue", 1, 2, id="turn inserted"),
    pytest.param("before:append", 1, 3, id="model said, not yet written"),
    pytest.param("after:append", 1, 2, id="model said"),
    pytest.param("after:drawn", 1, 2, id="card shown"),
    pytest.param("after:decide", 1, 2, id="decided"),
    pytest.param("before:begin", 1, 2, id="intent not yet written"),
    pytest.param("after:begin", 0, 2, id="intent written"),
    pytest.param("before:end", 1, 2, id="tool returned"),
    pytest.param("after:end", 1, 2, id="result written"),
    pytest.param("before:finish", 1, 3, id="answered, not yet written"),
    pytest.param("after:finish", 1, 2, id="finished but not yet drawn"),
]


@pytest.mark.parametrize(("boundary", "calls", "questions"), UNSAFE)
def test_an_unsafe_call_is_never_made_twice_and_the_answer_arrives(
    tmp_path: Path, boundary: str, calls: int, questions: int
) -> None:
    with FakeLanguageModel("openai", rule=answering("count")) as model:
        desk = Desk(tmp_path, model, trusted=False)
        desk.die(boundary)
        seen = desk.come_back()
        asked = [request for request in model.requests if "and now?" not in str(request.messages)]
    assert desk.counted == calls
    assert len(asked) == questions
    unsure = boundary in ("after:begin", "before:end")
    assert (UNSURE in seen) == unsure, seen
    assert ("It said: recorded once." in seen) != unsure, seen
    assert "Nothing new." in seen


SAFE = [
    pytest.param("before:end", 2, id="tool returned"),
    pytest.param("after:end", 1, id="result written"),
]


@pytest.mark.parametrize(("boundary", "calls"), SAFE)
def test_a_safe_call_in_flight_is_made_again_and_a_finished_one_is_not(
    tmp_path: Path, boundary: str, calls: int
) -> None:
    with FakeLanguageModel("openai", rule=answering("count_read")) as model:
        desk = Desk(tmp_path, model, trusted=True)
        desk.die(boundary)
        seen = desk.come_back()
    assert desk.counted == calls
    assert "It said: recorded once." in seen
    assert UNSURE not in seen

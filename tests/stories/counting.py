"""A workplace whose one tool counts how often it has happened, and a model that asks for it once.

For stories in which a program dies in the middle of a call that must not happen twice.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.stories.workplace import PROJECT, Workplace

COUNT_IT = "count it"
UNSURE = "may or may not have happened"


class CountingPlace(Workplace):
    """A workplace with a server called `test`, whose tool `count` needs a signature."""

    def __init__(self, folder: Path, model: FakeLanguageModel, **environment: str) -> None:
        server = {
            "command": sys.executable,
            "args": [str(PROJECT / "tests/fakes/mcp_server.py"), "stdio"],
            "env": {"COUNT_FILE": str(folder / "count.txt")},
        }
        super().__init__(folder, {"test": server}, model=model, **environment)

    @property
    def counted(self) -> int:
        """How often the tool has happened."""
        file = self.folder / "count.txt"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def die_in_the_call(self, conversation: str) -> None:
        """The chat asks for the tool, signs for it, and is killed when the tool has returned."""
        ended = self.run(
            sys.executable, str(PROJECT / "tests/stories/crashing_chat.py"), "before:end", COUNT_IT, conversation
        )
        assert ended.code == -signal.SIGKILL, ended.err


def counting(request: Request) -> Reply:
    """Ask for the tool when that is wanted, say what came of it, and answer everything else with its own words."""
    if request.results:
        return Say("I do not know." if UNSURE in request.results[0] else f"It said: {request.results[0]}.")
    if request.question == COUNT_IT:
        return Say(calls=(Call("test__count", {"label": "once"}),))
    return Say("I looked: it is there." if "Find out whether" in request.question else f"You said: {request.question}.")

"""A folder with one tool that counts its runs, and a model that calls it once, for stories in which a program dies in
the middle of a call that must not run twice.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.stories.installation import PROJECT, Installation, a_tool, scripted_server

COUNT_IT = "count it"
UNSURE = "may or may not have happened"


class CountingPlace(Installation):
    """A workplace with a server called `test`. Its tool `count` needs a signature; `count_read` says that it only
    reads, which is believed of a `trusted` server; `die` takes the server along.
    """

    def __init__(self, folder: Path, model: FakeLanguageModel, *, trusted: bool = False, **environment: str) -> None:
        counts = {"do": "note", "file": str(folder / "count.txt")}
        server = scripted_server(
            folder,
            "test",
            a_tool("count", label="string"),
            a_tool("count_read", reads=True, label="string"),
            a_tool("die"),
            calls={"count": counts, "count_read": counts, "die": {"do": "die"}},
            trusted=trusted,
        )
        super().__init__(folder, {"test": server.entry}, model=model, **environment)

    @property
    def run_count(self) -> int:
        """Number of the tool's runs."""
        file = self.folder / "count.txt"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def die(self, boundary: str, conversation: str) -> None:
        """The chat asks for the tool, signs for it, and is killed at a boundary (`crashing_chat.py`)."""
        program = str(PROJECT / "tests/stories/crashing_chat.py")
        ended = self.run(program, boundary, COUNT_IT, conversation)
        assert ended.code == -signal.SIGKILL, ended.err

    def die_in_the_call(self, conversation: str) -> None:
        """The chat is killed when the tool has returned."""
        self.die("before:finish_call", conversation)


def counting(request: Request) -> Reply:
    """Call the tool for the question that wants it, report its outcome, and answer every other question with its own
    text.
    """
    if request.results:
        return Say("I do not know." if UNSURE in request.results[0] else f"It said: {request.results[0]}.")
    if request.question == COUNT_IT:
        return Say(calls=(Call("test__count", {"label": "once"}),))
    return Say("I looked: it is there." if "Find out whether" in request.question else f"You said: {request.question}.")

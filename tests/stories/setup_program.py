"""`countersign setup` as a person has it before them: the real program on a terminal, in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from pathlib import Path

from dotenv import dotenv_values

from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import Installation, Outcome


class SetupFolder:
    """A folder in which nothing is set up. `environment` is added to that of the program."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.place = Installation(folder, {}).afresh()
        del self.place.environment["BOT_MODEL"]
        self.place.environment.update(environment)
        self.folder = folder
        self.env = folder / ".env"

    def note(self, subject: str, **values: str) -> None:
        """Begin where an earlier setup has stopped."""
        path = self.folder / "data" / "setup.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({subject: values}))

    def at_terminal(self, *words: str, columns: int = 110) -> ProgramOnTerminal:
        """The command on a terminal."""
        environment = {**self.place.environment, "TERM": "xterm-256color"}
        return ProgramOnTerminal(("bot", "setup", *words), self.folder, environment, columns=columns, rows=50)

    async def prints(self, *words: str, typed: str = "") -> Outcome:
        """The command without a terminal."""
        return await asyncio.to_thread(self.place.countersign, "setup", *words, typed=typed)

    @property
    def values(self) -> dict[str, str | None]:
        """Variables in `.env`."""
        return dotenv_values(self.env)

    @property
    def mode(self) -> int:
        """Permissions of `.env`."""
        return stat.S_IMODE(self.env.stat().st_mode)


async def expect_refusal(terminal: ProgramOnTerminal, question: str, typed: str, cause: str, fix: str) -> None:
    """Answer a question with something that is not taken, and read why."""
    before = len(terminal.raw)
    await answers(terminal, question, typed)
    await terminal.until(
        lambda: cause in _flat(terminal, before) and fix in _flat(terminal, before), f"{cause!r} and {fix!r}"
    )


def _flat(terminal: ProgramOnTerminal, start: int) -> str:
    """Return the output since then, in one line without colors."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.raw[start:].decode(errors="replace"))
    return " ".join(text.split())


async def answers(terminal: ProgramOnTerminal, question: str, typed: str = "", *, last: bool = False) -> None:
    """Wait for a question that was not answered yet, and answer it; nothing follows the `last` one."""
    await terminal.until(lambda: _asked_at(terminal, question) is not None, f"the question {question!r}")
    at = _asked_at(terminal, question)
    terminal.type(typed)
    if not last:  # the next question may be the same
        await terminal.until(lambda: _asked_at(terminal, question) != at, f"{question!r} answered")


def _asked_at(terminal: ProgramOnTerminal, question: str) -> int | None:
    """The line of a question that is open, because nothing but its choices stands behind it."""
    lines = [line for line in terminal.text.split("\n") if line.strip()]
    at = max((n for n, line in enumerate(lines) if "? " in line and question in line), default=None)
    if at is None or not all(line.strip().lstrip("> ")[:1].isdigit() for line in lines[at + 1 :]):
        return None
    return at

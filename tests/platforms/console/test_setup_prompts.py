"""Names that Slack or Discord return are drawn by the setup, whatever is in them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from prompt_toolkit.formatted_text import to_plain_text
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.shortcuts.choice_input import ChoiceInput

from bot.app.setup.steps import OPEN, Step, StepState, print_steps
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.prompts import SetupTerminal

HOSTILE = "acme\x1b[2J\x1b]0;yours\x07\x9b31m\u202egnp\n\x01\x1b]52;c;eA==\x02"


def drawn_safely(text: str) -> bool:
    return "acme" in text and not any(character in text for character in "\x1b\x07\x9b\u202e\x01\x02")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def terminal(out: io.StringIO) -> SetupTerminal:
    return SetupTerminal(out, ConsoleTheme.for_stream(out, {}))


@pytest.mark.parametrize("how", ["print", "report_done", "warn", "report_error", "say", "link"])
def test_what_is_said(terminal: SetupTerminal, out: io.StringIO, how: str) -> None:
    getattr(terminal, how)(HOSTILE)
    assert drawn_safely(out.getvalue())


def test_the_heading_and_the_fix(terminal: SetupTerminal, out: io.StringIO) -> None:
    terminal.heading(1, 2, HOSTILE)
    terminal.report_error("It does not.", HOSTILE)
    assert drawn_safely(out.getvalue())


async def test_what_is_asked(terminal: SetupTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def prompt(_session: Any, message: Any, **_options: Any) -> str:
        asked.append(to_plain_text(message))
        return "y"

    async def choose(choice: Any) -> str:
        asked.extend([to_plain_text(choice.message), *(label for _value, label in choice.options)])
        return "a"

    monkeypatch.setattr(PromptSession, "prompt_async", prompt)
    monkeypatch.setattr(ChoiceInput, "prompt_async", choose)
    await terminal.confirm(HOSTILE)
    await terminal.ask(HOSTILE, HOSTILE)
    await terminal.ask_secret(HOSTILE)
    await terminal.choose(HOSTILE, [("a", HOSTILE)])
    assert len(asked) == 5
    assert all(drawn_safely(text) and "\n" not in text for text in asked), asked


@pytest.mark.parametrize("as_json", [True, False])
async def test_what_is_to_do_without_a_terminal(out: io.StringIO, as_json: bool) -> None:
    class Invite(Step):
        name, title = "invite", "Invitation"

        async def inspect(self) -> StepState:
            return OPEN

        async def guide(self) -> list[str]:
            return [HOSTILE]

        async def ask(self, terminal: SetupTerminal) -> None:
            raise AssertionError

    await print_steps(out, "slack", [Invite()], write=False, as_json=as_json)
    assert drawn_safely(out.getvalue())
    assert "\\u001b" not in out.getvalue()

"""Setup prompts show untrusted names and URLs safely."""

from __future__ import annotations

import io
from typing import Any

import pytest
from prompt_toolkit.formatted_text import to_plain_text
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.shortcuts.choice_input import ChoiceInput

from bot.app.setup.steps import Step, print_steps
from bot.examination import CheckSkipped
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
    return SetupTerminal(out, ConsoleTheme.for_stream(out, {}), {})


@pytest.mark.parametrize("how", ["print", "report_done", "warn", "report_error", "say", "link"])
def test_messages_of_the_setup(terminal: SetupTerminal, out: io.StringIO, how: str) -> None:
    getattr(terminal, how)(HOSTILE)
    assert drawn_safely(out.getvalue())


@pytest.mark.parametrize(
    ("environ", "is_behind"),
    [
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"WT_SESSION": "1"}, True),
        ({"TERM": "alacritty"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, False),
        ({"TERM_PROGRAM": "WezTerm", "TMUX": "/tmp/tmux"}, False),
        ({}, False),
    ],
)
def test_a_long_address_is_behind_a_text_only_where_the_terminal_opens_it(
    out: io.StringIO, environ: dict[str, str], is_behind: bool
) -> None:
    terminal = SetupTerminal(out, ConsoleTheme.for_stream(out, environ), environ)
    assert terminal.link_behind("Create the app", "https://api.slack.com/apps?x=%7B") is is_behind
    link = "\x1b]8;;https://api.slack.com/apps?x=%7B\x1b\\Create the app\x1b]8;;\x1b\\"
    assert out.getvalue() == (f"\n  {link}\n\n" if is_behind else "")


def test_a_hostile_address_ends_no_link(out: io.StringIO) -> None:
    terminal = SetupTerminal(out, ConsoleTheme.for_stream(out, {}), {"TERM_PROGRAM": "vscode"})
    assert terminal.link_behind(HOSTILE, HOSTILE)
    assert out.getvalue().count("\x1b") == 4


def test_the_heading_and_the_fix(terminal: SetupTerminal, out: io.StringIO) -> None:
    terminal.heading(1, 2, HOSTILE)
    terminal.report_error("It does not.", HOSTILE)
    assert drawn_safely(out.getvalue())


async def test_questions_of_the_setup(terminal: SetupTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_steps_of_the_setup_without_a_terminal(out: io.StringIO, as_json: bool) -> None:
    class Invite(Step):
        name, title = "invite", "Invitation"

        async def inspect(self) -> str:
            raise CheckSkipped

        async def guide(self) -> list[str]:
            return [HOSTILE]

        async def ask(self, terminal: SetupTerminal) -> None:
            raise AssertionError

    await print_steps(out, "slack", [Invite()], write=False, as_json=as_json)
    assert drawn_safely(out.getvalue())
    assert "\\u001b" not in out.getvalue()

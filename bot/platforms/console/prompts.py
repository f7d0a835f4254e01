"""Questions and progress of a guided setup at a terminal: text, secrets, choices, yes or no.

While the setup runs the terminal does not echo, so that a secret that is pasted too early is not shown.
"""

from __future__ import annotations

import os
import shutil
import sys
import termios
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO, TypeVar

from prompt_toolkit.application import create_app_session
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import DummyHistory
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.shortcuts.choice_input import ChoiceInput
from prompt_toolkit.styles import Style

from bot.folders import in_shell
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.screen import output_without_queries
from bot.rendering.text_safety import strip_control

T = TypeVar("T")
_LINK, _END = "\x1b]8;;", "\x1b\\"
_LONG_LINKS = ("vscode", "WezTerm")
"""Values of TERM_PROGRAM."""
_STYLE = Style.from_dict({"selected-option": "bold ansicyan", "number": "", "option": ""})


class SetupTerminal:
    """The terminal of the setup. Interrupting a question raises KeyboardInterrupt, ending the input EOFError."""

    def __init__(self, out: TextIO, theme: ConsoleTheme, environ: Mapping[str, str]) -> None:
        self._out = out
        self._theme = theme
        self._environ = environ
        self.questions = 0
        """Number of questions so far."""

    def print(self, text: str = "") -> None:
        """Print lines without wrapping, so that addresses can be copied whole."""
        self._write(self._shown(text))

    def heading(self, number: int, count: int, title: str) -> None:
        """Print the heading of a step."""
        self._write(f"\n{self._theme.accent(f'[{number}/{count}]')} {self._theme.bold(self._shown(title))}")

    def report_done(self, text: str) -> None:
        """Report a result."""
        self._marked(self._theme.success("✓"), text)

    def warn(self, text: str) -> None:
        """Print a doubt that does not stop the setup."""
        self._marked(self._theme.warn("!"), text)

    def report_error(self, cause: str, fix: str = "") -> None:
        """Report an error and its fix."""
        self._marked(self._theme.error("✗"), cause)
        if fix:
            self._wrapped(f"Fix: {fix}", "    ")

    def say(self, *paragraphs: str) -> None:
        """Print text of a step, wrapped to the width of the terminal."""
        for paragraph in paragraphs:
            self._wrapped(paragraph, "  ")

    def _marked(self, mark: str, text: str) -> None:
        first, *others = self._lines(text, "    ") or [""]
        self._write("\n".join([f"  {mark} {first.strip()}", *others]))

    def _wrapped(self, text: str, indent: str) -> None:
        self._write("\n".join(self._lines(text, indent)))

    def _write(self, text: str) -> None:
        self._out.write(f"{self._theme.own_text(text)}\n")
        self._out.flush()

    def _shown(self, text: str) -> str:
        """Return a text without control characters, which names from a platform may have."""
        return self._theme.own_text(in_shell(strip_control(text)))

    def _on_a_line(self, text: str) -> str:
        return self._shown(text).replace("\n", " ")

    def _lines(self, text: str, indent: str) -> list[str]:
        text = self._shown(text)
        width = max(shutil.get_terminal_size().columns - 1, 40)
        indent += " " * (len(text) - len(text.lstrip()))
        return textwrap.wrap(
            text.strip(),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def link(self, url: str) -> None:
        """Print an address on a line of its own."""
        self._write(f"\n{self._theme.accent(self._shown(url))}\n")

    def link_behind(self, text: str, url: str) -> bool:
        """Print a long address behind a text, if the terminal opens such. Return False if it does not."""
        if not _opens_long_links(self._environ):
            return False
        self._write(f"\n  {_LINK}{self._shown(url)}{_END}{self._theme.accent(self._shown(text))}{_LINK}{_END}\n")
        return True

    async def ask(self, question: str, default: str = "", *, shown_default: str = "") -> str:
        """Return a typed line, or the default for an empty one. `shown_default` describes an empty default."""
        hint = default or shown_default
        return (await self._read(f"{question}{f' [{hint}]' if hint else ''}")).strip() or default

    async def ask_secret(self, question: str) -> str:
        """Return a typed or pasted secret. Each character is shown as a star."""
        return (await self._read(f"{question} (hidden)", secret=True)).strip()

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        """Return True for yes."""
        while True:
            answer = (await self._read(f"{question} [{'Y/n' if default else 'y/N'}]")).strip().lower()
            if answer in ("", "y", "yes", "n", "no"):
                return answer.startswith("y") if answer else default
            self.report_error("That is neither yes nor no.", "type y or n, or press Enter for the one in capitals")

    async def choose(self, question: str, options: Sequence[tuple[T, str]], default: T | None = None) -> T:
        """Return one of several values, by its number or with the arrow keys."""
        self.questions += 1
        prompt = ChoiceInput(
            message=ANSI(f" {self._theme.accent('?')} {self._theme.bold(self._on_a_line(question))}"),
            options=[(value, self._on_a_line(label)) for value, label in options],
            default=default,
            symbol=">",
            style=_STYLE,
        )
        return await prompt.prompt_async()

    async def wait_for_enter(self, text: str = "Press Enter to go on") -> None:
        """Wait for Enter."""
        await self._read(text)

    async def _read(self, question: str, *, secret: bool = False) -> str:
        self.questions += 1
        session: PromptSession[str] = PromptSession(history=DummyHistory(), enable_history_search=False)
        message = ANSI(f"  {self._theme.accent('?')} {self._theme.bold(self._on_a_line(question))}: ")
        return await session.prompt_async(message, is_password=secret)


def _opens_long_links(environ: Mapping[str, str]) -> bool:
    """Return True for a terminal that is known to open hyperlinks (OSC 8) of any length. Others ignore or cut those of
    more than about 2,000 characters.
    """
    if environ.get("TMUX") or environ.get("TERM", "").startswith(("screen", "tmux")):
        return False
    named = environ.get("TERM_PROGRAM", "") in _LONG_LINKS or environ.get("TERM", "").startswith("alacritty")
    return named or bool(environ.get("WT_SESSION"))


def is_interactive() -> bool:
    """Return True if input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def open_setup_terminal() -> Iterator[SetupTerminal]:
    """Use the terminal of standard input and output, without its echo."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        with create_app_session(output=output_without_queries(sys.stdout)):
            yield SetupTerminal(sys.stdout, ConsoleTheme.for_stream(sys.stdout, os.environ), os.environ)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

"""Assembly of the interactive chat. Imported for a screen only, because it imports prompt_toolkit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from bot.commands.token_detection import looks_like_token
from bot.domain.secret_detection import looks_like_secret
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import Streams
from bot.platforms.console.interactive import InteractiveChat
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.screen import QUIET_SECONDS, Screen
from bot.platforms.console.slash import SlashCompleter
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.transcript_view import TranscriptView
from bot.platforms.console.turn_tracker import TurnTracker

# -------------------- history
# The file is readable by its owner only. Lines that seem to contain a secret are not written.

KEPT = 1000
_REFERENCES = re.compile(
    r"(?:^\s*/mcp\s+secret\s+(?:set|rotate)\s+\S+\s+\S+\s+|--secret[\s=]+|--(?:header|env)[\s=]+[^\s=]+=)[\"']?(\S+)",
    re.IGNORECASE,
)


class LineHistory(History):
    """One JSON string a line, oldest first. A file that cannot be read or written is a history that forgets."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of earlier sessions, newest first, as prompt_toolkit expects."""
        if self._path is None:
            return []
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line for written in reversed(text.splitlines()[-KEPT:]) if (line := _read(written))]

    def store_string(self, string: str) -> None:
        """Append a line unless it contains a secret."""
        if self._path is None or looks_like_secret(string) or looks_like_token(string) or _misplaced(string):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(string) + "\n")
        except OSError:
            self._path = None


def _misplaced(line: str) -> bool:
    """Return True if the line has text where a secret reference belongs: the text may be the secret."""
    return any(not re.match(r"(env|file):", match[1]) for match in _REFERENCES.finditer(line))


def _read(written: str) -> str:
    try:
        line = json.loads(written)
    except ValueError:
        return ""
    return line if isinstance(line, str) else ""


def interactive(
    *,
    person: LocalUser,
    streams: Streams,
    watch: TurnTracker,
    model: str,
    approve: ApproveMode,
    history: Path | None,
    quiet_seconds: float | None,
    clock: Callable[[], float],
) -> tuple[InteractiveChat, TranscriptView]:
    """Return the interactive chat and its transcript view."""
    look = ConsoleTheme.of(streams.stdout, streams.environ)
    completer = SlashCompleter()
    quiet = QUIET_SECONDS if quiet_seconds is None else quiet_seconds
    screen = Screen(
        look=look,
        history=LineHistory(history),
        completer=completer,
        terminal=(create_input(streams.stdin), _output(streams.stdout)),
        quiet_seconds=quiet,
    )
    typesetting = LazyRenderer(look)
    page = TranscriptView(screen, look, typesetting, clock)
    chat = InteractiveChat(
        person=person,
        watch=watch,
        page=page,
        look=look,
        typesetting=typesetting,
        completer=completer,
        approve=approve,
        model=model,
    )
    return chat, page


def _output(stdout: TextIO) -> Output:
    """Return the terminal's output without cursor queries, because their answers would mix with the input."""
    output = create_output(stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output

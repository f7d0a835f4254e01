"""The interactive chat, put together.

Called by `console.py`, and loaded only for a screen: from here on prompt_toolkit is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from prompt_toolkit.input import create_input
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.completion import SlashCompleter
from bot.platforms.console.console import Streams
from bot.platforms.console.history import LineHistory
from bot.platforms.console.interactive import InteractiveChat
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.screen import QUIET_SECONDS, Screen
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.transcript_view import TranscriptView
from bot.platforms.console.turn_tracker import TurnTracker


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
    """The chat and the page it draws on."""
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
    """The terminal, never asked where its cursor is: the answer would be mixed up with what is typed."""
    output = create_output(stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output

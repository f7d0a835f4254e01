"""Output for programs (`--json`): the events of the HTTP API as lines of JSON on standard output. All other output
goes to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TextIO

from bot.domain.turns import TurnView
from bot.platforms.console.lines import safe_lines
from bot.platforms.console.plain_output import LeftMargin, print_foreign_turn, write
from bot.platforms.console.theme import ConsoleTheme
from bot.rendering.turn_events import Cursor, EventEncoder
from bot.rendering.turn_schemas import SignedBy

PIECE_SECONDS = 0.1
"""Seconds between two pieces of a reply."""


class JsonLines:
    """Writes the events of this terminal's turns as lines of JSON. `signed_by` names the approvers of a call. Text that
    follows the last piece within PIECE_SECONDS is in the next one.
    """

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        theme: ConsoleTheme,
        signed_by: SignedBy,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._theme = theme
        self._signed_by = signed_by
        self._clock = clock
        self._encoders: dict[str, EventEncoder] = {}
        self._written: dict[str, tuple[TurnView, float]] = {}

    def append_own(self, view: TurnView) -> None:
        """Write the events since the last view."""
        turn = view.turn
        before, written_at = self._written.get(turn.id, (None, 0.0))
        if before is not None and _only_text_grew(before, view) and self._clock() - written_at < PIECE_SECONDS:
            return
        self._written[turn.id] = view, self._clock()
        encoder = self._encoders.get(turn.id)
        if encoder is None:
            reader, conversation = turn.author.principal, turn.conversation.thread
            encoder = EventEncoder(conversation, self._signed_by, Cursor(turn.id), reader=reader)
            self._encoders[turn.id] = encoder
        for event in encoder.encode(view):
            line = {"event": event.name, "data": event.data}
            write(self._stdout, json.dumps(line, separators=(",", ":")) + "\n")

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Write the end of a foreign turn to standard error."""
        print_foreign_turn(view, heading, LeftMargin(self._stderr, self._theme, view), self._theme)

    def notice(self, text: str) -> None:
        """Write one line to standard error."""
        write(self._stderr, f"{safe_lines(text)}\n")


def _only_text_grew(before: TurnView, view: TurnView) -> bool:
    return bool(view.streaming) and replace(view, streaming=before.streaming, revision=before.revision) == before

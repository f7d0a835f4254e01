"""Theme of the terminal: colors and marks, or plain substitutes. The colors are the terminal's own sixteen."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from bot.rendering.timeline import StatusIcon

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_SIMPLE = str.maketrans(
    {
        PROMPT: ">",
        "·": "-",
        "…": "...",
        "▌": "|",
        "•": "*",
        "\N{EN DASH}": "-",
        "●": "*",
        "○": "-",
        "◌": "o",
        "✓": "+",
        "✗": "x",
        "→": "->",
        "◀": "<",
        "▶": ">",
        "⚠": "!",
    }
)
_MARKS = {
    StatusIcon.WAITING: "◇",
    StatusIcon.RUNNING: "◌",
    StatusIcon.DONE: "✓",
    StatusIcon.FAILED: "✗",
    StatusIcon.DENIED: "⊘",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "\N{EN DASH}",
}
_ASCII_MARKS = {
    StatusIcon.WAITING: "=",
    StatusIcon.RUNNING: "o",
    StatusIcon.DONE: "+",
    StatusIcon.FAILED: "x",
    StatusIcon.DENIED: "!",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "-",
}
_MARK_COLOURS = {
    StatusIcon.WAITING: "33",
    StatusIcon.RUNNING: "36",
    StatusIcon.DONE: "32",
    StatusIcon.FAILED: "31",
    StatusIcon.DENIED: "31",
    StatusIcon.UNKNOWN: "33",
    StatusIcon.SKIPPED: "2",
}


@dataclass(frozen=True, slots=True)
class ConsoleTheme:
    """Support for colors and for characters outside of ASCII."""

    colour: bool
    unicode: bool

    @classmethod
    def for_stream(cls, stream: TextIO, environ: Mapping[str, str]) -> ConsoleTheme:
        """Return the theme of a stream. NO_COLOR (no-color.org) and TERM=dumb disable colors."""
        terminal = stream.isatty() and environ.get("TERM", "") != "dumb"
        return cls(terminal and not environ.get("NO_COLOR"), _is_utf8(getattr(stream, "encoding", None)))

    @property
    def prompt(self) -> str:
        """Prompt before a typed line."""
        return self.accent(self.own_text(f"{PROMPT} "))

    def dim(self, text: str) -> str:
        """Style less important text."""
        return self._in("2", text)

    def bold(self, text: str) -> str:
        """Style more important text."""
        return self._in("1", text)

    def accent(self, text: str) -> str:
        """Style text in the product's color."""
        return self._in("36", text)

    def success(self, text: str) -> str:
        """Style a success."""
        return self._in("32", text)

    def error(self, text: str) -> str:
        """Style an error."""
        return self._in("31", text)

    def warn(self, text: str) -> str:
        """Style a warning."""
        return self._in("33", text)

    def icon(self, mark: StatusIcon) -> str:
        """Return the icon of a tool line."""
        return self._in(_MARK_COLOURS[mark], (_MARKS if self.unicode else _ASCII_MARKS)[mark])

    def own_text(self, text: str) -> str:
        """Return own text with substitutes for unsupported characters."""
        return text if self.unicode else text.translate(_SIMPLE)

    def spinner(self, tick: int) -> str:
        """Return a frame of the spinner."""
        frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if self.unicode else "|/-\\"
        return self._in("36", frames[tick % len(frames)])

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False

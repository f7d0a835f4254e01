"""How things look in this terminal: colours and marks, or their plain substitutes.

Called by all drawing in this folder. Colours are the terminal's own sixteen, so that people's themes hold.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from bot.rendering.tool_status import StatusIcon

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
    """Whether there is colour, and whether there is more than ASCII."""

    colour: bool
    unicode: bool

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> ConsoleTheme:
        """What a stream can show. NO_COLOR (no-color.org) and TERM=dumb are heard."""
        terminal = stream.isatty() and environ.get("TERM", "") != "dumb"
        return cls(terminal and not environ.get("NO_COLOR"), _is_utf8(getattr(stream, "encoding", None)))

    @property
    def prompt(self) -> str:
        """What stands before a typed line."""
        return self.accent(self.own(f"{PROMPT} "))

    def dim(self, text: str) -> str:
        """Less important."""
        return self._in("2", text)

    def bold(self, text: str) -> str:
        """More important."""
        return self._in("1", text)

    def accent(self, text: str) -> str:
        """The product's own colour."""
        return self._in("36", text)

    def good(self, text: str) -> str:
        """Went well."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """Went wrong."""
        return self._in("31", text)

    def warn(self, text: str) -> str:
        """Wants attention."""
        return self._in("33", text)

    def icon(self, mark: StatusIcon) -> str:
        """The mark before a tool line."""
        return self._in(_MARK_COLOURS[mark], (_MARKS if self.unicode else _ASCII_MARKS)[mark])

    def own(self, text: str) -> str:
        """Our own words with what this terminal cannot show replaced."""
        return text if self.unicode else text.translate(_SIMPLE)

    def spinner(self, tick: int) -> str:
        """A frame of something that turns."""
        frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if self.unicode else "|/-\\"
        return self._in("36", frames[tick % len(frames)])

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False

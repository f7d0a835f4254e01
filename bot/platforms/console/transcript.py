"""One turn on the live screen: its printed and its moving lines.

Entries are printed in order, once, as soon as neither they nor earlier ones can change. A growing reply is printed by
finished Markdown blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.views import TurnView
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.lines import fold, remark, safe_lines, tool_text
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.timeline_entries import (
    CallLine,
    Entry,
    Failure,
    Note,
    ReplyText,
    ToolOutput,
    UnknownOutcome,
    entries,
)
from bot.rendering.markdown_blocks import split_blocks
from bot.rendering.text_safety import strip_control

AGAIN = "The reply was interrupted and starts again."
UNSURE = "Did it run? /check asks the model; /again runs it again if you approve it."
RETURNED_LINES = 100
"""Lines of a tool result on a screen."""


class PieceKind(StrEnum):
    """Kind of a printed piece; a blank line separates different kinds."""

    QUESTION = "question"
    TEXT = "text"
    TOOL = "tool"
    CARD = "card"
    REMARK = "remark"

    def leaves_room_after(self, before: PieceKind | None) -> bool:
        """Return True if a blank line separates two pieces."""
        return before is not None and (before is not self or self in (PieceKind.TEXT, PieceKind.QUESTION))


@dataclass(frozen=True, slots=True)
class Piece:
    """Finished text of one kind, without blank lines around it."""

    kind: PieceKind
    text: str


class Transcript:
    """One turn, printed piece by piece."""

    def __init__(self, look: ConsoleTheme, typesetting: LazyRenderer) -> None:
        self._look = look
        self._typesetting = typesetting
        self._done: set[str] = set()
        self._printed: dict[str, str] = {}
        self._set: tuple[str, int, str] = ("", 0, "")
        """Cache of the last rendered Markdown by width, because the tail is rendered repeatedly."""

    def advance(self, view: TurnView, width: int) -> list[Piece]:
        """Return the new pieces that are final."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                pieces += self._say(entry, width)
            if not _settled(entry):
                break
            if not isinstance(entry, ReplyText):
                pieces.append(self._whole(entry, width))
            self._done.add(entry.key)
        return pieces

    def moving(self, view: TurnView, width: int) -> list[Piece]:
        """Return the lines that may change, for a redraw below the printed ones."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                tail = strip_control(entry.text)[len(self._printed.get(entry.key, "")) :]
                pieces += self._block(tail, width)
            else:
                pieces.append(self._whole(entry, width))
        return pieces

    def _say(self, said: ReplyText, width: int) -> list[Piece]:
        text = strip_control(said.text)
        before = self._printed.get(said.key, "")
        pieces: list[Piece] = []
        if not text.startswith(before):
            pieces.append(Piece(PieceKind.REMARK, remark(AGAIN, width, self._look.dim)))
            before = ""
        rest = text[len(before) :]
        blocks = split_blocks(rest)
        now = (*blocks.finished, *(() if said.growing else (blocks.tail,)))
        for block in now:
            pieces += self._block(block, width)
        self._printed[said.key] = before + "".join(now)
        return pieces

    def _block(self, markdown: str, width: int) -> list[Piece]:
        if not markdown.strip():
            return []
        if self._set[:2] != (markdown, width):
            self._set = (markdown, width, self._typesetting.markdown(markdown, width))
        text = self._set[2]
        return [Piece(PieceKind.TEXT, text)] if text else []

    def _whole(self, entry: CallLine | ToolOutput | UnknownOutcome | Note | Failure, width: int) -> Piece:
        match entry:
            case CallLine(_, line):
                return Piece(PieceKind.TOOL, tool_text(line, self._look, width))
            case ToolOutput(_, text, failed):
                return Piece(PieceKind.TEXT, self._returned(text, width, failed=failed))
            case UnknownOutcome():
                return Piece(PieceKind.REMARK, remark(self._look.own(UNSURE), width, self._look.warn))
            case Note(_, text):
                return Piece(PieceKind.REMARK, remark(self._look.own(safe_lines(text)), width, self._look.dim))
            case Failure(_, text):
                return Piece(PieceKind.REMARK, remark(self._look.own(safe_lines(text)), width, self._look.bad))

    def _returned(self, text: str, width: int, *, failed: bool) -> str:
        """Return a tool result as literal text, not as Markdown."""
        lines = fold(safe_lines(text), width)
        more = len(lines) - RETURNED_LINES
        shown = [self._look.bad(line) if failed and line else line for line in lines[:RETURNED_LINES]]
        return "\n".join([*shown, *([self._look.dim(self._look.own(f"… {more} more lines"))] if more > 0 else [])])


def _settled(entry: Entry) -> bool:
    match entry:
        case ReplyText(growing=growing):
            return not growing
        case CallLine(ended=ended):
            return ended
        case ToolOutput() | UnknownOutcome() | Note() | Failure():
            return True

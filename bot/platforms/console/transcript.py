"""Turns on the live screen: their entries in order, final pieces, and moving lines below those.

Entries are printed once, as soon as neither they nor earlier ones can change. An entry keeps its key in all of its
states, so that printed ones are recognized. A growing reply is printed by finished Markdown blocks: they are cut
between lines, and more text only ever adds blocks. The Markdown renderer is imported late, because rich takes
longer to import than the prompt to appear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from bot.domain.turns import TurnStatus, TurnView
from bot.folders import in_shell
from bot.i18n import _, gettext_lazy, ngettext
from bot.platforms.console.entries import AGAIN, Entry, turn_entries
from bot.platforms.console.lines import ConsoleTheme, cells, clip, fold, remark, safe_lines, tool_text
from bot.platforms.console.screen import Screen
from bot.rendering.text_safety import single_line, strip_control
from bot.rendering.timeline import (
    CallLine,
    CheckCallAction,
    Failure,
    ReplyText,
    StatusIcon,
    ToolOutput,
    offers_behind,
    waiting_text,
)

if TYPE_CHECKING:
    from bot.platforms.console.markdown_renderer import MarkdownRenderer

UNSURE = gettext_lazy("Did it run? /check asks the model; /again runs it again if you approve it.")
RETURNED_LINES = 100
"""Lines of a tool result on a screen."""
SLOW_SECONDS = 3
LEAST_NEWS = 30
"""Columns of the activity before the hint gets room."""


# -------------------- pieces


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

    def __init__(self, theme: ConsoleTheme, renderer: MarkdownRenderer) -> None:
        self._theme = theme
        self._renderer = renderer
        self._done: set[str] = set()
        self._printed: dict[str, str] = {}
        self._cached: tuple[str, int, str] = ("", 0, "")
        """Cache of the last rendered Markdown by width, because the tail is rendered repeatedly."""

    def advance(self, view: TurnView, width: int) -> list[Piece]:
        """Return the new pieces that are final."""
        pieces: list[Piece] = []
        for key, entry, is_final in turn_entries(view):
            if key in self._done:
                continue
            if isinstance(entry, ReplyText):
                pieces += self._reply_pieces(key, entry, width)
            if not is_final:
                break
            if not isinstance(entry, ReplyText):
                pieces.append(self._piece(entry, width))
            self._done.add(key)
        return pieces

    def moving_lines(self, view: TurnView, width: int) -> list[Piece]:
        """Return the lines that may change, for a redraw below the printed ones."""
        pieces: list[Piece] = []
        for key, entry, _is_final in turn_entries(view):
            if key in self._done:
                continue
            if isinstance(entry, ReplyText):
                pieces += self._block(strip_control(entry.text)[len(self._printed.get(key, "")) :], width)
            else:
                pieces.append(self._piece(entry, width))
        return pieces

    def _reply_pieces(self, key: str, reply: ReplyText, width: int) -> list[Piece]:
        text = strip_control(reply.text)
        before = self._printed.get(key, "")
        pieces: list[Piece] = []
        if not text.startswith(before):
            pieces.append(Piece(PieceKind.REMARK, remark(AGAIN, width, self._theme.dim)))
            before = ""
        unprinted = text[len(before) :]
        now, tail = self._renderer.split_blocks(unprinted)
        now += [] if reply.growing else [tail]
        for block in now:
            pieces += self._block(block, width)
        self._printed[key] = before + "".join(now)
        return pieces

    def _block(self, markdown: str, width: int) -> list[Piece]:
        if not markdown.strip():
            return []
        if self._cached[:2] != (markdown, width):
            self._cached = (markdown, width, self._renderer.markdown(markdown, width))
        text = self._cached[2]
        return [Piece(PieceKind.TEXT, text)] if text else []

    def _piece(self, entry: Entry, width: int) -> Piece:
        theme = self._theme
        match entry:
            case CallLine(_, line):
                return Piece(PieceKind.TOOL, tool_text(line, theme, width))
            case ToolOutput(text, failed):  # literal, not Markdown
                lines = fold(safe_lines(text), width)
                shown = [theme.error(line) if failed and line else line for line in lines[:RETURNED_LINES]]
                if (more := len(lines) - RETURNED_LINES) > 0:
                    shown.append(theme.dim(theme.own_text(ngettext("… {n} more line", "… {n} more lines", more))))
                return Piece(PieceKind.TEXT, "\n".join(shown))
            case CheckCallAction():
                return Piece(PieceKind.REMARK, remark(theme.own_text(str(UNSURE)), width, theme.warn))
            case _:
                paint = theme.error if isinstance(entry, Failure) else theme.dim
                return Piece(PieceKind.REMARK, remark(theme.own_text(safe_lines(entry.text)), width, paint))


# -------------------- the live screen


class TranscriptView:
    """Live transcript. `on_view` receives every view of this terminal after its rendering."""

    def __init__(self, screen: Screen, theme: ConsoleTheme, clock: Callable[[], float]) -> None:
        self.screen = screen
        self.theme = theme
        self.on_view: Callable[[TurnView], None] = lambda _view: None
        self.busy = ""
        """Activity without a turn, as `Starting…`."""
        self.stopping = False
        """True while the current turn is being stopped."""
        self.queued: Sequence[str] = ()
        self._transcripts: dict[str, Transcript] = {}
        self._moving: dict[str, TurnView] = {}
        self._last: PieceKind | None = None
        self._tick = 0
        self._clock = clock
        self._since = clock()
        screen.source = self.moving_lines

    @cached_property
    def renderer(self) -> MarkdownRenderer:
        """Renderer of Markdown, loaded at its first use."""
        from bot.platforms.console.markdown_renderer import MarkdownRenderer  # noqa: PLC0415 - the prompt must not wait for rich

        return MarkdownRenderer(self.theme)

    def start_activity(self, busy: str) -> None:
        """Start an activity and its clock."""
        self.busy = busy
        self._since = self._clock()

    def append_own(self, view: TurnView) -> None:
        """Render a turn of this terminal."""
        self.busy = ""
        self._draw(view)

    def _draw(self, view: TurnView) -> None:
        transcript = self._transcripts.get(view.turn.id)
        if transcript is None:
            transcript = self._transcripts[view.turn.id] = Transcript(self.theme, self.renderer)
        pieces = transcript.advance(view, self.screen.columns)
        if view.turn.status.ended:
            self._moving.pop(view.turn.id, None)
            del self._transcripts[view.turn.id]
        else:
            self._moving[view.turn.id] = view
        self.print_pieces(*pieces)
        self.on_view(view)

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Print a foreign turn when it has ended or asks for an approval."""
        if view.turn.id not in self._transcripts:
            if not view.turn.status.ended and view.turn.status is not TurnStatus.WAITING:
                return
            text = self.theme.own_text(safe_lines(heading))
            self.print_pieces(Piece(PieceKind.QUESTION, remark(text, self.screen.columns, self.theme.dim)))
            if not (self._moving or self.busy):
                self.start_activity("")
        self._draw(view)

    def notice(self, text: str) -> None:
        """Print a notice."""
        self.remark(self.theme.own_text(safe_lines(in_shell(text))))

    def remark(self, text: str) -> None:
        """Print dim lines."""
        self.print_pieces(Piece(PieceKind.REMARK, remark(text, self.screen.columns, self.theme.dim)))

    def print_error(self, text: str) -> None:
        """Print an error outside of a turn."""
        line = self.theme.own_text(safe_lines(in_shell(single_line(text, 1000))))
        self.print_pieces(Piece(PieceKind.REMARK, remark(line, self.screen.columns, self.theme.error)))

    def print_pieces(self, *pieces: Piece) -> None:
        """Print final pieces at once."""
        lines: list[str] = []
        for piece in pieces:
            lines += [""] if piece.kind.leaves_room_after(self._last) else []
            lines.append(piece.text)
            self._last = piece.kind
        if lines:
            self.screen.print("\n".join(lines) + "\n")
        else:
            self.screen.refresh()

    def drop_turn(self, turn_id: str) -> None:
        """Stop rendering a turn without further views."""
        self._moving.pop(turn_id, None)

    def tick(self) -> None:
        """Advance the spinner."""
        self._tick += 1
        self.screen.refresh()

    def moving_lines(self, width: int) -> list[str]:
        """Return the moving lines and the blank line before the prompt."""
        pieces = [
            piece
            for view in self._moving.values()
            for piece in self._transcripts[view.turn.id].moving_lines(view, width)
        ]
        if self.screen.asking:  # the card says better which call waits
            waiting = f"  {self.theme.icon(StatusIcon.WAITING)}"
            pieces = [
                piece for piece in pieces if piece.kind is not PieceKind.TOOL or not piece.text.startswith(waiting)
            ]
        elif line := self._activity(width):
            pieces.append(Piece(PieceKind.REMARK, line))
        lines: list[str] = []
        last = self._last
        for piece in pieces:
            lines += [""] if piece.kind.leaves_room_after(last) else []
            lines += piece.text.split("\n")
            last = piece.kind
        if not self.screen.asking:
            waiting_lines = (_("queued: {text}", text=safe_lines(single_line(text, width))) for text in self.queued)
            queued = (self.theme.own_text(f"  {text}") for text in waiting_lines)
            lines += [self.theme.dim(clip(line, width, self.theme)) for line in queued]
        if last is not None and (not self.screen.asking or last is not PieceKind.CARD):
            lines.append("")
        return lines

    def _activity(self, width: int) -> str:
        """Return the line about the oldest moving turn, with the way to stop it; empty while its text grows."""
        view = next(iter(self._moving.values()), None)
        if self.stopping:
            words = _("Stopping…")
        elif view is None:
            words = self.busy
        else:
            words = "" if view.streaming else waiting_text(view) or str(view.activity) or _default_activity(view)
        if not words:
            return ""
        seconds = int(self._clock() - self._since)
        way_out = _("{seconds} s · Ctrl-C stops", seconds=seconds) if seconds >= SLOW_SECONDS else ""
        if view is not None and offers_behind(view.blocker) and not self.stopping:
            way_out = _("/stop stops that · Ctrl-C takes this back")
        # One line: the actions stay, and the text before them is truncated to fit.
        theme, room = self.theme, width - 4
        text, way_out = theme.own_text(safe_lines(single_line(words, width))), theme.own_text(way_out)
        if way_out:
            text = f"{clip(text, max(room - cells(way_out) - 2, LEAST_NEWS), theme)}  {way_out}"
        return f"  {theme.spinner(self._tick)} {theme.dim(clip(text, room, theme))}"


def _default_activity(view: TurnView) -> str:
    """Return the default activity of a turn: its tools, its approvers, or the next completion."""
    if view.asks:
        return _("Waiting for an answer…")
    if view.running:
        return _("Working…")
    return _("Waiting for an approval…") if view.awaiting else _("Thinking…")

"""Output on the live screen: final pieces, and the moving lines below them, within the height of the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.lines import cells, clip, remark, safe_lines
from bot.platforms.console.screen import Screen
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.transcript import Piece, PieceKind, Transcript
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import offers_behind, waiting_text
from bot.rendering.tool_status import StatusIcon

SLOW_SECONDS = 3
LEAST_NEWS = 30
"""Columns of the activity before the hint gets room."""


class TranscriptView:
    """Live transcript. `on_view` receives every view of this terminal after its rendering."""

    def __init__(
        self, screen: Screen, look: ConsoleTheme, typesetting: LazyRenderer, clock: Callable[[], float]
    ) -> None:
        self.screen = screen
        self.on_view: Callable[[TurnView], None] = lambda _view: None
        self.busy = ""
        """Activity without a turn, as `Starting…`."""
        self.stopping = False
        """True while the current turn is being stopped."""
        self.queued: Sequence[str] = ()
        self._look = look
        self._typesetting = typesetting
        self._transcripts: dict[str, Transcript] = {}
        self._moving: dict[str, TurnView] = {}
        self._last: PieceKind | None = None
        self._tick = 0
        self._clock = clock
        self._since = clock()
        screen.source = self.moving

    def begin(self, busy: str) -> None:
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
            transcript = self._transcripts[view.turn.id] = Transcript(self._look, self._typesetting)
        pieces = transcript.advance(view, self.screen.columns)
        if view.turn.status.ended:
            self._moving.pop(view.turn.id, None)
            del self._transcripts[view.turn.id]
        else:
            self._moving[view.turn.id] = view
        self.put(*pieces)
        self.on_view(view)

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Print a foreign turn when it has ended or asks for an approval."""
        if view.turn.id not in self._transcripts:
            if not view.turn.status.ended and view.turn.status is not TurnStatus.WAITING:
                return
            told = self._look.own(safe_lines(heading))
            self.put(Piece(PieceKind.QUESTION, remark(told, self.screen.columns, self._look.dim)))
            if not (self._moving or self.busy):
                self.begin("")
        self._draw(view)

    def notice(self, text: str) -> None:
        """Print a notice."""
        self.remark(self._look.own(safe_lines(text)))

    def remark(self, text: str) -> None:
        """Print dim lines."""
        self.put(Piece(PieceKind.REMARK, remark(text, self.screen.columns, self._look.dim)))

    def complaint(self, text: str) -> None:
        """Print an error outside of a turn."""
        said = self._look.own(safe_lines(single_line(text, 1000)))
        self.put(Piece(PieceKind.REMARK, remark(said, self.screen.columns, self._look.bad)))

    def put(self, *pieces: Piece) -> None:
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

    def forget(self, turn_id: str) -> None:
        """Stop rendering a turn without further views."""
        self._moving.pop(turn_id, None)

    def tick(self) -> None:
        """Advance the spinner."""
        self._tick += 1
        self.screen.refresh()

    def moving(self, width: int) -> list[str]:
        """Return the moving lines and the blank line before the prompt."""
        pieces = [piece for view in self._moving.values() for piece in self._pieces(view, width)]
        if not self.screen.asking and (line := self._activity(width)):
            pieces.append(Piece(PieceKind.REMARK, line))
        lines: list[str] = []
        last = self._last
        for piece in pieces:
            lines += [""] if piece.kind.leaves_room_after(last) else []
            lines += piece.text.split("\n")
            last = piece.kind
        if not self.screen.asking:
            waiting = (self._look.own(f"  queued: {safe_lines(single_line(text, width))}") for text in self.queued)
            lines += [self._look.dim(clip(line, width, self._look)) for line in waiting]
        if last is not None and (not self.screen.asking or last is not PieceKind.CARD):
            lines.append("")
        return lines

    def _pieces(self, view: TurnView, width: int) -> list[Piece]:
        pieces = self._transcripts[view.turn.id].moving(view, width)
        if not self.screen.asking:
            return pieces
        waiting = self._look.icon(StatusIcon.WAITING)  # the card says it better
        return [
            piece for piece in pieces if not (piece.kind is PieceKind.TOOL and piece.text.startswith(f"  {waiting}"))
        ]

    def _activity(self, width: int) -> str:
        """Return the activity line, if nothing else moves."""
        words = "Stopping…" if self.stopping else self._news()
        if not words:
            return ""
        # One line, however long the words are: what can be done stands behind as much of them as fits before it.
        room, way_out = width - 4, self._look.own(self._way_out())
        told = self._look.own(safe_lines(single_line(words, width)))
        if way_out:
            told = f"{clip(told, max(room - cells(way_out) - 2, LEAST_NEWS), self._look)}  {way_out}"
        return f"  {self._look.spinner(self._tick)} {self._look.dim(clip(told, room, self._look))}"

    def _news(self) -> str:
        """Return the activity of the oldest moving turn; empty while its text grows."""
        view = self._oldest
        if view is None:
            return self.busy
        if view.streaming:
            return ""
        return waiting_text(view) or str(view.activity) or _usual(view)

    def _way_out(self) -> str:
        """Return the hint how to stop or unblock it."""
        if self._oldest is not None and offers_behind(self._oldest.blocker) and not self.stopping:
            return "/stop stops that · Ctrl-C takes this back"
        seconds = int(self._clock() - self._since)
        return f"{seconds} s · Ctrl-C stops" if seconds >= SLOW_SECONDS else ""

    @property
    def _oldest(self) -> TurnView | None:
        return next(iter(self._moving.values()), None)


def _usual(view: TurnView) -> str:
    """Return the default activity of a turn: its tools, its approvers, or the next completion."""
    if view.asks:
        return "Waiting for an answer…"
    if view.running:
        return "Working…"
    return "Waiting for an approval…" if view.awaiting else "Thinking…"

"""What the chat says of its own accord: its name, what was said before, what can be typed, and each line once more.

Called by the chat.
"""

from __future__ import annotations

from bot.platforms.console.lines import cells, clip, safe_lines, strip_markdown
from bot.platforms.console.slash import COMMANDS
from bot.platforms.console.startup import StartState
from bot.platforms.console.theme import PROMPT, ConsoleTheme
from bot.platforms.console.transcript import Piece, PieceKind
from bot.platforms.console.transcript_view import TranscriptView
from bot.rendering.text_safety import single_line
from bot.rendering.view_diff import answer

REMINDED_TURNS = 3


class ChatChrome:
    """Greets, reminds, helps and echoes."""

    def __init__(self, page: TranscriptView, look: ConsoleTheme, model: str) -> None:
        self._page = page
        self._screen = page.screen
        self._look = look
        self._model = model

    def print_banner(self) -> None:
        """The banner."""
        name, *about = ("countersign", safe_lines(self._model), "/help")
        between = self._look.own(" · ")
        if cells(between.join((name, *about))) > self._screen.columns:
            about = about[-1:]
        words = (self._look.accent(name), *map(self._look.dim, about))
        self._page.put(Piece(PieceKind.TEXT, self._look.dim(between).join(words)))

    def remind(self, start: StartState) -> None:
        """Which conversation goes on, and its last turns on two lines each."""
        if not start.count:
            return
        turns = "1 earlier turn" if start.count == 1 else f"{start.count} earlier turns"
        self._page.remark(
            f"Continuing {safe_lines(single_line(start.conversation, 60))} ({turns}). /new starts a fresh one."
        )
        room = self._screen.columns - 2
        for view in start.ended[-REMINDED_TURNS:]:
            text = answer(view) if view.turn.question.call else strip_markdown(answer(view))
            said = single_line(text, room)
            told = (f"{PROMPT} {single_line(view.turn.question.text, room)}", f"  {said}".rstrip())
            lines = (clip(self._look.own(safe_lines(line)), room, self._look) for line in told if line)
            self._page.remark("\n".join(lines))

    def help(self) -> None:
        """What can be typed here."""
        rows = [*COMMANDS.items(), ("Enter", "sends; \\ and Enter, or Ctrl-J, begins a new line")]
        rows += [("Ctrl-C", "stops what runs; twice leaves"), ("Ctrl-R", "searches what was typed before")]
        widest = max(len(name) for name, _ in rows) + 2
        lines = (
            f"  {self._look.accent(name.ljust(widest))}{self._look.dim(self._look.own(does))}" for name, does in rows
        )
        self._page.put(Piece(PieceKind.REMARK, "\n".join(lines)))

    def echo(self, text: str) -> None:
        """A line that was sent, above what comes of it."""
        first, *more = safe_lines(text.strip()).split("\n")
        lines = [self._look.prompt + self._look.bold(first), *(f"  {self._look.bold(line)}" for line in more)]
        self._page.put(Piece(PieceKind.QUESTION, "\n".join(lines)))

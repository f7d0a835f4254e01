"""What the chat says of its own accord: its name, what was said before, what can be typed, and each line once more.

Called by the chat.
"""

from __future__ import annotations

from bot.platforms.console.lines import cells, clipped, outside, unmarked
from bot.platforms.console.look import PROMPT, Look
from bot.platforms.console.opening import Opening
from bot.platforms.console.page import Page
from bot.platforms.console.slash import COMMANDS
from bot.platforms.console.transcript import Kind, Piece
from bot.rendering.changes import answer
from bot.rendering.plain import one_line

REMINDED_TURNS = 3


class Host:
    """Greets, reminds, helps and echoes."""

    def __init__(self, page: Page, look: Look, model: str) -> None:
        self._page = page
        self._screen = page.screen
        self._look = look
        self._model = model

    def greet(self) -> None:
        """The banner."""
        name, *about = ("countersign", outside(self._model), "/help")
        between = self._look.own(" · ")
        if cells(between.join((name, *about))) > self._screen.columns:
            about = about[-1:]
        words = (self._look.accent(name), *map(self._look.dim, about))
        self._page.put(Piece(Kind.TEXT, self._look.dim(between).join(words)))

    def remind(self, start: Opening) -> None:
        """Which conversation goes on, and its last turns on two lines each."""
        if not start.count:
            return
        turns = "1 earlier turn" if start.count == 1 else f"{start.count} earlier turns"
        self._page.remark(f"Continuing {outside(one_line(start.conversation, 60))} ({turns}). /new starts a fresh one.")
        room = self._screen.columns - 2
        for view in start.ended[-REMINDED_TURNS:]:
            text = answer(view) if view.turn.question.call else unmarked(answer(view))
            said = one_line(text, room)
            told = (f"{PROMPT} {one_line(view.turn.question.text, room)}", f"  {said}".rstrip())
            lines = (clipped(self._look.own(outside(line)), room, self._look) for line in told if line)
            self._page.remark("\n".join(lines))

    def help(self) -> None:
        """What can be typed here."""
        rows = [*COMMANDS.items(), ("Enter", "sends; \\ and Enter, or Ctrl-J, begins a new line")]
        rows += [("Ctrl-C", "stops what runs; twice leaves"), ("Ctrl-R", "searches what was typed before")]
        widest = max(len(name) for name, _ in rows) + 2
        lines = (
            f"  {self._look.accent(name.ljust(widest))}{self._look.dim(self._look.own(does))}" for name, does in rows
        )
        self._page.put(Piece(Kind.REMARK, "\n".join(lines)))

    def echo(self, text: str) -> None:
        """A line that was sent, above what comes of it."""
        first, *more = outside(text.strip()).split("\n")
        lines = [self._look.prompt + self._look.bold(first), *(f"  {self._look.bold(line)}" for line in more)]
        self._page.put(Piece(Kind.QUESTION, "\n".join(lines)))

"""Elicitations at a terminal: a card and its keys, one after the other. a answer, s show the link, f I have finished, d
decline.

A key runs an action of the card, like a button of other platforms. The result is printed below the card.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bot.domain.commands import Reply
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.errors import CountersignError
from bot.platforms.console.lines import card_line, elicitation_text, fold, safe_lines, strip_markdown
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.transcript import Piece, PieceKind
from bot.platforms.console.transcript_view import TranscriptView
from bot.rendering.elicitation_card import ANSWER, CONFIRM, DECLINE, VISIT, VISITED, ElicitationCard, elicitation_card
from bot.rendering.text_safety import single_line

Words = tuple[str, ...]
Say = Callable[[Words], Awaitable[Reply | None]]
Spawn = Callable[[Coroutine[Any, Any, None]], object]
_KEYS = {
    ANSWER: ("a", "answer…"),
    CONFIRM: ("y", "yes, go on"),
    VISIT: ("s", "show the link"),
    VISITED: ("f", "I have finished"),
    DECLINE: ("d", "decline"),
}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A card that waits for a key."""

    turn_id: str
    card: ElicitationCard


class ElicitationKeys:
    """Asks the elicitations of servers. `say` runs the action of a key and fills in forms, `spawn` runs it as a task,
    `done` is called after the last elicitation.
    """

    def __init__(
        self, page: TranscriptView, look: ConsoleTheme, *, say: Say, spawn: Spawn, done: Callable[[], None]
    ) -> None:
        self._page = page
        self._screen = page.screen
        self._look = look
        self._say = say
        self._spawn = spawn
        self._done = done
        self._waiting: dict[str, _Waiting] = {}
        self._settled: set[str] = set()
        self._asked: _Waiting | None = None
        self._offers: tuple[Words, ...] = ()
        self._saying = False

    @property
    def busy(self) -> bool:
        """True while a key is expected or a form is open."""
        return self._asked is not None

    def update(self, view: TurnView, *, asking: bool) -> None:
        """Update from a view. Nothing new is asked unless `asking` is True."""
        for each in (elicitation_card(step, asked, view) for step in _calls(view) for asked in step.elicitations):
            self._take(_Waiting(view.turn.id, each))
        if asking and self._asked is None and (first := next(iter(self._waiting.values()), None)) is not None:
            self._asked = first
            self._offers = tuple(offer.words for offer in first.card.offers)
            text = elicitation_text(first.card, self._look, self._screen.columns)
            self._page.put(Piece(PieceKind.CARD, f"{text}\n{card_line('', self._look)}"))
            self._ask()

    def withdraw(self) -> None:
        """Ask for no key until the next view."""
        if self._asked is not None and not self._saying:
            self._asked = None
            self._screen.stop_asking()

    def answer(self, key: str) -> None:
        """Handle a single key."""
        if self._asked is None or self._saying:
            return
        words = next((each for each in self._offers if _KEYS[each[0]][0] == key.lower()), None)
        if words is None:
            keys = ", ".join(_KEYS[each[0]][0] for each in self._offers)
            self._screen.hint(f"One key: {keys}. Ctrl-C stops the turn.")
            return
        self._screen.stop_asking()
        self._saying = True
        self._spawn(self._said(self._asked, words))

    def _take(self, new: _Waiting) -> None:
        elicitation_id = new.card.elicitation_id
        if elicitation_id in self._settled:
            return
        if not new.card.outcome:
            self._waiting.setdefault(elicitation_id, new)
            return
        self._settled.add(elicitation_id)
        self._waiting.pop(elicitation_id, None)
        if self._is_asked(elicitation_id):
            if not self._saying:
                self._tell(new.card.outcome, self._look.dim)
                self._free()
        else:
            self._tell(f"{new.card.title}. {new.card.outcome}", self._look.dim)

    def _is_asked(self, elicitation_id: str) -> bool:
        return self._asked is not None and self._asked.card.elicitation_id == elicitation_id

    async def _said(self, asked: _Waiting, words: Words) -> None:
        try:
            reply = await self._say(words)
        except CountersignError as error:
            self._tell(single_line(str(error), 500), self._look.bad)
            reply = None
        finally:
            self._saying = False
        if not self._is_asked(asked.card.elicitation_id):
            return
        if reply is None and asked.card.elicitation_id not in self._settled:
            self._ask()
            return
        if reply is not None:
            self._show(reply)
            if reply.actions:
                self._offers = tuple(each.words for each in reply.actions)
                self._ask()
                return
        self._settled.add(asked.card.elicitation_id)
        self._waiting.pop(asked.card.elicitation_id, None)
        self._free()

    def _free(self) -> None:
        self._asked = None
        self._screen.stop_asking()
        self._done()

    def _ask(self) -> None:
        self._screen.ask(self._keys)

    def _keys(self, _width: int) -> list[str]:
        """Return the keys and their actions."""
        keys = [_KEYS[each[0]] for each in self._offers]
        return [
            card_line(
                "  ".join(f"{self._look.bold(f'[{key}]')} {self._look.own(does)}" for key, does in keys), self._look
            )
        ]

    def _show(self, reply: Reply) -> None:
        paint = self._look.warn if reply.failed else str if reply.actions else self._look.good
        for line in strip_markdown(reply.text).split("\n"):
            if reply.link and "://" in line and " " not in line:
                self._page.put(Piece(PieceKind.CARD, safe_lines(line)))  # whole, so that it can be opened and copied
            elif line:
                self._tell(line, paint)
        for name, value in reply.details:
            self._tell(f"{name}: {value}", self._look.dim)

    def _tell(self, text: str, paint: Callable[[str], str]) -> None:
        lines = fold(self._look.own(safe_lines(text)), self._screen.columns - 4)
        self._page.put(Piece(PieceKind.CARD, "\n".join(card_line(paint(line), self._look) for line in lines)))


def _calls(view: TurnView) -> tuple[ToolStep, ...]:
    return tuple(step for step in view.steps if isinstance(step, ToolStep))

"""A card and its keys: y once, v view all, n no with a reason, Enter no.

Called by the chat. It asks one card after the other and hands each verdict to the engine; what the engine says to it
is told behind the card's bar.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, assert_never

from bot.domain.approvals import (
    AlreadySettled,
    Counted,
    NoSuchApproval,
    NotAllowed,
    OutOfDate,
    Settled,
    Settlement,
    Verdict,
)
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.errors import CountersignError
from bot.platforms.console.lines import barred, card_text, cells, folded, full_arguments, outside
from bot.platforms.console.look import Look
from bot.platforms.console.page import Page
from bot.platforms.console.questions import Key, Question, Questions
from bot.platforms.console.transcript import Kind, Piece
from bot.rendering.plain import one_line

Decide = Callable[[Question, Verdict, str], Awaitable[Settlement]]
Spawn = Callable[[Coroutine[Any, Any, None]], object]
PAGE_MARGIN = 8


class CardKeys:
    """Asks about calls. `decide` goes to the engine, `spawn` runs it beside the keys."""

    def __init__(self, page: Page, look: Look, decide: Decide, spawn: Spawn) -> None:
        self._page = page
        self._screen = page.screen
        self._look = look
        self._decide = decide
        self._spawn = spawn
        self._questions = Questions()
        self._asked: Key | None = None
        self._pages: list[str] = []
        self._deciding = False
        self._asking = True

    def update(self, view: TurnView, calls: list[ToolStep], *, asking: bool) -> None:
        """Take in a view of which `calls` are for this person to decide. Nothing is asked unless `asking`."""
        self._asking = asking
        for gone in self._questions.update(view, calls):
            if self._asked == (gone.approval_id, gone.revision):
                self._say(gone.outcome or "This call is not wanted any more.", self._look.dim)
        self._next()

    def withdraw(self) -> None:
        """Ask nothing any more until the next view."""
        self._asking = False
        self._forget()

    def _forget(self) -> None:
        self._asked = None
        self._pages = []
        self._screen.stop_asking()

    def answer(self, key: str) -> None:
        """A key that was pressed alone, after it had been asked for."""
        question = self._questions.current
        if question is None:
            return
        match key.lower():
            case "y":
                self._settle(question, Verdict.APPROVE, "")
            case "enter":
                self._settle(question, Verdict.DENY, "")
            case "n":
                self._screen.ask_reason()
            case "v":
                self._view_all(question)
            case _:
                self._screen.hint("One key: y, v, n, or Enter for no. Ctrl-C stops the turn.")

    def reason(self, text: str) -> None:
        """The reason of a denial, empty for none."""
        if (question := self._questions.current) is not None:
            self._settle(question, Verdict.DENY, text.strip())

    def _next(self) -> None:
        """Put the first waiting question, if it is not the one being asked."""
        question = self._questions.current if self._asking else None
        if question is None:
            if self._asked is not None:
                self._forget()
            return
        if self._asked == question.key:
            if not self._deciding:
                self._ask()
            return
        self._forget()
        self._asked = question.key
        text = card_text(question.card, self._look, self._screen.columns)
        self._page.put(Piece(Kind.CARD, f"{text}\n{barred('', self._look)}"))
        self._ask()

    def _ask(self) -> None:
        self._screen.ask(self._keys)

    def _keys(self, width: int) -> list[str]:
        """The keys and what they do, on as many lines as it takes."""
        keys = (("y", "once"), ("v", "more" if self._pages else "view all"), ("n", "no, because…"), ("Enter", "no"))
        words = [(f"[{key}] {self._look.own(does)}", f"[{key}]") for key, does in keys]
        if self._questions.place:
            words.append((f"({self._questions.place})", ""))
        lines: list[list[tuple[str, str]]] = [[]]
        for word in words:
            if lines[-1] and cells("  ".join(each for each, _ in (*lines[-1], word))) > width - 4:
                lines.append([])
            lines[-1].append(word)
        return [barred("  ".join(self._key(*word) for word in line), self._look) for line in lines]

    def _key(self, text: str, key: str) -> str:
        return self._look.bold(key) + text.removeprefix(key) if key else self._look.dim(text)

    def _view_all(self, question: Question) -> None:
        lines = self._pages or full_arguments(question.card, self._look, self._screen.columns)
        room = max(self._screen.rows - PAGE_MARGIN, 4)
        shown, self._pages = lines[:room], lines[room:]
        self._page.put(Piece(Kind.CARD, "\n".join([*shown, barred("", self._look)])))
        self._screen.stop_asking()
        self._ask()

    def _settle(self, question: Question, verdict: Verdict, reason: str) -> None:
        self._screen.stop_asking()
        self._pages = []
        self._deciding = True
        self._spawn(self._settled(question, verdict, reason))

    async def _settled(self, question: Question, verdict: Verdict, reason: str) -> None:
        try:
            settlement = await self._decide(question, verdict, reason)
            self._deciding = False
        except CountersignError as error:
            self._deciding = False
            self._say(one_line(str(error), 500), self._look.bad)
            self._ask_again(question)
            return
        match settlement:
            case Settled(Verdict.APPROVE):
                self._say("Approved.", self._look.good)
            case Settled():
                self._say(f"Not run. Told the agent: {reason}" if reason else "Not run.", self._look.bad)
            case Counted(needed):
                self._say(f"Signed. Others have to sign, too: {needed}.", self._look.good)
            case AlreadySettled(how):
                self._say(one_line(how, 300), self._look.dim)
            case OutOfDate():
                self._say("The call has changed since this card was drawn. Not run.", self._look.warn)
            case NoSuchApproval():
                self._say("This approval does not exist any more.", self._look.dim)
            case NotAllowed(why):
                self._say(one_line(why, 300), self._look.warn)
                self._say("Waiting for somebody who may decide. Ctrl-C stops the turn.", self._look.dim)
                self._ask_again(question)
                return
            case _:
                assert_never(settlement)
        self._questions.settle(question)
        self._asked = None
        self._next()

    def _ask_again(self, question: Question) -> None:
        if self._asked == question.key:
            self._ask()

    def _say(self, text: str, paint: Callable[[str], str]) -> None:
        lines = folded(self._look.own(outside(text)), self._screen.columns - 4)
        self._page.put(Piece(Kind.CARD, "\n".join(barred(paint(line), self._look) for line in lines)))

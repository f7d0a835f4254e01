"""Elicitations without a screen: answered by a line of standard input, or cancelled.

`answer`, with `NAME=VALUE` for each field or with one JSON object, accepts; `decline` declines. Any other line is a
message and cancels the elicitation.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.elicitation_answers import ElicitationAnswered, InvalidAnswer
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    Elicitation,
    ElicitationAction,
    ElicitationResult,
    FormMode,
    UrlMode,
)
from bot.domain.lenient_json import DuplicateName, unique_names
from bot.domain.tools import ArgumentError
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import PendingElicitation
from bot.ports import EngineApi
from bot.rendering.elicitation_card import elicitation_form, server_name
from bot.rendering.text_safety import show_invisible, single_line

ANSWER, DECLINE = "answer", "decline"
_NAMES = 8
HOW_TO_ANSWER = "It waits for a line: {}, or decline."
HOW_TO_VISIT = "Visit {} and send the line: answer, or decline."
NOBODY = (
    "{} has a question, and no terminal is open to answer it, so it was cancelled. countersign chat asks you there."
)
NO_OBJECT = "That is no JSON object, such as {}."


class InputLines:
    """Input lines for two readers. A reader can put a line back for the other one."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self._reading = asyncio.Lock()
        self._pending: asyncio.Future[str | None] | None = None
        self._back: list[str] = []

    async def next(self) -> str | None:
        """Return the next line; None at the end. A cancelled wait loses no line."""
        async with self._reading:
            if self._back:
                return self._back.pop()
            if self._pending is None:
                self._pending = asyncio.ensure_future(_next(self._lines))
            line = await asyncio.shield(self._pending)
            self._pending = None
            return line

    def put_back(self, line: str) -> None:
        """Put back a line for the other reader."""
        self._back.append(line)

    def close(self) -> None:
        """Stop reading."""
        if self._pending is not None:
            self._pending.cancel()


class ElicitationPrompt:
    """Answers elicitations for the user; `tell` prints one line. Without `lines` all are cancelled."""

    def __init__(self, person: LocalUser, tell: Callable[[str], None], lines: InputLines | None = None) -> None:
        self._person = person
        self._tell = tell
        self._lines = lines

    async def respond(self, asked: PendingElicitation, engine: EngineApi) -> None:
        """Answer one elicitation, unless it ends before."""
        if self._lines is None:
            await self._leave(asked, engine)
            return
        match asked.elicitation.question.ask:
            case UrlMode(url):
                self._tell(HOW_TO_VISIT.format(url))
            case FormMode(schema):
                self._tell(HOW_TO_ANSWER.format(_line_for(schema)))
        while (line := await self._line(self._lines, asked.over)) is not None:
            match _read(line, asked.elicitation):
                case None:
                    self._lines.put_back(line)
                    break
                case str(problem):
                    self._tell(problem)
                case reply:
                    if await self._sent(asked, reply, engine):
                        return
        if not asked.over.is_set():
            await self._leave(asked, engine)

    async def _line(self, lines: InputLines, over: asyncio.Event) -> str | None:
        """Return the next line; None at the end of input or of the elicitation."""
        reading, ending = asyncio.ensure_future(lines.next()), asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            for each in (reading, ending):
                each.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)

    async def _sent(self, asked: PendingElicitation, reply: ElicitationResult, engine: EngineApi) -> bool:
        """Send an answer. Return True if the elicitation needs no other one."""
        match await engine.elicitations.answer(asked.elicitation.id, reply, self._person.member):
            case InvalidAnswer(problems):
                wrong = "; ".join(_said(each) for each in problems)
                self._tell(single_line(wrong, 500) or "It does not fit.")
                return False
            case ElicitationAnswered(action):
                self._tell("Sent." if action is ElicitationAction.ACCEPT else "Declined.")
            case ApprovalNotFound():
                pass  # the turn is gone
            case NotAllowed(why) | AlreadyDecided(why):
                self._tell(single_line(why, 300))
        return True

    async def _leave(self, asked: PendingElicitation, engine: EngineApi) -> None:
        if isinstance(
            await engine.elicitations.answer(asked.elicitation.id, CANCELLED, self._person.member), ElicitationAnswered
        ):
            self._tell(NOBODY.format(server_name(asked.step)))


def _read(line: str, elicitation: Elicitation) -> ElicitationResult | str | None:
    """Return the result of a line, its error as a sentence, or None if it is no answer."""
    word, _, rest = line.strip().partition(" ")
    match word.lower(), elicitation.question.ask:
        case "decline", _:
            return DECLINED
        case "answer", UrlMode():
            return ElicitationResult(ElicitationAction.ACCEPT)
        case "answer", FormMode(schema):
            return _filled(schema, rest.strip())
        case _:
            return None


def _filled(schema: Mapping[str, Any], text: str) -> ElicitationResult | str:
    if text.startswith("{"):
        try:
            content = json.loads(text, object_pairs_hook=unique_names)
        except DuplicateName as error:
            return f"The answer cannot be used: {error}."
        except (ValueError, RecursionError):
            return NO_OBJECT.format('{"title": "Milk"}')
        return ElicitationResult(ElicitationAction.ACCEPT, content)
    try:
        words = shlex.split(text)
    except ValueError:
        return "A quote is open."
    form = elicitation_form(schema)
    typed: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in form.names:
            return f"One of these, with = and its value: {', '.join(form.names)}."
        typed[form.field_of(name)] = value
    content, errors = form.read(typed)
    return next(iter(errors.values()), "") or ElicitationResult(ElicitationAction.ACCEPT, content)


async def _next(lines: AsyncIterator[str]) -> str | None:
    return await anext(lines, None)


def _line_for(schema: Mapping[str, Any]) -> str:
    """Return a sample line that answers a form, with its field names: `answer seats=… note=…`."""
    properties = schema.get("properties")
    names = (
        [single_line(show_invisible(str(name)), 40) for name in properties] if isinstance(properties, Mapping) else []
    )
    shown = [f"{name}=…" for name in names[:_NAMES]] + (["…"] if len(names) > _NAMES else [])
    return " ".join((ANSWER, *shown))


def _said(misfit: ArgumentError) -> str:
    """Return the error of a value, with its name once."""
    if not misfit.argument or misfit.problem.startswith(f"{misfit.argument}:"):
        return misfit.problem
    return f"{misfit.argument}: {misfit.problem}"

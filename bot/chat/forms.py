"""Forms that are opened from cards: commands of buttons, and pages of a form that is too long for one modal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence

from bot.domain.commands import Field, Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey
from bot.ports import Commands, EngineApi


class CommandMiddleware(ABC):
    """The commands, with further ones in front of them. Those come from buttons only, so help does not list them."""

    def __init__(self, engine: EngineApi, commands: Commands) -> None:
        self._engine = engine
        self._commands = commands

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Verbs of the wrapped commands."""
        return self._commands.verbs

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return the completions of the wrapped commands."""
        return self._commands.complete(text, conversation)

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a request, or pass it on to the wrapped commands."""
        answered = await self._answer(request)
        if answered is not None:
            yield answered
            return
        async for answer in self._commands.handle(request):
            yield answer

    @abstractmethod
    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        """Return the reply or form; None for a request of the wrapped commands."""


class FormPages:
    """Pages of a form, with `size` fields each. `answers` are the earlier answers by field; those of unknown fields are
    dropped.
    """

    def __init__(self, fields: Sequence[Field], size: int, answers: Mapping[str, str]) -> None:
        self._fields = fields
        self._size = size
        self.answers = {field.name: answers[field.name] for field in fields if field.name in answers}

    @property
    def count(self) -> int:
        """Number of pages."""
        return -(-len(self._fields) // self._size)

    def page_of(self, name: str) -> int:
        """Return the page of a field, counted from 0."""
        return [field.name for field in self._fields].index(name) // self._size

    def fields(self, number: int) -> Sequence[Field]:
        """Return the fields of a page, counted from 0; those of the last page if the number is too high."""
        start = max(0, min(number, self.count - 1)) * self._size
        return self._fields[start : start + self._size]

    def carried(self, number: int) -> dict[str, str]:
        """Return the answers to the fields of the other pages."""
        names = {field.name for field in self.fields(number)}
        return {name: answer for name, answer in self.answers.items() if name not in names}

    def sort_errors(self, errors: Mapping[str, str]) -> dict[str, str]:
        """Return errors by field, those of the first page first."""
        return dict(sorted(errors.items(), key=lambda error: self.page_of(error[0])))

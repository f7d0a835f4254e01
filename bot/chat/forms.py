"""Forms, on every platform: submissions, forms in steps, and forms that are opened from cards.

A form with more fields than a window takes comes in steps. The answers of earlier steps are carried along.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.chat.actions import ApprovalRef, OpenConfirmation, OpenDenyForm, OpenForm
from bot.domain.commands import Field, FieldKind, Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import single_line

REASON, TYPED = "reason", "typed"
"""Fields of the deny form and of a confirmation."""
_STEP = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class DenialSubmitted:
    """Deny this call; the reason may be empty. `inbox_page` is that of the button (`OpenDenyForm`)."""

    card: ApprovalRef
    reason: str
    inbox_page: int = 0


@dataclass(frozen=True, slots=True)
class ConfirmationSubmitted:
    """Run a command with the text that the user typed to confirm it."""

    words: tuple[str, ...]
    typed: str


@dataclass(frozen=True, slots=True)
class FormSubmitted:
    """The form of a command, with the values of all its fields, the carried ones too."""

    form: str
    values: Mapping[str, str]


Submission = DenialSubmitted | ConfirmationSubmitted | FormSubmitted


def read_submission(opened: OpenDenyForm | OpenConfirmation | OpenForm, values: Mapping[str, str]) -> Submission:
    """Return what the values of a submitted form mean. A field that the form did not show keeps its value."""
    match opened:
        case OpenDenyForm(card, page):
            return DenialSubmitted(card, values.get(REASON, "").strip(), page)
        case OpenConfirmation(words):
            return ConfirmationSubmitted(words, values.get(TYPED, "").strip())
        case OpenForm(form):
            unseen = {field.name: field.value for field in form.fields if field.kind is not FieldKind.SECRET}
            return FormSubmitted(form.id, {**form.carried, **unseen, **values})


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
        reply = await self._answer(request)
        if reply is not None:
            yield reply
            return
        async for answer in self._commands.handle(request):
            yield answer

    @abstractmethod
    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        """Return the reply or form; None for a request of the wrapped commands."""


def parse_step(form: str) -> tuple[list[str], int]:
    """Return the parts of a step's form id before its number, and the number. There is no part if the id is invalid."""
    *parts, step = form.split(":")
    return (parts, int(step)) if _STEP.fullmatch(step) else ([], 0)


@dataclass(frozen=True, slots=True)
class FormSteps:
    """A form in steps of `size` fields, numbered from 0. `id` is that of each step without its number, `intro` gives
    the text above the fields of a step, by its number and the count of its fields.

    `answers` are those given so far, by field. Answers to `concealed` fields are not shown again: they have to be typed
    again, for the reason `again`.
    """

    id: str
    title: str
    fields: Sequence[Field]
    size: int
    submit: str
    intro: Callable[[int, int], str]
    answers: Mapping[str, str]
    concealed: frozenset[str] = frozenset()
    again: str = ""

    def step(self, number: int, errors: Mapping[str, str] | None = None) -> Form:
        """Return a step with the answers so far; the last one if the number is too high."""
        start = max(0, min(number, self._count - 1)) * self.size
        fields = self.fields[start : start + self.size]
        others = [field.name for field in self.fields if field not in fields]
        return Form(
            id=f"{self.id}:{number}",
            title=self.title,
            fields=tuple(self._filled(field, (errors or {}).get(field.name, "")) for field in fields),
            submit=self.submit if number + 1 >= self._count else "Continue",
            intro=self.intro(number, len(fields)),
            carried={name: self.answers[name] for name in others if name in self.answers},
        )

    def after(self, number: int) -> Form | None:
        """Return the next step, None after the last one."""
        return self.step(number + 1) if number + 1 < self._count else None

    def with_errors(self, problems: Iterable[tuple[str, str]]) -> Form:
        """Return the first step with an error. `problems` are pairs of a field and its error; the first one counts."""
        errors: dict[str, str] = {}
        for name, problem in problems:
            errors.setdefault(name, single_line(problem, 200))
        names = [field.name for field in self.fields]
        return self.step(min(names.index(name) for name in errors) // self.size, errors)

    @property
    def _count(self) -> int:
        return -(-len(self.fields) // self.size)

    def _filled(self, field: Field, error: str) -> Field:
        answer = self.answers.get(field.name, field.value)
        if field.name in self.concealed and answer:
            return replace(field, error=error or self.again)
        return replace(field, value=answer, error=error)

"""A form at the prompt: one field after the other, each with what it holds already, secrets without an echo.

Called by the errands. Ctrl-C or Escape leaves the form, and nothing has been changed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bot.domain.commands import Field, FieldKind, Form
from bot.platforms.console.lines import safe_lines
from bot.platforms.console.transcript_view import TranscriptView
from bot.rendering.text_safety import single_line

NEEDED = "Something is needed here."
_SWITCH = ("yes", "no")


class FormCancelled(Exception):
    """The person has left the form."""


class FormPrompt:
    """Asks for lines. One at a time is asked for."""

    def __init__(self, page: TranscriptView) -> None:
        self._page = page
        self._screen = page.screen
        self._asked: asyncio.Future[str] | None = None

    @property
    def asking(self) -> bool:
        """A line is asked for now."""
        return self._asked is not None

    def answer(self, text: str) -> None:
        """The line that was asked for."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(text)

    def withdraw(self) -> None:
        """The person has had enough."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(FormCancelled())

    async def fill(self, form: Form, before: Mapping[str, str]) -> dict[str, str]:
        """Everything a form wants, with what it carries. Where something was wrong, only that is asked again; `before`
        is what was answered then, since a form does not hand a secret back. Raises Withdrawn.
        """
        wrong = [each for each in form.fields if each.error]
        if not wrong:
            self._page.notice(single_line(form.title, 200))
        if form.intro:
            self._page.notice(form.intro)
        values = {**form.carried, **{each.name: before.get(each.name, each.value) for each in form.fields}}
        for field in wrong or form.fields:
            if field.error:
                self._page.complaint(f"{field.label}: {field.error}")
            values[field.name] = await self._field(field)
        return values

    async def line(self, label: str, hint: str = "") -> str:
        """One line that is no field. Raises Withdrawn."""
        return (await self._ask(Field("line", label, hint=hint), "")).strip()

    async def _field(self, field: Field) -> str:
        value = await (self._lines(field) if field.kind is FieldKind.LINES else self._checked(field))
        shown = "(hidden)" if field.kind is FieldKind.SECRET and value else value.replace("\n", " / ")
        self._page.notice(f"{field.label}: {single_line(shown, 200) or '(empty)'}")
        return value

    async def _checked(self, field: Field) -> str:
        choices = _SWITCH if field.kind is FieldKind.SWITCH else field.choices
        while True:
            value = (await self._ask(field, field.value)).strip()
            if value and choices:
                fitting = [each for each in choices if each.lower() == value.lower()]
                fitting = fitting or [each for each in choices if each.lower().startswith(value.lower())]
                if len(fitting) != 1:
                    self._page.complaint(f"One of: {', '.join(choices)}.")
                    continue
                value = fitting[0]
            if value or not field.required:
                return value
            self._page.complaint(NEEDED)

    async def _lines(self, field: Field) -> str:
        """Line by line, those that are there first, until an empty one."""
        present, kept = field.value.split("\n") if field.value else [], []
        while True:
            old = present.pop(0) if present else ""
            line = (await self._ask(field, old)).strip()
            if line:
                kept.append(line)
            elif not old:
                return "\n".join(kept)

    async def _ask(self, field: Field, value: str) -> str:
        choices = _SWITCH if field.kind is FieldKind.SWITCH else field.choices
        more = "an empty line ends it" if field.kind is FieldKind.LINES else " | ".join(choices)
        self._screen.ask_text(safe_lines(field.label), value, hidden=field.kind is FieldKind.SECRET)
        self._screen.hint(safe_lines(" · ".join(part for part in (field.hint, more, "Esc leaves") if part)))
        self._asked = asyncio.get_running_loop().create_future()
        try:
            return await self._asked
        finally:
            self._asked = None
            self._screen.stop_text()

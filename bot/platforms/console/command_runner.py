"""Commands from the typed line, through forms and confirmations, to the reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from bot.domain.commands import Field, FieldKind, Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.platforms.console.lines import safe_lines, strip_markdown
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.transcript import LazyRenderer, Piece, PieceKind, TranscriptView
from bot.ports import Commands
from bot.rendering.text_safety import single_line

# -------------------- form prompt
# Secrets are typed without an echo. Ctrl-C or Escape leaves the form without a change.

NEEDED = "Something is needed here."
_SWITCH = ("yes", "no")


class FormCancelled(Exception):
    """The user has left the form."""


class FormPrompt:
    """Asks for lines. One at a time is asked for."""

    def __init__(self, page: TranscriptView) -> None:
        self._page = page
        self._screen = page.screen
        self._asked: asyncio.Future[str] | None = None

    @property
    def asking(self) -> bool:
        """True while a line is expected."""
        return self._asked is not None

    def answer(self, text: str) -> None:
        """Handle the expected line."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(text)

    def withdraw(self) -> None:
        """Cancel the form."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(FormCancelled())

    async def fill(self, form: Form, before: Mapping[str, str]) -> dict[str, str]:
        """Return the values of a form, including the carried ones. After an error only the invalid fields are asked
        again; `before` are the earlier values, because a form does not contain secrets. Raises FormCancelled.
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
        """Ask for a line that is not a field. Raises FormCancelled."""
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
                fitting = [choice for choice in choices if choice.lower() == value.lower()]
                fitting = fitting or [choice for choice in choices if choice.lower().startswith(value.lower())]
                if len(fitting) != 1:
                    self._page.complaint(f"One of: {', '.join(choices)}.")
                    continue
                value = fitting[0]
            if value or not field.required:
                return value
            self._page.complaint(NEEDED)

    async def _lines(self, field: Field) -> str:
        """Ask line by line, starting with existing lines, until an empty one."""
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


LEFT = "Nothing was changed."
LONGEST_NEWS = 300
"""Characters of a progress text; the page shows as much as fits."""


class CommandRunner:
    """Runs commands. `here` is the conversation that is open."""

    def __init__(
        self, person: LocalUser, page: TranscriptView, typesetting: LazyRenderer, here: Callable[[], ConversationKey]
    ) -> None:
        self._person = person
        self._page = page
        self._typesetting = typesetting
        self._here = here
        self.filling = FormPrompt(page)

    async def run(self, commands: Commands, command: str, words: tuple[str, ...]) -> InboundMessage | None:
        """Run a command and print its replies. Return a message for the engine, if any."""
        asked: Invocation | FormSubmission = self._said((command, *words))
        before: dict[str, str] = {}
        try:
            while True:
                last = await self._last(commands, asked)
                if isinstance(last, Form):
                    before = await self.filling.fill(last, before)
                    asked = self._sent(last, before)
                    continue
                if last is None or last.message is not None:
                    return last.message if last is not None else None
                action = next((each for each in last.actions if each.confirm), None)
                if action is None:
                    self._draw(last)
                    return None
                # Its name is asked for below: a line that has it already would say the same once more.
                self._draw(replace(last, actions=tuple(each for each in last.actions if not each.confirm)))
                asked = self._said((*action.words, "--confirm", await self._confirmed(action)))
        except FormCancelled:
            self._page.notice(LEFT)
            return None

    async def run_dialog(self, commands: Commands, words: tuple[str, ...]) -> Reply | None:
        """Run the action of a card's key, including its form. Return the last reply, which is not printed, or None if
        the user left the form.
        """
        asked: Invocation | FormSubmission = self._said(words)
        before: dict[str, str] = {}
        try:
            while isinstance(last := await self._last(commands, asked), Form):
                before = await self.filling.fill(last, before)
                asked = self._sent(last, before)
        except FormCancelled:
            self._page.notice(LEFT)
            return None
        return last

    async def _last(self, commands: Commands, invocation: Invocation | FormSubmission) -> Reply | Form | None:
        """Return the last reply; print the earlier ones as progress."""
        self._page.busy = "Working…"
        last: Reply | Form | None = None
        async for last in commands.handle(invocation):
            if isinstance(last, Reply):
                self._page.busy = single_line(strip_markdown(last.text), LONGEST_NEWS) or "Working…"
        self._page.busy = ""
        return last

    async def _confirmed(self, action: ReplyAction) -> str:
        typed = await self.filling.line(
            f"Type {single_line(action.confirm, 80)} to confirm", f"{action.label}, or nothing"
        )
        if not typed:
            raise FormCancelled
        return typed

    def _said(self, words: tuple[str, ...]) -> Invocation:
        return Invocation(words[0], words[1:], self._person.member, self._here(), self._person.operator)

    def _sent(self, form: Form, values: dict[str, str]) -> FormSubmission:
        return FormSubmission(form.id, values, self._person.member, self._here(), self._person.operator)

    def _draw(self, reply: Reply) -> None:
        self._page.put(Piece(PieceKind.TEXT, self._typesetting.reply(reply, self._page.screen.columns)))

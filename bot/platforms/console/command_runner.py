"""Commands at the screen: their forms, confirmations and replies.

Secrets are typed without an echo. Ctrl-C or Escape leaves a form without a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from bot.domain.commands import Field, FieldKind, Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.i18n import _, gettext_lazy
from bot.platforms.console.lines import safe_lines, strip_markdown
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.transcript import Piece, PieceKind, TranscriptView
from bot.ports import Commands
from bot.rendering.argument_fields import LEAVE_OUT, NO, YES
from bot.rendering.text_safety import single_line

NEEDED = gettext_lazy("Something is needed here.")
_SWITCH = ("yes", "no")
_WORDS = (YES, NO, LEAVE_OUT)
"""Choices that can also be typed in English."""
CANCELLED_TEXT = gettext_lazy("Nothing was changed.")
LONGEST_PROGRESS = 300
"""Characters of a progress text; the page shows as much as fits."""


class FormCancelled(Exception):
    """The user has left the form."""


class FormPrompt:
    """Asks for lines. One at a time is asked for."""

    def __init__(self, transcript: TranscriptView) -> None:
        self._transcript = transcript
        self._screen = transcript.screen
        self._line: asyncio.Future[str] | None = None

    @property
    def asking(self) -> bool:
        """True while a line is expected."""
        return self._line is not None

    def answer(self, text: str) -> None:
        """Handle the expected line."""
        if self._line is not None and not self._line.done():
            self._line.set_result(text)

    def withdraw(self) -> None:
        """Cancel the form."""
        if self._line is not None and not self._line.done():
            self._line.set_exception(FormCancelled())

    async def fill(self, form: Form, before: Mapping[str, str]) -> dict[str, str]:
        """Return the values of a form, including the carried ones. After an error only the invalid fields are asked
        again; `before` are the earlier values, because a form does not contain secrets. Raises FormCancelled.
        """
        invalid = [field for field in form.fields if field.error]
        if not invalid:
            self._transcript.notice(single_line(form.title, 200))
        if form.intro:
            self._transcript.notice(form.intro)
        values = {**form.carried, **{field.name: before.get(field.name, field.value) for field in form.fields}}
        for field in invalid or form.fields:
            if field.error:
                self._transcript.print_error(f"{field.label}: {field.error}")
            value = await (self._lines(field) if field.kind is FieldKind.LINES else self._value(field))
            text = _("(hidden)") if field.kind is FieldKind.SECRET and value else value.replace("\n", " / ")
            shown = single_line(text, 200) or _("(empty)")
            self._transcript.notice(f"{field.label}: {shown}")
            values[field.name] = value
        return values

    async def line(self, label: str, hint: str = "") -> str:
        """Ask for a line that is not a field. Raises FormCancelled."""
        return await self._ask(Field("line", label, hint=hint), "")

    async def _value(self, field: Field) -> str:
        choices = _SWITCH if field.kind is FieldKind.SWITCH else field.choices
        while True:
            value = await self._ask(field, field.value)
            if value and choices:
                spellings = {choice.lower(): choice for choice in choices}
                spellings = {word.message: str(word) for word in _WORDS if str(word) in choices} | spellings
                typed = value.lower()
                begun = dict.fromkeys(choice for spelling, choice in spellings.items() if spelling.startswith(typed))
                matches = [spellings[typed]] if typed in spellings else list(begun)
                if len(matches) != 1:
                    self._transcript.print_error(_("One of: {choices}.", choices=", ".join(choices)))
                    continue
                value = matches[0]
            if value or not field.required:
                return value
            self._transcript.print_error(str(NEEDED))

    async def _lines(self, field: Field) -> str:
        """Ask line by line, starting with existing lines, until an empty one."""
        existing, lines = field.value.split("\n") if field.value else [], []
        while True:
            old = existing.pop(0) if existing else ""
            if line := await self._ask(field, old):
                lines.append(line)
            elif not old:
                return "\n".join(lines)

    async def _ask(self, field: Field, value: str) -> str:
        choices = _SWITCH if field.kind is FieldKind.SWITCH else field.choices
        more = _("an empty line ends it") if field.kind is FieldKind.LINES else " | ".join(choices)
        self._screen.ask_text(safe_lines(field.label), value, hidden=field.kind is FieldKind.SECRET)
        self._screen.hint(safe_lines(" · ".join(part for part in (field.hint, more, _("Esc leaves")) if part)))
        self._line = asyncio.get_running_loop().create_future()
        try:
            return (await self._line).strip()
        finally:
            self._line = None
            self._screen.stop_text()


class CommandRunner:
    """Runs commands. `here` is the conversation that is open."""

    def __init__(self, user: LocalUser, transcript: TranscriptView, here: Callable[[], ConversationKey]) -> None:
        self._user = user
        self._transcript = transcript
        self._here = here
        self.form_prompt = FormPrompt(transcript)

    async def run(self, commands: Commands, words: tuple[str, ...]) -> InboundMessage | None:
        """Run a command and print its replies. Return a message for the engine, if any."""
        try:
            while words:
                last = await self._last_reply(commands, words)
                if last is None or last.message is not None:
                    return last.message if last is not None else None
                action = next((action for action in last.actions if action.confirm or action.question), None)
                shown, words = last, ()
                if action is not None:
                    # It is asked about below: a line with it, and a question as a fix, would say the same once more.
                    details = [detail for detail in last.details if not (action.question and detail[0] == "fix")]
                    others = tuple(other for other in last.actions if other is not action)
                    shown = replace(last, details=tuple(details), actions=others)
                text = self._transcript.renderer.reply(shown, self._transcript.screen.columns)
                self._transcript.print_pieces(Piece(PieceKind.TEXT, text))
                if action is not None:
                    words = await self._confirmed_words(action, last)
        except FormCancelled:
            self._transcript.notice(str(CANCELLED_TEXT))
        return None

    async def run_dialog(self, commands: Commands, words: tuple[str, ...]) -> Reply | None:
        """Run the action of a card's key, including its form. Return the last reply, which is not printed, or None if
        the user left the form.
        """
        try:
            return await self._last_reply(commands, words)
        except FormCancelled:
            self._transcript.notice(str(CANCELLED_TEXT))
            return None

    async def _last_reply(self, commands: Commands, words: tuple[str, ...]) -> Reply | None:
        """Return the last reply behind the forms of a command; show the earlier ones as progress. Raises
        FormCancelled.
        """
        member, here, operator = self._user.member, self._here(), self._user.operator
        request: Invocation | FormSubmission = Invocation(words[0], words[1:], member, here, operator)
        values: dict[str, str] = {}
        while True:
            self._transcript.busy = _("Working…")
            last: Reply | Form | None = None
            async for last in commands.handle(request):
                if isinstance(last, Reply):
                    self._transcript.busy = single_line(strip_markdown(last.text), LONGEST_PROGRESS) or _("Working…")
            self._transcript.busy = ""
            if not isinstance(last, Form):
                return last
            values = await self.form_prompt.fill(last, values)
            request = FormSubmission(last.id, values, member, here, operator)

    async def _confirmed_words(self, action: ReplyAction, reply: Reply) -> tuple[str, ...]:
        """Return the words of an action once the user has agreed. After a no there are none if the reply is about a
        change that is made already. Raises FormCancelled.
        """
        if action.question:
            answer = await self.form_prompt.line(single_line(action.question, 200), _("y, or nothing"))
            if answer.lower() in ("y", "yes"):
                return action.words
            if not reply.failed:
                return ()
        elif name := await self.form_prompt.line(
            _("Type {text} to confirm", text=single_line(action.confirm, 80)),
            _("{action}, or nothing", action=action.label),
        ):
            return (*action.words, "--confirm", name)
        raise FormCancelled

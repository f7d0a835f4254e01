"""Typed lines: messages and commands, the forms and confirmations of commands, and their replies.

An unknown command is never sent to the model.
"""

from __future__ import annotations

import asyncio
import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from bot.domain.commands import WHOLE_TEXT, Field, FieldKind, Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.i18n import _, gettext_lazy
from bot.platforms.console.lines import safe_lines, strip_markdown
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.transcript import LazyRenderer, Piece, PieceKind, TranscriptView
from bot.ports import Commands
from bot.rendering.argument_fields import LEAVE_OUT, NO, YES
from bot.rendering.text_safety import single_line

COMMANDS: Mapping[str, str] = {
    "/help": gettext_lazy("what can be typed here"),
    "/mcp": gettext_lazy("servers and tools: /mcp list, /mcp tools, /mcp add, /mcp help"),
    "/profile": gettext_lazy("who the bot is in a place: /profile list, /profile set NAME"),
    "/agents": gettext_lazy("who can be asked by name here, and what each does"),
    "/ask": gettext_lazy("ask one of them: /ask NAME TEXT"),
    "/conversations": gettext_lazy("what was talked about: list, show, export, delete"),
    "/usage": gettext_lazy("tokens and money that models took: /usage me, /usage workspace"),
    "/approvals": gettext_lazy("calls that wait for you: list, approve ID, deny ID REASON"),
    "/open": gettext_lazy("continue one of these conversations: /open ID"),
    "/new": gettext_lazy("start a fresh conversation"),
    "/check": gettext_lazy("find out whether a call of unknown outcome happened"),
    "/again": gettext_lazy("run such a call once more"),
    "/stop": gettext_lazy("stop the turn that runs or waits for an approval in this conversation"),
    "/quit": gettext_lazy("leave (also Ctrl-D)"),
}
_ELSEWHERE = frozenset(
    {"/mcp", "/profile", "/agents", "/ask", "/conversations", "/usage", "/preferences", "/approvals"}
)
"""Commands that the engine's side answers."""
NEEDED = gettext_lazy("Something is needed here.")
_SWITCH = ("yes", "no")
_WORDS = (YES, NO, LEAVE_OUT)
"""Choices that can also be typed in English."""
CANCELLED_TEXT = gettext_lazy("Nothing was changed.")
LONGEST_PROGRESS = 300
"""Characters of a progress text; the page shows as much as fits."""


@dataclass(frozen=True, slots=True)
class Say:
    """A message for the assistant."""

    text: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """A command that the engine's side answers."""

    command: str
    words: tuple[str, ...]


class LocalCommand(Enum):
    """Commands of the terminal itself, without arguments."""

    HELP = auto()
    NEW = auto()
    CHECK = auto()
    AGAIN = auto()
    STOP = auto()
    QUIT = auto()


RepeatCall = Literal[LocalCommand.CHECK, LocalCommand.AGAIN]
"""Commands about the last call of unknown outcome."""


@dataclass(frozen=True, slots=True)
class OpenConversation:
    """Continue an earlier conversation. The beginning of its id is enough; empty if none was typed."""

    name: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command that does not exist; `like` is one that does, if any is near."""

    command: str
    like: str = ""

    @property
    def error(self) -> str:
        """Error for the user, on one line."""
        missing = _("There is no {command}.", command=self.command)
        hint = _("Did you mean {command}?", command=self.like) if self.like else _("Type /help for what there is.")
        return f"{missing} {hint}"


Line = Say | Invoke | OpenConversation | LocalCommand | UnknownCommand
_PLAIN: Mapping[str, LocalCommand] = {
    "exit": LocalCommand.QUIT,
    "quit": LocalCommand.QUIT,
    "/exit": LocalCommand.QUIT,
    "/quit": LocalCommand.QUIT,
    "?": LocalCommand.HELP,
    "/?": LocalCommand.HELP,
    "/help": LocalCommand.HELP,
    "/new": LocalCommand.NEW,
    "/clear": LocalCommand.NEW,
    "/check": LocalCommand.CHECK,
    "/again": LocalCommand.AGAIN,
    "/stop": LocalCommand.STOP,
}


def parse(text: str) -> Line | None:
    """Parse a line; None for an empty one. A path (`/etc/hosts is ...`) is not a command."""
    text = text.strip()
    if not text:
        return None
    command = text.split(maxsplit=1)[0]
    if text in _PLAIN:
        return _PLAIN[text]
    if not text.startswith("/") or "/" in command[1:]:
        return Say(text)
    name, rest = command.lower()[1:], text[len(command) :]
    if name == "open":
        return OpenConversation(rest.strip())
    if command.lower() in _ELSEWHERE:
        return Invoke(name, (rest.strip(),) if name in WHOLE_TEXT else _words(rest))
    return _PLAIN.get(command.lower()) or _unknown(command)


def _unknown(command: str) -> UnknownCommand:
    near = difflib.get_close_matches(command.lower(), COMMANDS, n=1, cutoff=0.5)
    return UnknownCommand(command[:40], near[0] if near else "")


def _words(text: str) -> tuple[str, ...]:
    """Split words like a shell, so that names with spaces can be quoted; at spaces if a quote is open."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


# -------------------- form prompt
# Secrets are typed without an echo. Ctrl-C or Escape leaves the form without a change.


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
            values[field.name] = await self._field(field)
        return values

    async def line(self, label: str, hint: str = "") -> str:
        """Ask for a line that is not a field. Raises FormCancelled."""
        return (await self._ask(Field("line", label, hint=hint), "")).strip()

    async def _field(self, field: Field) -> str:
        value = await (self._lines(field) if field.kind is FieldKind.LINES else self._value(field))
        text = _("(hidden)") if field.kind is FieldKind.SECRET and value else value.replace("\n", " / ")
        shown = single_line(text, 200) or _("(empty)")
        self._transcript.notice(f"{field.label}: {shown}")
        return value

    async def _value(self, field: Field) -> str:
        choices = _SWITCH if field.kind is FieldKind.SWITCH else field.choices
        while True:
            value = (await self._ask(field, field.value)).strip()
            if value and choices:
                matches = _matching_choices(value, choices)
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
            line = (await self._ask(field, old)).strip()
            if line:
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
            return await self._line
        finally:
            self._line = None
            self._screen.stop_text()


def _matching_choices(value: str, choices: Sequence[str]) -> list[str]:
    """Return the choices that a typed text names, or begins."""
    spellings = {choice.lower(): choice for choice in choices}
    spellings = {word.message: str(word) for word in _WORDS if str(word) in choices} | spellings
    typed = value.lower()
    if typed in spellings:
        return [spellings[typed]]
    return list(dict.fromkeys(choice for spelling, choice in spellings.items() if spelling.startswith(typed)))


def _without_action(reply: Reply, action: ReplyAction) -> Reply:
    """Return a reply without the action that is asked about below it, and without the fix that a question is."""
    details = tuple((name, text) for name, text in reply.details if not (action.question and name == "fix"))
    actions = tuple(candidate for candidate in reply.actions if candidate is not action)
    return replace(reply, details=details, actions=actions)


class CommandRunner:
    """Runs commands. `here` is the conversation that is open."""

    def __init__(
        self, user: LocalUser, transcript: TranscriptView, renderer: LazyRenderer, here: Callable[[], ConversationKey]
    ) -> None:
        self._user = user
        self._transcript = transcript
        self._renderer = renderer
        self._here = here
        self.form_prompt = FormPrompt(transcript)

    async def run(self, commands: Commands, command: str, words: tuple[str, ...]) -> InboundMessage | None:
        """Run a command and print its replies. Return a message for the engine, if any."""
        request: Invocation | FormSubmission = self._invocation((command, *words))
        before: dict[str, str] = {}
        try:
            while True:
                last = await self._last_reply(commands, request)
                if isinstance(last, Form):
                    before = await self.form_prompt.fill(last, before)
                    request = self._submission(last, before)
                    continue
                if last is None or last.message is not None:
                    return last.message if last is not None else None
                action = next(
                    (candidate for candidate in last.actions if candidate.confirm or candidate.question), None
                )
                if action is None:
                    self._print(last)
                    return None
                # Its name is asked for below: a line that has it already would say the same once more.
                self._print(_without_action(last, action))
                words = await self._confirmed_words(action, last)
                if not words:
                    return None
                request = self._invocation(words)
        except FormCancelled:
            self._transcript.notice(str(CANCELLED_TEXT))
            return None

    async def run_dialog(self, commands: Commands, words: tuple[str, ...]) -> Reply | None:
        """Run the action of a card's key, including its form. Return the last reply, which is not printed, or None if
        the user left the form.
        """
        request: Invocation | FormSubmission = self._invocation(words)
        before: dict[str, str] = {}
        try:
            while isinstance(last := await self._last_reply(commands, request), Form):
                before = await self.form_prompt.fill(last, before)
                request = self._submission(last, before)
        except FormCancelled:
            self._transcript.notice(str(CANCELLED_TEXT))
            return None
        return last

    async def _last_reply(self, commands: Commands, invocation: Invocation | FormSubmission) -> Reply | Form | None:
        """Return the last reply; print the earlier ones as progress."""
        self._transcript.busy = _("Working…")
        last: Reply | Form | None = None
        async for last in commands.handle(invocation):
            if isinstance(last, Reply):
                self._transcript.busy = single_line(strip_markdown(last.text), LONGEST_PROGRESS) or _("Working…")
        self._transcript.busy = ""
        return last

    async def _confirmed_words(self, action: ReplyAction, reply: Reply) -> tuple[str, ...]:
        """Return the words of an action once the user has agreed. After a no there are none if the reply is about a
        change that is made already. Raises FormCancelled.
        """
        if not action.question:
            return (*action.words, "--confirm", await self._ask_name(action))
        answer = await self.form_prompt.line(single_line(action.question, 200), _("y, or nothing"))
        if answer.lower() in ("y", "yes"):
            return action.words
        if reply.failed:
            raise FormCancelled
        return ()

    async def _ask_name(self, action: ReplyAction) -> str:
        name = await self.form_prompt.line(
            _("Type {text} to confirm", text=single_line(action.confirm, 80)),
            _("{action}, or nothing", action=action.label),
        )
        if not name:
            raise FormCancelled
        return name

    def _invocation(self, words: tuple[str, ...]) -> Invocation:
        return Invocation(words[0], words[1:], self._user.member, self._here(), self._user.operator)

    def _submission(self, form: Form, values: dict[str, str]) -> FormSubmission:
        return FormSubmission(form.id, values, self._user.member, self._here(), self._user.operator)

    def _print(self, reply: Reply) -> None:
        self._transcript.print_pieces(
            Piece(PieceKind.TEXT, self._renderer.reply(reply, self._transcript.screen.columns))
        )

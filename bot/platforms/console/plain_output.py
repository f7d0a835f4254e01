"""Output without a screen. Written lines are final.

As text, the answer goes to standard output; replies to commands are plain text, and their next steps are lines to type.
For programs (`--json`), the events of the HTTP API go there as lines of JSON. The rest goes to standard error.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, TextIO

from bot.chat.card_messages import open_elicitation, pending_call
from bot.domain.commands import Form, Reply
from bot.domain.turns import ModelRetry, ModelStep, TurnStatus, TurnView
from bot.folders import in_shell, shell_command
from bot.i18n import _
from bot.platforms.console.entries import AGAIN, Entry, turn_entries
from bot.platforms.console.lines import ConsoleTheme, cells, message_text, safe_lines, tool_text
from bot.rendering.approval_card import approval_card
from bot.rendering.elicitation_card import elicitation_card
from bot.rendering.text_safety import single_line, strip_control
from bot.rendering.timeline import (
    CallLine,
    CheckCallAction,
    Failure,
    Note,
    ReplyText,
    ToolOutput,
    answer,
    offers_behind,
    waiting_text,
)

if TYPE_CHECKING:
    from bot.rendering.response_models import SignedBy
    from bot.rendering.turn_events import EventEncoder

ARROW, BACK, ON = "→", "◀", "▶"
Step = tuple[str, str, str]
"""A mark, the line to type, and its effect."""
CARD_WIDTH = 100
PIECE_SECONDS = 0.1
"""Seconds between two pieces of a reply."""


def next_steps(reply: Reply) -> Iterator[Step]:
    """Yield the actions of a reply, then its pages."""
    for action in reply.actions:
        confirm = ("--confirm", action.confirm) if action.confirm else ()
        yield ARROW, command_line((*action.words, *confirm)), single_line(action.label, 60)
    transcript = reply.page
    if transcript is None:
        return
    for mark, number in ((BACK, transcript.number - 1), (ON, transcript.number + 1)):
        if 1 <= number <= transcript.of:
            page = _("page {number} of {count}", number=number, count=transcript.of)
            yield mark, command_line((*transcript.words, "--page", str(number))), page


def command_line(words: tuple[str, ...]) -> str:
    """Return words quoted, so that they parse to the same words."""
    return single_line(safe_lines(f"/{shlex.join(words)}"), 400)


def instead_of(form: Form) -> str:
    """Return the command line that replaces a form."""
    fields = ", ".join(f"{field.label}: {field.error}" for field in form.fields if field.error)
    sentences = (
        _("{form}: no terminal is open to fill in the form.", form=single_line(form.title, 200)),
        single_line(fields, 400),
        _("On one line: {command}", command=form.instead) if form.instead else "",
    )
    return " ".join(filter(None, sentences))


def with_shell_commands(reply: Reply) -> Reply:
    """Return a reply with its commands of this program as the user can type them."""
    details = tuple((str(name), in_shell(value)) for name, value in reply.details)
    return replace(reply, text=in_shell(reply.text), details=details)


def open_command(conversation: str) -> str:
    """Return the command that opens a conversation in a terminal."""
    return shell_command(f"chat --conversation {single_line(conversation, 60)}")


def reply_text(reply: Reply | Form) -> str:
    """Return a reply as lines: its text, table, details (`name: value`), next steps and document; for a form, the
    command line that replaces it.
    """
    if isinstance(reply, Form):
        return instead_of(reply)
    if reply.document is not None:
        # Alone, so that it can be sent to a file.
        return safe_lines(reply.document.text).rstrip()
    reply = with_shell_commands(reply)
    parts = [safe_lines(reply.text).rstrip()]
    if reply.table is not None:
        rows = [[single_line(cell, 200) for cell in row] for row in (reply.table.headings, *reply.table.rows)]
        widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
        padded = ([cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows)
        parts.append("\n".join("  ".join(row).rstrip() for row in padded))
    parts.append("\n".join(f"{single_line(name, 60)}: {safe_lines(value)}" for name, value in reply.details))
    parts.append("\n".join(f"{mark} {line}   {effect}" for mark, line, effect in next_steps(reply)))
    return "\n\n".join(part for part in parts if part)


class TurnRemarks:
    """Lines beside an answer: tool lines, cards and notes, each once, on standard error."""

    def __init__(self, stream: TextIO, theme: ConsoleTheme, view: TurnView) -> None:
        self._stream = stream
        self._theme = theme
        self._conversation = view.turn.conversation.thread
        self._written: set[str] = set()
        self._activity: str | ModelRetry = ""

    def write_entry(self, key: str, entry: Entry) -> None:
        """Write an entry other than the answer, if it has changed."""
        theme = self._theme
        match entry:
            case CallLine(_, line):
                self._write_once(f"{key} {line.mark}", tool_text(line, theme))
            case Note(text):
                self._write_once(key, f"  {theme.dim(theme.own_text(safe_lines(text)))}")
            case Failure(text):
                self._write_once(key, f"  {theme.error(theme.own_text(safe_lines(text)))}")
            case ToolOutput(failed=True, raw=text):
                self._write_once(key, theme.error(safe_lines(text)))
            case CheckCallAction():
                command = open_command(self._conversation)
                hint = _("Did it happen? /check finds out, /again runs it once more: {command}", command=command)
                self._write_once(key, f"  {theme.warn(hint)}")
            case _:
                pass

    def write_state(self, view: TurnView) -> None:
        """Write the reason a queued turn waits, once for every position, and the time of every retry of the model,
        because nothing moves meanwhile.
        """
        if words := waiting_text(view):
            text = words
            if offers_behind(view.blocker):
                command = open_command(self._conversation)
                text = _("{waiting}. To approve or stop that: {command}", waiting=words, command=command)
            self._write_once(words, f"  {self._theme.dim(text)}")
        if isinstance(view.activity, ModelRetry) and view.activity != self._activity:
            self.write_line(f"  {self._theme.dim(safe_lines(str(view.activity)))}")
        self._activity = view.activity

    def write_cards(self, view: TurnView) -> None:
        """Write the card of every pending approval and elicitation once."""
        for step in view.steps:
            if isinstance(step, ModelStep):
                continue
            for elicitation in step.elicitations:
                asked = elicitation_card(step, elicitation, view)
                blocks = () if asked.outcome else open_elicitation(asked, view.turn.author, time())
                text = message_text(blocks, self._theme, CARD_WIDTH)
                self._write_once(
                    asked.elicitation_id, text or f"  {self._theme.dim(f'{asked.title}. {asked.outcome}')}"
                )
            if (card := approval_card(step)) is not None and not card.outcome:
                text = message_text(pending_call(step, card, time()), self._theme, CARD_WIDTH)
                self._write_once(f"{card.approval_id} {card.revision}", text)

    def write_line(self, text: str) -> None:
        """Write a line of the program."""
        write(self._stream, text + "\n")

    def _write_once(self, key: str, text: str) -> None:
        if key not in self._written:
            self._written.add(key)
            self.write_line(text)


class _HeadlessOutput:
    """Notices and foreign turns, on standard error."""

    def __init__(self, stdout: TextIO, stderr: TextIO, theme: ConsoleTheme) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._theme = theme

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Write a turn of another conversation or process: its end, or the command to answer it."""
        remarks = TurnRemarks(self._stderr, self._theme, view)
        if not view.turn.status.ended and view.turn.status is not TurnStatus.WAITING:
            return
        remarks.write_line(self._theme.dim(safe_lines(heading)))
        if view.turn.status is TurnStatus.WAITING:
            command = open_command(view.turn.conversation.thread)
            text = (
                _("It waits for an answer: {command}", command=command)
                if view.asks and not view.awaiting
                else _("It waits for an approval: {command}", command=command)
            )
            remarks.write_line(self._theme.dim(f"  {text}"))
            return
        for key, entry, _is_final in turn_entries(view):
            remarks.write_entry(key, entry)
        if view.turn.status is TurnStatus.DONE and (text := answer(view)):
            remarks.write_line(safe_lines(text))

    def notice(self, text: str) -> None:
        """Write one line."""
        write(self._stderr, f"{safe_lines(in_shell(text))}\n")


class PlainStream(_HeadlessOutput):
    """Streams the replies of this terminal's turns to standard output as they grow."""

    def __init__(self, stdout: TextIO, stderr: TextIO, theme: ConsoleTheme) -> None:
        super().__init__(stdout, stderr, theme)
        self._remarks: dict[str, TurnRemarks] = {}
        self._printed: dict[tuple[str, str], str] = {}
        self._has_replies = False

    def append_own(self, view: TurnView) -> None:
        """Write the additions since the last view."""
        remarks = self._remarks.setdefault(view.turn.id, TurnRemarks(self._stderr, self._theme, view))
        remarks.write_state(view)
        for key, entry, is_final in turn_entries(view):
            match entry:
                case ReplyText(text) | ToolOutput(failed=False, raw=text):
                    self._write_reply((view.turn.id, key), text, remarks, is_final=is_final)
                case _:
                    remarks.write_entry(key, entry)
        remarks.write_cards(view)
        if view.turn.status.ended:
            self._remarks.pop(view.turn.id)

    def _write_reply(self, key: tuple[str, str], text: str, remarks: TurnRemarks, *, is_final: bool) -> None:
        text = strip_control(text)
        before = self._printed.get(key)
        if before is None:
            before = ""
            if self._has_replies:
                write(self._stdout, "\n")
            self._has_replies = True
        elif before.endswith("\0"):
            return
        if not text.startswith(before):
            write(self._stdout, "\n")
            remarks.write_line(self._theme.dim(str(AGAIN)))
            before = ""
        write(self._stdout, text[len(before) :])
        if is_final:
            write(self._stdout, "" if text.endswith("\n") else "\n")
            text += "\0"
        self._printed[key] = text


def write(stream: TextIO, text: str) -> None:
    """Write sanitized text and flush; characters outside of the stream's encoding become a question mark."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding, "replace"))
    stream.flush()


class JsonLines(_HeadlessOutput):
    """Writes the events of this terminal's turns as lines of JSON. `signed_by` names the approvers of a call. Text that
    follows the last piece within PIECE_SECONDS is in the next one.
    """

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        theme: ConsoleTheme,
        signed_by: SignedBy,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(stdout, stderr, theme)
        self._signed_by = signed_by
        self._clock = clock
        self._encoders: dict[str, EventEncoder] = {}
        self._written: dict[str, tuple[TurnView, float]] = {}

    def append_own(self, view: TurnView) -> None:
        """Write the events since the last view."""
        turn = view.turn
        before, written_at = self._written.get(turn.id, (None, 0.0))
        if before is not None and view.streaming:
            only_text_grew = replace(view, streaming=before.streaming, revision=before.revision) == before
            if only_text_grew and self._clock() - written_at < PIECE_SECONDS:
                return
        self._written[turn.id] = view, self._clock()
        if (encoder := self._encoders.get(turn.id)) is None:
            from bot.rendering.turn_events import Cursor, EventEncoder  # noqa: PLC0415 - its schemas take a while to load

            encoder = self._encoders[turn.id] = EventEncoder(
                turn.conversation.thread, self._signed_by, Cursor(turn.id), reader=turn.author.principal
            )
        for event in encoder.encode(view):
            line = {"event": event.name, "data": event.data}
            write(self._stdout, json.dumps(line, separators=(",", ":")) + "\n")

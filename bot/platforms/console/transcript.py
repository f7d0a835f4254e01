"""Turns on the live screen: their entries in order, final pieces, and moving lines below those.

Entries are printed once, as soon as neither they nor earlier ones can change. An entry keeps its key in all of its
states, so that printed ones are recognized. A growing reply is printed by finished Markdown blocks: they are cut
between lines, and more text only ever adds blocks. The Markdown renderer is imported late, because rich takes
longer to import than the prompt to appear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from bot.domain.commands import Reply
from bot.domain.turns import CallOrigin, ModelStep, StepStatus, ToolStep, TurnStatus, TurnView
from bot.folders import in_shell
from bot.i18n import _, gettext_lazy, ngettext
from bot.platforms.console.lines import ConsoleTheme, cells, clip, fold, remark, safe_lines, strip_markdown, tool_text
from bot.rendering.tables import format_for_people
from bot.rendering.text_safety import single_line, strip_control
from bot.rendering.timeline import (
    SECOND_TRY,
    STOPPED,
    StatusIcon,
    ToolStatus,
    offers_behind,
    offers_of_call,
    tool_status,
    waiting_text,
)

if TYPE_CHECKING:
    from bot.platforms.console.markdown_renderer import MarkdownRenderer
    from bot.platforms.console.screen import Screen

WARM_UP = "`code`\n\n```python\nprint(1)\n```"
AGAIN = gettext_lazy("The reply was interrupted and starts again.")
UNSURE = gettext_lazy("Did it run? /check asks the model; /again runs it again if you approve it.")
RETURNED_LINES = 100
"""Lines of a tool result on a screen."""
REPEATED_LENGTH = 8
"""Characters of a result from which the same words in an answer are no chance."""
LEAD_LENGTH = 100
"""Characters before a result that an answer repeats."""
SLOW_SECONDS = 3
LEAST_NEWS = 30
"""Columns of the activity before the hint gets room."""

_END = {
    StepStatus.AWAITING: StepStatus.CANCELLED,
    StepStatus.READY: StepStatus.CANCELLED,
    StepStatus.STARTED: StepStatus.UNKNOWN,
    StepStatus.ASKING: StepStatus.CANCELLED,
}
"""Status of an open call after the end of its turn."""


# -------------------- entries


@dataclass(frozen=True, slots=True)
class ReplyText:
    """A reply of the model, Markdown as it wrote it; `growing` while it writes."""

    key: str
    text: str
    growing: bool


@dataclass(frozen=True, slots=True)
class CallLine:
    """A tool call; `ended` if its line will not change any more."""

    key: str
    line: ToolStatus
    ended: bool


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Result of a manual call; no model describes it. `failed` is True for an error. `for_people` is the text with
    tables in place of JSON, which scripts read.
    """

    key: str
    text: str
    failed: bool
    for_people: str


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """The turn ended with a call of unknown outcome; the user can check or repeat it."""

    key: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence beside the replies."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer."""

    key: str
    text: str


Entry = ReplyText | CallLine | ToolOutput | UnknownOutcome | Note | Failure


def entries(view: TurnView) -> tuple[Entry, ...]:
    """Return the entries of a turn, in order."""
    return tuple(_entries(view))


def _entries(view: TurnView) -> Iterator[Entry]:
    replies = 0
    yield from _opening_notes(view)
    for step in view.steps:
        match step:
            case ModelStep():
                yield from _reply_entries(f"said-{replies}", step.message.text, growing=False)
                for index, note in enumerate(step.notes):
                    yield Note(f"note-{replies}-{index}", single_line(note, 500))
                replies += 1
            case ToolStep() if step.origin is not CallOrigin.PREVIEW:
                yield from _call_entries(_at_the_end(step) if view.turn.status.ended else step, view)
    status = view.turn.status
    if not status.ended:
        yield from _reply_entries(f"said-{replies}", view.streaming, growing=True)
    elif status is TurnStatus.CANCELLED:
        yield Note("end", str(STOPPED))
    elif status is TurnStatus.FAILED:
        yield Failure("end", single_line(view.turn.failure, 500) or _("The turn failed."))
    if status.ended and any(isinstance(step, ToolStep) and offers_of_call("", step) for step in view.steps):
        yield UnknownOutcome("unsure")


def _opening_notes(view: TurnView) -> Iterator[Note]:
    if view.turn.question.agent_name:
        yield Note("agent", _("Agent: {name}", name=single_line(view.turn.question.agent_name, 100)))
    if view.turn.question.may_have_run and not view.turn.status.ended:
        yield Note("second-try", str(SECOND_TRY))


def _call_entries(step: ToolStep, view: TurnView) -> Iterator[Entry]:
    line = tool_status(step, view)
    text = step.result.text.strip() if step.result else ""
    if view.turn.question.call is None or not text or step.status not in (StepStatus.DONE, StepStatus.FAILED):
        repeated = _is_repeated(line.summary, step, view)
        is_final = step.status.ended and (repeated or not _may_be_repeated(line, step, view))
        yield CallLine(f"call-{step.n}", replace(line, summary="", more="") if repeated else line, is_final)
        return
    yield CallLine(f"call-{step.n}", replace(line, summary="", more=""), ended=True)
    for_people = format_for_people(step.result) if step.result else text
    yield ToolOutput(f"returned-{step.n}", text, step.status is StepStatus.FAILED, for_people)


def _is_repeated(summary: str, step: ToolStep, view: TurnView) -> bool:
    """Return True if the answer has the result of a call, so that the line of the call need not have it too."""
    result = " ".join(strip_markdown(summary.rstrip("…")).split())
    if len(result) < REPEATED_LENGTH or step.status is not StepStatus.DONE:
        return False
    answers = [other.message.text for other in view.steps if isinstance(other, ModelStep) and other.n > step.n]
    return result in " ".join(strip_markdown("\n".join([*answers, view.streaming])).split())


def _may_be_repeated(line: ToolStatus, step: ToolStep, view: TurnView) -> bool:
    """Return True while the answer to a call has hardly begun and nothing else goes on."""
    if view.turn.status.ended or step.status is not StepStatus.DONE or len(line.summary) < REPEATED_LENGTH:
        return False
    is_answered = any(isinstance(other, ModelStep) and other.n > step.n for other in view.steps)
    is_open = any(isinstance(other, ToolStep) and not other.status.ended for other in view.steps)
    return not (is_answered or is_open or len(view.streaming) > len(line.summary) + LEAD_LENGTH)


def _at_the_end(step: ToolStep) -> ToolStep:
    return step if step.status.ended else replace(step, status=_END[step.status])


def _reply_entries(key: str, text: str, *, growing: bool) -> Iterator[ReplyText]:
    if text.strip():
        yield ReplyText(key, text, growing)


# -------------------- pieces


class LazyRenderer:
    """Markdown renderer that is loaded at its first use, or earlier by `warm_up`."""

    def __init__(self, theme: ConsoleTheme) -> None:
        self._theme = theme

    async def warm_up(self) -> None:
        """Import in a thread, so that the first answer does not wait."""
        await asyncio.to_thread(self.markdown, WARM_UP, 40)

    def markdown(self, text: str, width: int) -> str:
        """Return Markdown as colored lines."""
        return self._markdown_renderer.markdown(text, width)

    def split_blocks(self, text: str) -> tuple[list[str], str]:
        """Split a growing text into its finished blocks and the rest."""
        return self._markdown_renderer.split_blocks(text)

    def reply(self, reply: Reply, width: int) -> str:
        """Return a command's reply as colored lines."""
        return self._markdown_renderer.reply(reply, width)

    @cached_property
    def _markdown_renderer(self) -> MarkdownRenderer:
        from bot.platforms.console.markdown_renderer import MarkdownRenderer  # noqa: PLC0415 - the prompt must not wait for rich

        return MarkdownRenderer(self._theme)


class PieceKind(StrEnum):
    """Kind of a printed piece; a blank line separates different kinds."""

    QUESTION = "question"
    TEXT = "text"
    TOOL = "tool"
    CARD = "card"
    REMARK = "remark"

    def leaves_room_after(self, before: PieceKind | None) -> bool:
        """Return True if a blank line separates two pieces."""
        return before is not None and (before is not self or self in (PieceKind.TEXT, PieceKind.QUESTION))


@dataclass(frozen=True, slots=True)
class Piece:
    """Finished text of one kind, without blank lines around it."""

    kind: PieceKind
    text: str


class Transcript:
    """One turn, printed piece by piece."""

    def __init__(self, theme: ConsoleTheme, renderer: LazyRenderer) -> None:
        self._theme = theme
        self._renderer = renderer
        self._done: set[str] = set()
        self._printed: dict[str, str] = {}
        self._cached: tuple[str, int, str] = ("", 0, "")
        """Cache of the last rendered Markdown by width, because the tail is rendered repeatedly."""

    def advance(self, view: TurnView, width: int) -> list[Piece]:
        """Return the new pieces that are final."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                pieces += self._reply_pieces(entry, width)
            if not _is_final(entry):
                break
            if not isinstance(entry, ReplyText):
                pieces.append(self._piece(entry, width))
            self._done.add(entry.key)
        return pieces

    def moving_lines(self, view: TurnView, width: int) -> list[Piece]:
        """Return the lines that may change, for a redraw below the printed ones."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                tail = strip_control(entry.text)[len(self._printed.get(entry.key, "")) :]
                pieces += self._block(tail, width)
            else:
                pieces.append(self._piece(entry, width))
        return pieces

    def _reply_pieces(self, reply: ReplyText, width: int) -> list[Piece]:
        text = strip_control(reply.text)
        before = self._printed.get(reply.key, "")
        pieces: list[Piece] = []
        if not text.startswith(before):
            pieces.append(Piece(PieceKind.REMARK, remark(AGAIN, width, self._theme.dim)))
            before = ""
        unprinted = text[len(before) :]
        now, tail = self._renderer.split_blocks(unprinted)
        now += [] if reply.growing else [tail]
        for block in now:
            pieces += self._block(block, width)
        self._printed[reply.key] = before + "".join(now)
        return pieces

    def _block(self, markdown: str, width: int) -> list[Piece]:
        if not markdown.strip():
            return []
        if self._cached[:2] != (markdown, width):
            self._cached = (markdown, width, self._renderer.markdown(markdown, width))
        text = self._cached[2]
        return [Piece(PieceKind.TEXT, text)] if text else []

    def _piece(self, entry: CallLine | ToolOutput | UnknownOutcome | Note | Failure, width: int) -> Piece:
        match entry:
            case CallLine(_, line):
                return Piece(PieceKind.TOOL, tool_text(line, self._theme, width))
            case ToolOutput(failed=failed, for_people=text):
                return Piece(PieceKind.TEXT, self._output_text(text, width, failed=failed))
            case UnknownOutcome():
                return Piece(PieceKind.REMARK, remark(self._theme.own_text(str(UNSURE)), width, self._theme.warn))
            case Note(_, text):
                return Piece(PieceKind.REMARK, remark(self._theme.own_text(safe_lines(text)), width, self._theme.dim))
            case Failure(_, text):
                return Piece(PieceKind.REMARK, remark(self._theme.own_text(safe_lines(text)), width, self._theme.error))

    def _output_text(self, text: str, width: int, *, failed: bool) -> str:
        """Return a tool result as literal text, not as Markdown."""
        lines = fold(safe_lines(text), width)
        more = len(lines) - RETURNED_LINES
        colored = [self._theme.error(line) if failed and line else line for line in lines[:RETURNED_LINES]]
        if more > 0:
            omitted = ngettext("… {n} more line", "… {n} more lines", more)
            colored.append(self._theme.dim(self._theme.own_text(omitted)))
        return "\n".join(colored)


def _is_final(entry: Entry) -> bool:
    match entry:
        case ReplyText(growing=growing):
            return not growing
        case CallLine(ended=ended):
            return ended
        case ToolOutput() | UnknownOutcome() | Note() | Failure():
            return True


# -------------------- the live screen


class TranscriptView:
    """Live transcript. `on_view` receives every view of this terminal after its rendering."""

    def __init__(self, screen: Screen, theme: ConsoleTheme, renderer: LazyRenderer, clock: Callable[[], float]) -> None:
        self.screen = screen
        self.on_view: Callable[[TurnView], None] = lambda _view: None
        self.busy = ""
        """Activity without a turn, as `Starting…`."""
        self.stopping = False
        """True while the current turn is being stopped."""
        self.queued: Sequence[str] = ()
        self._theme = theme
        self._renderer = renderer
        self._transcripts: dict[str, Transcript] = {}
        self._moving: dict[str, TurnView] = {}
        self._last: PieceKind | None = None
        self._tick = 0
        self._clock = clock
        self._since = clock()
        screen.source = self.moving_lines

    def start_activity(self, busy: str) -> None:
        """Start an activity and its clock."""
        self.busy = busy
        self._since = self._clock()

    def append_own(self, view: TurnView) -> None:
        """Render a turn of this terminal."""
        self.busy = ""
        self._draw(view)

    def _draw(self, view: TurnView) -> None:
        transcript = self._transcripts.get(view.turn.id)
        if transcript is None:
            transcript = self._transcripts[view.turn.id] = Transcript(self._theme, self._renderer)
        pieces = transcript.advance(view, self.screen.columns)
        if view.turn.status.ended:
            self._moving.pop(view.turn.id, None)
            del self._transcripts[view.turn.id]
        else:
            self._moving[view.turn.id] = view
        self.print_pieces(*pieces)
        self.on_view(view)

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Print a foreign turn when it has ended or asks for an approval."""
        if view.turn.id not in self._transcripts:
            if not view.turn.status.ended and view.turn.status is not TurnStatus.WAITING:
                return
            text = self._theme.own_text(safe_lines(heading))
            self.print_pieces(Piece(PieceKind.QUESTION, remark(text, self.screen.columns, self._theme.dim)))
            if not (self._moving or self.busy):
                self.start_activity("")
        self._draw(view)

    def notice(self, text: str) -> None:
        """Print a notice."""
        self.remark(self._theme.own_text(safe_lines(in_shell(text))))

    def remark(self, text: str) -> None:
        """Print dim lines."""
        self.print_pieces(Piece(PieceKind.REMARK, remark(text, self.screen.columns, self._theme.dim)))

    def print_error(self, text: str) -> None:
        """Print an error outside of a turn."""
        line = self._theme.own_text(safe_lines(in_shell(single_line(text, 1000))))
        self.print_pieces(Piece(PieceKind.REMARK, remark(line, self.screen.columns, self._theme.error)))

    def print_pieces(self, *pieces: Piece) -> None:
        """Print final pieces at once."""
        lines: list[str] = []
        for piece in pieces:
            lines += [""] if piece.kind.leaves_room_after(self._last) else []
            lines.append(piece.text)
            self._last = piece.kind
        if lines:
            self.screen.print("\n".join(lines) + "\n")
        else:
            self.screen.refresh()

    def drop_turn(self, turn_id: str) -> None:
        """Stop rendering a turn without further views."""
        self._moving.pop(turn_id, None)

    def tick(self) -> None:
        """Advance the spinner."""
        self._tick += 1
        self.screen.refresh()

    def moving_lines(self, width: int) -> list[str]:
        """Return the moving lines and the blank line before the prompt."""
        pieces = [piece for view in self._moving.values() for piece in self._pieces(view, width)]
        if not self.screen.asking and (line := self._activity(width)):
            pieces.append(Piece(PieceKind.REMARK, line))
        lines: list[str] = []
        last = self._last
        for piece in pieces:
            lines += [""] if piece.kind.leaves_room_after(last) else []
            lines += piece.text.split("\n")
            last = piece.kind
        if not self.screen.asking:
            waiting = (_("queued: {text}", text=safe_lines(single_line(text, width))) for text in self.queued)
            queued = (self._theme.own_text(f"  {text}") for text in waiting)
            lines += [self._theme.dim(clip(line, width, self._theme)) for line in queued]
        if last is not None and (not self.screen.asking or last is not PieceKind.CARD):
            lines.append("")
        return lines

    def _pieces(self, view: TurnView, width: int) -> list[Piece]:
        pieces = self._transcripts[view.turn.id].moving_lines(view, width)
        if not self.screen.asking:
            return pieces
        waiting = self._theme.icon(StatusIcon.WAITING)  # the card says it better
        return [
            piece for piece in pieces if not (piece.kind is PieceKind.TOOL and piece.text.startswith(f"  {waiting}"))
        ]

    def _activity(self, width: int) -> str:
        """Return the activity line, if nothing else moves."""
        words = _("Stopping…") if self.stopping else self._activity_text()
        if not words:
            return ""
        # One line: the actions stay, and the text before them is truncated to fit.
        room, way_out = width - 4, self._theme.own_text(self._stop_hint())
        text = self._theme.own_text(safe_lines(single_line(words, width)))
        if way_out:
            text = f"{clip(text, max(room - cells(way_out) - 2, LEAST_NEWS), self._theme)}  {way_out}"
        return f"  {self._theme.spinner(self._tick)} {self._theme.dim(clip(text, room, self._theme))}"

    def _activity_text(self) -> str:
        """Return the activity of the oldest moving turn; empty while its text grows."""
        view = self._oldest
        if view is None:
            return self.busy
        if view.streaming:
            return ""
        return waiting_text(view) or str(view.activity) or _default_activity(view)

    def _stop_hint(self) -> str:
        """Return the hint how to stop or unblock it."""
        if self._oldest is not None and offers_behind(self._oldest.blocker) and not self.stopping:
            return _("/stop stops that · Ctrl-C takes this back")
        seconds = int(self._clock() - self._since)
        return _("{seconds} s · Ctrl-C stops", seconds=seconds) if seconds >= SLOW_SECONDS else ""

    @property
    def _oldest(self) -> TurnView | None:
        return next(iter(self._moving.values()), None)


def _default_activity(view: TurnView) -> str:
    """Return the default activity of a turn: its tools, its approvers, or the next completion."""
    if view.asks:
        return _("Waiting for an answer…")
    if view.running:
        return _("Working…")
    return _("Waiting for an approval…") if view.awaiting else _("Thinking…")

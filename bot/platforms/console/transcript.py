"""One turn on the live screen: its entries in order, its printed and its moving lines.

Entries are printed once, as soon as neither they nor earlier ones can change. An entry keeps its key in all of its
states, so that printed ones are recognized. A growing reply is printed by finished Markdown blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnStatus
from bot.domain.views import TurnView
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.lines import fold, remark, safe_lines, tool_text
from bot.platforms.console.theme import ConsoleTheme
from bot.rendering.markdown_blocks import split_blocks
from bot.rendering.text_safety import single_line, strip_control
from bot.rendering.timeline import offers_of_call
from bot.rendering.tool_status import ToolStatus, tool_status


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
    """Result of a manual call; no model describes it. `failed` is True for an error."""

    key: str
    text: str
    failed: bool


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


_END = {
    StepStatus.AWAITING: StepStatus.CANCELLED,
    StepStatus.READY: StepStatus.CANCELLED,
    StepStatus.STARTED: StepStatus.UNKNOWN,
    StepStatus.ASKING: StepStatus.CANCELLED,
}
"""Status of an open call after the end of its turn."""

SECOND_TRY = "It may have run before. Approving runs it again."

Entry = ReplyText | CallLine | ToolOutput | UnknownOutcome | Note | Failure


def entries(view: TurnView) -> tuple[Entry, ...]:
    """Return the entries of a turn, in order."""
    return tuple(_entries(view))


def _entries(view: TurnView) -> Iterator[Entry]:
    replies = 0
    if view.turn.question.again and not view.turn.status.ended:
        yield Note("second-try", SECOND_TRY)
    for step in view.steps:
        match step:
            case ModelStep():
                yield from _said(f"said-{replies}", step.message.text, growing=False)
                for index, note in enumerate(step.notes):
                    yield Note(f"note-{replies}-{index}", single_line(note, 500))
                replies += 1
            case ToolStep():
                yield from _called(_last(step) if view.turn.status.ended else step, view)
    status = view.turn.status
    if not status.ended:
        yield from _said(f"said-{replies}", view.streaming, growing=True)
    elif status is TurnStatus.CANCELLED:
        yield Note("end", "Stopped.")
    elif status is TurnStatus.FAILED:
        yield Failure("end", single_line(view.turn.failure, 500) or "The turn failed.")
    if status.ended and any(isinstance(step, ToolStep) and offers_of_call("", step) for step in view.steps):
        yield UnknownOutcome("unsure")


def _called(step: ToolStep, view: TurnView) -> Iterator[Entry]:
    line = tool_status(step, view)
    text = step.result.text.strip() if step.result else ""
    if view.turn.question.call is None or not text or step.status not in (StepStatus.DONE, StepStatus.FAILED):
        yield CallLine(f"call-{step.n}", line, step.status.ended)
        return
    yield CallLine(f"call-{step.n}", replace(line, summary="", more=""), ended=True)
    yield ToolOutput(f"returned-{step.n}", text, step.status is StepStatus.FAILED)


def _last(step: ToolStep) -> ToolStep:
    return step if step.status.ended else replace(step, status=_END[step.status])


def _said(key: str, text: str, *, growing: bool) -> Iterator[ReplyText]:
    if text.strip():
        yield ReplyText(key, text, growing)


AGAIN = "The reply was interrupted and starts again."
UNSURE = "Did it run? /check asks the model; /again runs it again if you approve it."
RETURNED_LINES = 100
"""Lines of a tool result on a screen."""


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

    def __init__(self, look: ConsoleTheme, typesetting: LazyRenderer) -> None:
        self._look = look
        self._typesetting = typesetting
        self._done: set[str] = set()
        self._printed: dict[str, str] = {}
        self._set: tuple[str, int, str] = ("", 0, "")
        """Cache of the last rendered Markdown by width, because the tail is rendered repeatedly."""

    def advance(self, view: TurnView, width: int) -> list[Piece]:
        """Return the new pieces that are final."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                pieces += self._say(entry, width)
            if not _settled(entry):
                break
            if not isinstance(entry, ReplyText):
                pieces.append(self._whole(entry, width))
            self._done.add(entry.key)
        return pieces

    def moving(self, view: TurnView, width: int) -> list[Piece]:
        """Return the lines that may change, for a redraw below the printed ones."""
        pieces: list[Piece] = []
        for entry in entries(view):
            if entry.key in self._done:
                continue
            if isinstance(entry, ReplyText):
                tail = strip_control(entry.text)[len(self._printed.get(entry.key, "")) :]
                pieces += self._block(tail, width)
            else:
                pieces.append(self._whole(entry, width))
        return pieces

    def _say(self, said: ReplyText, width: int) -> list[Piece]:
        text = strip_control(said.text)
        before = self._printed.get(said.key, "")
        pieces: list[Piece] = []
        if not text.startswith(before):
            pieces.append(Piece(PieceKind.REMARK, remark(AGAIN, width, self._look.dim)))
            before = ""
        rest = text[len(before) :]
        blocks = split_blocks(rest)
        now = (*blocks.finished, *(() if said.growing else (blocks.tail,)))
        for block in now:
            pieces += self._block(block, width)
        self._printed[said.key] = before + "".join(now)
        return pieces

    def _block(self, markdown: str, width: int) -> list[Piece]:
        if not markdown.strip():
            return []
        if self._set[:2] != (markdown, width):
            self._set = (markdown, width, self._typesetting.markdown(markdown, width))
        text = self._set[2]
        return [Piece(PieceKind.TEXT, text)] if text else []

    def _whole(self, entry: CallLine | ToolOutput | UnknownOutcome | Note | Failure, width: int) -> Piece:
        match entry:
            case CallLine(_, line):
                return Piece(PieceKind.TOOL, tool_text(line, self._look, width))
            case ToolOutput(_, text, failed):
                return Piece(PieceKind.TEXT, self._returned(text, width, failed=failed))
            case UnknownOutcome():
                return Piece(PieceKind.REMARK, remark(self._look.own(UNSURE), width, self._look.warn))
            case Note(_, text):
                return Piece(PieceKind.REMARK, remark(self._look.own(safe_lines(text)), width, self._look.dim))
            case Failure(_, text):
                return Piece(PieceKind.REMARK, remark(self._look.own(safe_lines(text)), width, self._look.bad))

    def _returned(self, text: str, width: int, *, failed: bool) -> str:
        """Return a tool result as literal text, not as Markdown."""
        lines = fold(safe_lines(text), width)
        more = len(lines) - RETURNED_LINES
        shown = [self._look.bad(line) if failed and line else line for line in lines[:RETURNED_LINES]]
        return "\n".join([*shown, *([self._look.dim(self._look.own(f"… {more} more lines"))] if more > 0 else [])])


def _settled(entry: Entry) -> bool:
    match entry:
        case ReplyText(growing=growing):
            return not growing
        case CallLine(ended=ended):
            return ended
        case ToolOutput() | UnknownOutcome() | Note() | Failure():
            return True

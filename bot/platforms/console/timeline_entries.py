"""Entries of a view, in the order a terminal shows them.

An entry keeps its key in all of its states, so that printed ones are recognized.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnStatus
from bot.domain.views import TurnView
from bot.rendering.available_actions import offers_of_call
from bot.rendering.text_safety import single_line
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

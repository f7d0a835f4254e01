"""A view taken apart into the things a terminal shows one below the other.

Called by the drawings of this folder. An entry keeps its key from its first appearance to its last form, so a
drawing can tell what it has printed already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnStatus
from bot.domain.views import TurnView
from bot.rendering.plain import one_line
from bot.rendering.tool_lines import ToolLine, tool_line


@dataclass(frozen=True, slots=True)
class Said:
    """A reply of the model, Markdown as it wrote it; `growing` while it writes."""

    key: str
    text: str
    growing: bool


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call; `ended` if its line will not change any more."""

    key: str
    line: ToolLine
    ended: bool


@dataclass(frozen=True, slots=True)
class Remark:
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
}
"""What becomes of a call when its turn has ended without it."""

Entry = Said | Called | Remark | Failure


def entries(view: TurnView) -> tuple[Entry, ...]:
    """Everything of a turn that is worth a line, in its order."""
    return tuple(_entries(view))


def _entries(view: TurnView) -> Iterator[Entry]:
    replies = 0
    for step in view.steps:
        match step:
            case ModelStep():
                yield from _said(f"said-{replies}", step.message.text, growing=False)
                for index, note in enumerate(step.notes):
                    yield Remark(f"note-{replies}-{index}", one_line(note, 500))
                replies += 1
            case ToolStep():
                last = _last(step) if view.turn.status.ended else step
                yield Called(f"call-{step.n}", tool_line(last, view), last.status.ended)
    status = view.turn.status
    if not status.ended:
        yield from _said(f"said-{replies}", view.streaming, growing=True)
    elif status is TurnStatus.CANCELLED:
        yield Remark("end", "Stopped.")
    elif status is TurnStatus.FAILED:
        yield Failure("end", one_line(view.turn.failure, 500) or "The turn failed.")


def _last(step: ToolStep) -> ToolStep:
    return step if step.status.ended else replace(step, status=_END[step.status])


def _said(key: str, text: str, *, growing: bool) -> Iterator[Said]:
    if text.strip():
        yield Said(key, text, growing)

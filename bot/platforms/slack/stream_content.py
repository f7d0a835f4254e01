"""Turns as native streams: the text of each answer message so far, and its tool calls as tasks.

The messages and their names are those of `turns.turn_messages`. After its stream has stopped, a message is updated to
its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.domain.views import TurnView
from bot.platforms.slack.limits import TASK_TEXT
from bot.platforms.slack.reply_messages import ReplyMessage, split_reply
from bot.rendering.approval_card import call_title
from bot.rendering.safe_markdown import sanitize, sanitize_partial
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import CallLine, ReplyText, TimelineSection, last_state, timeline
from bot.rendering.tool_status import StatusIcon


class TaskStatus(StrEnum):
    """The words of Slack's `task_update`."""

    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Task:
    """One tool call. `details` never change, `output` may. Slack appends to both, so each is sent once."""

    id: str
    title: str
    status: TaskStatus
    details: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer message that is being written. `text` is Markdown and extends the earlier text, unless the model's
    reply restarted; `title` is that of the plan. `open` is False if the message is complete: then its stream is
    stopped.
    """

    name: str
    text: str
    tasks: tuple[Task, ...]
    title: str
    open: bool


_STATUSES = {
    StatusIcon.WAITING: TaskStatus.COMPLETE,
    StatusIcon.RUNNING: TaskStatus.IN_PROGRESS,
    StatusIcon.DONE: TaskStatus.COMPLETE,
    StatusIcon.FAILED: TaskStatus.ERROR,
    StatusIcon.DENIED: TaskStatus.COMPLETE,
    StatusIcon.UNKNOWN: TaskStatus.ERROR,
    StatusIcon.SKIPPED: TaskStatus.COMPLETE,
}
"""Task status by step status. A call that waits for a user is complete, because an unfinished task spins forever after
its stream has stopped.
"""
_TITLES = {
    TurnStatus.QUEUED: "Waiting",
    TurnStatus.RUNNING: "Working",
    TurnStatus.WAITING: "Waiting for an approval",
    TurnStatus.DONE: "Done",
    TurnStatus.FAILED: "Error",
    TurnStatus.CANCELLED: "Stopped",
}


WAITS_FOR_AN_ANSWER = "Waiting for an answer"


def streams(view: TurnView) -> tuple[Stream, ...]:
    """Return every answer message of a turn, in order."""
    sequence = timeline(view)
    steps = {step.n: last_state(step, view) for step in view.steps if isinstance(step, ToolStep)}
    going_on = view.turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks)
    return tuple(
        Stream(
            part.name,
            _text(part),
            tuple(_task(steps[each.n], each) for each in part.entries if isinstance(each, CallLine)),
            _title(view),
            open=going_on and part.last and number == len(sequence) - 1,
        )
        for number, passage in enumerate(sequence)
        if isinstance(passage, TimelineSection)
        for part in split_reply(passage)
    )


def _text(part: ReplyMessage) -> str:
    texts = [each for each in part.entries if isinstance(each, ReplyText)]
    written = [sanitize_partial(each.text) if each.growing else sanitize(each.text).rstrip() for each in texts]
    return "\n\n".join(written).rstrip()


def _task(step: ToolStep, called: CallLine) -> Task:
    line = called.line
    asked = _asked(step) if line.mark is StatusIcon.WAITING else ""
    ended = line.mark not in (StatusIcon.RUNNING, StatusIcon.WAITING)
    output = "  ".join(each for each in (line.state, line.summary) if each) if ended else ""
    return Task(
        id=f"call-{step.n}" + ("-asked" if asked else ""),
        title=single_line(f"{asked}{call_title(step)}", TASK_TEXT),
        status=_STATUSES[line.mark],
        details=single_line(line.name, TASK_TEXT),
        output=single_line(output, TASK_TEXT),
    )


def _asked(step: ToolStep) -> str:
    return "Asked for an approval: " if step.status is StepStatus.AWAITING else "Asked for an answer: "


def _title(view: TurnView) -> str:
    if view.asks and not view.awaiting:
        return WAITS_FOR_AN_ANSWER
    if view.turn.status is TurnStatus.RUNNING and view.activity:
        return single_line(str(view.activity), TASK_TEXT)
    return _TITLES[view.turn.status]

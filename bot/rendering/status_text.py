"""Status lines beside the replies of a turn in a thread: tool calls, notices, offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.available_actions import CheckCallAction, Offer, RunAgainAction, StopTurnAction, available_actions
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import CallLine, Entry
from bot.rendering.tool_status import StatusIcon, ToolStatus, tool_name

WORKING = "Working"
AI_NOTICE = "AI answer. Check before acting."
RETURNED_LIMIT = 3_000
MARKS = {
    StatusIcon.WAITING: "◇",
    StatusIcon.RUNNING: "◌",
    StatusIcon.DONE: "✓",
    StatusIcon.FAILED: "✗",
    StatusIcon.DENIED: "⊘",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "\N{EN DASH}",
}
_QUIET = (StatusIcon.DONE, StatusIcon.RUNNING)


def tool_text(line: ToolStatus) -> str:
    """A tool call on one line: `✓ notes.add_note  Added note 3`."""
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    more = f" ({line.more})" if line.more else ""
    told = "  ".join(part for part in (line.name, state, line.summary) if part)
    return f"{MARKS[line.mark]} {told}{more}"


def busy_text(text: str) -> str:
    """Return the current activity, one line."""
    return f"{MARKS[StatusIcon.RUNNING]} {text}"


def truncate_output(text: str) -> str:
    """Return the text from a tool, cut to the size for a message."""
    text = strip_control(text).strip()
    if len(text) <= RETURNED_LIMIT:
        return text
    return f"{text[:RETURNED_LIMIT].rstrip()}\n… {len(text) - RETURNED_LIMIT} more characters"


def drop_repeats(entries: Iterable[Entry], view: TurnView) -> Iterator[Entry]:
    """Drop results that stand on a card already, because the call's line shows only the status."""
    with_card = {step.n for step in view.steps if isinstance(step, ToolStep) and _has_card(step)}
    for entry in entries:
        if isinstance(entry, CallLine) and entry.n in with_card:
            yield replace(entry, line=replace(entry.line, summary="", more=""))
        else:
            yield entry


def offer_label(offer: Offer, view: TurnView) -> str:
    """Return the label of an offer's button, with the call's name if there are several calls."""
    match offer:
        case StopTurnAction():
            return offer.label
        case CheckCallAction(n=n) | RunAgainAction(n=n):
            unsure = [each.n for each in available_actions(view) if isinstance(each, CheckCallAction)]
            return f"{offer.label}: {_name(view, n)}" if len(unsure) > 1 else offer.label


def _name(view: TurnView, n: int) -> str:
    return next((tool_name(step) for step in view.steps if isinstance(step, ToolStep) and step.n == n), str(n))


def _has_card(step: ToolStep) -> bool:
    """Return True if the step has a card. A denial without an author means that the card could not be posted."""
    denied_by_nobody = step.status is StepStatus.DENIED and step.approval is not None and not step.approval.decided_by
    return step.approval is not None and not denied_by_nobody

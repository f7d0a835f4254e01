"""Entries of a turn at a terminal: those of the shared timeline, each printed once, as soon as it is final."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnStatus, TurnView
from bot.i18n import _, gettext_lazy
from bot.platforms.console.lines import strip_markdown
from bot.rendering import timeline
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import CallLine, CheckCallAction, Failure, Note, ReplyText, ToolOutput, ToolStatus

AGAIN = gettext_lazy("The reply was interrupted and starts again.")
REPEATED_LENGTH = 8
"""Characters of a result from which the same words in an answer are no chance."""
LEAD_LENGTH = 100
"""Characters before a result that an answer repeats."""

Entry = timeline.Entry | CheckCallAction
"""An entry of the timeline, or the offer to check a call, at the end of a turn with an unknown outcome."""


def turn_entries(view: TurnView) -> Iterator[tuple[str, Entry, bool]]:
    """Yield the entries of a turn in order: a key that an entry keeps in all of its states, the entry, and True if it
    will not change any more.
    """
    turn, replies, key = view.turn, 0, ""
    calls = {step.n: step for step in view.steps if isinstance(step, ToolStep)}
    if turn.question.agent_name:
        yield "agent", Note(_("Agent: {name}", name=single_line(turn.question.agent_name, 100))), True
    if turn.status is TurnStatus.CANCELLED:  # the user knows who has stopped it
        view = replace(view, turn=replace(turn, failure=""))
    for entry in timeline.entries(view):
        match entry:
            case ModelStep():
                replies += 1
            case ReplyText(growing=growing):
                yield f"said-{replies + growing}", entry, not growing
            case CallLine(n, line):
                key, is_repeated = f"call-{n}", _is_repeated(line.summary, calls[n], view)
                yield (
                    key,
                    replace(entry, line=replace(line, summary="", more="")) if is_repeated else entry,
                    (turn.status.ended or calls[n].status.ended)
                    and (is_repeated or not _may_be_repeated(line, calls[n], view)),
                )
            case ToolOutput():
                yield f"returned-{key}", entry, True
            case Note(text) | Failure(text):
                yield f"note-{replies}-{text}", entry, True
    offers = [offer for step in calls.values() for offer in timeline.offers_of_call(turn.id, step)]
    if turn.status.ended and offers:
        yield "unsure", CheckCallAction(turn.id, offers[0].n), True


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

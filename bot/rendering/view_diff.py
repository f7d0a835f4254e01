"""Events between two views of one turn.

Views may be skipped: a call that appears already finished was started first, an approval that appears settled was
asked for first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bot.domain.approvals import Approval
from bot.domain.events import (
    ApprovalRequested,
    ApprovalSettled,
    ElicitationRequested,
    ElicitationSettled,
    ModelPaused,
    ReplyUpdated,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnQueued,
)
from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnStatus
from bot.domain.views import ModelRetry, TurnView

_SENT = (StepStatus.STARTED, StepStatus.ASKING, StepStatus.DONE, StepStatus.FAILED, StepStatus.UNKNOWN)


def diff_events(before: TurnView | None, after: TurnView) -> tuple[TurnEvent, ...]:
    """The events that lead from one view of a turn to a later one; `before` is None if nothing was seen yet.

    Replies and calls come in the order of the steps. `ReplyUpdated` carries the text of one reply from its beginning
    and is left out where it has not changed. After the end of a turn there is nothing.
    """
    if before is not None and before.turn.status.ended:
        return ()
    return tuple(_events(before, after))


def answer(view: TurnView) -> str:
    """Return the answer of a turn: its last reply so far, or the result of a call that was run by hand."""
    if view.turn.question.call is not None:
        calls = [step for step in view.steps if isinstance(step, ToolStep) and step.status is StepStatus.DONE]
        return calls[-1].result.text if calls and calls[-1].result else ""
    replies = _replies(view)
    return replies[-1] if replies else ""


def _events(before: TurnView | None, after: TurnView) -> Iterator[TurnEvent]:
    told = _replies(before) if before else []
    replies = _replies(after)
    old = {step.n: step for step in before.steps if isinstance(step, ToolStep)} if before else {}
    said = 0
    yield from _queue(before, after)
    for step in after.steps:
        if isinstance(step, ModelStep):
            yield from _reply(after.turn.id, told, replies, said)
            said += 1
        else:
            yield from _call(old.get(step.n), before, step, after)
    yield from _reply(after.turn.id, told, replies, said)
    if isinstance(after.activity, ModelRetry) and not (before and before.activity == after.activity):
        yield ModelPaused(after.turn.id, after.activity)
    yield from _ending(after)


def _queue(before: TurnView | None, after: TurnView) -> Iterator[TurnEvent]:
    place = (after.ahead, after.blocker)
    if after.ahead and not (before and (before.ahead, before.blocker) == place):
        yield TurnQueued(after.turn.id, *place)


def _replies(view: TurnView) -> list[str]:
    """The text of every reply, the one being written last."""
    texts = [step.message.text for step in view.steps if isinstance(step, ModelStep)]
    return [*texts, view.streaming] if view.streaming and not view.turn.status.ended else texts


def _reply(turn_id: str, told: list[str], replies: list[str], index: int) -> Iterator[TurnEvent]:
    text = replies[index] if index < len(replies) else ""
    if text and (index >= len(told) or told[index] != text):
        yield ReplyUpdated(turn_id, text)


def _call(old: ToolStep | None, before: TurnView | None, new: ToolStep, after: TurnView) -> Iterator[TurnEvent]:
    turn_id = after.turn.id
    if new.approval and not (old and old.approval and old.approval.revision == new.approval.revision):
        yield ApprovalRequested(turn_id, _asked(new, new.approval))
        old = None
    if new.approval and new.status is not StepStatus.AWAITING and _waits_or_is_new(old):
        yield ApprovalSettled(turn_id, _as_it_was(new, StepStatus.READY) if new.status in _SENT else new)
    if _sent(new, after) and not (old and before and _sent(old, before)):
        yield ToolStarted(turn_id, _as_it_was(new, StepStatus.STARTED))
    progress = after.progress.get(new.n, "")
    if progress and not new.status.ended and not (before and before.progress.get(new.n) == progress):
        yield ToolProgressed(turn_id, new, progress)
    yield from _questions(old, new, turn_id)
    if new.status.ended and not (old and old.status.ended):
        yield ToolFinished(turn_id, new)


def _questions(old: ToolStep | None, new: ToolStep, turn_id: str) -> Iterator[TurnEvent]:
    """Yield the new and the settled elicitations."""
    before = {each.id: each.open for each in old.elicitations} if old else {}
    for each in new.elicitations:
        if each.id not in before:
            yield ElicitationRequested(
                turn_id, _as_it_was(new, StepStatus.ASKING), replace(each, reply=None, answered_by="", reason="")
            )
        if not each.open and before.get(each.id, True):
            yield ElicitationSettled(turn_id, new, each)


def _asked(step: ToolStep, approval: Approval) -> ToolStep:
    """A call as it was when its approval was asked for."""
    open_again = replace(approval, decided_by="", decided_at=None, reason="")
    return replace(_as_it_was(step, StepStatus.AWAITING), approval=open_again)


def _as_it_was(step: ToolStep, status: StepStatus) -> ToolStep:
    """A call in a state it has passed through since the last view."""
    return replace(step, status=status, result=None)


def _waits_or_is_new(step: ToolStep | None) -> bool:
    return step is None or step.status is StepStatus.AWAITING


def _sent(step: ToolStep, view: TurnView) -> bool:
    """Return True if a call was sent at some time. A call after an elicitation is sent again."""
    under_way = step.status is StepStatus.READY and step.n in view.running
    return step.status in _SENT or under_way or bool(step.elicitations)


def _ending(view: TurnView) -> Iterator[TurnEvent]:
    match view.turn.status:
        case TurnStatus.DONE:
            yield TurnFinished(view.turn.id, answer(view))
        case TurnStatus.CANCELLED:
            yield TurnFinished(view.turn.id, answer(view), cancelled=True)
        case TurnStatus.FAILED:
            yield TurnFailed(view.turn.id, view.turn.failure)
        case _:
            return

"""Events between two views of one turn.

Views may be skipped: a call that appears already finished was started first, an approval that appears settled was
asked for first.

As JSON they are for programs that read `--json`. Fields are added, never renamed:

    event                 fields beside "event" and "turn"
    turn_queued           ahead, behind, behind_approval, behind_question, offers
    reply_updated         text                        of one reply, from its beginning
    model_paused          seconds, reason             asked again then; an incomplete reply starts again
    tool_started          step, call, server, tool, arguments, status
    tool_progressed       the same, and text
    tool_finished         the same as tool_started, and result, is_error, offers
    approval_requested    the same as tool_started, and approval, revision, fingerprint, expires_in, expires_at,
                          self_approval
    approval_settled      the same as approval_requested, and decided_by, reason
    elicitation_requested step, call, server, tool, elicitation, message, mode, schema or url, expires_in, expires_at
    elicitation_settled   the same, and action, answered_by, reason
    turn_finished         text, cancelled             and agent, if one was asked by name
    turn_failed           reason

`arguments` have the label of every stored secret of the called server in its place, if an approval was requested.
`server` is null for an unknown tool. `mode` is the kind of an elicitation, form or url; the answer is in no event.
`self_approval` is "allowed" if the user who asked may approve, or why not (`SelfApproval`). `expires_in` is in seconds,
`expires_at` in epoch seconds. `behind` is the turn that blocks the conversation. An offer is an action for a user:
`offer` (check, run_again, stop, continue), `label`, `turn`, and `step` if it is about a call. Text is as the model or
the tool wrote it: JSON's escapes make it harmless, and a program that displays it must sanitize it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from bot.domain.approvals import Approval
from bot.domain.elicitations import Elicitation, FormMode, UrlMode
from bot.domain.turns import BlockingTurn, ModelRetry, ModelStep, StepStatus, ToolStep, TurnStatus, TurnView
from bot.rendering.call_arguments import whole_json
from bot.rendering.timeline import (
    CheckCallAction,
    ContinueTurnAction,
    Offer,
    RunAgainAction,
    StopTurnAction,
    offers_behind,
    offers_of_call,
)


@dataclass(frozen=True, slots=True)
class TurnQueued:
    """The turn waits for `ahead` earlier turns of its conversation. `blocker` is the first of them."""

    turn_id: str
    ahead: int
    blocker: BlockingTurn | None


@dataclass(frozen=True, slots=True)
class ReplyUpdated:
    """The reply's text so far, from its beginning."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelPaused:
    """The model was busy or unreachable, and is asked again after `pause`. A partial reply starts over."""

    turn_id: str
    pause: ModelRetry


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call is under way."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """A running call reports progress."""

    turn_id: str
    step: ToolStep
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has ended; `step.status` is the outcome."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call waits for an approval."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """An approval no longer waits; `step.status` and `step.approval` hold the reason."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ElicitationRequested:
    """The server of a call waits for an answer from the user."""

    turn_id: str
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class ElicitationSettled:
    """The elicitation no longer waits; its record holds the reason."""

    turn_id: str
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn is answered, or was stopped (`cancelled`)."""

    turn_id: str
    text: str
    cancelled: bool = False
    agent: str = ""


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The turn ended without an answer."""

    turn_id: str
    reason: str


TurnEvent = (
    TurnQueued
    | ReplyUpdated
    | ModelPaused
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | ApprovalRequested
    | ApprovalSettled
    | ElicitationRequested
    | ElicitationSettled
    | TurnFinished
    | TurnFailed
)


def event_json(event: TurnEvent) -> dict[str, Any]:
    """Return an event as a JSON-ready dictionary."""
    name, fields = _describe_event(event)
    return {"event": name, "turn": event.turn_id, **fields}


def _describe_event(event: TurnEvent) -> tuple[str, dict[str, Any]]:  # noqa: C901, PLR0912 - one case for each kind of event
    fields: dict[str, Any]
    match event:
        case TurnQueued(_, ahead, blocker):
            name, fields = "turn_queued", _queue_event(ahead, blocker)
        case ReplyUpdated(_, text):
            name, fields = "reply_updated", {"text": text}
        case ModelPaused(_, pause):
            name, fields = "model_paused", {"seconds": pause.seconds, "reason": pause.reason}
        case ToolStarted(_, step):
            name, fields = "tool_started", _call_event(step)
        case ToolProgressed(_, step, text):
            name, fields = "tool_progressed", {**_call_event(step), "text": text}
        case ToolFinished(turn_id, step):
            offers = _offers(offers_of_call(turn_id, step))
            name, fields = "tool_finished", {**_call_event(step), **_result(step), "offers": offers}
        case ApprovalRequested(_, step):
            name, fields = "approval_requested", {**_call_event(step), **_approval(step)}
        case ApprovalSettled(_, step):
            name, fields = "approval_settled", {**_call_event(step), **_approval(step), **_decision(step)}
        case ElicitationRequested(_, step, elicitation):
            name, fields = "elicitation_requested", _question(step, elicitation)
        case ElicitationSettled(_, step, elicitation):
            name, fields = "elicitation_settled", {**_question(step, elicitation), **_answer(elicitation)}
        case TurnFinished(_, text, cancelled, agent):
            name, fields = "turn_finished", {"text": text, "cancelled": cancelled}
            fields |= {"agent": agent} if agent else {}
        case TurnFailed(_, reason):
            name, fields = "turn_failed", {"reason": reason}
        case _:
            assert_never(event)
    return name, fields


def _queue_event(ahead: int, blocker: BlockingTurn | None) -> dict[str, Any]:
    return {
        "ahead": ahead,
        "behind": blocker.turn_id if blocker else None,
        "behind_approval": bool(blocker and blocker.awaits_approval),
        "behind_question": bool(blocker and blocker.awaits_answer),
        "offers": _offers(offers_behind(blocker)),
    }


def _offers(offers: Sequence[Offer]) -> list[dict[str, Any]]:
    return [_offer(offer) for offer in offers]


def _offer(offer: Offer) -> dict[str, Any]:
    match offer:
        case CheckCallAction(turn_id, n):
            return {"offer": "check", "label": offer.label, "turn": turn_id, "step": n}
        case RunAgainAction(turn_id, n):
            return {"offer": "run_again", "label": offer.label, "turn": turn_id, "step": n}
        case StopTurnAction(turn_id):
            return {"offer": "stop", "label": offer.label, "turn": turn_id}
        case ContinueTurnAction(turn_id):
            return {"offer": "continue", "label": offer.label, "turn": turn_id}


def _call_event(step: ToolStep) -> dict[str, Any]:
    return {
        "step": step.n,
        "call": step.call.id,
        "server": step.tool.server if step.tool else None,
        "tool": step.tool.name if step.tool else step.call.name,
        "arguments": whole_json(step),
        "status": step.status.value,
    }


def _result(step: ToolStep) -> dict[str, Any]:
    result = step.result
    return {"result": result.text if result else "", "is_error": bool(result and result.is_error)}


def _approval(step: ToolStep) -> dict[str, Any]:
    approval = step.approval
    if approval is None:
        return {}
    return {
        "approval": approval.id,
        "revision": approval.revision,
        "fingerprint": approval.fingerprint,
        "expires_in": approval.expires_in,
        "expires_at": approval.expires_at,
        "self_approval": approval.requirements.self_approval.value,
    }


def _decision(step: ToolStep) -> dict[str, Any]:
    approval = step.approval
    return {"decided_by": approval.decided_by, "reason": approval.reason} if approval else {}


def _question(step: ToolStep, elicitation: Elicitation) -> dict[str, Any]:
    match elicitation.question.ask:
        case FormMode(schema):
            fields: dict[str, Any] = {"mode": "form", "schema": dict(schema)}
        case UrlMode(url):
            fields = {"mode": "url", "url": url}
    called = {name: value for name, value in _call_event(step).items() if name not in ("arguments", "status")}
    return {
        **called,
        "elicitation": elicitation.id,
        "message": elicitation.question.message,
        **fields,
        "expires_in": elicitation.expires_in,
        "expires_at": elicitation.expires_at,
    }


def _answer(elicitation: Elicitation) -> dict[str, Any]:
    action = elicitation.reply.action.value if elicitation.reply is not None else None
    return {"action": action, "answered_by": elicitation.answered_by, "reason": elicitation.reason}


_SENT = (StepStatus.STARTED, StepStatus.ASKING, StepStatus.DONE, StepStatus.FAILED, StepStatus.UNKNOWN)


def diff_events(before: TurnView | None, after: TurnView) -> tuple[TurnEvent, ...]:
    """Return the events between two views of a turn; `before` is None if none was sent yet.

    Replies and calls are in the order of the steps. `ReplyUpdated` carries the whole text of one reply, and is left out
    if it is unchanged. No event follows the end of a turn.
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
    earlier = _replies(before) if before else []
    replies = _replies(after)
    old = {step.n: step for step in before.steps if isinstance(step, ToolStep)} if before else {}
    index = 0
    yield from _queue(before, after)
    for step in after.steps:
        if isinstance(step, ModelStep):
            yield from _reply(after.turn.id, earlier, replies, index)
            index += 1
        else:
            yield from _call(old.get(step.n), before, step, after)
    yield from _reply(after.turn.id, earlier, replies, index)
    if isinstance(after.activity, ModelRetry) and not (before and before.activity == after.activity):
        yield ModelPaused(after.turn.id, after.activity)
    yield from _ending(after)


def _queue(before: TurnView | None, after: TurnView) -> Iterator[TurnEvent]:
    place = (after.ahead, after.blocker)
    if after.ahead and not (before and (before.ahead, before.blocker) == place):
        yield TurnQueued(after.turn.id, *place)


def _replies(view: TurnView) -> list[str]:
    """Return the texts of all replies, the unfinished one last."""
    texts = [step.message.text for step in view.steps if isinstance(step, ModelStep)]
    return [*texts, view.streaming] if view.streaming and not view.turn.status.ended else texts


def _reply(turn_id: str, earlier: list[str], replies: list[str], index: int) -> Iterator[TurnEvent]:
    text = replies[index] if index < len(replies) else ""
    if text and (index >= len(earlier) or earlier[index] != text):
        yield ReplyUpdated(turn_id, text)


def _call(old: ToolStep | None, before: TurnView | None, new: ToolStep, after: TurnView) -> Iterator[TurnEvent]:
    turn_id = after.turn.id
    if new.approval and not (old and old.approval and old.approval.revision == new.approval.revision):
        yield ApprovalRequested(turn_id, _at_request(new, new.approval))
        old = None
    if new.approval and new.status is not StepStatus.AWAITING and _waits_or_is_new(old):
        yield ApprovalSettled(turn_id, _with_status(new, StepStatus.READY) if new.status in _SENT else new)
    if _was_sent(new, after) and not (old and before and _was_sent(old, before)):
        yield ToolStarted(turn_id, _with_status(new, StepStatus.STARTED))
    progress = after.progress.get(new.n, "")
    if progress and not new.status.ended and not (before and before.progress.get(new.n) == progress):
        yield ToolProgressed(turn_id, new, progress)
    yield from _questions(old, new, turn_id)
    if new.status.ended and not (old and old.status.ended):
        yield ToolFinished(turn_id, new)


def _questions(old: ToolStep | None, new: ToolStep, turn_id: str) -> Iterator[TurnEvent]:
    """Yield the new and the settled elicitations."""
    before = {elicitation.id: elicitation.open for elicitation in old.elicitations} if old else {}
    for elicitation in new.elicitations:
        if elicitation.id not in before:
            yield ElicitationRequested(
                turn_id,
                _with_status(new, StepStatus.ASKING),
                replace(elicitation, reply=None, answered_by="", reason=""),
            )
        if not elicitation.open and before.get(elicitation.id, True):
            yield ElicitationSettled(turn_id, new, elicitation)


def _at_request(step: ToolStep, approval: Approval) -> ToolStep:
    """Return a call in its state at the request for approval."""
    open_again = replace(approval, decided_by="", decided_at=None, reason="")
    return replace(_with_status(step, StepStatus.AWAITING), approval=open_again)


def _with_status(step: ToolStep, status: StepStatus) -> ToolStep:
    """Return a call in an earlier state, which it has passed since the last view."""
    return replace(step, status=status, result=None)


def _waits_or_is_new(step: ToolStep | None) -> bool:
    return step is None or step.status is StepStatus.AWAITING


def _was_sent(step: ToolStep, view: TurnView) -> bool:
    """Return True if a call was sent at some time. A call after an elicitation is sent again."""
    under_way = step.status is StepStatus.READY and step.n in view.running
    return step.status in _SENT or under_way or bool(step.elicitations)


def _ending(view: TurnView) -> Iterator[TurnEvent]:
    match view.turn.status:
        case TurnStatus.DONE:
            yield TurnFinished(view.turn.id, answer(view), agent=view.turn.question.agent_name)
        case TurnStatus.CANCELLED:
            yield TurnFinished(view.turn.id, answer(view), cancelled=True, agent=view.turn.question.agent_name)
        case TurnStatus.FAILED:
            yield TurnFailed(view.turn.id, view.turn.failure)
        case _:
            return

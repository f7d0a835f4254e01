"""Turn events as JSON, for programs that read `--json`.

The shape is a promise: fields are added, never renamed.

    event                 fields beside "event" and "turn"
    turn_queued           ahead, behind, behind_approval, behind_question, offers
    reply_updated         text                        of one reply, from its beginning
    model_paused          seconds, reason             asked again then; a reply that had begun begins anew
    tool_started          step, call, server, tool, arguments, status
    tool_progressed       the same, and text
    tool_finished         the same as tool_started, and result, is_error, offers
    approval_requested    the same as tool_started, and approval, revision, fingerprint, expires_in, expires_at
    approval_settled      the same as approval_requested, and decided_by, reason
    elicitation_requested step, call, server, tool, elicitation, message, mode, schema or url, expires_in, expires_at
    elicitation_settled   the same, and action, answered_by, reason
    turn_finished         text, cancelled
    turn_failed           reason

`arguments` have the label of every stored secret of the called server in its place, where a signature was asked for.
`server` is null for an unknown tool. `mode` is the kind of an elicitation, form or url; the answer is in no event.
`expires_in` is in seconds, `expires_at` in epoch seconds. `behind` is the turn that blocks the conversation. An offer
is an action for a user: `offer` (check, run_again, stop), `label`, `turn`, and `step` if it is about a call. Text is as
the model or the tool wrote it: JSON's escapes make it harmless, and a program that displays it must sanitize it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from bot.domain.elicitations import Elicitation, FormMode, UrlMode
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
from bot.domain.turns import ToolStep
from bot.domain.views import BlockingTurn
from bot.rendering.available_actions import (
    CheckCallAction,
    Offer,
    RunAgainAction,
    StopTurnAction,
    offers_behind,
    offers_of_call,
)
from bot.rendering.call_arguments import whole_json


def event_json(event: TurnEvent) -> dict[str, Any]:
    """One event as a JSON-ready dictionary."""
    name, fields = _described(event)
    return {"event": name, "turn": event.turn_id, **fields}


def _described(event: TurnEvent) -> tuple[str, dict[str, Any]]:  # noqa: C901, PLR0912 - one case for each kind of event
    fields: dict[str, Any]
    match event:
        case TurnQueued(_, ahead, blocker):
            name, fields = "turn_queued", _queue(ahead, blocker)
        case ReplyUpdated(_, text):
            name, fields = "reply_updated", {"text": text}
        case ModelPaused(_, pause):
            name, fields = "model_paused", {"seconds": pause.seconds, "reason": pause.reason}
        case ToolStarted(_, step):
            name, fields = "tool_started", _call(step)
        case ToolProgressed(_, step, text):
            name, fields = "tool_progressed", {**_call(step), "text": text}
        case ToolFinished(turn_id, step):
            offers = _offers(offers_of_call(turn_id, step))
            name, fields = "tool_finished", {**_call(step), **_result(step), "offers": offers}
        case ApprovalRequested(_, step):
            name, fields = "approval_requested", {**_call(step), **_approval(step)}
        case ApprovalSettled(_, step):
            name, fields = "approval_settled", {**_call(step), **_approval(step), **_decision(step)}
        case ElicitationRequested(_, step, elicitation):
            name, fields = "elicitation_requested", _question(step, elicitation)
        case ElicitationSettled(_, step, elicitation):
            name, fields = "elicitation_settled", {**_question(step, elicitation), **_answer(elicitation)}
        case TurnFinished(_, text, cancelled):
            name, fields = "turn_finished", {"text": text, "cancelled": cancelled}
        case TurnFailed(_, reason):
            name, fields = "turn_failed", {"reason": reason}
        case _:
            assert_never(event)
    return name, fields


def _queue(ahead: int, blocker: BlockingTurn | None) -> dict[str, Any]:
    return {
        "ahead": ahead,
        "behind": blocker.turn_id if blocker else None,
        "behind_approval": bool(blocker and blocker.awaits_signature),
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


def _call(step: ToolStep) -> dict[str, Any]:
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
    }


def _decision(step: ToolStep) -> dict[str, Any]:
    approval = step.approval
    return {"decided_by": approval.decided_by, "reason": approval.reason} if approval else {}


def _question(step: ToolStep, elicitation: Elicitation) -> dict[str, Any]:
    match elicitation.question.ask:
        case FormMode(schema):
            asked: dict[str, Any] = {"mode": "form", "schema": dict(schema)}
        case UrlMode(url):
            asked = {"mode": "url", "url": url}
    called = {name: value for name, value in _call(step).items() if name not in ("arguments", "status")}
    return {
        **called,
        "elicitation": elicitation.id,
        "message": elicitation.question.message,
        **asked,
        "expires_in": elicitation.expires_in,
        "expires_at": elicitation.expires_at,
    }


def _answer(elicitation: Elicitation) -> dict[str, Any]:
    action = elicitation.reply.action.value if elicitation.reply is not None else None
    return {"action": action, "answered_by": elicitation.answered_by, "reason": elicitation.reason}

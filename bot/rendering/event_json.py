"""Turn events as JSON, for programs that read `--json`.

Called by the terminal. The shape is a promise: fields are added, never renamed.

    event                 fields beside "event" and "turn"
    reply_updated         text                        of one reply, from its beginning
    tool_started          step, call, server, tool, arguments, status
    tool_progressed       the same, and text
    tool_finished         the same as tool_started, and result, is_error
    approval_requested    the same as tool_started, and approval, revision, fingerprint, expires_in, expires_at
    approval_settled      the same as approval_requested, and decided_by, reason
    turn_finished         text, cancelled
    turn_failed           reason

`server` is null for a tool the model made up. `expires_in` is in seconds, `expires_at` in epoch seconds. Text is as
the model or the tool gave it: JSON's own escapes make it harmless, and whoever draws it cleans it.
"""

from __future__ import annotations

from typing import Any, assert_never

from bot.domain.events import (
    ApprovalRequested,
    ApprovalSettled,
    ReplyUpdated,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
)
from bot.domain.turns import ToolStep


def event_json(event: TurnEvent) -> dict[str, Any]:
    """One event as a JSON-ready dictionary."""
    name, fields = _described(event)
    return {"event": name, "turn": event.turn_id, **fields}


def _described(event: TurnEvent) -> tuple[str, dict[str, Any]]:
    fields: dict[str, Any]
    match event:
        case ReplyUpdated(_, text):
            name, fields = "reply_updated", {"text": text}
        case ToolStarted(_, step):
            name, fields = "tool_started", _call(step)
        case ToolProgressed(_, step, text):
            name, fields = "tool_progressed", {**_call(step), "text": text}
        case ToolFinished(_, step):
            name, fields = "tool_finished", {**_call(step), **_result(step)}
        case ApprovalRequested(_, step):
            name, fields = "approval_requested", {**_call(step), **_approval(step)}
        case ApprovalSettled(_, step):
            name, fields = "approval_settled", {**_call(step), **_approval(step), **_decision(step)}
        case TurnFinished(_, text, cancelled):
            name, fields = "turn_finished", {"text": text, "cancelled": cancelled}
        case TurnFailed(_, reason):
            name, fields = "turn_failed", {"reason": reason}
        case _:
            assert_never(event)
    return name, fields


def _call(step: ToolStep) -> dict[str, Any]:
    return {
        "step": step.n,
        "call": step.call.id,
        "server": step.tool.server if step.tool else None,
        "tool": step.tool.name if step.tool else step.call.name,
        "arguments": dict(step.call.arguments),
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

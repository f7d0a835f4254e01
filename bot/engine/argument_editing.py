"""Editing of a call's arguments before approval.

Possible approvers and the author may edit: they could as well request another call. Guests, external users and bots may
not. An edit approves nothing: all approvals start again, and under four eyes an editor cannot approve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.approvals import AlreadyDecided, Approval, ApprovalPolicy, NotAllowed, StaleRevision, fingerprint
from bot.domain.argument_edits import EditableCall, InvalidArguments, NotEditable
from bot.domain.conversations import Member
from bot.domain.policies import PolicyResult
from bot.domain.tools import ArgumentError, Tool, canonical_json
from bot.domain.turns import StepStatus, ToolStep, Turn

SETTLED = "That is decided already and cannot be edited."
TOOL_CHANGED = "The tool is missing or has changed since the request. Deny the call and ask again."
OUTSIDER = "Only full members of this workspace may edit a call."
UNCHANGED = "Nothing was changed."


def edit_rejection(step: ToolStep, revision: int, member: Member) -> NotEditable | None:
    """Return the reason why this revision cannot be edited now, before rights are checked; None if it can."""
    if member.guest or member.external:
        return NotAllowed(OUTSIDER)
    if step.status is not StepStatus.AWAITING or step.approval is None:
        return AlreadyDecided(SETTLED)
    return StaleRevision() if step.approval.revision != revision else None


def editable_call(
    turn: Turn, step: ToolStep, approval: Approval, tool: Tool | None, *, whole: bool
) -> EditableCall | NotAllowed:
    """Return the call for editing; NotAllowed if its tool has changed."""
    if tool is None or step.tool is None:
        return NotAllowed(TOOL_CHANGED)
    if fingerprint(tool, step.call.arguments) != approval.fingerprint:
        return NotAllowed(TOOL_CHANGED)
    return EditableCall(turn, step, tool.input_schema, whole)


def invalid_arguments(
    step: ToolStep, arguments: Mapping[str, Any], errors: tuple[ArgumentError, ...], result: PolicyResult
) -> InvalidArguments | None:
    """Return the errors of new arguments: unchanged, schema, or denied by a policy; None if they are valid."""
    if canonical_json(arguments) == canonical_json(step.call.arguments):
        return InvalidArguments((ArgumentError("", UNCHANGED),))
    if errors:
        return InvalidArguments(errors)
    if result.ruling.policy is ApprovalPolicy.ALWAYS_DENY:
        return InvalidArguments((ArgumentError("", "A policy forbids this call with these arguments."),))
    return None

"""Changing a call before it is signed: who may, to what, and what is asked for then.

Called by the engine. Whoever may sign a call may change it, and so may whoever asked for it: they could as well have
asked for another one. Guests, people from outside and bots never may. Nothing is signed by a change: it takes all
signatures anew, and where four eyes are wanted, whoever has changed a call does not sign it.
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

SETTLED = "That is settled already: nothing can be changed any more."
TOOL_CHANGED = "The tool is not there, or has changed since this was asked for. Deny the call and ask for it once more."
OUTSIDER = "Only full members of this place may change what a call does."
UNCHANGED = "Nothing was changed."


def edit_rejection(step: ToolStep, revision: int, member: Member) -> NotEditable | None:
    """Why this revision of a call cannot be changed now, whoever may sign it."""
    if member.guest or member.external:
        return NotAllowed(OUTSIDER)
    if step.status is not StepStatus.AWAITING or step.approval is None:
        return AlreadyDecided(SETTLED)
    return StaleRevision() if step.approval.revision != revision else None


def editable_call(
    turn: Turn, step: ToolStep, approval: Approval, tool: Tool | None, *, whole: bool
) -> EditableCall | NotAllowed:
    """The call as it can be changed; or that its tool is not the one any more that it was asked of."""
    if tool is None or step.tool is None:
        return NotAllowed(TOOL_CHANGED)
    if fingerprint(tool, step.call.arguments) != approval.fingerprint:
        return NotAllowed(TOOL_CHANGED)
    return EditableCall(turn, step, tool.input_schema, whole)


def invalid_arguments(
    step: ToolStep, arguments: Mapping[str, Any], misfits: tuple[ArgumentError, ...], found: PolicyResult
) -> InvalidArguments | None:
    """Why these arguments cannot be asked for: nothing new, no fit for the tool's schema, denied by a policy."""
    if canonical_json(arguments) == canonical_json(step.call.arguments):
        return InvalidArguments((ArgumentError("", UNCHANGED),))
    if misfits:
        return InvalidArguments(misfits)
    if found.ruling.policy is ApprovalPolicy.ALWAYS_DENY:
        return InvalidArguments((ArgumentError("", "A policy forbids this call with these arguments."),))
    return None

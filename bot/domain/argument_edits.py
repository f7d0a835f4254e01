"""Edits of a call's arguments before its approval: the editable call, the result, and the changes.

`bot.engine.engine` decides which users may edit a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed, StaleRevision
from bot.domain.secret_detection import MASK, redact_secrets
from bot.domain.tools import ArgumentError, canonical_json
from bot.domain.turns import ToolStep, Turn


@dataclass(frozen=True, slots=True)
class EditableCall:
    """Editable call: its current arguments in `step`, and the schema for new ones. `whole` is True if this user may
    approve the call and so may see parts that look like a secret.
    """

    turn: Turn
    step: ToolStep
    schema: Mapping[str, Any]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RevisionAccepted:
    """The new arguments wait for an approval under this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """The new arguments are invalid. A problem without an argument is about all of them."""

    problems: tuple[ArgumentError, ...]


NotEditable = AlreadyDecided | StaleRevision | NotAllowed | ApprovalNotFound
"""Reasons for not editing a call: decided, changed meanwhile, not permitted or not found."""
EditResult = RevisionAccepted | InvalidArguments | NotEditable


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """Changed argument: its value before and after as text, None if the argument is missing there."""

    name: str
    before: str | None
    after: str | None


def changed_names(step: ToolStep) -> tuple[str, ...]:
    """Return the names of the arguments that users have changed since the model requested the call."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    before, after = step.approval.proposed, step.call.arguments
    return tuple(
        name
        for name in dict.fromkeys((*before, *after))
        if (name in before) != (name in after) or canonical_json(before.get(name)) != canonical_json(after.get(name))
    )


def argument_changes(step: ToolStep) -> tuple[ArgumentChange, ...]:
    """Return the changes by users to a call, for the model. Values that look like a secret are masked."""
    proposed = (step.approval.proposed if step.approval is not None else None) or {}
    return tuple(
        ArgumentChange(name, _text(proposed, name), _text(step.call.arguments, name)) for name in changed_names(step)
    )


def _text(arguments: Mapping[str, Any], name: str) -> str | None:
    if name not in arguments:
        return None
    value = redact_secrets(name, arguments[name])
    return value if value == MASK else canonical_json(value)

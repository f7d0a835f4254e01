"""Changing what a call would do before anybody signs it: what can be changed, what became of it, and the difference.

Whoever may change a call, and what follows from it, is for `bot.engine.argument_editing` to say.
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
    """A call that may be changed: its arguments as they are asked for now, and the schema that others have to fit.
    `whole` is True if this person may see the parts that look like a secret, because they may approve the call.
    """

    turn: Turn
    step: ToolStep
    schema: Mapping[str, Any]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RevisionAccepted:
    """A signature is asked for on the new arguments, under this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """The new arguments cannot be asked for. A problem without an argument is about all of them."""

    problems: tuple[ArgumentError, ...]


NotEditable = AlreadyDecided | StaleRevision | NotAllowed | ApprovalNotFound
"""Why a call cannot be changed, or not any more, or not by this person."""
EditResult = RevisionAccepted | InvalidArguments | NotEditable


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """One argument that was changed: its value before and after as text, None where there is none."""

    name: str
    before: str | None
    after: str | None


def changed_names(step: ToolStep) -> tuple[str, ...]:
    """Return the names of the arguments that people have changed since the call was asked for."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    before, after = step.approval.proposed, step.call.arguments
    return tuple(
        name
        for name in dict.fromkeys((*before, *after))
        if (name in before) != (name in after) or canonical_json(before.get(name)) != canonical_json(after.get(name))
    )


def argument_changes(step: ToolStep) -> tuple[ArgumentChange, ...]:
    """Return what people have changed in a call, for the model: what looks like a secret is masked."""
    proposed = (step.approval.proposed if step.approval is not None else None) or {}
    return tuple(
        ArgumentChange(name, _text(proposed, name), _text(step.call.arguments, name)) for name in changed_names(step)
    )


def _text(arguments: Mapping[str, Any], name: str) -> str | None:
    if name not in arguments:
        return None
    value = redact_secrets(name, arguments[name])
    return value if value == MASK else canonical_json(value)

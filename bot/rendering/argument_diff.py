"""Text of the edits to a requested call.

Values are as safe to draw as those of the card itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.argument_edits import ArgumentChange, changed_names
from bot.domain.tools import canonical_json
from bot.domain.turns import StepStatus, ToolStep
from bot.rendering.call_arguments import shared_json
from bot.rendering.deceptive_text import name_spelled_out, spelled_out
from bot.rendering.text_safety import single_line

MOST_CHANGES = 5
_NAME, _VALUE = 40, 80
_NOTHING = "nothing"
_NO_VALUE: tuple[str, None] = ("", None)


def can_edit(step: ToolStep) -> bool:
    """Return True if a card offers to edit the call. The engine decides which users may."""
    return step.status is StepStatus.AWAITING and step.tool is not None


def edit_lines(step: ToolStep) -> tuple[str, ...]:
    """Return the editors of a call, and each argument before and after; empty without edits."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    by = single_line(step.approval.revised_by, 60)
    first = f"Changed{f' by {by}' if by else ''} since the model asked for it."
    return (first, *_differences(format_changes(step)))


def edit_summary(step: ToolStep) -> str:
    """The same on one line, for a call that was run then."""
    by, *different = edit_lines(step) or ("",)
    return f"{by.removesuffix(' since the model asked for it.')}: {'; '.join(different)}" if different else ""


def format_changes(step: ToolStep) -> tuple[ArgumentChange, ...]:
    """Return the users' changes as JSON, for a place with several readers."""
    approval = step.approval
    if approval is None or approval.proposed is None:
        return ()
    before = _shown(approval.proposed, shared_json(approval.proposed, approval.proposed_secrets))
    after = _shown(step.call.arguments, shared_json(step.call.arguments, approval.secrets))
    return tuple(
        ArgumentChange(
            (after.get(name) or before[name])[0], before.get(name, _NO_VALUE)[1], after.get(name, _NO_VALUE)[1]
        )
        for name in changed_names(step)
    )


def _shown(arguments: Mapping[str, Any], masked: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Each argument's name and value as they are shown, by its real name."""
    pairs = zip(arguments, masked.items(), strict=True)
    return {name: (shown, canonical_json(value)) for name, (shown, value) in pairs}


def _differences(changed: tuple[ArgumentChange, ...]) -> list[str]:
    more = len(changed) - MOST_CHANGES
    lines = [
        f"{_cut(name_spelled_out(each.name), _NAME)}: {_value(each.before)} → {_value(each.after)}" for each in changed
    ]
    return [*lines[:MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]


def _value(text: str | None) -> str:
    return _NOTHING if text is None else _cut(spelled_out(text), _VALUE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest].rstrip()}… ({len(text)} characters)"

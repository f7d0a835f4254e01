"""What people have changed in a call since it was asked for, in words; and whether a card offers to change it.

Called by every platform that draws a card. Values are as safe to draw as those of the card itself.
"""

from __future__ import annotations

from bot.domain.edits import Change, changes
from bot.domain.turns import StepStatus, ToolStep
from bot.rendering.plain import one_line, revealed

MOST_CHANGES = 5
_NAME, _VALUE = 40, 80
_NOTHING = "nothing"


def editable(step: ToolStep) -> bool:
    """Whether a card offers to change the call: whoever may is for the engine to say."""
    return step.status is StepStatus.AWAITING and step.tool is not None and bool(step.tool.server_id)


def edited(step: ToolStep) -> tuple[str, ...]:
    """Who has changed a call, and each argument before and after; nothing if nobody has."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    by = one_line(step.approval.revised_by, 60)
    first = f"Changed{f' by {by}' if by else ''} since the model asked for it."
    return (first, *_differences(changes(step)))


def edited_before(step: ToolStep) -> str:
    """The same on one line, for a call that was run then."""
    by, *different = edited(step) or ("",)
    return f"{by.removesuffix(' since the model asked for it.')}: {'; '.join(different)}" if different else ""


def _differences(changed: tuple[Change, ...]) -> list[str]:
    more = len(changed) - MOST_CHANGES
    lines = [f"{_told(each.name, _NAME)}: {_value(each.before)} → {_value(each.after)}" for each in changed]
    return [*lines[:MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]


def _value(text: str | None) -> str:
    return _NOTHING if text is None else _told(text, _VALUE)


def _told(text: str, longest: int) -> str:
    return one_line(revealed(text), longest)

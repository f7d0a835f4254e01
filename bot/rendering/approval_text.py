"""Texts for approval cards: the number of waiting calls, their arguments, and the outcome of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.approvals import Approval
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.approval_card import ApprovalCard
from bot.rendering.argument_diff import edit_summary
from bot.rendering.call_arguments import WARNINGS_LIMIT, CardArgument
from bot.rendering.tool_status import tool_status

RISKS: Mapping[str, str] = {
    "reads": "🟢 Reads data",
    "writes": "🟠 Writes data",
    "destructive": "🔴 May destroy data",
}
ICONS: Mapping[StepStatus, str] = {
    StepStatus.READY: "✅",
    StepStatus.STARTED: "✅",
    StepStatus.ASKING: "✅",
    StepStatus.DONE: "✅",
    StepStatus.FAILED: "⚠️",
    StepStatus.UNKNOWN: "⚠️",
}
"""Icons before a decided call. The title of a call that was not run is struck out."""


VIEW_ALL = "View all"
VIEW_TO_APPROVE = "View all to approve"
"""Label of the button that opens a call with hidden parts on its card."""


def summary_line(count: int, waiting: int) -> str:
    """Return the number of open approvals on a card as text."""
    if not waiting:
        return f"{count} calls, all decided"
    return f"{count} calls need an approval" if waiting == count else f"{waiting} of {count} calls need an approval"


def withheld_text(made: ApprovalCard) -> str:
    """Why a call is not approved from a card, and from where it is; empty if nothing is hidden on the card."""
    if not made.withheld:
        return ""
    characters = "1 character looks" if made.withheld == 1 else f"{made.withheld} characters look"
    hidden = "is" if made.withheld == 1 else "are"
    return f"{characters} like a secret and {hidden} hidden here. An approver opens the whole call in private."


def argument_lines(arguments: Sequence[CardArgument], room: int) -> str:
    """Return `name: value` lines within `room` characters, each with its warnings below. Omitted lines are counted."""
    widest = max((len(each.label) for each in arguments if len(each.label) <= 20), default=0)
    lines: list[str] = []
    for number, argument in enumerate(arguments):
        value = argument.shown.replace("\n", "\n" + " " * (widest + 2))
        line = "\n".join((f"{argument.label + ':':<{widest + 1}} {value}", *card_warning_lines(argument, VIEW_ALL)))
        if sum(map(len, lines)) + len(line) > room:
            left = arguments[number:]
            more = f"{len(left)} more {'argument' if len(left) == 1 else 'arguments'}"
            warned = " (with warnings)" if any(each.warnings for each in left) else ""
            lines.append(f"… {more}: {VIEW_ALL}{warned}")
            break
        lines.append(line)
    return "\n".join(lines)


def warning_lines(argument: CardArgument) -> tuple[str, ...]:
    """The warnings about an argument, one line each."""
    return tuple(f"⚠ {each}" for each in argument.warnings)


def card_warning_lines(argument: CardArgument, view: str) -> tuple[str, ...]:
    """Return the first WARNINGS_LIMIT warnings and the number of others. `view` names the view with all of them."""
    lines, more = warning_lines(argument), len(argument.warnings) - WARNINGS_LIMIT
    if more <= 0:
        return lines
    return (*lines[:WARNINGS_LIMIT], f"⚠ {more} more {'warning' if more == 1 else 'warnings'}: {view}")


def outcome_parts(step: ToolStep, view: TurnView) -> Sequence[str]:
    """Return the edits of an approved call and its outcome."""
    line = tool_status(step, view)
    changed = edit_summary(step)
    match step.status:
        case StepStatus.READY | StepStatus.STARTED | StepStatus.ASKING:
            parts = [changed, line.summary or line.state]
        case StepStatus.DONE:
            parts = [changed, line.summary or "done"]
        case StepStatus.FAILED:
            parts = [changed, f"but it failed: {line.summary}" if line.summary else "but it failed"]
        case StepStatus.UNKNOWN:
            parts = [changed, f"it {line.state}", line.summary]
        case _:
            parts = []
    return tuple(filter(None, parts))


def earliest_expiry(approvals: Sequence[Approval], now: float) -> tuple[float, float] | None:
    """When the first of these questions goes away (epoch seconds) and after how many seconds it does; None if none
    does. A card that is not out yet begins to run off `now`.
    """
    ends = [
        (each.expires_at or now + each.expires_in, each.expires_in) for each in approvals if each.expires_in is not None
    ]
    return min(ends) if ends else None

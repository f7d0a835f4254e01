"""Grants offered with an approval, as data: label and meaning of a button or entry.

A button carries only the option's `word`, which `parse_grant_option` reads back. The engine checks if the user may give
the grant (`Approvals.grant`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.grants import ArgumentsScope, GrantRequest, HoursScope, PermanentScope, Scope, ThreadScope
from bot.domain.turns import StepStatus, ToolStep


@dataclass(frozen=True, slots=True)
class GrantOption:
    """Option for a grant. `hint` explains it in a sentence."""

    word: str
    label: str
    hint: str
    permission: GrantRequest


OFFERS = (
    GrantOption(
        "thread",
        "Allow in this thread",
        "Calls of this tool run here without asking, until there was none for an hour.",
        GrantRequest(ThreadScope()),
    ),
    GrantOption(
        "arguments",
        "Allow this very call",
        "The same call runs here without asking, until there was none for an hour. Any other asks.",
        GrantRequest(ArgumentsScope()),
    ),
    GrantOption(
        "8h",
        "Allow for 8 hours",
        "Calls of this tool by the same person run in this workspace without asking, for 8 hours.",
        GrantRequest(HoursScope(8)),
    ),
    GrantOption(
        "always",
        "Always allow (admins)",
        "Calls of this tool by the same user run in this workspace without asking, until the grant is revoked.",
        GrantRequest(PermanentScope()),
    ),
)
"""The narrowest that is of use comes first: a card has room for one."""


def grant_offers(step: ToolStep) -> tuple[GrantOption, ...]:
    """Return the grants offered with an approval; empty for a destructive call, for several required approvals, and
    for a closed approval.
    """
    tool, approval = step.tool, step.approval
    if step.status is not StepStatus.AWAITING or tool is None or approval is None:
        return ()
    if tool.destructive or approval.terms.quorum > 1:
        return ()
    return OFFERS


def format_grant(scope: Scope | None) -> str:
    """Return the text of the grant on a decided card; empty without a grant."""
    match scope:
        case None:
            return ""
        case ThreadScope():
            what = "allowed in this thread until it was not used for an hour"
        case ArgumentsScope():
            what = "this very call allowed in this thread until it was not used for an hour"
        case HoursScope(hours):
            what = f"allowed for {hours:g} {'hour' if hours == 1 else 'hours'}"
        case PermanentScope():
            what = "always allowed"
    return f"{what} · /mcp grants list"


def parse_grant_option(word: str) -> GrantRequest | None:
    """Return the grant of a button; None if its word is unknown."""
    return next((offer.permission for offer in OFFERS if offer.word == word), None)

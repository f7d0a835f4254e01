"""Targets of an approval card outside the conversation of the call.

In a rule, a destination is a place or APPROVERS. A stored approval holds the resolved places and users
(`bot.engine.approval_routing`), which the platforms read here.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import Approval


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """Channel of the workspace of the call, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class DirectTarget:
    """Direct conversation with one user, by the user's id."""

    id: str


Destination = ChannelTarget | DirectTarget


def approval_targets(approval: Approval | None) -> tuple[Destination, ...]:
    """Return the places of the card instead of the conversation, in a fixed order; empty if it stays there."""
    found: list[Destination] = []
    for each in sorted(approval.terms.deliver if approval is not None else ()):
        match each.split(":"):
            case [_platform, _workspace, channel]:
                found.append(ChannelTarget(channel))
            case [_platform, person]:
                found.append(DirectTarget(person))
    return tuple(found)

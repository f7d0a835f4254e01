"""Targets of an approval card outside the conversation of the call.

In a rule's terms a destination is a place, or APPROVERS. What was asked for keeps where exactly its card goes: places
and people (`bot.engine.approval_routing` finds them out), which the platforms read here.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import Approval


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """A channel of the workspace in which the call was asked for."""

    id: str


@dataclass(frozen=True, slots=True)
class DirectTarget:
    """A direct conversation with one person, by their id."""

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

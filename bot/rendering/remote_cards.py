"""Approval cards outside the conversation of their call.

Each destination has the whole card. While it waits, the conversation has a line with the destinations; after the
decision it has the card too. The approvers are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from bot.domain.approvals import Destination, approval_targets
from bot.domain.turns import StepStatus
from bot.domain.views import TurnView
from bot.rendering.timeline import ApprovalEntry, timeline

UNREACHED = "!"
"""The reference of a card that could not be posted in this place, but was in another one."""
NOT_THERE = "It was to be signed in another place. {}"
NO_MEMBER = "That person does not belong here any more."
_BETWEEN = "@"


def group_by_target(asking: ApprovalEntry) -> Sequence[ApprovalEntry]:
    """The same calls, those apart that go to other places than the ones before."""
    found = [tuple(calls) for _, calls in groupby(asking.calls, lambda step: approval_targets(step.approval))]
    return [replace(asking, number=calls[0].n, calls=calls) for calls in found]


def targets_of(asking: ApprovalEntry) -> tuple[Destination, ...]:
    """Return the targets of these calls' cards outside the conversation; empty if they stay in it."""
    return approval_targets(asking.calls[0].approval)


def remote_approvals(view: TurnView) -> Sequence[ApprovalEntry]:
    """The calls of a turn that are signed elsewhere, in order, card by card."""
    found = [each for asking in timeline(view) if isinstance(asking, ApprovalEntry) for each in group_by_target(asking)]
    return [each for each in found if targets_of(each)]


def is_pending(asking: ApprovalEntry) -> bool:
    """Return True if one of these calls waits for a decision."""
    return any(step.status is StepStatus.AWAITING for step in asking.calls)


def remote_slot(card: str, place: Destination) -> str:
    """The slot of a card in one of its places; `card` is its slot in the conversation."""
    return f"{card}{_BETWEEN}{place.id}"


def is_remote_slot(slot: str) -> bool:
    """Return True for the slot of a remote card."""
    return _BETWEEN in slot

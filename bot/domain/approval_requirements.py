"""On which terms a call may be signed: by whom, by how many, and for how long the question stands.

A rule that asks may carry terms (`bot.domain.policies`); what was asked for keeps its own (`bot.domain.approvals`).
Whether somebody meets them is for the engine to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MEMBERS = "members"
"""Every full member of the workspace, without guests and external users."""
ASKER = "asker"
"""The user who asked."""
THREAD = "thread"
"""Stands, as a place for the card, for the conversation itself."""
APPROVERS = "approvers"
"""Stands, as a place for the card, for a direct message to each of those who may sign."""


class OnTimeout(StrEnum):
    """Outcome of an expired approval: it counts as denied, or stays open."""

    DENY = "deny"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class ApprovalRequirements:
    """Requirements of an approval.

    Of each set in `approvers` the signer must be one: principals, roles, MEMBERS or ASKER; without any, those of the
    profile or the settings. `four_eyes` rules out the asker and whoever edited the arguments. `quorum` is how many
    people have to sign; one who may and denies is enough to deny. `expires` is in seconds, None for the setting's.
    `deliver` is where the card goes instead of the conversation: places (`slack:T1:C9`) and APPROVERS; with a call that
    was asked for, places and people (`bot.domain.approval_targets`).
    """

    approvers: tuple[frozenset[str], ...] = ()
    four_eyes: bool = False
    quorum: int = 1
    expires: float | None = None
    on_timeout: OnTimeout | None = None
    remind: bool = False
    deliver: frozenset[str] = frozenset()

    @property
    def say_who(self) -> bool:
        """Return True if the requirements name approvers, and not only a time limit."""
        return bool(self.approvers) or self.four_eyes or self.quorum > 1

    def joined(self, other: ApprovalRequirements) -> ApprovalRequirements:
        """Terms that are met where both are: in everything the stricter; the card goes wherever one of them says."""
        return ApprovalRequirements(
            approvers=tuple(dict.fromkeys((*self.approvers, *other.approvers))),
            four_eyes=self.four_eyes or other.four_eyes,
            quorum=max(self.quorum, other.quorum),
            expires=min((each for each in (self.expires, other.expires) if each is not None), default=None),
            on_timeout=_stricter(self, other),
            remind=self.remind or other.remind,
            deliver=self.deliver | other.deliver,
        )


NO_TERMS = ApprovalRequirements()


def strictest(terms: Iterable[ApprovalRequirements]) -> ApprovalRequirements:
    """Terms that are met where all of them are."""
    whole = NO_TERMS
    for each in terms:
        whole = whole.joined(each)
    return whole


def _stricter(one: ApprovalRequirements, other: ApprovalRequirements) -> OnTimeout | None:
    """Return the stricter outcome. A requirement with a time limit and no outcome of its own means denial."""
    either = one.on_timeout or other.on_timeout
    over = any(each.on_timeout is OnTimeout.DENY or (each.on_timeout is None and each.expires) for each in (one, other))
    return OnTimeout.DENY if either and over else either

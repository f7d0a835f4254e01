"""Delegations: an approver hands the right to decide to another user for a time.

A delegation gives no right of its own. Each decision of the delegate is checked with the delegator's rights of that
moment, which are those of the delegator alone: a delegation cannot be delegated on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bot.domain.approvals import SelfApproval
from bot.domain.conversations import Author, ConversationKey, Member
from bot.engine.surfaces import Surfaces
from bot.ports import ApprovalLog, PendingApproval


async def find_delegators(
    log: ApprovalLog, surfaces: Surfaces, member: Member, conversation: ConversationKey
) -> list[Member]:
    """Return the users who have handed this member their right to decide. Guests and external users get none.
    A token that was made later is another user than an earlier one of its name, as delegate and as delegator.
    """
    if member.guest or member.external:
        return []
    found: list[Member] = []
    for grant in await log.delegations(conversation.workspace_key):
        if grant.person == member.author.principal and grant.created_at >= member.since:
            platform, _colon, user = grant.granted_by.partition(":")
            delegator = await surfaces.find_member(Author(platform, user, grant.granted_name), conversation)
            found += [delegator] if delegator is not None and grant.created_at >= delegator.since else []
    return found


def decidable(
    log: ApprovalLog, surfaces: Surfaces, member: Member, may_decide: Callable[[Member, PendingApproval], bool]
) -> Callable[[PendingApproval], Awaitable[bool]]:
    """Return a test for lists: True if this member may decide the call by their own right or by that of a delegator.
    The right of a user to approve their own call is not handed on.
    """
    delegators: dict[str, Sequence[Member]] = {}

    async def may_member_decide(call: PendingApproval) -> bool:
        if may_decide(member, call):
            return True
        if call.asked_by.principal == member.author.principal:
            return False
        place = call.conversation.workspace_key
        if place not in delegators:
            delegators[place] = await find_delegators(log, surfaces, member, call.conversation)
        for_others = replace(call, requirements=call.requirements.restrict(SelfApproval.RULE))
        return any(may_decide(each, call) and may_decide(each, for_others) for each in delegators[place])

    return may_member_decide

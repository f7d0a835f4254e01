"""Delegations: an approver hands the right to decide to another user for a time.

A delegation gives no right of its own. Each decision of the delegate is checked with the delegator's rights of that
moment, which are those of the delegator alone: a delegation cannot be delegated on.
"""

from __future__ import annotations

from bot.domain.conversations import Author, ConversationKey, Member
from bot.engine.view_delivery import MemberLookup
from bot.ports import ApprovalLog


async def find_delegators(
    log: ApprovalLog, members: MemberLookup, member: Member, conversation: ConversationKey
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
            delegator = await members.find(Author(platform, user, grant.granted_name), conversation)
            found += [delegator] if delegator is not None and grant.created_at >= delegator.since else []
    return found

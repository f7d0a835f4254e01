"""Decisions by buttons. The user is looked up at the press, and the engine checks the user's rights.

View delivery updates the cards once a decision is stored. The text returned here is for the user who pressed only, and
only if the press did not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.chat.actions import ApprovalRef
from bot.chat.lookups import Lookups
from bot.chat.rejection_messages import WORN_OUT, rejection_message
from bot.domain.approvals import WHOLE, Decision, DecisionType, Portion
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus, ToolStep
from bot.ports import EngineApi
from bot.rendering.approval_card import approval_card
from bot.rendering.grant_options import parse_grant_option

RECENT_TURNS = 30


async def decide(
    engine: EngineApi, cards: Sequence[ApprovalRef], verdict: DecisionType, member: Member, reason: str = ""
) -> str:
    """Decide every card. Return the text for the user, with principals as names of users; empty if all decisions
    counted.
    """
    told = [
        rejection_message(
            await engine.decide(Decision(each.approval_id, each.revision, verdict, member.author, reason), member)
        )
        for each in cards
    ]
    return "\n".join(dict.fromkeys(filter(None, told)))


async def approve_with_grant(engine: EngineApi, card: ApprovalRef, offer: str, member: Member) -> str:
    """Approve a call and grant the option with this word (`rendering.grant_options`). Return the text for the user,
    empty if the decision counted.
    """
    permission = parse_grant_option(offer)
    if permission is None:
        return WORN_OUT
    decision = Decision(card.approval_id, card.revision, DecisionType.APPROVE, member.author)
    return rejection_message(await engine.grant(decision, permission, member))


async def open_whole(engine: EngineApi, step: ToolStep, member: Member, portion: Portion = WHOLE) -> bool:
    """Return True if this person may be shown, in private, the parts of a call that look like a secret. That they open
    it is on record then. False for a call that hides nothing.
    """
    made = approval_card(step)
    if made is None or not made.withheld or step.status is not StepStatus.AWAITING:
        return False
    return isinstance(await engine.open_call(made.approval_id, made.revision, member, portion), ToolStep)


async def find_approval_step(
    engine: EngineApi, records: Lookups, where: ConversationKey, card: ApprovalRef
) -> ToolStep | None:
    """The call that a card asks about, if it is still the same; without a record of approvals it is looked for among
    the latest turns of the conversation in which it stands.
    """
    if records.approval is not None:
        found = await records.find_approval(card.approval_id)
        calls = [found] if found is not None else []
    else:
        views = await engine.recent_turns(where, RECENT_TURNS)
        calls = [step for view in views for step in view.steps if isinstance(step, ToolStep)]
    for step in calls:
        if step.approval is not None and ApprovalRef(step.approval.id, step.approval.revision) == card:
            return step
    return None

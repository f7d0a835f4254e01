"""Verdicts that people press: who they are is asked for at the press, whether they may is for the engine to say.

Nothing is drawn here. A card is redrawn by whoever draws turns, when the decision is on disk; what is said here is for
the person who pressed alone, and only where the press did not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.approvals import WHOLE, Decision, Portion, Verdict
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus, ToolStep
from bot.ports import FrontDoor
from bot.reception.presses import CardRef
from bot.reception.records import Records
from bot.reception.refusals import WORN_OUT, refused
from bot.rendering.cards import card
from bot.rendering.grant_offers import offered

RECENT_TURNS = 30


async def decide(
    engine: FrontDoor, cards: Sequence[CardRef], verdict: Verdict, member: Member, reason: str = ""
) -> str:
    """Give a verdict on every card; what the person has to be told, people by their principals, empty if all of them
    counted.
    """
    told = [
        refused(await engine.decide(Decision(each.approval_id, each.revision, verdict, member.author, reason), member))
        for each in cards
    ]
    return "\n".join(dict.fromkeys(filter(None, told)))


async def allow(engine: FrontDoor, card: CardRef, offer: str, member: Member) -> str:
    """Approve a call and allow what the word of an offer stands for (`rendering.grant_offers`); what the person has to
    be told, empty if it counted.
    """
    permission = offered(offer)
    if permission is None:
        return WORN_OUT
    decision = Decision(card.approval_id, card.revision, Verdict.APPROVE, member.author)
    return refused(await engine.grant(decision, permission, member))


async def open_whole(engine: FrontDoor, step: ToolStep, member: Member, portion: Portion = WHOLE) -> bool:
    """Return True if this person may be shown, in private, the parts of a call that look like a secret. That they open
    it is on record then. False for a call that hides nothing.
    """
    made = card(step)
    if made is None or not made.withheld or step.status is not StepStatus.AWAITING:
        return False
    return isinstance(await engine.open_call(made.approval_id, made.revision, member, portion), ToolStep)


async def find_call(engine: FrontDoor, records: Records, where: ConversationKey, card: CardRef) -> ToolStep | None:
    """The call that a card asks about, if it is still the same; without a record of approvals it is looked for among
    the latest turns of the conversation in which it stands.
    """
    if records.approval is not None:
        found = await records.asked(card.approval_id)
        calls = [found] if found is not None else []
    else:
        views = await engine.recent(where, RECENT_TURNS)
        calls = [step for view in views for step in view.steps if isinstance(step, ToolStep)]
    for step in calls:
        if step.approval is not None and CardRef(step.approval.id, step.approval.revision) == card:
            return step
    return None

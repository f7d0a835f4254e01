"""Verdicts that people press: who they are is asked for at the press, whether they may is for the engine to say.

Nothing is drawn here. A card is redrawn by whoever draws turns, when the decision is on disk; what is said here is for
the person who pressed alone, and only where the press did not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.approvals import Decision, Verdict
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import ToolStep
from bot.platforms.slack.desk import Desk
from bot.platforms.slack.presses import CardRef
from bot.platforms.slack.principals import with_names
from bot.platforms.slack.refusals import refused

RECENT_TURNS = 30


async def decide(desk: Desk, cards: Sequence[CardRef], verdict: Verdict, member: Member, reason: str = "") -> str:
    """Give a verdict on every card; what the person has to be told, empty if all of them counted."""
    told = [
        refused(
            await desk.engine.decide(Decision(each.approval_id, each.revision, verdict, member.author, reason), member)
        )
        for each in cards
    ]
    return await with_names(desk.people, "\n".join(dict.fromkeys(filter(None, told))))


async def find_asked(desk: Desk, approval_id: str) -> ToolStep | None:
    """The call that an approval asks about, as it stands now; None where that is not known (any more)."""
    found = await desk.records.approval(approval_id) if desk.records.approval is not None else None
    return None if found is None else found[1]


async def find_call(desk: Desk, where: ConversationKey, card: CardRef) -> ToolStep | None:
    """The call that a card asks about, if it is still the same; without a record of approvals it is looked for among
    the latest turns of the conversation in which it stands.
    """
    if desk.records.approval is not None:
        found = await find_asked(desk, card.approval_id)
        calls = [found] if found is not None else []
    else:
        views = await desk.engine.recent(where, RECENT_TURNS)
        calls = [step for view in views for step in view.steps if isinstance(step, ToolStep)]
    for step in calls:
        if step.approval is not None and CardRef(step.approval.id, step.approval.revision) == card:
            return step
    return None

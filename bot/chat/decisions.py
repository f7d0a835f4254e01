"""Buttons of a turn: decisions about its calls, actions beside it, feedback on its answer.

The engine checks the user's rights, and turn delivery updates the messages. The text returned here is for the user
alone, empty if the button took effect.
"""

from __future__ import annotations

from bot.chat.actions import ApprovalRef, AskAgain, FeedbackValue, SendFeedback
from bot.chat.context import Lookups
from bot.chat.rejection_messages import BUTTON_EXPIRED, rejection_message
from bot.domain.approvals import WHOLE, Decision, DecisionType, Portion
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.turns import Receipt, StepStatus, ToolStep
from bot.errors import NotFound, QueueFull
from bot.ports import EngineApi
from bot.rendering.approval_card import approval_card, parse_grant_option
from bot.rendering.timeline import CheckCallAction, ContinueTurnAction, Offer, RunAgainAction, StopTurnAction

ENDED = "That has ended already."
THANKS = "Thank you, noted."
IN_HAND = "That is in hand already."


async def run_turn_action(engine: EngineApi, offer: Offer | AskAgain, by: Author) -> str:
    """Run the offered action. Return the text for the user, empty if the action counted."""
    try:
        if isinstance(offer, StopTurnAction):
            return "" if await engine.stop(offer.turn_id, by) else ENDED
        return IN_HAND if (await _start_again(engine, offer, by)).redelivery else ""
    except NotFound as error:
        return str(error)
    except QueueFull as error:
        return error.user_message


async def _start_again(
    engine: EngineApi, offer: CheckCallAction | RunAgainAction | ContinueTurnAction | AskAgain, by: Author
) -> Receipt:
    match offer:
        case CheckCallAction(turn_id, n):
            return await engine.check_outcome(turn_id, n, by)
        case RunAgainAction(turn_id, n):
            return await engine.run_again(turn_id, n, by)
        case ContinueTurnAction(turn_id):
            return await engine.continue_turn(turn_id, by)
        case AskAgain(turn_id):
            return await engine.ask_again(turn_id, by)


async def save_feedback(records: Lookups, rated: SendFeedback, by: Author) -> str:
    """Store feedback. Return the text for the user."""
    if records.opinion is not None:
        try:
            await records.opinion(rated.turn_id, rated.opinion is FeedbackValue.GOOD, by)
        except NotFound as error:
            return str(error)
    return THANKS


RECENT_TURNS = 30


async def decide(
    engine: EngineApi, card: ApprovalRef, decision_type: DecisionType, member: Member, reason: str = ""
) -> str:
    """Decide a call. Return the text for the user, with principals as names of users; empty if the decision counted."""
    decision = Decision(card.approval_id, card.revision, decision_type, member.author, reason)
    return rejection_message(await engine.approvals.decide(decision, member))


async def approve_with_grant(engine: EngineApi, card: ApprovalRef, offer: str, member: Member) -> str:
    """Approve a call and grant the option with this word (`rendering.approval_card`). Return the text for the user,
    empty if the decision counted.
    """
    grant = parse_grant_option(offer)
    if grant is None:
        return BUTTON_EXPIRED
    decision = Decision(card.approval_id, card.revision, DecisionType.APPROVE, member.author)
    return rejection_message(await engine.approvals.grant(decision, grant, member))


async def open_whole(engine: EngineApi, step: ToolStep, member: Member, portion: Portion = WHOLE) -> bool:
    """Return True if the user may be shown, in private, the parts of a call that look like a secret; this is recorded.
    Return False for a call that hides nothing.
    """
    card = approval_card(step)
    if card is None or not card.withheld or step.status is not StepStatus.AWAITING:
        return False
    return isinstance(await engine.approvals.open_call(card.approval_id, card.revision, member, portion), ToolStep)


async def find_approval_step(
    engine: EngineApi, records: Lookups, conversation: ConversationKey, card: ApprovalRef
) -> ToolStep | None:
    """Return the call of a card, if it is still the same revision. Without a lookup of approvals it is searched in the
    latest turns of the conversation.
    """
    if records.approval is not None:
        approval = await records.find_approval(card.approval_id)
        calls = [approval] if approval is not None else []
    else:
        views = await engine.recent_turns(conversation, RECENT_TURNS)
        calls = [step for view in views for step in view.steps if isinstance(step, ToolStep)]
    for step in calls:
        if step.approval is not None and ApprovalRef(step.approval.id, step.approval.revision) == card:
            return step
    return None

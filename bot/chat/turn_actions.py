"""Ephemeral replies to the actions beside a turn and to feedback on its answer.

An offer that counts is drawn with the turn, and nothing is said.
"""

from __future__ import annotations

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.chat.lookups import Lookups
from bot.domain.conversations import Author
from bot.errors import NotFound, QueueFull
from bot.ports import EngineApi
from bot.rendering.available_actions import CheckCallAction, Offer, RunAgainAction, StopTurnAction

ENDED = "That has ended already."
THANKS = "Thank you, noted."
IN_HAND = "That is in hand already."


async def run_turn_action(engine: EngineApi, offer: Offer, by: Author) -> str:
    """Run the offered action. Return the text for the user, empty if the action counted."""
    try:
        match offer:
            case CheckCallAction(turn_id, n):
                return IN_HAND if (await engine.check_outcome(turn_id, n, by)).redelivery else ""
            case RunAgainAction(turn_id, n):
                return IN_HAND if (await engine.run_again(turn_id, n, by)).redelivery else ""
            case StopTurnAction(turn_id):
                return "" if await engine.stop(turn_id, by) else ENDED
    except NotFound as error:
        return str(error)
    except QueueFull as error:
        return error.told


async def save_feedback(records: Lookups, rated: SendFeedback, by: Author) -> str:
    """Store feedback. Return the text for the user."""
    if records.opinion is not None:
        try:
            await records.opinion(rated.turn_id, rated.opinion is FeedbackValue.GOOD, by)
        except NotFound as error:
            return str(error)
    return THANKS

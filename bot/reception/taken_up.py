"""What a person is told, alone, who takes up an offer beside a turn or says what they think of its answer.

An offer that counts is drawn with the turn, and nothing is said.
"""

from __future__ import annotations

from bot.domain.conversations import Author
from bot.errors import NotFound, QueueFull
from bot.ports import FrontDoor
from bot.reception.presses import Opinion, Rate
from bot.reception.records import Records
from bot.rendering.offers import Check, Offer, RunAgain, Stop

ENDED = "That has ended already."
THANKS = "Thank you, noted."
IN_HAND = "That is in hand already."


async def take_up(engine: FrontDoor, offer: Offer, by: Author) -> str:
    """Do what was offered; what the person has to be told, empty if it counted."""
    try:
        match offer:
            case Check(turn_id, n):
                return IN_HAND if (await engine.check(turn_id, n, by)).redelivery else ""
            case RunAgain(turn_id, n):
                return IN_HAND if (await engine.again(turn_id, n, by)).redelivery else ""
            case Stop(turn_id):
                return "" if await engine.stop(turn_id, by) else ENDED
    except NotFound as error:
        return str(error)
    except QueueFull as error:
        return error.told


async def rate(records: Records, rated: Rate, by: Author) -> str:
    """Keep an opinion; what the person has to be told."""
    if records.opinion is not None:
        try:
            await records.opinion(rated.turn_id, rated.opinion is Opinion.GOOD, by)
        except NotFound as error:
            return str(error)
    return THANKS

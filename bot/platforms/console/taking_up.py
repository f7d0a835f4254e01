"""Taking up what is offered, by command: `/check`, `/again` and `/stop` are about the newest call or the turn in the
way, since a terminal has no buttons to press on.

Called by the listeners of this folder.
"""

from __future__ import annotations

from bot.domain.conversations import ConversationKey
from bot.domain.turns import Receipt
from bot.errors import NotFound
from bot.platforms.console.person import Person
from bot.ports import FrontDoor
from bot.rendering.offers import call_to_check, call_to_run_again, turn_in_the_way

LOOK_BACK = 50
"""How many turns of a conversation are looked at."""
NOTHING_UNKNOWN = "There is no call here whose outcome is unknown."
NOTHING_RUNS = "Nothing runs or waits in this conversation."


async def check(engine: FrontDoor, person: Person, conversation: ConversationKey) -> Receipt:
    """Let the model find out about the newest call of unknown outcome. Raises NotFound if there is none, or none that
    it was not asked about before.
    """
    offer = call_to_check(await engine.recent(conversation, LOOK_BACK))
    if offer is None:
        raise NotFound(NOTHING_UNKNOWN)
    receipt = await engine.check(offer.turn_id, offer.n, person.author)
    if receipt.redelivery:
        raise NotFound("That call has been checked already.")
    return receipt


async def run_again(engine: FrontDoor, person: Person, conversation: ConversationKey) -> Receipt:
    """Run the newest call of unknown outcome once more. Raises NotFound if there is none, or none that was not run
    again before.
    """
    offer = call_to_run_again(await engine.recent(conversation, LOOK_BACK))
    if offer is None:
        raise NotFound(NOTHING_UNKNOWN)
    receipt = await engine.again(offer.turn_id, offer.n, person.author)
    if receipt.redelivery:
        raise NotFound("That call has been run again already.")
    return receipt


async def stop(engine: FrontDoor, person: Person, conversation: ConversationKey) -> None:
    """Stop the turn that holds the conversation. Raises NotFound if there is none."""
    offer = turn_in_the_way(await engine.recent(conversation, LOOK_BACK))
    if offer is None or not await engine.stop(offer.turn_id, person.author):
        raise NotFound(NOTHING_RUNS)

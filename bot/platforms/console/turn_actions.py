"""Commands `/check`, `/again` and `/stop`, which replace buttons. They act on the newest call of unknown outcome, or on
the active turn.
"""

from __future__ import annotations

from bot.domain.conversations import ConversationKey
from bot.domain.turns import Receipt
from bot.errors import NotFound
from bot.platforms.console.local_user import LocalUser
from bot.ports import EngineApi
from bot.rendering.available_actions import blocking_turn, call_to_check, call_to_run_again

LOOK_BACK = 50
"""Number of turns that are searched."""
NOTHING_UNKNOWN = "There is no call here whose outcome is unknown."
NOTHING_RUNS = "Nothing runs or waits in this conversation."


async def check(engine: EngineApi, person: LocalUser, conversation: ConversationKey) -> Receipt:
    """Ask the model to check the newest call of unknown outcome. Raises NotFound if there is none that was not checked
    before.
    """
    offer = call_to_check(await engine.recent_turns(conversation, LOOK_BACK))
    if offer is None:
        raise NotFound(NOTHING_UNKNOWN)
    receipt = await engine.check_outcome(offer.turn_id, offer.n, person.author)
    if receipt.redelivery:
        raise NotFound("That call has been checked already.")
    return receipt


async def run_again(engine: EngineApi, person: LocalUser, conversation: ConversationKey) -> Receipt:
    """Run the newest call of unknown outcome again. Raises NotFound if there is none that was not repeated before."""
    offer = call_to_run_again(await engine.recent_turns(conversation, LOOK_BACK))
    if offer is None:
        raise NotFound(NOTHING_UNKNOWN)
    receipt = await engine.run_again(offer.turn_id, offer.n, person.author)
    if receipt.redelivery:
        raise NotFound("That call has been run again already.")
    return receipt


async def stop(engine: EngineApi, person: LocalUser, conversation: ConversationKey) -> None:
    """Stop the active turn of the conversation. Raises NotFound if there is none."""
    offer = blocking_turn(await engine.recent_turns(conversation, LOOK_BACK))
    if offer is None or not await engine.stop(offer.turn_id, person.author):
        raise NotFound(NOTHING_RUNS)

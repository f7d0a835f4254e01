"""Which messages are meant for the bot.

Mentions and direct messages are. In a thread where the bot has a turn, so is what people write without a mention,
unless they turn to somebody else; the operator may switch that off.
"""

from __future__ import annotations

from collections import OrderedDict

from bot.domain.conversations import ConversationKey
from bot.platforms.slack.said import Said
from bot.ports import FrontDoor

REMEMBERED = 5000


class Attention:
    """Says what to answer. `follow_threads`: an engaged thread goes on without a mention."""

    def __init__(self, *, follow_threads: bool = True) -> None:
        self._follow = follow_threads
        self._engaged: OrderedDict[ConversationKey, None] = OrderedDict()

    async def wants(self, said: Said, bot: str, conversation: ConversationKey, engine: FrontDoor) -> bool:
        """Whether this message is meant for the bot whose user id is `bot`."""
        if said.direct or bot in said.mentions:
            return True
        if not self._follow or said.opens_thread or said.mentions:
            return False
        return await self._is_engaged(conversation, engine)

    def engage(self, conversation: ConversationKey) -> None:
        """The bot has a turn in this conversation."""
        self._engaged[conversation] = None
        self._engaged.move_to_end(conversation)
        while len(self._engaged) > REMEMBERED:
            self._engaged.popitem(last=False)

    async def _is_engaged(self, conversation: ConversationKey, engine: FrontDoor) -> bool:
        # Only a yes is remembered: any process may make it one at any time.
        if conversation not in self._engaged and await engine.recent(conversation, 1):
            self.engage(conversation)
        return conversation in self._engaged

"""Conversations that continue without a mention: in a thread with a turn of the bot, messages are for the bot unless
they mention another user. The operator may switch that off.
"""

from __future__ import annotations

from collections import OrderedDict

from bot.domain.conversations import ConversationKey
from bot.ports import EngineApi

REMEMBERED = 5000


class ThreadTracker:
    """Knows in which conversations the bot is engaged. `follow_threads`: those go on without a mention."""

    def __init__(self, *, follow_threads: bool = True) -> None:
        self._follow = follow_threads
        self._engaged: OrderedDict[ConversationKey, None] = OrderedDict()

    async def is_following(self, conversation: ConversationKey, engine: EngineApi) -> bool:
        """Return True if the bot answers unmentioned messages in the thread."""
        if not self._follow:
            return False
        # Only a yes is remembered: any process may make it one at any time.
        if conversation not in self._engaged and await engine.recent_turns(conversation, 1):
            self.follow(conversation)
        return conversation in self._engaged

    def follow(self, conversation: ConversationKey) -> None:
        """The bot has a turn in this conversation."""
        self._engaged[conversation] = None
        self._engaged.move_to_end(conversation)
        while len(self._engaged) > REMEMBERED:
            self._engaged.popitem(last=False)

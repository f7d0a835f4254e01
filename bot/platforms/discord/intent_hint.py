"""What people are told once in a thread that the bot cannot follow: without the Message Content intent it reads what
calls it, and nothing else.
"""

from __future__ import annotations

from bot.chat.recent_keys import RecentKeys
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.notices import post_notice
from bot.platforms.discord.rest import Rest

CALL_ME = "I cannot read along here. Reply to one of my messages with the ping on, or mention me, and I go on."
MOST_LOOKED_AT = 100


class MissingIntentHint:
    """Gives the hint once for each thread: this process remembers, the thread itself tells any other."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._given = RecentKeys()

    async def send_once(self, thread: str) -> None:
        """Tell whoever writes in a thread how to go on, if nobody was told before. Raises DeliveryFailed."""
        if self._given.add(thread) and not await self._stands_there(thread):
            await post_notice(self._rest, thread, CALL_ME)

    async def _stands_there(self, thread: str) -> bool:
        client, me = await self._rest.client(), (await self._rest.identity()).user
        with map_errors("read what was said before"):
            place = client.get_partial_messageable(int(thread))
            said = [each async for each in place.history(limit=MOST_LOOKED_AT)]
        return any(str(each.author.id) == me and each.content == CALL_ME for each in said)

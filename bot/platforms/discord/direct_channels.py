"""Direct conversations: the channel in which somebody and the bot are alone.

Called by whatever says something to one person that no press or command has asked for.
"""

from __future__ import annotations

from bot.errors import DeliveryFailed
from bot.platforms.discord.rest import Rest


async def direct_channel(rest: Rest, user: str) -> str:
    """The channel's id; Discord opens it where there is none. Raises DeliveryFailed."""
    answer = await rest.call("POST", "/users/@me/channels", "write to somebody", body={"recipient_id": user})
    found = str(answer.get("id") or "") if isinstance(answer, dict) else ""
    if not found:
        raise DeliveryFailed("Discord opened no direct conversation with that person.", permanent=True)
    return found

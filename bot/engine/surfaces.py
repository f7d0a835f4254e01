"""Which of the platforms in this process a conversation belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.conversations import ConversationKey
from bot.ports import Surface


def surface_for(surfaces: Sequence[Surface], conversation: ConversationKey) -> Surface | None:
    """The surface whose reach takes the conversation in, now: reaches may move."""
    key = f"{conversation}:"
    return next((surface for surface in surfaces if key.startswith(surface.key_prefix)), None)

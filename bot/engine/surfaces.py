"""Lookup of a conversation's surface."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.conversations import ConversationKey
from bot.ports import Surface


def surface_for(surfaces: Sequence[Surface], conversation: ConversationKey) -> Surface | None:
    """Return the surface whose key prefix matches now; prefixes may change."""
    key = f"{conversation}:"
    return next((surface for surface in surfaces if key.startswith(surface.key_prefix)), None)

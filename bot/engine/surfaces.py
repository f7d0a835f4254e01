"""Lookup of a conversation's surface, and of its members there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bot.domain.conversations import Author, ConversationKey, Member
from bot.errors import CountersignError
from bot.ports import Surface

log = logging.getLogger(__name__)

MEMBER_SECONDS = 10.0
"""Time limit, in seconds, of a platform's member lookup."""


def surface_for(surfaces: Sequence[Surface], conversation: ConversationKey) -> Surface | None:
    """Return the surface whose key prefix matches now; prefixes may change."""
    key = f"{conversation}:"
    return next((surface for surface in surfaces if key.startswith(surface.key_prefix)), None)


class MemberLookup:
    """Authors as members of their conversations, looked up at their platforms."""

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        self._surfaces = surfaces

    async def find(self, author: Author, conversation: ConversationKey) -> Member | None:
        """Return the author as a member; None if the platform cannot tell. Rules then take the stricter case."""
        surface = surface_for(self._surfaces, conversation)
        if surface is None:
            return None
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                return await surface.member(author, conversation)
        except (CountersignError, TimeoutError) as error:
            log.warning("member %s was not looked up: %s", author.principal, error or "the platform does not answer")
            return None

"""The connected surfaces of a process, found by conversation, and what they know of users and messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.turns import MessageRefs
from bot.errors import CountersignError, NotFound
from bot.i18n import _
from bot.ports import Surface
from bot.ports.platform import CardSurface, PostedText, ThreadReader

log = logging.getLogger(__name__)
MEMBER_SECONDS = 10.0
"""Time limit, in seconds, of a platform's member lookup."""
THREAD_SECONDS, WHOLE_THREAD_SECONDS = 15.0, 120.0
"""Time limits of reading back a conversation: for its history, and all of it, with pauses for rate limits."""


class Surfaces:
    """Surfaces by conversation. Their key prefixes may change."""

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        self._surfaces = surfaces

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Present key prefixes of all surfaces."""
        return tuple(prefix for surface in self._surfaces for prefix in surface.key_prefixes)

    def find(self, conversation: ConversationKey) -> Surface | None:
        """Return the surface with a matching key prefix."""
        key = f"{conversation}:"
        for surface in self._surfaces:
            if key.startswith(surface.key_prefixes):
                return surface
        return None

    def find_for_cards(self, conversation: ConversationKey) -> tuple[CardSurface, ConversationKey] | None:
        """Return the surface of the workspace that a conversation over HTTP belongs to, and the key of the workspace;
        None for the workspace of HTTP itself.
        """
        platform, _colon, workspace = conversation.workspace_key.partition(":")
        home = ConversationKey(platform, workspace, "", "")
        surface: object = None if platform == conversation.platform else self.find(home)
        return (surface, home) if isinstance(surface, CardSurface) else None

    async def find_member(self, author: Author, conversation: ConversationKey) -> Member | None:
        """Return the author as a member; None if the platform cannot tell. Rules then take the stricter case."""
        surface = self.find(conversation)
        if surface is None:
            return None
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                return await surface.member(author, conversation)
        except (CountersignError, TimeoutError) as error:
            log.warning("member %s was not looked up: %s", author.principal, error or "the platform does not answer")
            return None

    async def fetch(self, conversation: ConversationKey, attachment: Attachment) -> bytes:
        """Return the bytes of a message's attachment. Raises NotFound and the errors of the surface."""
        surface = self.find(conversation)
        if surface is None:
            raise NotFound(_("The file's platform is not connected."))
        return await surface.fetch(attachment)

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs], seconds: float = THREAD_SECONDS
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation, as `ThreadReader.read_thread`; empty if its platform has no reader.
        Raises DeliveryFailed and TimeoutError.
        """
        surface: object = self.find(conversation)
        if not isinstance(surface, ThreadReader):
            return ()
        async with asyncio.timeout(seconds):
            return await surface.read_thread(conversation, posted)

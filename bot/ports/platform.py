"""The two halves of a platform: what it receives and what it displays."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.health import ListenerStatus
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.ports.commands import Commands
from bot.ports.engine_api import EngineApi


class Listener(Protocol):
    """Inbound: one per platform, only in the process where that platform is received."""

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Listen until cancelled or until the platform says goodbye."""

    async def listening(self) -> ListenerStatus:
        """Return the listener's status at once, from memory. Never raises."""
        ...


class Surface(Protocol):
    """Outbound: one per platform, in every process that draws."""

    @property
    def key_prefix(self) -> str:
        """The beginning that the text of a conversation's key, with a colon behind it, must have for this surface to
        draw it: one that ends with the colon takes in one conversation alone. It may change.
        """

    @property
    def min_interval(self) -> float:
        """Seconds that must pass between two drawings of one turn."""

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Draw the whole state of a turn, reusing what `refs` names, and yield every slot as soon as it is out.
        Idempotent. Raises DeliveryFailed.
        """

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Say something outside a turn. Raises DeliveryFailed."""

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Return the user as a member of the workspace, recent enough to authorize by."""

    async def fetch(self, attachment: Attachment) -> bytes:
        """The bytes of something a person uploaded."""

"""The two halves of a platform: the inbound Listener and the outbound Surface."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.health import ListenerStatus
from bot.domain.locales import Locale
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.ports.engine_api import Commands, EngineApi


class Listener(Protocol):
    """Inbound half. One per platform, only in the process that receives its messages."""

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Listen until cancelled or until the platform ends the connection."""

    async def listening(self) -> ListenerStatus:
        """Return the listener's status at once, from memory. Never raises."""
        ...


class Surface(Protocol):
    """Outbound half. One per platform, in every process that delivers views."""

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the conversation keys of this surface, compared with the key's text and a colon behind it. A
        prefix that ends with the colon may select a single conversation. The value may change.
        """

    @property
    def min_interval(self) -> float:
        """Minimum seconds between two deliveries of one turn."""

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Display the whole state of a turn, editing the messages in `refs`, and yield each posted slot at once.
        Idempotent. Raises DeliveryFailed.
        """

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice outside a turn. Raises DeliveryFailed."""

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user as a member of the workspace, recent enough to authorize by."""

    async def fetch(self, attachment: Attachment) -> bytes:
        """Return the bytes of an attachment."""


@dataclass(frozen=True, slots=True)
class PostedText:
    """A message of a conversation as its platform has it now. `id` is as in `InboundMessage.message_id`, `name` is that
    of its author. `answer_of` is the id of the turn whose answer it belongs to; empty for a message of a user.
    """

    id: str
    name: str
    text: str
    answer_of: str = ""


@runtime_checkable
class ThreadReader(Protocol):
    """Optional half of a Surface: it reads conversations back, for operators who store none."""

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation, oldest first: those of users, and of the bot those with text of the
        answers of turns in `posted`, by the refs of each turn. Cards and notices are left out. Raises DeliveryFailed.
        """
        ...


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A user or group as its platform knows it now. `members` are the principals of a group's users; None for a user,
    and for a group whose members the platform does not tell.
    """

    name: str
    members: frozenset[str] | None = None


@runtime_checkable
class UserLocales(Protocol):
    """Optional half of a Surface: it knows the languages and time zones of users."""

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:
        """Return what the platform says of a user in a workspace, as far as it is known without delay. Never raises."""
        ...


@runtime_checkable
class ApproverDirectory(Protocol):
    """Optional half of a Surface: it knows the users and groups that rules name, and links to approval cards."""

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:
        """Return a user or group by its principal, up to some minutes old. None if it is gone, and for users who may
        approve nothing: guests, external users and bots. Raises DeliveryFailed.
        """
        ...

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the URL of a call's posted card; empty if it has none. Raises DeliveryFailed."""
        ...

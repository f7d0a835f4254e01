"""Posts and edits of messages: each message is posted once and edited afterwards, by any process.

A post without a response is looked up before it is repeated. A message that cannot be edited any more is posted again.
The content that this process has sent is remembered, so that an edit without a change is skipped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from bot.chat.message_model import Message
from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed

log = logging.getLogger(__name__)

MOST_REMEMBERED = 2000


class MessageOwner(Protocol):
    """Owner of messages: a turn, or a notice of the bot. Its `id` and the name of a message identify the
    message in all processes. `created_at` is in epoch seconds.
    """

    @property
    def id(self) -> str:
        """Unique id."""
        ...

    @property
    def conversation(self) -> ConversationKey:
        """Conversation that the messages are posted in."""
        ...

    @property
    def created_at(self) -> float:
        """Time before which no message was posted."""
        ...


class NamedMessage(Protocol):
    """A message in the form of a platform."""

    @property
    def name(self) -> str:
        """Slot of the message among those of its owner."""
        ...


M = TypeVar("M", bound=NamedMessage)


class MessageApi(Protocol[M]):
    """Posts and edits of one platform. Refs are text. Methods that send raise DeliveryFailed."""

    async def create(self, owner: MessageOwner, message: M, replaced: str) -> str:
        """Post a message, once however often it is called, and return its ref. `replaced` is the ref of the message
        that it replaces, because that one cannot be edited; empty for the first post.
        """
        ...

    async def update(self, owner: MessageOwner, message: M, ref: str) -> None:
        """Edit a message."""
        ...

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""
        ...

    async def find(self, owner: MessageOwner, message: M, taken: Collection[str]) -> str:
        """Return the ref of a message that was posted by any process; empty if it is not found. Refs in `taken` are of
        other messages.
        """
        ...

    def digest(self, message: M) -> str:
        """Return a text that differs if the content does."""
        ...

    def fallback(self, message: M, error: DeliveryFailed) -> M | None:
        """Return a simpler message that may be accepted after this error; None if there is none."""
        ...

    def is_gone(self, error: DeliveryFailed, ref: str) -> bool:
        """Return True if the message cannot be edited any more."""
        ...

    def is_unclear(self, error: DeliveryFailed) -> bool:
        """Return True if the message may have been posted all the same."""
        ...


class MessageSender(Generic[M]):
    """Sends messages through one platform's API."""

    def __init__(self, api: MessageApi[M]) -> None:
        self._api = api
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._unclear: set[tuple[str, str]] = set()

    def is_unchanged(self, owner: MessageOwner, message: M) -> bool:
        """Return True if the message already has this content, as far as this process knows."""
        return self._sent.get((owner.id, message.name)) == self._api.digest(message)

    async def show(
        self,
        owner: MessageOwner,
        message: M,
        ref: str,
        *,
        search: bool = False,
        taken: Collection[str] = (),
        replaced: str = "",
    ) -> str:
        """Post a message, or edit the one with this ref if it has changed. Return its ref. `replaced` is the ref of its
        deleted predecessor. Raises DeliveryFailed.
        """
        if not ref:
            return await self.post(owner, message, search=search, taken=taken, replaced=replaced)
        return ref if self.is_unchanged(owner, message) else await self.edit(owner, message, ref)

    async def post(
        self,
        owner: MessageOwner,
        message: M,
        *,
        search: bool = False,
        taken: Collection[str] = (),
        replaced: str = "",
    ) -> str:
        """Post a message, or find it: if `search` is True, because an earlier process may have posted it, and after a
        post without a response. Raises DeliveryFailed.
        """
        key = (owner.id, message.name)
        if search or key in self._unclear:
            ref = await self._api.find(owner, message, taken)
            self._unclear.discard(key)
            if ref:
                return await self.edit(owner, message, ref)
        return await self._create(owner, message, replaced)

    async def edit(self, owner: MessageOwner, message: M, ref: str) -> str:
        """Edit a message and return the ref of the one that shows it now. Raises DeliveryFailed."""
        try:
            try:
                await self._api.update(owner, message, ref)
            except DeliveryFailed as error:
                await self._api.update(owner, self._simpler(message, error), ref)
        except DeliveryFailed as error:
            if not self._api.is_gone(error, ref):
                raise
            log.info("%s: a message cannot be edited, posting it again (%s)", owner.id, error)
            return await self._create(owner, message, ref)
        self._remember(owner, message)
        return ref

    async def delete(self, owner: MessageOwner, name: str, ref: str) -> None:
        """Delete a message that no longer belongs to its owner. Raises DeliveryFailed."""
        await self._api.remove(ref)
        self._sent.pop((owner.id, name), None)

    async def _create(self, owner: MessageOwner, message: M, replaced: str) -> str:
        try:
            try:
                ref = await self._api.create(owner, message, replaced)
            except DeliveryFailed as error:
                ref = await self._api.create(owner, self._simpler(message, error), replaced)
        except DeliveryFailed as error:
            if self._api.is_unclear(error):
                self._unclear.add((owner.id, message.name))
            raise
        self._remember(owner, message)
        return ref

    def _simpler(self, message: M, error: DeliveryFailed) -> M:
        """Return the message to send instead. Raises the error if there is none."""
        simpler = self._api.fallback(message, error)
        if simpler is None:
            raise error
        log.error("a platform rejected the layout of a message, sending it without (%s)", error)
        return simpler

    def _remember(self, owner: MessageOwner, message: M) -> None:
        key = (owner.id, message.name)
        self._sent[key] = self._api.digest(message)
        self._sent.move_to_end(key)
        while len(self._sent) > MOST_REMEMBERED:
            self._sent.popitem(last=False)


class ChannelMessages(Protocol):
    """Messages that the bot posts by itself in channels of one platform."""

    async def show(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        """Post a message in the channel of its owner, or edit the one with this ref. Return its ref. If `search` is
        True, an earlier process may have posted it. Raises DeliveryFailed.
        """
        ...

    async def delete(self, owner: MessageOwner, name: str, ref: str) -> None:
        """Delete a message. Raises DeliveryFailed."""
        ...


class ChannelSender(Generic[M]):
    """Sends messages of the chat layer. `render` returns one in the form of the platform, with its channel."""

    def __init__(self, api: MessageApi[M], render: Callable[[Message, str], M]) -> None:
        self._sender = MessageSender(api)
        self._render = render

    async def show(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        """Post or edit a message, and return its ref. Raises DeliveryFailed."""
        native = self._render(message, owner.conversation.channel)
        return await self._sender.show(owner, native, ref, search=search)

    async def delete(self, owner: MessageOwner, name: str, ref: str) -> None:
        """Delete a message. Raises DeliveryFailed."""
        await self._sender.delete(owner, name, ref)

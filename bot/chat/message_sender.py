"""Posts and edits of the messages of turns: each message is posted once and edited afterwards, by any process.

A post without a response is looked up before it is repeated. A message that cannot be edited any more is posted again.
The content that this process has sent is remembered, so that an edit without a change is skipped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from bot.domain.turns import Turn
from bot.errors import DeliveryFailed

log = logging.getLogger(__name__)

MOST_REMEMBERED = 2000


class NamedMessage(Protocol):
    """A message in the form of a platform."""

    @property
    def name(self) -> str:
        """Slot of the message in its turn."""
        ...


M = TypeVar("M", bound=NamedMessage)


class MessageApi(Protocol[M]):
    """Posts and edits of one platform. Refs are text. Methods that send raise DeliveryFailed."""

    async def create(self, turn: Turn, message: M, replaced: str) -> str:
        """Post a message, once however often it is called, and return its ref. `replaced` is the ref of the message
        that it replaces, because that one cannot be edited; empty for the first post.
        """
        ...

    async def update(self, turn: Turn, message: M, ref: str) -> None:
        """Edit a message."""
        ...

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""
        ...

    async def find(self, turn: Turn, message: M, taken: Collection[str]) -> str:
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
    """Sends the messages of turns through one platform's API."""

    def __init__(self, api: MessageApi[M]) -> None:
        self._api = api
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._unclear: set[tuple[str, str]] = set()

    def is_unchanged(self, turn: Turn, message: M) -> bool:
        """Return True if the message already has this content, as far as this process knows."""
        return self._sent.get((turn.id, message.name)) == self._api.digest(message)

    async def show(self, turn: Turn, message: M, ref: str, *, search: bool = False, taken: Collection[str] = ()) -> str:
        """Post a message, or edit the one with this ref if it has changed. Return its ref. Raises DeliveryFailed."""
        if not ref:
            return await self.post(turn, message, search=search, taken=taken)
        return ref if self.is_unchanged(turn, message) else await self.edit(turn, message, ref)

    async def post(self, turn: Turn, message: M, *, search: bool = False, taken: Collection[str] = ()) -> str:
        """Post a message, or find it: if `search` is True, because an earlier process may have posted it, and after a
        post without a response. Raises DeliveryFailed.
        """
        key = (turn.id, message.name)
        if search or key in self._unclear:
            ref = await self._api.find(turn, message, taken)
            self._unclear.discard(key)
            if ref:
                return await self.edit(turn, message, ref)
        return await self._create(turn, message, "")

    async def edit(self, turn: Turn, message: M, ref: str) -> str:
        """Edit a message and return the ref of the one that shows it now. Raises DeliveryFailed."""
        try:
            try:
                await self._api.update(turn, message, ref)
            except DeliveryFailed as error:
                await self._api.update(turn, self._simpler(message, error), ref)
        except DeliveryFailed as error:
            if not self._api.is_gone(error, ref):
                raise
            log.info("turn %s: a message cannot be edited, posting it again (%s)", turn.id, error)
            return await self._create(turn, message, ref)
        self._remember(turn, message)
        return ref

    async def delete(self, turn: Turn, name: str, ref: str) -> None:
        """Delete a message that no longer belongs to the turn. Raises DeliveryFailed."""
        await self._api.remove(ref)
        self._sent.pop((turn.id, name), None)

    async def _create(self, turn: Turn, message: M, replaced: str) -> str:
        try:
            try:
                ref = await self._api.create(turn, message, replaced)
            except DeliveryFailed as error:
                ref = await self._api.create(turn, self._simpler(message, error), replaced)
        except DeliveryFailed as error:
            if self._api.is_unclear(error):
                self._unclear.add((turn.id, message.name))
            raise
        self._remember(turn, message)
        return ref

    def _simpler(self, message: M, error: DeliveryFailed) -> M:
        """Return the message to send instead. Raises the error if there is none."""
        simpler = self._api.fallback(message, error)
        if simpler is None:
            raise error
        log.error("a platform rejected the layout of a message, sending it without (%s)", error)
        return simpler

    def _remember(self, turn: Turn, message: M) -> None:
        key = (turn.id, message.name)
        self._sent[key] = self._api.digest(message)
        self._sent.move_to_end(key)
        while len(self._sent) > MOST_REMEMBERED:
            self._sent.popitem(last=False)

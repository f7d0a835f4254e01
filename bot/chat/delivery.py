"""Delivery on a chat platform: each message is posted once and edited afterwards, by any process.

`MessageSender` posts and edits single messages. A post without a response is looked up before it is repeated. A message
that cannot be edited any more is posted again. An edit without a change is skipped.

`TurnDelivery` decides which messages a view of a turn needs, and which of them are posted, edited or deleted. A
platform implements `TurnMessages`. Any process can deliver any turn from its refs.

Cards outside of the conversation go only to users with the right to approve the call at that moment, because its
arguments are visible to them alone. A call whose card reaches no channel must not wait for an approval.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from time import time
from typing import ClassVar, Generic, Protocol, TypeVar

from bot.chat.card_messages import UNREACHED, RemoteMessage, is_remote_slot
from bot.chat.message_model import Message
from bot.chat.turn_messages import REMOVED, is_activity_shown, split_mark, unfinished_mark
from bot.chat.users import RecentEntries
from bot.domain.approvals import DirectTarget
from bot.domain.conversations import Author, ConversationKey
from bot.domain.locales import use_locale
from bot.domain.turns import MessageRefs, PostedMessage, Turn, TurnStatus, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import DeliveryFailed, NotFound
from bot.i18n import gettext_lazy
from bot.ports.platform import UserLocales
from bot.rendering.timeline import FILE_PREFIX, LEFT_OUT, ToolFile, activity_text, returned_files

log = logging.getLogger(__name__)

MOST_REMEMBERED = 2000

ACKNOWLEDGED = "acknowledged"
"""Slot of the mark at a question."""
TOKEN_REJECTED_SECONDS = 60.0
"""Seconds until the next try with a rejected token: the operator may set a new one."""
MOST_REMEMBERED_TURNS = 2000


@dataclass(frozen=True, slots=True)
class NoticeOwner:
    """Owner of messages that the bot posts by itself, outside of turns."""

    id: str
    conversation: ConversationKey
    created_at: float


MessageOwner = Turn | NoticeOwner
"""Owner of messages. Its `id` and the name of a message identify the message in all processes. No message was posted
before `created_at`, in epoch seconds.
"""
R = TypeVar("R")


def require_ref(ref: R | None) -> R:
    """Return the parsed ref of a posted message. Raises DeliveryFailed for None, the result for any other text."""
    if ref is None:
        raise DeliveryFailed(gettext_lazy("The reference of a message is unreadable."), permanent=True)
    return ref


class NativeMessage(Protocol):
    """A message in the form of a platform."""

    @property
    def name(self) -> str:
        """Slot of the message among those of its owner, the same in every delivery of its turn."""

    @property
    def asks(self) -> bool:
        """True if a user needs its buttons."""


M = TypeVar("M", bound=NativeMessage)


class MessageApi(Protocol[M]):
    """Posts and edits of one platform. Refs are text. Methods that send raise DeliveryFailed."""

    async def create(self, owner: MessageOwner, message: M, replaced: str) -> str:
        """Post a message, once however often it is called, and return its ref. `replaced` is the ref of the message
        that it replaces, because that one cannot be edited; empty for the first post.
        """

    async def update(self, owner: MessageOwner, message: M, ref: str) -> None:
        """Edit a message."""

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""

    async def find(self, owner: MessageOwner, message: M, taken: Collection[str]) -> str:
        """Return the ref of a message that was posted by any process; empty if it is not found. Refs in `taken` are of
        other messages.
        """

    def digest(self, message: M) -> str:
        """Return a text that differs if the content does."""

    def fallback(self, message: M, error: DeliveryFailed) -> M | None:
        """Return a simpler message that may be accepted after this error; None if there is none."""

    def is_gone(self, error: DeliveryFailed, ref: str) -> bool:
        """Return True if the message cannot be edited any more."""

    def is_unclear(self, error: DeliveryFailed) -> bool:
        """Return True if the message may have been posted all the same."""


class MessageSender(Generic[M]):
    """Sends messages through one platform's API."""

    def __init__(self, api: MessageApi[M]) -> None:
        self._api = api
        self._sent = RecentEntries[tuple[str, str], str](MOST_REMEMBERED)
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
        self._sent[owner.id, message.name] = self._api.digest(message)
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
        self._sent[owner.id, message.name] = self._api.digest(message)
        return ref

    def _simpler(self, message: M, error: DeliveryFailed) -> M:
        """Return the message to send instead. Raises the error if there is none."""
        simpler = self._api.fallback(message, error)
        if simpler is None:
            raise error
        log.error("a platform rejected the layout of a message, sending it without (%s)", error)
        return simpler


class ChannelMessages(Protocol):
    """Posts messages that the bot sends by itself in channels of one platform."""

    async def show_in_channel(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        """Post a message in the channel of its owner, or edit the one with this ref. Return its ref. If `search` is
        True, an earlier process may have posted it. Raises DeliveryFailed.
        """


N = TypeVar("N", bound=NativeMessage)


class TurnMessages(Protocol[N]):
    """Messages of turns on one platform. Refs are text. Every method that sends raises DeliveryFailed. Those with a
    body are optional.
    """

    largest_file: ClassVar[int]
    """Maximum size of a tool's file, in bytes."""
    acknowledges: ClassVar[bool] = False
    """True if the platform marks the question of a turn until the answer is there, where nothing shows the activity."""

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[N]:
        """Return the messages of a turn in its conversation, in order. Unposted cards expire counted from `now`. `refs`
        are as they are stored, with their marks.
        """

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[N]]:
        """Return the cards of a turn in other places, the places of each card together."""

    async def locate_remote(self, turn: Turn, remote: RemoteMessage[N], ref: str) -> N:
        """Return a card with the channel that it is posted in, or was posted in if there is a ref. DeliveryFailed is
        permanent if a user there may not see it.
        """

    async def share(self, turn: Turn, file: ToolFile, *, search: bool, taken: Collection[str]) -> str:
        """Post a file of a tool, and return its ref. Raises NotFound if the file is gone. If `search` is True, an
        earlier process may have posted it. Refs in `taken` are of other messages.
        """

    def is_token_rejected(self, error: DeliveryFailed) -> bool:
        """Return True if the platform rejected the bot's token."""

    async def finish(self, view: TurnView) -> None:  # noqa: ARG002 - optional, as all that follow
        """Act after a complete delivery, such as to end a stream."""
        return

    async def show_growing(self, view: TurnView, message: N, ref: str, *, refs: MessageRefs, is_last: bool) -> str:  # noqa: ARG002
        """Stream a message, or let it wait. Return its ref, empty if it is to be posted or edited now. `refs` are those
        of the turn, as they are stored.
        """
        return ""

    async def stop_growing(self, turn: Turn, name: str) -> None:  # noqa: ARG002
        """Stop the stream of a message that is about to be deleted, if any."""
        return

    async def show_activity(self, view: TurnView, text: str, *, is_shown: bool) -> bool:  # noqa: ARG002
        """Show the activity of a running turn beside its messages, for example as a status. `is_shown` is True if a
        message shows it. Return False if users see nothing of it. Never raises.
        """
        return False

    async def acknowledge(self, turn: Turn) -> None:  # noqa: ARG002
        """Mark the question of a turn, unless it is marked. Never raises."""
        return

    async def withdraw(self, turn: Turn) -> None:  # noqa: ARG002
        """Remove the mark, if it is there. Never raises."""
        return


class TurnDelivery(Generic[N]):
    """Delivers views of turns through the messages of one platform. `users` tells the languages of readers, `locales`
    resolves them.
    """

    def __init__(
        self,
        messages: TurnMessages[N],
        api: MessageApi[N],
        *,
        users: UserLocales | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self.locales = LocaleResolver()
        self._users = users
        self._messages = messages
        self._sender = MessageSender(api)
        self._clock = clock
        self._started_at = clock()
        self._known = RecentEntries[str, tuple[int, float]](MOST_REMEMBERED_TURNS)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn: post missing messages, edit changed ones, delete those that no longer belong to it. Raises
        DeliveryFailed, which is not permanent if the token was rejected: the turn is delivered with the next token.
        """
        try:
            async with aclosing(self._deliver(view, refs)) as posted:
                async for message in posted:
                    yield message
        except DeliveryFailed as error:
            if not self._messages.is_token_rejected(error):
                raise
            raise DeliveryFailed(
                error.cause, error.fix, retry_after=TOKEN_REJECTED_SECONDS, details=error.details
            ) from error

    async def deliver_cards(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Post and edit the cards in other places alone (`bot.ports.platform.CardSurface`)."""
        posted, (since, search) = dict(refs), self._search_since(view)
        remotes = await self._remotes(view, since)
        async for message in self._post_pending_remotes(view, remotes, posted, search=search):
            yield message
        async for message in self._update_remotes(view, remotes, posted):
            yield message
        self._known[view.turn.id] = (view.revision, since)

    def _search_since(self, view: TurnView) -> tuple[float, bool]:
        """Return the time that unposted cards expire from, and True if another process may have posted messages."""
        known = self._known.get(view.turn.id)
        since = known[1] if known is not None and known[0] == view.revision else self._clock()
        return since, known is None and view.turn.created_at < self._started_at

    async def _remotes(self, view: TurnView, since: float) -> list[RemoteMessage[N]]:
        turn = view.turn
        with use_locale(turn.question.locale):
            remotes = list(await self._messages.render_remote(view, since))
        for number, remote in enumerate(remotes):
            if isinstance(remote.place, DirectTarget):
                reader = Author(turn.conversation.platform, remote.place.id, "")
                with use_locale(await self.locales.for_reader(self._users, reader, turn.conversation)):
                    remotes[number] = (await self._messages.render_remote(view, since))[number]
        return remotes

    async def _deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        posted, turn, (since, search) = dict(refs), view.turn, self._search_since(view)
        remotes = await self._remotes(view, since)
        async for message in self._post_pending_remotes(view, remotes, posted, search=search):
            yield message
        failure: DeliveryFailed | None = None
        try:
            async with aclosing(self._deliver_conversation(view, posted, since, search=search)) as messages:
                async for message in messages:
                    posted[message.slot] = message.ref
                    yield message
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            failure = error  # cards in other places must still be updated
        async for message in self._update_remotes(view, remotes, posted):
            yield message
        if failure is not None:
            raise failure
        self._known[turn.id] = (view.revision, since)
        async for message in self._show_activity(view, posted):
            yield message
        await self._messages.finish(view)

    async def _show_activity(self, view: TurnView, posted: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Show the activity of a running turn. If nothing shows it, mark the question until there is a message."""
        turn = view.turn
        is_marked = ACKNOWLEDGED in posted and posted[ACKNOWLEDGED] != REMOVED
        if turn.status is TurnStatus.QUEUED and not turn.begun:
            if self._messages.acknowledges and ACKNOWLEDGED not in posted:
                yield PostedMessage(ACKNOWLEDGED, ACKNOWLEDGED)
                await self._messages.acknowledge(turn)
        elif turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks):
            is_shown = is_activity_shown(view, posted)
            with use_locale(turn.question.locale):
                is_shown_beside = await self._messages.show_activity(view, activity_text(view), is_shown=is_shown)
            if self._messages.acknowledges and not (is_shown or is_shown_beside or ACKNOWLEDGED in posted):
                yield PostedMessage(ACKNOWLEDGED, ACKNOWLEDGED)  # stored first, so that any process can remove it
                await self._messages.acknowledge(turn)
        elif is_marked:
            await self._messages.withdraw(turn)
            yield PostedMessage(ACKNOWLEDGED, REMOVED)

    async def _deliver_conversation(
        self, view: TurnView, posted: dict[str, str], since: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Deliver the messages of the turn's own conversation. `posted` are all refs, also those of remote cards."""
        turn, taken = view.turn, {split_mark(ref)[1] for ref in posted.values()}
        with use_locale(turn.question.locale):
            messages = await self._messages.render(view, since, posted)
        for number, message in enumerate(messages, start=1):
            mark, ref = split_mark(posted.get(message.name, ""))
            replaced = ""
            if mark == REMOVED or not ref:
                mark, ref, replaced = unfinished_mark(view, message.name, posted), "", ref
            is_last, growing = number == len(messages), ""
            if not (ref and self._sender.is_unchanged(turn, message)):
                with use_locale(turn.question.locale):
                    growing = await self._messages.show_growing(view, message, ref, refs=posted, is_last=is_last)
            ref = growing or await self._sender.show(turn, message, ref, search=search, taken=taken, replaced=replaced)
            taken.add(ref)
            yield PostedMessage(message.name, f"{mark}{ref}")
        for file in returned_files(view, self._messages.largest_file):
            try:
                ref = posted.get(file.slot) or await self._messages.share(turn, file, search=search, taken=taken)
            except NotFound:
                ref = LEFT_OUT
            except DeliveryFailed as error:
                if not error.permanent:
                    raise
                log.warning("turn %s: file not shared: %s", turn.id, error)
                ref = LEFT_OUT
            taken.add(ref)
            yield PostedMessage(file.slot, ref)
        for name in posted.keys() - {message.name for message in messages}:
            mark, ref = split_mark(posted[name])
            if mark != REMOVED and not (name == ACKNOWLEDGED or name.startswith(FILE_PREFIX) or is_remote_slot(name)):
                await self._messages.stop_growing(turn, name)
                await self._sender.delete(turn, name, ref)
                yield PostedMessage(name, f"{REMOVED}{ref}")

    async def _show_remote(
        self, turn: Turn, remote: RemoteMessage[N], ref: str, *, search: bool = False, taken: Collection[str] = ()
    ) -> str:
        message = await self._messages.locate_remote(turn, remote, ref)
        return await self._sender.show(turn, message, ref, search=search, taken=taken)

    async def _post_pending_remotes(
        self, view: TurnView, remotes: Sequence[RemoteMessage[N]], posted: dict[str, str], *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Post the pending cards that have not been posted. A decided approval needs no remote card. Raises
        DeliveryFailed, permanent if a card cannot be posted in any of its places.
        """
        for _, places in groupby(remotes, lambda remote: remote.card):
            is_posted, failure = False, None
            missed: list[str] = []
            for remote in places:
                name = remote.message.name
                if name in posted or not remote.message.asks:
                    is_posted = True
                    continue
                try:
                    taken = set(posted.values())
                    ref = await self._show_remote(view.turn, remote, "", search=search, taken=taken)
                except DeliveryFailed as error:
                    if not self._concerns_one_place(error):
                        raise
                    log.warning("turn %s: remote card not posted in a channel: %s", view.turn.id, error)
                    failure = error
                    missed.append(name)
                else:
                    is_posted = True
                    posted[name] = ref
                    yield PostedMessage(name, ref)
            if failure is not None and not is_posted:
                cause = gettext_lazy("It was to be approved in another place. {cause}", cause=failure.cause)
                raise DeliveryFailed(cause, failure.fix, permanent=True, details=failure.details) from failure
            for name in missed:
                posted[name] = UNREACHED
                yield PostedMessage(name, UNREACHED)

    async def _update_remotes(
        self, view: TurnView, remotes: Sequence[RemoteMessage[N]], posted: dict[str, str]
    ) -> AsyncGenerator[PostedMessage, None]:
        """Update the posted cards. A card that cannot be edited stays: its buttons are checked when a user clicks.
        Raises DeliveryFailed.
        """
        for remote in remotes:
            name = remote.message.name
            ref = posted.get(name, UNREACHED)
            if ref == UNREACHED:
                continue
            try:
                shown = await self._show_remote(view.turn, remote, ref)
            except DeliveryFailed as error:
                if not self._concerns_one_place(error):
                    raise
                log.warning("turn %s: remote card not updated in a channel: %s", view.turn.id, error)
                continue
            if shown != ref:
                yield PostedMessage(name, shown)

    def _concerns_one_place(self, error: DeliveryFailed) -> bool:
        """Return True if the error concerns one place only and a retry cannot help."""
        return error.permanent and not self._messages.is_token_rejected(error)

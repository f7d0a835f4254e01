"""Delivery of turns on a chat platform: which messages a view needs, and which of them are posted, edited or deleted.

A platform implements `TurnMessages`. Any process can deliver any turn from its refs. Delivering a view twice posts each
message once.

Cards outside of the conversation go only to users who may approve the call at that moment, because its arguments are
visible to them alone. A call whose card reaches no channel must not wait for an approval.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from time import time
from typing import Generic, Protocol, TypeVar

from bot.chat.card_messages import NOT_THERE, UNREACHED, is_remote_slot
from bot.chat.message_sender import MessageApi, MessageSender, NamedMessage
from bot.chat.turn_messages import REMOVED, is_activity_shown, split_mark, unfinished_mark
from bot.domain.approvals import Destination
from bot.domain.turns import MessageRefs, PostedMessage, Turn, TurnStatus, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.rendering.timeline import FILE_PREFIX, LEFT_OUT, ToolFile, activity_text, returned_files

log = logging.getLogger(__name__)

ACKNOWLEDGED = "acknowledged"
"""Slot of the mark at a question."""
TOKEN_REJECTED_SECONDS = 60.0
"""Seconds until the next try with a rejected token: the operator may set a new one."""
MOST_REMEMBERED_TURNS = 2000


class NativeMessage(NamedMessage, Protocol):
    """A message in the form of a platform. Its name is the same in every delivery of its turn."""

    @property
    def asks(self) -> bool:
        """True if a user needs its buttons."""
        ...


M = TypeVar("M", bound=NativeMessage)
M_contra = TypeVar("M_contra", bound=NativeMessage, contravariant=True)


@dataclass(frozen=True, slots=True)
class RemoteMessage(Generic[M]):
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    message: M


class TurnMessages(Protocol[M]):
    """Messages of turns on one platform. Refs are text. Every method that sends raises DeliveryFailed."""

    largest_file: int
    """Maximum size of a tool's file, in bytes."""

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[M]:
        """Return the messages of a turn in its conversation, in order. Unposted cards expire counted from `now`. `refs`
        are as they are stored, with their marks.
        """
        ...

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[M]]:
        """Return the cards of a turn in other places, the places of each card together."""
        ...

    async def locate_remote(self, turn: Turn, remote: RemoteMessage[M], ref: str) -> M:
        """Return a card with the channel that it is posted in, or was posted in if there is a ref. DeliveryFailed is
        permanent if a user there may not see it.
        """
        ...

    async def share(self, turn: Turn, file: ToolFile, *, search: bool, taken: Collection[str]) -> str:
        """Post a file of a tool, and return its ref. Raises NotFound if the file is gone. If `search` is True, an
        earlier process may have posted it. Refs in `taken` are of other messages.
        """
        ...

    async def finish(self, view: TurnView) -> None:
        """Act after a complete delivery, such as to end a stream."""
        ...

    def is_token_rejected(self, error: DeliveryFailed) -> bool:
        """Return True if the platform rejected the bot's token."""
        ...


class GrowingMessages(Protocol[M_contra]):
    """Optional: streams unfinished messages, or edits them less often."""

    async def show_growing(
        self, view: TurnView, message: M_contra, ref: str, *, refs: MessageRefs, is_last: bool
    ) -> str:
        """Stream a message, or let it wait. Return its ref, empty if it is to be posted or edited now. `refs` are those
        of the turn, as they are stored.
        """
        ...

    async def stop_growing(self, turn: Turn, name: str) -> None:
        """Stop the stream of a message that is about to be deleted, if any."""
        ...


class ActivityIndicator(Protocol):
    """Optional: shows what a turn does beside its messages."""

    async def show_activity(self, view: TurnView, text: str, *, is_shown: bool) -> bool:
        """Show what a running turn does, for example as a status. `is_shown` is True if a message shows it. Return
        False if users see nothing of it. Never raises.
        """
        ...


class Acknowledgement(Protocol):
    """Optional: a mark at the question of a turn until the answer is there, where nothing shows the activity."""

    async def acknowledge(self, turn: Turn) -> None:
        """Add the mark, unless it is there. Never raises."""
        ...

    async def withdraw(self, turn: Turn) -> None:
        """Remove the mark, if it is there. Never raises."""
        ...


class TurnDelivery(Generic[M]):
    """Delivers views of turns through the messages of one platform."""

    def __init__(
        self,
        messages: TurnMessages[M],
        api: MessageApi[M],
        *,
        growing: GrowingMessages[M] | None = None,
        activity: ActivityIndicator | None = None,
        acknowledgement: Acknowledgement | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._messages = messages
        self._sender = MessageSender(api)
        self._growing = growing
        self._activity = activity
        self._acknowledgement = acknowledgement
        self._clock = clock
        self._started_at = clock()
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()

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

    async def _deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        search = view.turn.id not in self._known and view.turn.created_at < self._started_at
        since = self._delivered_since(view)
        posted = dict(refs)
        remotes = await self._messages.render_remote(view, since)
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
        self._remember(view, since)
        async for message in self._show_activity(view, posted):
            yield message
        await self._messages.finish(view)

    async def _show_activity(self, view: TurnView, posted: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Show what a running turn does. If nothing shows it, mark the question until there is something to read."""
        turn = view.turn
        is_marked = ACKNOWLEDGED in posted and posted[ACKNOWLEDGED] != REMOVED
        if turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks):
            is_shown = is_activity_shown(view, posted)
            if self._activity is not None and await self._activity.show_activity(
                view, activity_text(view), is_shown=is_shown
            ):
                return
            if self._acknowledgement is not None and not is_shown and ACKNOWLEDGED not in posted:
                yield PostedMessage(ACKNOWLEDGED, ACKNOWLEDGED)  # stored first, so that any process can remove it
                await self._acknowledgement.acknowledge(turn)
        elif is_marked and self._acknowledgement is not None:
            await self._acknowledgement.withdraw(turn)
            yield PostedMessage(ACKNOWLEDGED, REMOVED)

    async def _deliver_conversation(
        self, view: TurnView, posted: dict[str, str], since: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Deliver the messages of the turn's own conversation. `posted` are all refs, also those of remote cards."""
        turn, taken = view.turn, {split_mark(ref)[1] for ref in posted.values()}
        messages = await self._messages.render(view, since, posted)
        for number, message in enumerate(messages, start=1):
            mark, ref = split_mark(posted.get(message.name, ""))
            replaced = ""
            if mark == REMOVED or not ref:
                mark, ref, replaced = unfinished_mark(view, message.name), "", ref
            growing = await self._grow(view, message, ref, posted, is_last=number == len(messages))
            ref = growing or await self._sender.show(turn, message, ref, search=search, taken=taken, replaced=replaced)
            taken.add(ref)
            yield PostedMessage(message.name, f"{mark}{ref}")
        for file in returned_files(view, self._messages.largest_file):
            ref = posted.get(file.slot) or await self._share(turn, file, search=search, taken=taken)
            taken.add(ref)
            yield PostedMessage(file.slot, ref)
        for name in posted.keys() - {message.name for message in messages}:
            mark, ref = split_mark(posted[name])
            if mark != REMOVED and not (name == ACKNOWLEDGED or name.startswith(FILE_PREFIX) or is_remote_slot(name)):
                if self._growing is not None:
                    await self._growing.stop_growing(turn, name)
                await self._sender.delete(turn, name, ref)
                yield PostedMessage(name, f"{REMOVED}{ref}")

    async def _grow(self, view: TurnView, message: M, ref: str, refs: MessageRefs, *, is_last: bool) -> str:
        """Stream a message. Return its ref, empty if it is to be posted or edited."""
        if ref and self._sender.is_unchanged(view.turn, message):
            return ref
        if self._growing is None:
            return ""
        return await self._growing.show_growing(view, message, ref, refs=refs, is_last=is_last)

    async def _show_remote(
        self, turn: Turn, remote: RemoteMessage[M], ref: str, *, search: bool = False, taken: Collection[str] = ()
    ) -> str:
        message = await self._messages.locate_remote(turn, remote, ref)
        return await self._sender.show(turn, message, ref, search=search, taken=taken)

    async def _share(self, turn: Turn, file: ToolFile, *, search: bool, taken: Collection[str]) -> str:
        try:
            return await self._messages.share(turn, file, search=search, taken=taken)
        except NotFound:
            return LEFT_OUT
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            log.warning("turn %s: file not shared: %s", turn.id, error)
            return LEFT_OUT

    async def _post_pending_remotes(
        self, view: TurnView, remotes: Sequence[RemoteMessage[M]], posted: dict[str, str], *, search: bool
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
                cause = NOT_THERE.format(failure.cause)
                raise DeliveryFailed(cause, failure.fix, permanent=True, details=failure.details) from failure
            for name in missed:
                posted[name] = UNREACHED
                yield PostedMessage(name, UNREACHED)

    async def _update_remotes(
        self, view: TurnView, remotes: Sequence[RemoteMessage[M]], posted: dict[str, str]
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

    def _delivered_since(self, view: TurnView) -> float:
        """Return when this state of the turn was delivered first. The expiry of an unposted card counts from then, so
        that a second delivery renders the same card.
        """
        known = self._known.get(view.turn.id)
        return known[1] if known is not None and known[0] == view.revision else self._clock()

    def _remember(self, view: TurnView, since: float) -> None:
        self._known[view.turn.id] = (view.revision, since)
        self._known.move_to_end(view.turn.id)
        while len(self._known) > MOST_REMEMBERED_TURNS:
            self._known.popitem(last=False)

"""Discord as a Surface: every process with the bot's token can draw any turn from its references alone.

Which messages a turn is and how they look is for the drawings (`turns`, `cards`); here they get out, in order. The
limits of every route are kept by the library; the pace of one message is ours.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from time import time

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.discord.errors import DiscordApiError
from bot.platforms.discord.files import fetch_file, share_tool_files
from bot.platforms.discord.ids import PLATFORM, MessageRef, channel_id_of
from bot.platforms.discord.notices import post_notice
from bot.platforms.discord.outgoing import OutgoingMessage
from bot.platforms.discord.remote_cards import RemoteCardPublisher
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.sending import Sender
from bot.platforms.discord.threads import direct_channel
from bot.platforms.discord.turns import turn_messages
from bot.platforms.discord.users import UserDirectory
from bot.rendering.remote_cards import is_remote_slot
from bot.rendering.tool_files import PREFIX

log = logging.getLogger(__name__)

PACE = 1.2
"""Seconds between two drawings of one turn: a channel takes about five posts and edits in five seconds."""
TYPING_SECONDS = 8.0
"""Discord shows that somebody types for ten."""
LOCKED_OUT, LOCKED_OUT_SECONDS = 401, 60.0
REMOVED = "-"
"""The reference of a slot that a turn had and has no more."""
REMEMBERED_TURNS = 2000


class DiscordSurface:
    """Draws turns into their threads and channels."""

    def __init__(self, rest: Rest, people: UserDirectory, *, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._people = people
        self._clock = clock
        self._sender = Sender(rest, clock)
        self._courier = RemoteCardPublisher(rest, people, self._sender)
        self._started_at = clock()
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._typing: OrderedDict[str, float] = OrderedDict()

    @property
    def key_prefix(self) -> str:
        """Everything in Discord."""
        return f"{PLATFORM}:"

    @property
    def min_interval(self) -> float:
        """Seconds between two drawings of one turn."""
        return PACE

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Draw a turn: post what is missing, edit what has changed, take away what is no longer part of it. Raises
        DeliveryFailed, which is not permanent where only the token is no good: what waits is drawn with the next one.
        """
        try:
            async with aclosing(self._draw(view, refs)) as out:
                async for drawn in out:
                    yield drawn
        except DiscordApiError as refusal:
            if refusal.status != LOCKED_OUT:
                raise
            raise DeliveryFailed(refusal.cause, refusal.fix, retry_after=LOCKED_OUT_SECONDS) from refusal

    async def _draw(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        turn = view.turn
        search = turn.id not in self._known and turn.created_at < self._started_at
        since = self._since(view)
        out = dict(refs)
        async for drawn in self._courier.post_pending(view, refs, since, search=search):
            out[drawn.slot] = drawn.ref
            yield drawn
        lost: DeliveryFailed | None = None
        try:
            async with aclosing(self._draw_here(view, out, since, search=search)) as here:
                async for drawn in here:
                    yield drawn
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            lost = failure  # what stands elsewhere must not go on asking
        async for drawn in self._courier.update(view, out, since):
            yield drawn
        if lost is not None:
            raise lost
        self._note(view, since)
        waits = view.awaiting or view.asks
        if turn.status is TurnStatus.RUNNING and not view.streaming and not waits:
            await self._type(channel_id_of(turn.conversation))

    async def _draw_here(
        self, view: TurnView, refs: MessageRefs, since: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """What the conversation shows of a turn; `refs` are of all that is out, elsewhere too."""
        slots, taken = turn_messages(view, since, refs), set(refs.values())
        for slot in slots:
            shown = str(await self._shown(view, slot, refs, search=search, taken=taken))
            taken.add(shown)
            yield PostedMessage(slot.name, shown)
        async for drawn in share_tool_files(self._sender, view, refs, search=search, taken=taken):
            yield drawn
        for name in refs.keys() - {slot.name for slot in slots}:
            if (
                not name.startswith(PREFIX)
                and not is_remote_slot(name)
                and (ref := MessageRef.parse(refs[name])) is not None
            ):
                await self._sender.delete(view.turn, name, ref)
                yield PostedMessage(name, REMOVED)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Say something to somebody, or to everyone in a conversation. Only presses and commands can be answered for
        one person alone, so whoever is meant is told directly, wherever they stand. Raises DeliveryFailed.
        """
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed("That conversation is not in Discord.", permanent=True)
        place = await direct_channel(self._rest, audience.person) if audience.person else channel_id_of(where)
        await post_notice(self._rest, place, notice.text)

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Who somebody is, asked for now. Raises DeliveryFailed if Discord does not say."""
        if author.platform != PLATFORM or where.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id, where.workspace)

    async def fetch(self, attachment: Attachment) -> bytes:
        """The bytes of a file that somebody attached. Raises NotFound and DeliveryFailed."""
        return await fetch_file(self._rest, attachment)

    async def _shown(
        self, view: TurnView, slot: OutgoingMessage, refs: MessageRefs, *, search: bool, taken: Collection[str]
    ) -> MessageRef:
        ref = MessageRef.parse(refs.get(slot.name, ""))
        if ref is None:
            return await self._sender.post(view.turn, slot, search=search, taken=taken)
        if self._sender.unchanged(view.turn, slot):
            return ref
        return await self._sender.edit(view.turn, slot, ref)

    async def _type(self, place: str) -> None:
        """Show that the bot is at work, while nothing of its answer is there to see."""
        now = self._clock()
        if now - self._typing.get(place, float("-inf")) < TYPING_SECONDS:
            return
        self._typing[place] = now
        self._typing.move_to_end(place)
        while len(self._typing) > REMEMBERED_TURNS:
            self._typing.popitem(last=False)
        try:
            await self._rest.call("POST", "/channels/{channel_id}/typing", "show that it types", channel_id=place)
        except DeliveryFailed as failure:
            log.debug("typing was not shown: %s", failure)

    def _since(self, view: TurnView) -> float:
        """When this state of a turn was drawn first: a card that is not out yet begins to run off then, and must not
        look different each time it is drawn.
        """
        known = self._known.get(view.turn.id)
        return known[1] if known is not None and known[0] == view.revision else self._clock()

    def _note(self, view: TurnView, since: float) -> None:
        """Remember what was drawn when."""
        self._known[view.turn.id] = (view.revision, since)
        self._known.move_to_end(view.turn.id)
        while len(self._known) > REMEMBERED_TURNS:
            self._known.popitem(last=False)

"""Slack as a Surface: every process with the bot's token can draw any turn of the workspace from its references alone.

Which messages a turn is and how they look is for the drawings (`turns`, `streams`); here they get out, in order, within
Slack's limits. An unfinished reply is edited only while there is room for what must get out: ends and cards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import time

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.turns import TurnStatus
from bot.domain.views import Audience, Drawn, Notice, Refs, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.courier import Courier
from bot.platforms.slack.elsewhere import Outside
from bot.platforms.slack.faults import LOCKED_OUT, SlackRefusal
from bot.platforms.slack.files import fetched
from bot.platforms.slack.live import LiveMessages, Session, Streaming
from bot.platforms.slack.people import People
from bot.platforms.slack.references import PLATFORM, MessageRef
from bot.platforms.slack.sending import Sender
from bot.platforms.slack.shared_files import shared
from bot.platforms.slack.slots import Slot
from bot.platforms.slack.streams import Stream, streams
from bot.platforms.slack.turns import turn_slots
from bot.platforms.slack.uploads import direct_channel
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.wording import escaped, silenced
from bot.rendering.elsewhere import is_copy

FASTEST = 1.0
SLOWEST = 2.0
"""Seconds between two drawings of one turn: an end must not wait for long because many others are at work; what is not
an end waits here, for as long as it takes (`_may_wait`).
"""
RECENTLY = 60.0
"""A turn that was drawn at work this many seconds ago counts as one that is drawn."""
LOCKED_OUT_SECONDS = 60.0
REMOVED = "-"
"""The reference of a slot that a turn had and has no more."""
REMEMBERED_TURNS = 2000


class SlackSurface:
    """Draws turns into their threads."""

    def __init__(
        self,
        api: WebApi,
        people: People,
        *,
        streaming: Streaming = Streaming.DIRECT,
        clock: Callable[[], float] = time,
    ) -> None:
        self._api = api
        self._people = people
        self._clock = clock
        self._sender = Sender(api)
        self._courier = Courier(api, people, self._sender)
        self._live = LiveMessages(api, streaming)
        self._started_at = clock()
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._at_work: dict[str, float] = {}
        self._changed: dict[tuple[str, str], float] = {}

    @property
    def reach(self) -> str:
        """Everything in Slack."""
        return f"{PLATFORM}:"

    @property
    def pace(self) -> float:
        """Seconds between two drawings of one turn."""
        return min(max(FASTEST, self._interval("chat.update") / 2), SLOWEST)

    async def show(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
        """Draw a turn: post what is missing, edit what has changed, take away what is no longer part of it. Raises
        DeliveryFailed, which is not permanent where only the token is no good: what waits is drawn with the next one.
        """
        try:
            async with aclosing(self._draw(view, refs)) as out:
                async for drawn in out:
                    yield drawn
        except SlackRefusal as refusal:
            if refusal.code not in LOCKED_OUT:
                raise
            raise DeliveryFailed(refusal.cause, refusal.fix, retry_after=LOCKED_OUT_SECONDS) from refusal

    async def _draw(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
        search = view.turn.id not in self._known and view.turn.created_at < self._started_at
        since = self._since(view)
        out = dict(refs)
        async for drawn in self._courier.bring(view, refs, since, search=search):
            out[drawn.slot] = drawn.ref
            yield drawn
        lost: DeliveryFailed | None = None
        try:
            async with aclosing(
                self._draw_here(view, refs, since, await self._courier.outside(view, out), search=search)
            ) as here:
                async for drawn in here:
                    yield drawn
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            lost = failure  # what stands elsewhere must not go on asking
        async for drawn in self._courier.refresh(view, out, since):
            yield drawn
        if lost is not None:
            raise lost
        self._note(view, since)

    async def _draw_here(
        self, view: TurnView, refs: Refs, since: float, outside: Outside, *, search: bool
    ) -> AsyncGenerator[Drawn, None]:
        """What the conversation shows of a turn."""
        slots = turn_slots(view, since, outside)
        growing = {stream.name: stream for stream in streams(view) if stream.open}
        for place, slot in enumerate(slots):
            ref = MessageRef.parse(refs.get(slot.name, ""))
            at_work = view.turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks)
            unfinished = at_work and place == len(slots) - 1
            shown = await self._streamed(view, slot, growing.get(slot.name), ref)
            if shown is None and ref is not None and unfinished and self._may_wait(view, slot, "chat.update"):
                shown = ref
            if shown is None:
                shown = await self._sent(view, slot, ref, search=search)
            yield Drawn(slot.name, str(shown))
        async for drawn in shared(self._api, view, refs):
            yield drawn
        for name in refs.keys() - {slot.name for slot in slots}:
            if not is_copy(name) and (ref := MessageRef.parse(refs[name])) is not None:
                await self._live.end(view.turn.id, name)
                await self._sender.delete(view.turn.id, name, ref)
                yield Drawn(name, REMOVED)
        if view.turn.status.ended:
            await self._live.close(view.turn)

    async def tell(self, audience: Audience, notice: Notice) -> None:
        """Say something: to one person where they stand, to them in private, or to everyone there. Raises
        DeliveryFailed.
        """
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed("That conversation is not in Slack.", permanent=True)
        text = escaped(silenced(notice.text))
        quiet = {"unfurl_links": False, "unfurl_media": False}
        thread = where.thread or None
        if audience.person and audience.private:
            channel = await direct_channel(self._api, audience.person)
            await self._api.post("chat.postMessage", channel=channel, text=text, **quiet)
        elif audience.person:
            await self._api.post(
                "chat.postEphemeral", channel=where.channel, user=audience.person, thread_ts=thread, text=text
            )
        else:
            await self._api.post("chat.postMessage", channel=where.channel, thread_ts=thread, text=text, **quiet)

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Who somebody is, asked for now. Raises DeliveryFailed if Slack does not say."""
        if author.platform != PLATFORM or where.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id)

    async def fetch(self, attachment: Attachment) -> bytes:
        """The bytes of a file that somebody attached. Raises NotFound and DeliveryFailed."""
        return await fetched(self._api, attachment)

    async def _streamed(
        self, view: TurnView, slot: Slot, stream: Stream | None, ref: MessageRef | None
    ) -> MessageRef | None:
        """The message, if it is shown as a stream now; None if it has to be sent as it stands."""
        turn = view.turn
        if self._live.has(turn.id, slot.name):
            if ref is not None and stream is not None:
                if self._may_wait(view, slot, "chat.appendStream"):
                    return ref
                if await self._live.grow(turn.id, stream):
                    self._touched(view, slot)
                    return ref
            waits = view.awaiting or view.asks
            await self._live.end(turn.id, slot.name, Session.SUSPENDED if waits else Session.ACTIVE)
            return None
        if ref is None and stream is not None:
            return await self._live.begin(turn, stream)
        return None

    async def _sent(self, view: TurnView, slot: Slot, ref: MessageRef | None, *, search: bool) -> MessageRef:
        turn = view.turn
        if ref is None:
            return await self._sender.post(turn.id, slot, turn.conversation, search=search)
        if self._sender.unchanged(turn.id, slot):
            return ref
        self._touched(view, slot)
        return await self._sender.edit(turn.id, slot, turn.conversation, ref)

    def _may_wait(self, view: TurnView, slot: Slot, method: str) -> bool:
        """Whether a message that is still being written had its share, or there is no room to spare."""
        last = self._changed.get((view.turn.id, slot.name), float("-inf"))
        return self._clock() - last < self._interval(method) or not self._api.pacing.spare(method)

    def _touched(self, view: TurnView, slot: Slot) -> None:
        self._changed[view.turn.id, slot.name] = self._clock()

    def _interval(self, method: str) -> float:
        """Seconds between two changes of one unfinished message: together those at work keep below what Slack takes.
        One that is alone may go faster, for a while.
        """
        now = self._clock()
        at_work = sum(drawn > now - RECENTLY for drawn in self._at_work.values())
        return at_work * 60 / self._api.pacing.room(method) if at_work > 1 else 0.0

    def _since(self, view: TurnView) -> float:
        """When this state of a turn was drawn first: a card that is not out yet begins to run off then, and must not
        look different each time it is drawn.
        """
        known = self._known.get(view.turn.id)
        return known[1] if known is not None and known[0] == view.revision else self._clock()

    def _note(self, view: TurnView, since: float) -> None:
        """Remember what was drawn when."""
        turn_id, now = view.turn.id, self._clock()
        self._known[turn_id] = (view.revision, since)
        self._known.move_to_end(turn_id)
        while len(self._known) > REMEMBERED_TURNS:
            self._known.popitem(last=False)
        self._at_work = {each: drawn for each, drawn in self._at_work.items() if drawn > now - RECENTLY}
        self._changed = {each: changed for each, changed in self._changed.items() if changed > now - RECENTLY}
        if view.turn.status is TurnStatus.RUNNING:
            self._at_work[turn_id] = now
        else:
            self._at_work.pop(turn_id, None)

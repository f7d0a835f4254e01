"""The Discord app: its surface, which every process has, and its listener.

Enter it before use, and leave it after the last delivery.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from time import monotonic, time

from bot.chat.audience import AudiencePolicy
from bot.domain.approvals import ChannelTarget, DirectTarget
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import Turn, TurnStatus
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.discord.channels import PLATFORM, ChannelRef, MessageRef, channel_id_of, direct_channel, from_json
from bot.platforms.discord.components import FILE, OutgoingMessage
from bot.platforms.discord.context import DiscordLookups
from bot.platforms.discord.files import fetch_file
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.markup import escape_to_limit
from bot.platforms.discord.responders import post_notice
from bot.platforms.discord.rest import API_URL, DiscordApiError, FileUpload, Rest
from bot.platforms.discord.sending import Sender
from bot.platforms.discord.turns import RemoteCard, remote_cards, turn_messages
from bot.platforms.discord.users import TtlCache, UserDirectory
from bot.ports import Leases
from bot.rendering.remote_cards import NO_MEMBER, NOT_THERE, UNREACHED, is_remote_slot, remote_approvals
from bot.rendering.text_safety import single_line
from bot.rendering.tool_status import FILE_PREFIX, LEFT_OUT, returned_files

log = logging.getLogger(__name__)

PACE = 1.2
"""Seconds between two drawings of one turn: a channel takes about five posts and edits in five seconds."""
TYPING_SECONDS = 8.0
"""Seconds between typing indicators; Discord shows one for ten."""
LOCKED_OUT = 401
LOCKED_OUT_SECONDS = 60.0
REMOVED = "-"
"""The reference of a slot that a turn had and has no more."""
REMEMBERED_TURNS = 2000
LONGEST_FILE_NAME = 200
ANOTHER_SERVER = "That channel is not on this server."

# -------------------- remote cards
# Posted before the thread links to them, and updated after it. A card goes only to channels of the call's guild and to
# users who may approve it at that moment, because its arguments are visible to them alone. A call whose card reaches no
# channel must not wait for an approval.


class RemoteCardPublisher:
    """Posts and edits cards outside of their conversation."""

    def __init__(self, rest: Rest, people: UserDirectory, sender: Sender) -> None:
        self._rest = rest
        self._people = people
        self._sender = sender
        self._direct = TtlCache[str, bool](monotonic)

    async def post_pending(
        self, view: TurnView, refs: MessageRefs, now: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Post the pending cards that have not been posted. A decided approval needs no remote card. Raises
        DeliveryFailed, permanent if a card cannot be posted in any of its channels.
        """
        taken = set(refs.values())
        for _, places in groupby(await self._copies(view, now), lambda each: each.card):
            out, failure = False, None
            missed: list[RemoteCard] = []
            for copy in places:
                if copy.slot.name in refs or not copy.slot.asks:
                    out = True
                    continue
                try:
                    slot = await self._placed(copy, view.turn)
                    ref = await self._sender.post(view.turn, slot, search=search, taken=taken)
                except DeliveryFailed as error:
                    if not _is_of_this_place(error):
                        raise
                    log.warning("turn %s: remote card not posted in a channel: %s", view.turn.id, error)
                    failure = error
                    missed.append(copy)
                else:
                    out = True
                    taken.add(str(ref))
                    yield PostedMessage(copy.slot.name, str(ref))
            if failure is not None and not out:
                raise DeliveryFailed(NOT_THERE.format(failure.cause), failure.fix, permanent=True) from failure
            for copy in missed:
                yield PostedMessage(copy.slot.name, UNREACHED)

    async def update(self, view: TurnView, refs: MessageRefs, now: float) -> AsyncGenerator[PostedMessage, None]:
        """Update the posted cards. A card that cannot be edited stays: its buttons are checked when a user clicks.
        Raises DeliveryFailed.
        """
        for copy in await self._copies(view, now):
            ref = MessageRef.parse(refs.get(copy.slot.name, ""))
            if ref is None or self._sender.unchanged(view.turn, copy.slot):
                continue
            slot = replace(copy.slot, place=ref.channel)
            try:
                shown = await self._sender.edit(view.turn, slot, ref)
            except DeliveryFailed as error:
                if not _is_of_this_place(error):
                    raise
                log.warning("turn %s: remote card not updated in a channel: %s", view.turn.id, error)
                continue
            yield PostedMessage(slot.name, str(shown))

    async def _copies(self, view: TurnView, now: float) -> list[RemoteCard]:
        if not remote_approvals(view):
            return []
        origin = channel_id_of(view.turn.conversation)
        return [*remote_cards(view, now, direct=await self._direct.get(origin, lambda: self._is_direct(origin)))]

    async def _placed(self, copy: RemoteCard, turn: Turn) -> OutgoingMessage:
        """Return the card with the channel it goes to. Raises DeliveryFailed."""
        match copy.place:
            case ChannelTarget(channel):
                spot = await self._spot(channel)
                if spot is None or spot.server != turn.conversation.workspace:
                    raise DeliveryFailed(ANOTHER_SERVER, permanent=True)
                return replace(copy.slot, place=channel)
            case DirectTarget(user):
                member = await self._people.member(user, turn.conversation.workspace)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return replace(copy.slot, place=await direct_channel(self._rest, user))

    async def _is_direct(self, channel: str) -> bool:
        spot = await self._spot(channel)
        return spot is not None and spot.direct

    async def _spot(self, channel: str) -> ChannelRef | None:
        if not channel.isdecimal():
            return None
        found = await self._rest.call("GET", "/channels/{channel_id}", "look at a channel", channel_id=channel)
        return from_json(found) if isinstance(found, dict) else None


def _is_of_this_place(error: DeliveryFailed) -> bool:
    """Return True if the error concerns one channel only and a retry cannot help."""
    return error.permanent and not (isinstance(error, DiscordApiError) and error.status == LOCKED_OUT)


# -------------------- tool files


async def share_tool_files(
    sender: Sender, view: TurnView, refs: MessageRefs, *, search: bool, taken: set[str]
) -> AsyncGenerator[PostedMessage, None]:
    """Share the tool files that have not been shared yet, each below a line with its name. The ids of their messages
    are added to `taken`. Raises DeliveryFailed.
    """
    for file in returned_files(view, FILE):
        if file.slot in refs:
            yield PostedMessage(file.slot, refs[file.slot])
            continue
        name = _file_name(file.name)
        try:
            slot = OutgoingMessage(
                file.slot, f"-# {escape_to_limit(name, LONGEST_FILE_NAME)}", file=FileUpload(name, await file.read())
            )
            shown = str(await sender.post(view.turn, slot, search=search, taken=taken))
        except NotFound:
            shown = LEFT_OUT
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            log.warning("turn %s: file not shared: %s", view.turn.id, failure)
            shown = LEFT_OUT
        taken.add(shown)
        yield PostedMessage(file.slot, shown)


def _file_name(name: str) -> str:
    """Return a file name that Discord leaves unchanged, without a path."""
    return single_line(name.replace("/", "_").replace("\\", "_"), LONGEST_FILE_NAME) or "file"


# -------------------- surface
# Any process with the bot's token can deliver any turn from its refs. The library applies rate limits per route; the
# interval of edits is set here.


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
        """Key prefix of all Discord conversations."""
        return f"{PLATFORM}:"

    @property
    def min_interval(self) -> float:
        """Seconds between two deliveries of one turn."""
        return PACE

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn: post missing messages, edit changed ones, delete those that no longer belong to it. Raises
        DeliveryFailed, which is not permanent if the token was rejected: the turn is delivered with the next token.
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
        """Deliver the messages of the turn's own conversation; `refs` include those of remote cards."""
        slots, taken = turn_messages(view, since, refs), set(refs.values())
        for slot in slots:
            shown = str(await self._shown(view, slot, refs, search=search, taken=taken))
            taken.add(shown)
            yield PostedMessage(slot.name, shown)
        async for drawn in share_tool_files(self._sender, view, refs, search=search, taken=taken):
            yield drawn
        for name in refs.keys() - {slot.name for slot in slots}:
            if (
                not name.startswith(FILE_PREFIX)
                and not is_remote_slot(name)
                and (ref := MessageRef.parse(refs[name])) is not None
            ):
                await self._sender.delete(view.turn, name, ref)
                yield PostedMessage(name, REMOVED)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice to a user or a conversation. A notice to one user is a direct message, because only
        interactions allow ephemeral answers. Raises DeliveryFailed.
        """
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed("That conversation is not in Discord.", permanent=True)
        place = await direct_channel(self._rest, audience.person) if audience.person else channel_id_of(where)
        await post_notice(self._rest, place, notice.text)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and roles. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id, conversation.workspace)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
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
        """Show the typing indicator until the first message is posted."""
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
            log.debug("typing indicator not shown: %s", failure)

    def _since(self, view: TurnView) -> float:
        """Return when this state of the turn was delivered first. The expiry of an unposted card counts from then, so
        that a second delivery renders the same card.
        """
        known = self._known.get(view.turn.id)
        return known[1] if known is not None and known[0] == view.revision else self._clock()

    def _note(self, view: TurnView, since: float) -> None:
        """Record the time of this delivery."""
        self._known[view.turn.id] = (view.revision, since)
        self._known.move_to_end(view.turn.id)
        while len(self._known) > REMEMBERED_TURNS:
            self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class DiscordApp:
    """Discord app of the bot. `surface` delivers turns; `rest` and `people` are for diagnostics."""

    rest: Rest
    people: UserDirectory
    surface: DiscordSurface

    def listener(
        self,
        *,
        leases: Leases,
        holder: str,
        audience: AudiencePolicy | None = None,
        records: DiscordLookups | None = None,
    ) -> DiscordListener:
        """Return the listener, which receives in one process at a time. `leases` selects the process, `holder` names
        this one.
        """
        return DiscordListener(self.rest, self.people, leases, holder, audience=audience, records=records)


@asynccontextmanager
async def open_discord(
    token: str, *, url: str = API_URL, servers: frozenset[str] = frozenset(), observe: MetricSink = null_sink
) -> AsyncIterator[DiscordApp]:
    """Open the app of a bot token. `servers` are the ids of the served guilds; empty for all guilds of the bot.
    `observe` receives the seconds of Discord's rate limit pauses. No request is sent before the first use.
    """
    async with Rest(token, url=url, observe=observe) as rest:
        people = UserDirectory(rest, servers)
        yield DiscordApp(rest, people, DiscordSurface(rest, people))

"""The Slack app of one workspace: its surface, which every process has, and its listener.

Enter it before use, and leave it after the last delivery.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from time import time

from bot.chat.audience import AudiencePolicy
from bot.domain.approvals import ChannelTarget, DirectTarget
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.slack.blocks import OutgoingMessage
from bot.platforms.slack.channels import PLATFORM, MessageRef, direct_channel
from bot.platforms.slack.context import SlackLookups
from bot.platforms.slack.files import fetch_file, share_file
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.markup import defuse_mentions, escape
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.sending import Sender, Stream, Streaming, StreamManager, StreamSession, streams
from bot.platforms.slack.turns import RemoteCard, SentCards, remote_cards, turn_messages
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import API_URL, LOCKED_OUT, SlackWebApiError, WebApi
from bot.ports import Quotas
from bot.rendering.remote_cards import NO_MEMBER, NOT_THERE, UNREACHED, is_remote_slot, remote_approvals
from bot.rendering.tool_status import LEFT_OUT, returned_files

log = logging.getLogger(__name__)

FASTEST = 1.0
SLOWEST = 2.0
"""Seconds between two deliveries of an unfinished turn. The end of a turn must not wait for long while many turns are
active.
"""
RECENTLY = 60.0
"""A turn that was delivered unfinished within this many seconds counts as active."""
LOCKED_OUT_SECONDS = 60.0
REMOVED = "-"
"""The reference of a slot that a turn had and has no more."""
REMEMBERED_TURNS = 2000
LARGEST = 20 * 1024 * 1024
"""Bytes of a shared file."""

# -------------------- remote cards
# A card goes only to users who may approve the call at that moment, because its arguments are visible to them alone.
# A call whose card reaches no channel must not wait for an approval.


class RemoteCardPublisher:
    """Posts and edits cards outside of their conversation."""

    def __init__(self, api: WebApi, people: UserDirectory, sender: Sender) -> None:
        self._api = api
        self._people = people
        self._sender = sender

    async def outside(self, view: TurnView, refs: MessageRefs) -> SentCards:
        """Return the remote cards that the messages of the conversation link to. Raises DeliveryFailed."""
        return SentCards((await self._api.identity()).url, dict(refs)) if remote_approvals(view) else SentCards()

    async def post_pending(
        self, view: TurnView, refs: MessageRefs, now: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Post the pending cards that have not been posted. A decided approval needs no remote card. Raises
        DeliveryFailed, permanent if a card cannot be posted in any of its channels.
        """
        for _, places in groupby(await self._copies(view, now), lambda each: each.card):
            out, failure = False, None
            missed: list[RemoteCard] = []
            for copy in places:
                if copy.slot.name in refs or not copy.slot.asks:
                    out = True
                    continue
                try:
                    ref = await self._sender.post(
                        view.turn.id, await self._placed(copy), view.turn.conversation, search=search
                    )
                except DeliveryFailed as error:
                    if not _is_of_this_place(error):
                        raise
                    log.warning("turn %s: remote card not posted in a channel: %s", view.turn.id, error)
                    failure = error
                    missed.append(copy)
                else:
                    out = True
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
            if ref is None or self._sender.unchanged(view.turn.id, copy.slot):
                continue
            slot = replace(copy.slot, place=ref.channel)
            try:
                shown = await self._sender.edit(view.turn.id, slot, view.turn.conversation, ref)
            except DeliveryFailed as error:
                if not _is_of_this_place(error):
                    raise
                log.warning("turn %s: remote card not updated in a channel: %s", view.turn.id, error)
                continue
            yield PostedMessage(slot.name, str(shown))

    async def _copies(self, view: TurnView, now: float) -> list[RemoteCard]:
        if not remote_approvals(view):
            return []
        return [*remote_cards(view, now, (await self._api.identity()).url)]

    async def _placed(self, copy: RemoteCard) -> OutgoingMessage:
        """Return the card with the channel it goes to. Raises DeliveryFailed."""
        match copy.place:
            case ChannelTarget(channel):
                return replace(copy.slot, place=channel)
            case DirectTarget(user):
                member = await self._people.member(user)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return replace(copy.slot, place=await direct_channel(self._api, user))


def _is_of_this_place(error: DeliveryFailed) -> bool:
    """Return True if the error concerns one channel only and a retry cannot help."""
    return error.permanent and not (isinstance(error, SlackWebApiError) and error.code in LOCKED_OUT)


# -------------------- tool files
# The ref of a file is Slack's id. A file that Slack rejects permanently is omitted.


async def share_tool_files(api: WebApi, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
    """Share the files that have not been shared yet. Raises DeliveryFailed."""
    where = view.turn.conversation
    for file in returned_files(view, LARGEST):
        if file.slot in refs:
            yield PostedMessage(file.slot, refs[file.slot])
            continue
        try:
            yield PostedMessage(
                file.slot, await share_file(api, where.channel, where.thread, file.name, await file.read())
            )
        except NotFound:
            yield PostedMessage(file.slot, LEFT_OUT)
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            log.warning("turn %s: file not shared: %s", view.turn.id, failure)
            yield PostedMessage(file.slot, LEFT_OUT)


# -------------------- surface
# Any process can deliver any turn of the workspace from its refs. Unfinished replies are edited only while the rate
# limits have headroom for required calls: ends of turns and cards.


class SlackSurface:
    """Draws turns into their threads."""

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        *,
        streaming: Streaming = Streaming.DIRECT,
        clock: Callable[[], float] = time,
    ) -> None:
        self._api = api
        self._people = people
        self._clock = clock
        self._sender = Sender(api)
        self._courier = RemoteCardPublisher(api, people, self._sender)
        self._live = StreamManager(api, streaming)
        self._started_at = clock()
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._at_work: dict[str, float] = {}
        self._changed: dict[tuple[str, str], float] = {}

    @property
    def key_prefix(self) -> str:
        """Key prefix of all Slack conversations."""
        return f"{PLATFORM}:"

    @property
    def min_interval(self) -> float:
        """Seconds between two deliveries of one turn."""
        return min(max(FASTEST, self._interval("chat.update") / 2), SLOWEST)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn: post missing messages, edit changed ones, delete those that no longer belong to it. Raises
        DeliveryFailed, which is not permanent if the token was rejected: the turn is delivered with the next token.
        """
        try:
            async with aclosing(self._draw(view, refs)) as out:
                async for drawn in out:
                    yield drawn
        except SlackWebApiError as refusal:
            if refusal.code not in LOCKED_OUT:
                raise
            raise DeliveryFailed(refusal.cause, refusal.fix, retry_after=LOCKED_OUT_SECONDS) from refusal

    async def _draw(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        search = view.turn.id not in self._known and view.turn.created_at < self._started_at
        since = self._since(view)
        out = dict(refs)
        async for drawn in self._courier.post_pending(view, refs, since, search=search):
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
        async for drawn in self._courier.update(view, out, since):
            yield drawn
        if lost is not None:
            raise lost
        self._note(view, since)

    async def _draw_here(
        self, view: TurnView, refs: MessageRefs, since: float, outside: SentCards, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Deliver the messages of the turn's own conversation."""
        slots = turn_messages(view, since, outside)
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
            yield PostedMessage(slot.name, str(shown))
        async for drawn in share_tool_files(self._api, view, refs):
            yield drawn
        for name in refs.keys() - {slot.name for slot in slots}:
            if not is_remote_slot(name) and (ref := MessageRef.parse(refs[name])) is not None:
                await self._live.stop(view.turn.id, name)
                await self._sender.delete(view.turn.id, name, ref)
                yield PostedMessage(name, REMOVED)
        if view.turn.status.ended:
            await self._live.finish(view.turn)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice: an ephemeral message, a direct message, or a message in the channel. Raises DeliveryFailed."""
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed("That conversation is not in Slack.", permanent=True)
        text = escape(defuse_mentions(notice.text))
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

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and groups. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
        return await fetch_file(self._api, attachment)

    async def _streamed(
        self, view: TurnView, slot: OutgoingMessage, stream: Stream | None, ref: MessageRef | None
    ) -> MessageRef | None:
        """Return the ref of a message that is being streamed, or None if it must be sent as a whole."""
        turn = view.turn
        if self._live.has(turn.id, slot.name):
            if ref is not None and stream is not None:
                if self._may_wait(view, slot, "chat.appendStream"):
                    return ref
                if await self._live.append(turn.id, stream):
                    self._touched(view, slot)
                    return ref
            waits = view.awaiting or view.asks
            await self._live.stop(turn.id, slot.name, StreamSession.SUSPENDED if waits else StreamSession.ACTIVE)
            return None
        if ref is None and stream is not None:
            return await self._live.start(turn, stream)
        return None

    async def _sent(self, view: TurnView, slot: OutgoingMessage, ref: MessageRef | None, *, search: bool) -> MessageRef:
        turn = view.turn
        if ref is None:
            return await self._sender.post(turn.id, slot, turn.conversation, search=search)
        if self._sender.unchanged(turn.id, slot):
            return ref
        self._touched(view, slot)
        return await self._sender.edit(turn.id, slot, turn.conversation, ref)

    def _may_wait(self, view: TurnView, slot: OutgoingMessage, method: str) -> bool:
        """Return True if an unfinished message has used its share of the limit, or the limit has no headroom."""
        last = self._changed.get((view.turn.id, slot.name), float("-inf"))
        return self._clock() - last < self._interval(method) or not self._api.pacing.has_headroom(method)

    def _touched(self, view: TurnView, slot: OutgoingMessage) -> None:
        self._changed[view.turn.id, slot.name] = self._clock()

    def _interval(self, method: str) -> float:
        """Return the seconds between two edits of one unfinished message, so that all active turns together stay below
        Slack's limit. A single active turn may go faster for a short time.
        """
        now = self._clock()
        at_work = sum(drawn > now - RECENTLY for drawn in self._at_work.values())
        return at_work * 60 / self._api.pacing.remaining(method) if at_work > 1 else 0.0

    def _since(self, view: TurnView) -> float:
        """Return when this state of the turn was delivered first. The expiry of an unposted card counts from then, so
        that a second delivery renders the same card.
        """
        known = self._known.get(view.turn.id)
        return known[1] if known is not None and known[0] == view.revision else self._clock()

    def _note(self, view: TurnView, since: float) -> None:
        """Record the time of this delivery."""
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


@dataclass(frozen=True, slots=True)
class SlackApp:
    """Slack app of one workspace. `surface` delivers turns; `api` is for diagnostics."""

    api: WebApi
    people: UserDirectory
    surface: SlackSurface

    def share(self, quotas: Quotas) -> None:
        """Share the rate limits with other processes that use the same token."""
        self.api.pacing.share(quotas)

    def listener(
        self,
        *,
        app_token: str = "",
        signing_secret: str = "",
        audience: AudiencePolicy | None = None,
        records: SlackLookups | None = None,
    ) -> SlackListener:
        """Return the listener: Socket Mode with an app token, HTTP (`SlackListener.hook`) with a signing secret. Raises
        SettingsError if both are missing.
        """
        return SlackListener(
            self.api,
            self.people,
            app_token=app_token,
            signing_secret=signing_secret,
            audience=audience,
            records=records,
        )


@asynccontextmanager
async def open_slack(
    token: str,
    *,
    url: str = API_URL,
    groups: frozenset[str] = frozenset(),
    streaming: Streaming = Streaming.DIRECT,
    observe: MetricSink = null_sink,
) -> AsyncIterator[SlackApp]:
    """Open the workspace of a bot token. `groups` are the user groups in the settings (`slack-group:S…`). `observe`
    receives the seconds that rate limits delay calls. No request is sent before the first use.
    """
    async with WebApi(token, url=url, pacing=RateLimiter(account=_account(token), observe=observe)) as api:
        people = UserDirectory(api, groups)
        yield SlackApp(api, people, SlackSurface(api, people, streaming=streaming))


def _account(token: str) -> str:
    """Return the account of rate limits: a digest of the token, because Slack counts by app and workspace."""
    return f"slack:{hashlib.sha256(token.encode()).hexdigest()[:16]}"

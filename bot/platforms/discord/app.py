"""The Discord app: its surface, which every process has, and its listener.

Enter it before use, and leave it after the last delivery.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from time import time
from urllib.parse import urlsplit

import aiohttp

from bot.chat.audience import AudiencePolicy
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.discord.channel_ref import PLATFORM, MessageRef, channel_id_of
from bot.platforms.discord.context import DiscordLookups
from bot.platforms.discord.errors import DiscordApiError, DiscordConnectionError
from bot.platforms.discord.escaping import FILE, escape_to_limit
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.notices import post_notice
from bot.platforms.discord.outgoing import FileUpload, OutgoingMessage
from bot.platforms.discord.remote_cards import RemoteCardPublisher
from bot.platforms.discord.rest import API_URL, Rest
from bot.platforms.discord.sending import Sender
from bot.platforms.discord.threads import direct_channel
from bot.platforms.discord.turns import turn_messages
from bot.platforms.discord.users import UserDirectory
from bot.ports import Leases
from bot.rendering.remote_cards import is_remote_slot
from bot.rendering.text_safety import single_line
from bot.rendering.tool_status import FILE_PREFIX, LEFT_OUT, returned_files

# -------------------- files
# URLs of Discord expire, so an attachment is identified by its channel, its message and its own id. Bytes are loaded
# without the bot's token, only from Discord's hosts or the host of the API, within the size limit and without
# redirects.

LARGEST_READ = 10 * 1024 * 1024
"""In bytes."""
NAME = 200
_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([0-9]{1,20})")
_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")


def attachment_id(channel: str, message: str, attachment: str) -> str:
    """Return the id by which an attachment is downloaded later."""
    return f"{channel}:{message}:{attachment}"


async def fetch_file(rest: Rest, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    if attachment.size > LARGEST_READ:
        raise NotFound(f"{_name(attachment)} is larger than {LARGEST_READ // 2**20} MB.", "share a smaller file")
    url = await _address(rest, attachment)
    if not _discords(url, rest.url):
        raise NotFound(f"{_name(attachment)} is not kept by Discord.", "upload the file itself")
    return await _download(rest, url, attachment)


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
                file.slot, f"-# {escape_to_limit(name, NAME)}", file=FileUpload(name, await file.read())
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


async def _address(rest: Rest, attachment: Attachment) -> str:
    """Return the current URL of an attachment."""
    match = _ID.fullmatch(attachment.id)
    if match is None:
        raise NotFound(f"{_name(attachment)} is none of Discord's.")
    channel, message, own = match.groups()
    try:
        answer = await rest.call(
            "GET",
            "/channels/{channel_id}/messages/{message_id}",
            "look for a file",
            channel_id=channel,
            message_id=message,
        )
    except DiscordApiError as error:
        if error.status == 404:
            raise NotFound(f"{_name(attachment)} is gone.") from error
        raise
    files = [each for each in answer.get("attachments") or () if isinstance(each, dict)]
    url = next((str(file.get("url") or "") for file in files if str(file.get("id")) == own), "")
    if not url:
        raise NotFound(f"{_name(attachment)} is gone.")
    return url


async def _download(rest: Rest, url: str, attachment: Attachment) -> bytes:
    try:
        async with rest.session.get(url, allow_redirects=False) as response:
            if response.status in (403, 404):
                raise NotFound(f"{_name(attachment)} is gone.")
            if response.status != 200:
                raise DeliveryFailed(f"Discord did not hand out {_name(attachment)} (HTTP {response.status}).")
            body = bytearray()
            async for part in response.content.iter_chunked(65_536):
                body += part
                if len(body) > LARGEST_READ:
                    raise NotFound(f"{_name(attachment)} is larger than {LARGEST_READ // 2**20} MB.")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DiscordConnectionError(
            f"Discord did not hand out {_name(attachment)} ({type(error).__name__})."
        ) from error


def _discords(url: str, api_url: str) -> bool:
    """Return True if the URL is on Discord's hosts or the host of the API."""
    place, home = urlsplit(url), urlsplit(api_url)
    if (place.scheme, place.netloc) == (home.scheme, home.netloc):
        return True
    return place.scheme == "https" and place.port in (None, 443) and place.hostname in _HOSTS


def _file_name(name: str) -> str:
    """Return a file name that Discord leaves unchanged, without a path."""
    return single_line(name.replace("/", "_").replace("\\", "_"), NAME) or "file"


def _name(attachment: Attachment) -> str:
    return f"The file {single_line(attachment.name, 80)!r}"


# -------------------- surface
# Any process with the bot's token can deliver any turn from its refs. The library applies rate limits per route; the
# interval of edits is set here.

log = logging.getLogger(__name__)

PACE = 1.2
"""Seconds between two drawings of one turn: a channel takes about five posts and edits in five seconds."""
TYPING_SECONDS = 8.0
"""Seconds between typing indicators; Discord shows one for ten."""
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

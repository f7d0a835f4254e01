"""The Discord app: its surface, which every process has, and its listener.

Enter it before use, and leave it after the last delivery.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from time import time

from bot.chat.approval_inbox import post_call_notice
from bot.chat.card_messages import NO_MEMBER, RemoteMessage, card_slots, remote_approvals
from bot.chat.delivery import MessageOwner, MessageSender, TurnDelivery, TurnMessages
from bot.chat.message_model import Message
from bot.chat.users import RecentEntries, TtlCache
from bot.domain.approvals import ChannelTarget, DirectTarget
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.locales import Locale
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, Turn, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.components import FILE, OutgoingMessage
from bot.platforms.discord.markdown import escape_to_limit
from bot.platforms.discord.message_layout import CALLS_A_CARD, address_of, outgoing_message, remote_cards, turn_messages
from bot.platforms.discord.messages import read_conversation
from bot.platforms.discord.responders import notify_directly, post_notice
from bot.platforms.discord.rest import (
    API_URL,
    PLATFORM,
    DiscordApiError,
    FileUpload,
    MessageRef,
    Rest,
    channel_id_of,
    direct_channel,
    fetch_channel,
    fetch_file,
)
from bot.platforms.discord.sending import DiscordMessages
from bot.platforms.discord.users import UserDirectory
from bot.ports.platform import DirectoryEntry, PostedText
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ToolFile

log = logging.getLogger(__name__)

PACE = 1.2
"""Seconds between two deliveries of one turn: a channel takes about five posts and edits in five seconds."""
TYPING_SECONDS = 8.0
"""Seconds between typing indicators; Discord shows one for ten."""
UNAUTHORIZED = 401
MOST_TYPING_CHANNELS = 2000
LONGEST_FILE_NAME = 200
ANOTHER_SERVER = gettext_lazy("That channel is not on this server.")


class DiscordTurnMessages(TurnMessages[OutgoingMessage]):
    """Messages of turns in their threads and channels. The library applies rate limits per route."""

    largest_file = FILE

    def __init__(self, rest: Rest, people: UserDirectory, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._people = people
        self._clock = clock
        self._files = MessageSender(DiscordMessages(rest, clock))
        self._direct = TtlCache[str, bool]()
        self._typing = RecentEntries[str, float](MOST_TYPING_CHANNELS)

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[OutgoingMessage]:
        """Return the messages of a turn in its channel, in order."""
        return turn_messages(view, now, refs)

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[OutgoingMessage]]:
        """Return the cards of a turn in other channels."""
        if not remote_approvals(view):
            return ()
        origin = channel_id_of(view.turn.conversation)
        direct = bool(origin) and await self._direct.get(origin, lambda: self._is_direct(origin))
        return list(remote_cards(view, now, direct=direct))

    async def locate_remote(self, turn: Turn, remote: RemoteMessage[OutgoingMessage], ref: str) -> OutgoingMessage:
        """Return a card with its channel, in the call's guild. Raises DeliveryFailed, permanent for a channel of
        another guild, a guest and an external user.
        """
        if (posted := MessageRef.parse(ref)) is not None:
            return replace(remote.message, place=posted.channel)
        match remote.place:
            case ChannelTarget(channel):
                target = await fetch_channel(self._rest, channel)
                if target is None or target.server != turn.conversation.workspace:
                    raise DeliveryFailed(ANOTHER_SERVER, permanent=True)
            case DirectTarget(user):
                member = await self._people.member(user, turn.conversation.workspace)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                channel = await direct_channel(self._rest, user)
        return replace(remote.message, place=channel)

    async def share(self, turn: Turn, file: ToolFile, *, search: bool, taken: Collection[str]) -> str:
        """Post a file of a tool below a line with its name."""
        name = single_line(file.name.replace("/", "_").replace("\\", "_"), LONGEST_FILE_NAME) or "file"
        line = f"-# {escape_to_limit(name, LONGEST_FILE_NAME)}"
        message = OutgoingMessage(file.slot, line, file=FileUpload(name, await file.read()))
        return await self._files.post(turn, message, search=search, taken=taken)

    async def show_activity(self, view: TurnView, text: str, *, is_shown: bool) -> bool:  # noqa: ARG002 - it has no text
        """Show the typing indicator until the reply begins."""
        if not (view.streaming and is_shown):
            await self._type(channel_id_of(view.turn.conversation))
        return True

    def is_token_rejected(self, error: DeliveryFailed) -> bool:
        """Return True if Discord rejected the bot's token."""
        return isinstance(error, DiscordApiError) and error.status == UNAUTHORIZED

    async def _type(self, channel: str) -> None:
        now = self._clock()
        if now - self._typing.get(channel, float("-inf")) < TYPING_SECONDS:
            return
        self._typing[channel] = now
        try:
            async with self._rest.request(gettext_lazy("show that it types")) as client:
                await client.get_partial_messageable(int(channel)).typing()
        except DeliveryFailed as failure:
            log.debug("typing indicator not shown: %s", failure)

    async def _is_direct(self, channel: str) -> bool:
        ref = await fetch_channel(self._rest, channel)
        return ref is not None and ref.direct


class DiscordSurface:
    """Surface of the guilds of one bot."""

    key_prefixes = (f"{PLATFORM}:",)
    min_interval = PACE

    def __init__(self, rest: Rest, people: UserDirectory, *, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._people = people
        messages = DiscordTurnMessages(rest, people, clock)
        self._delivery = TurnDelivery(messages, DiscordMessages(rest, clock), users=self, clock=clock)
        self._sender = MessageSender(DiscordMessages(rest, clock))

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn. Raises DeliveryFailed."""
        return self._delivery.deliver(view, refs)

    def deliver_cards(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver the cards of a turn that is elsewhere. Raises DeliveryFailed."""
        return self._delivery.deliver_cards(view, refs)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice to a user or a conversation. A notice to one user is a direct message, because only
        interactions allow ephemeral answers. Raises DeliveryFailed.
        """
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed(gettext_lazy("That conversation is not in Discord."), permanent=True)
        if audience.person:
            channel = replace(where, channel=await direct_channel(self._rest, audience.person), thread="")
            if not await post_call_notice(self, notice, channel):
                await notify_directly(self._rest, audience.person, notice)
        else:
            await post_notice(self._rest, channel_id_of(where), notice.text)

    async def show_in_channel(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        """Post a message in the channel of its owner, or edit it. Return its ref. Raises DeliveryFailed."""
        native = outgoing_message(message, owner.conversation.channel)
        return await self._sender.show(owner, native, ref, search=search)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and roles. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id, conversation.workspace)

    def resolve_locales(self, locales: LocaleResolver) -> None:
        """Resolve the languages and time zones of cards by these settings and profiles."""
        self._delivery.locales = locales

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:  # noqa: ARG002 - in all guilds
        """Return the language of a user's client, if it is known. Never raises."""
        return self._people.locale(user)

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:
        """Return a user or role by its principal; None if it may approve nothing. Raises DeliveryFailed."""
        return await self._people.find_approver(principal, conversation.workspace)

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the URL of a call's card; empty if it is not posted."""
        slots = card_slots(view, approval_id, CALLS_A_CARD)
        return next(filter(None, (address_of(view, refs, slot) for slot in slots)), "")

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the latest messages of a conversation. Raises DeliveryFailed."""
        return await read_conversation(self._rest, conversation, posted)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
        return await fetch_file(self._rest, attachment)


@dataclass(frozen=True, slots=True)
class DiscordApp:
    """Discord app of the bot. `surface` delivers turns; `rest` and `people` are for diagnostics."""

    rest: Rest
    people: UserDirectory
    surface: DiscordSurface


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

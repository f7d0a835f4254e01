"""Discord messages for the shared message handler: parsing, earlier messages, threads, notices, commands.

Discord delivers each message once. Messages of the bot, other bots, webhooks and the system are skipped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import discord

from bot.chat.actions import PendingActions
from bot.chat.backfill import conversation_texts
from bot.chat.context import ChatContext
from bot.chat.message_handler import (
    Location,
    MessageContent,
    PlatformMessage,
    RecentIds,
    RepliedTo,
    ThreadMessage,
    prepend_title,
)
from bot.chat.message_model import Message
from bot.domain.commands import Invocation
from bot.domain.conversations import Attachment, ConversationKey, Member
from bot.domain.turns import MessageRefs
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy, in_all_languages
from bot.platforms.discord.markdown import MentionResolver, strip_bot_mention, to_plain_text
from bot.platforms.discord.message_content import message_content, without_quotes
from bot.platforms.discord.responders import DirectMessageResponder, post_notice, send_direct_message
from bot.platforms.discord.rest import (
    PLATFORM,
    ChannelRef,
    MessageRef,
    Rest,
    attachment_id,
    channel_id_of,
    conversation,
    direct_channel,
    fetch_channel,
    files_of,
    map_errors,
    message_key,
    open_thread,
)
from bot.platforms.discord.users import UserDirectory, place_locale
from bot.ports.platform import PostedText
from bot.rendering.text_safety import single_line

MOST_FILES = 10
MOST_LINES = 100
MOST_OF_THREAD = 1_000
"""Messages of a conversation that is read as a whole, in pages of a hundred."""
"""Messages of one request; Discord's limit."""
CAPTION = "-# "
"""Beginning of a small line, in Discord's Markdown."""
LONGEST_CHAIN = 8
CALL_ME = gettext_lazy(
    "I cannot read along here. Reply to one of my messages with the ping on, or mention me, and I go on."
)
_USER_MENTION = re.compile(r"<@!?(\d+)>")
_USER_TYPES = (discord.MessageType.default, discord.MessageType.reply)

# -------------------- parsing


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordMessage(PlatformMessage):
    """A message; its text is as displayed. `source` is the author as in the message: for a live message in a guild,
    with the current roles. `channel` is missing if only `channel_id` is known. `guild` is the gateway's.
    """

    source: discord.User | discord.Member = field(compare=False, repr=False)
    guild: discord.Guild | None = field(compare=False, repr=False)
    channel: ChannelRef | None
    channel_id: str


def parse_message(
    message: discord.Message, me: str, channel: ChannelRef | None, guild: discord.Guild | None
) -> DiscordMessage | None:
    """Parse a message. Return None if it is no user's message. `me` is the bot's user id; `guild` is the gateway's
    guild, for names of roles and channels.
    """
    author = message.author
    if author.bot or author.system or message.webhook_id is not None or message.type not in _USER_TYPES:
        return None
    content, unquoted = message_content_of(message, me, guild), without_quotes(message.content)
    # A reply may mention its original's author without a word of the text.
    quoted = {*_USER_MENTION.findall(message.content)} - {*_USER_MENTION.findall(unquoted)}
    mentions = frozenset(str(mention.id) for mention in message.mentions if str(mention.id) not in quoted)
    own = guild.self_role.id if guild is not None and guild.self_role is not None else None
    return DiscordMessage(
        id=str(message.id),
        keys=(message_key(str(message.id)),),
        thread_key=str(message.channel.id),
        user=str(author.id),
        content=replace(
            content,
            command_text=strip_bot_mention(message.content, _bot_mentions(me, guild)),
            title=channel.post_title(str(message.id)) if channel is not None else "",
            replied_to=_replied_to(message, me),
            files=_attachments(message),
        ),
        sent_at=message.created_at.timestamp(),
        mentions_bot=me in mentions or any(mention in unquoted for mention in _bot_mentions(me, guild)),
        direct=channel is not None and channel.direct,
        may_be_in_thread=channel is None or bool(channel.thread),
        mentions=mentions
        | frozenset(str(role) for role in message.raw_role_mentions if role != own and f"<@&{role}>" in unquoted),
        source=author,
        guild=guild,
        channel=channel,
        channel_id=str(message.channel.id),
    )


def message_content_of(message: discord.Message, me: str, guild: discord.Guild | None) -> MessageContent:
    """Return the content of a message as displayed, without the outer mentions of the bot."""
    names = _names(message, guild)

    def to_plain(text: str) -> str:
        return to_plain_text(text, names).strip()

    return message_content(
        message, to_plain(strip_bot_mention(message.content, _bot_mentions(me, guild))), guild, to_plain
    )


def _bot_mentions(me: str, guild: discord.Guild | None) -> tuple[str, ...]:
    role = guild.self_role if guild is not None else None
    return (f"<@{me}>", f"<@!{me}>", *((f"<@&{role.id}>",) if role is not None else ()))


def _names(message: discord.Message, guild: discord.Guild | None) -> MentionResolver:
    people = {str(mention.id): single_line(mention.display_name, 80) for mention in message.mentions}
    if guild is None:
        return MentionResolver(people)
    roles = {str(mention): role.name for mention in message.raw_role_mentions if (role := guild.get_role(mention))}
    channels = {
        str(mention): channel.name
        for mention in message.raw_channel_mentions
        if (channel := guild.get_channel_or_thread(mention)) is not None
    }
    return MentionResolver(people, roles, channels)


def _attachments(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files of a message and of those that it forwards. Their URLs expire, so the id
    (`CHANNEL:MESSAGE:ATTACHMENT`) locates a new one.
    """
    return tuple(
        Attachment(
            id=attachment_id(str(message.channel.id), str(message.id), str(attachment.id)),
            name=single_line(attachment.filename or "file", 200),
            mime_type=single_line((attachment.content_type or "application/octet-stream").partition(";")[0], 100),
            size=attachment.size,
        )
        for attachment in files_of(message)[:MOST_FILES]
    )


def _replied_to(message: discord.Message, me: str) -> RepliedTo | None:
    """Return the original message of a reply; None for other messages."""
    reference = message.reference
    if reference is None or reference.message_id is None or reference.type is not discord.MessageReferenceType.reply:
        return None
    resolved = reference.resolved
    user = str(resolved.author.id) if isinstance(resolved, discord.Message) else ""
    return RepliedTo(str(reference.channel_id), str(reference.message_id), user, is_bot=user == me)


def to_thread_message(message: discord.Message, me: str, guild: discord.Guild | None) -> ThreadMessage | None:
    """Return an earlier message as a line, or None if it is empty. The first message of a thread is a copy of the
    message it was opened at.
    """
    if message.type is discord.MessageType.thread_starter_message:
        opened_at = message.reference.resolved if message.reference is not None else None
        if not isinstance(opened_at, discord.Message):
            return None
        line = to_thread_message(opened_at, me, guild)
        return None if line is None else replace(line, id=str(opened_at.id))
    if message.is_system():
        return None
    text, files = message_content_of(message, me, guild).whole, tuple(file.filename for file in message.attachments)
    if not (text or files):
        return None
    user = str(message.author.id)
    name = single_line(message.author.display_name, 80)
    return ThreadMessage(str(message.id), user, name, text, files, own=user == me)


def _to_line(earlier: discord.Message, me: str, message: DiscordMessage) -> ThreadMessage | None:
    """Return an earlier message of a message's thread as a line; the first one of a post in a forum with its title."""
    line = to_thread_message(earlier, me, message.guild)
    if line is None or message.channel is None or earlier.type is not discord.MessageType.default:
        return line
    return replace(line, text=prepend_title(message.channel.post_title(line.id), line.text))


async def _history(
    rest: Rest, channel: str, *, before: discord.Object | None = None, most: int = MOST_LINES
) -> list[discord.Message]:
    """Return the latest messages of a channel, latest first. Raises DeliveryFailed."""
    client = await rest.client()
    with map_errors(gettext_lazy("read what was said before")):
        history = client.get_partial_messageable(int(channel)).history(limit=most, before=before)
        return [message async for message in history]


async def read_conversation(
    rest: Rest, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
) -> Sequence[PostedText]:
    """Return the latest messages of a conversation, of one without `posted` answers up to MOST_OF_THREAD; see
    `ThreadReader.read_thread`. Raises DeliveryFailed.
    """
    most = MOST_LINES if posted else MOST_OF_THREAD
    me, channel = (await rest.identity()).user, channel_id_of(conversation)
    lines = (to_thread_message(message, me, None) for message in reversed(await _history(rest, channel, most=most)))
    return conversation_texts(
        [replace(line, text=_without_captions(line.text)) if line.own else line for line in lines if line is not None],
        posted,
        ref_of=lambda line: str(MessageRef(channel, line.id)),
        id_of=lambda line: line.id,
    )


def _without_captions(text: str) -> str:
    """Return the text of an answer without the small lines about tools and notices."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(CAPTION)).strip()


# -------------------- context of the handlers


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(ChatContext):
    """Dependencies of the handlers of one shard."""

    rest: Rest
    people: UserDirectory

    async def member(self, user: discord.Member | discord.User, guild: str) -> Member:
        """Return the user of an event with the rights in a guild; looked up if the event is from elsewhere. Raises
        DeliveryFailed.
        """
        return self._known_member(user, guild) or await self.people.member(str(user.id), guild)

    async def cached_member(self, user: discord.Member | discord.User, guild: str) -> Member:
        """Return the user with rights up to five minutes old: for replies, not for decisions. Raises DeliveryFailed."""
        return self._known_member(user, guild) or await self.people.cached_member(str(user.id), guild)

    async def conversation_in(self, channel: ChannelRef, user: str) -> ConversationKey:
        """Return the conversation in a channel. A direct one belongs to the user's guild, empty for an unknown user.
        Raises DeliveryFailed.
        """
        guild = channel.server or await self.people.home_of(user)
        return conversation(guild, channel.channel, channel.thread)

    async def direct_conversation(self, user: str) -> ConversationKey:
        """Return the direct conversation of the bot with a user. One of an unknown user has neither guild nor channel.
        Raises DeliveryFailed.
        """
        guild = await self.people.home_of(user)
        return conversation(guild, await direct_channel(self.rest, user) if guild else "")

    def _known_member(self, user: discord.Member | discord.User, guild: str) -> Member | None:
        """Return the user if the event tells the rights in that guild, or if there is none."""
        if not guild:
            return self.people.stranger(user)
        # A member of another guild has other rights there, which count for nothing here.
        if isinstance(user, discord.Member) and str(user.guild.id) == guild:
            return self.people.from_interaction(user)
        return None


# -------------------- calls


class DiscordMessagePlatform:
    """Discord's part of handling a message. `run_command` runs a command; its second argument is the message.
    `pending` has the actions of buttons in direct messages. `reads_all` is True if the connection has the Message
    Content intent.
    """

    name = PLATFORM
    redelivers = False
    reading_seconds = 3.0

    def __init__(
        self,
        platform: PlatformContext,
        pending: PendingActions,
        run_command: Callable[[Invocation, DiscordMessage], Coroutine[Any, Any, None]],
    ) -> None:
        self._pending = pending
        self._platform = platform
        self._rest = platform.rest
        self._run_command = run_command
        self._hints = RecentIds()
        self.reads_all = False

    async def locate(self, message: DiscordMessage) -> Location | None:
        """Return the location, or None in a guild that is not served. Raises DeliveryFailed."""
        # An unknown channel is a thread that was asleep until now, or one of a guild that is not described yet.
        channel = message.channel or await fetch_channel(self._rest, message.channel_id)
        if channel is None or not (channel.direct or self._platform.people.serves(channel.server)):
            return None
        conversation = await self._platform.conversation_in(channel, message.user)
        opens = functools.partial(open_thread, self._rest, channel.channel, message.id)
        return Location(
            conversation, bool(channel.thread), opens if channel.opens_threads else None, place_locale(message.guild)
        )

    async def find_author(self, message: DiscordMessage, conversation: ConversationKey) -> Member:
        """Return the author. Raises DeliveryFailed."""
        return await self._platform.cached_member(message.source, conversation.workspace)

    async def resolve_names(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        """Return the messages, which have the names of users already."""
        return messages

    async def read_earlier(
        self, message: DiscordMessage, *, in_thread: bool
    ) -> tuple[Sequence[ThreadMessage], Sequence[ThreadMessage]]:
        """Return the messages of the thread, and the chain of replied-to messages. Raises DeliveryFailed."""
        me = (await self._rest.identity()).user
        thread = await self._read_thread(message, me) if in_thread else []
        return thread, await self._read_chain(message, thread, me)

    async def run_command(self, message: DiscordMessage, conversation: ConversationKey, words: tuple[str, ...]) -> None:
        """Start a command, with the user's current rights. Raises DeliveryFailed."""
        member = await self._platform.member(message.source, conversation.workspace)
        command = Invocation(words[0], words[1:], member, conversation)
        running = self._run_command(command, message)
        self._platform.background_tasks.start_for(message.user, running, "discord: command")

    async def notify_author(self, message: DiscordMessage, text: str) -> None:
        """Send a direct message, if the author accepts any."""
        await send_direct_message(self._rest, message.user, text)

    async def show_to_author(self, message: DiscordMessage, conversation: ConversationKey, shown: Message) -> None:
        """Send a direct message with buttons. Raises DeliveryFailed."""
        await DirectMessageResponder(self._rest, self._pending, message.user, conversation).finish(shown)

    async def post_hint(self, message: DiscordMessage, text: str) -> None:
        """Post a reply without a notification. Raises DeliveryFailed."""
        await post_notice(self._rest, message.channel_id, text, answering=message.id)

    async def explain_missing_intent(self, message: DiscordMessage) -> None:
        """Explain in the thread how to reach the bot, which cannot read messages there. Once for each thread: this
        process remembers its threads, other processes find the explanation in the thread. Raises DeliveryFailed.
        """
        if (
            not self.reads_all
            and self._hints.add(message.channel_id)
            and not await self._is_explained(message.channel_id)
        ):
            await post_notice(self._rest, message.channel_id, CALL_ME)

    async def _is_explained(self, thread: str) -> bool:
        me = (await self._rest.identity()).user
        messages, notices = await _history(self._rest, thread), in_all_languages(CALL_ME)
        return any(str(message.author.id) == me and message.content in notices for message in messages)

    async def _read_thread(self, message: DiscordMessage, me: str) -> list[ThreadMessage]:
        messages = await _history(self._rest, message.channel_id, before=discord.Object(int(message.id)))
        lines = (_to_line(earlier, me, message) for earlier in reversed(messages))
        return [line for line in lines if line is not None]

    async def _read_chain(
        self, message: DiscordMessage, thread: Sequence[ThreadMessage], me: str
    ) -> list[ThreadMessage]:
        """Return the chain of replied-to messages, oldest first, up to the first of the bot."""
        client = await self._rest.client()
        known = {line.id: line for line in thread}
        chain: list[ThreadMessage] = []
        reference = message.content.replied_to
        while reference is not None and not reference.is_bot and len(chain) < LONGEST_CHAIN:
            try:
                with map_errors(gettext_lazy("read what a message replies to")):
                    channel = client.get_partial_messageable(int(reference.channel))
                    original = await channel.fetch_message(int(reference.message))
            except DeliveryFailed as failure:
                if not failure.permanent:
                    raise
                break
            line = known.get(str(original.id)) or to_thread_message(original, me, message.guild)
            if line is None or line.own:
                break
            chain.append(line)
            reference = _replied_to(original, me)
        return chain[::-1]

"""Discord messages to turns. Discord delivers each message once, so storing is retried until it succeeds or this
process stops receiving.

Messages of the bot, other bots, webhooks and the system are skipped. `MessageHandler` decides which users may talk to
the bot, and in which conversation. Commands in a mention (`@bot mcp list`) go to the commands, other messages for the
bot to the engine, with their context: earlier messages of the thread, and the messages they reply to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import discord

from bot.chat.background_tasks import BackgroundTasks
from bot.chat.messages import (
    KeyedLock,
    RecentKeys,
    ThreadTracker,
    append_file_names,
    describe_files,
    format_lines,
    messages_since,
    parse_command,
)
from bot.chat.rejection_messages import NOT_STORED, TOO_MANY_REQUESTS
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.errors import CountersignError, DatabaseUnwritable, DeliveryFailed, QueueFull
from bot.platforms.discord.channels import ChannelRef, fetch_channel, from_channel, message_key, open_thread
from bot.platforms.discord.context import CommandHandler, PlatformContext, TextCommand
from bot.platforms.discord.files import attachment_id
from bot.platforms.discord.markup import MentionResolver, strip_bot_mention, to_plain_text
from bot.platforms.discord.responders import post_notice, send_direct_message
from bot.platforms.discord.rest import Rest, map_errors
from bot.ports import EngineApi
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

MOST_FILES = 10
_SPOKEN = (discord.MessageType.default, discord.MessageType.reply)
READING_SECONDS = 3.0
MOST_LINES = 100
"""Messages of one request; Discord's limit."""
LONGEST_CHAIN = 8
UNREAD = "(what was said here before could not be read)"
FORWARDED_LABEL = "(forwarded)"
CALL_ME = "I cannot read along here. Reply to one of my messages with the ping on, or mention me, and I go on."
MOST_LOOKED_AT = 100
NOTHING_SAID = "What can I do for you? Mention me together with your question."
WITHOUT_WORDS = "(mentioned you in a reply, without words: see what it replies to)"
FORWARDED = "(forwarded a message)"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
PATIENCE_SECONDS = 900.0
"""Seconds that an unstored message is retried."""
AT_ONCE = 50
"""Unstored messages of one user in memory."""
OF_ALL_AT_ONCE = 10_000
"""Unstored messages of all users in memory, some kilobytes each. More than background tasks, because a dropped message
returns only with a new session.
"""

# -------------------- parsing


@dataclass(frozen=True, slots=True)
class RepliedTo:
    """Original message of a reply. `user` is empty if unknown."""

    place: str
    message: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message. `text` is displayed text without the outer mentions of the bot; `mentions` are the mentioned
    users, including those that a reply notifies. `calls_bot` is True for a mention of the bot or its role. `forwarded`
    is forwarded text of others. `source` is the author as in the message: for a live message in a guild, with the
    current roles.
    """

    id: str
    place: str
    user: str
    text: str
    source: discord.User | discord.Member = field(compare=False, repr=False)
    calls_bot: bool = False
    mentions: frozenset[str] = frozenset()
    answers: RepliedTo | None = None
    files: tuple[Attachment, ...] = ()
    forwarded: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if the bot can read no content: without the Message Content intent, messages that neither mention nor
        reply to the bot arrive empty.
        """
        return not (self.text or self.files or self.forwarded)


def parse_message(message: discord.Message, me: str, guild: discord.Guild | None) -> IncomingMessage | None:
    """Parse a message. Return None if it is no user's message. `me` is the bot's user id; `guild` is the gateway's
    guild, for names of roles and channels.
    """
    author = message.author
    if author.bot or author.system or message.webhook_id is not None or message.type not in _SPOKEN:
        return None
    mentions = frozenset(str(mention.id) for mention in message.mentions)
    return IncomingMessage(
        id=str(message.id),
        place=str(message.channel.id),
        user=str(author.id),
        text=words_of(message, me, guild),
        calls_bot=me in mentions or any(call in message.content for call in _calls(me, guild)),
        mentions=mentions,
        answers=answered_by(message),
        files=_attachments(message),
        forwarded=tuple(text for snapshot in message.message_snapshots if (text := _snapshot(snapshot))),
        source=author,
    )


def words_of(message: discord.Message, me: str, guild: discord.Guild | None) -> str:
    """Return the displayed text of a message without the outer mentions of the bot."""
    return to_plain_text(strip_bot_mention(message.content, _calls(me, guild)), _names(message, guild)).strip()


def _calls(me: str, guild: discord.Guild | None) -> tuple[str, ...]:
    """Return the mentions of the bot: clients offer its role under the same name."""
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
    """Return the files of a message. Their URLs expire, so the id (`CHANNEL:MESSAGE:ATTACHMENT`) locates a new one."""
    return tuple(
        Attachment(
            id=attachment_id(str(message.channel.id), str(message.id), str(attachment.id)),
            name=single_line(attachment.filename or "file", 200),
            mime_type=single_line((attachment.content_type or "application/octet-stream").partition(";")[0], 100),
            size=attachment.size,
        )
        for attachment in message.attachments[:MOST_FILES]
    )


def answered_by(message: discord.Message) -> RepliedTo | None:
    """Return the original message of a reply; None for other messages."""
    reference = message.reference
    if reference is None or reference.message_id is None or reference.type is not discord.MessageReferenceType.reply:
        return None
    resolved = reference.resolved
    user = str(resolved.author.id) if isinstance(resolved, discord.Message) else ""
    return RepliedTo(str(reference.channel_id), str(reference.message_id), user)


def _snapshot(snapshot: discord.MessageSnapshot) -> str:
    text = to_plain_text(snapshot.content, MentionResolver()).strip()
    return append_file_names(text, [attachment.filename for attachment in snapshot.attachments])


# -------------------- intent hint


# -------------------- context
# The bot's own messages and those up to its last turn are in its history and left out. Replied-to messages are always
# included. Reading has a time limit; the context says if messages are missing.


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message that stands before another. `own` is the bot's."""

    id: int
    user: str
    name: str
    text: str
    own: bool = False


class InboundMessageBuilder:
    """Makes InboundMessages."""

    def __init__(self, rest: Rest, engine: EngineApi) -> None:
        self._rest = rest
        self._engine = engine

    async def build(
        self,
        message: IncomingMessage,
        text: str,
        author: Author,
        conversation: ConversationKey,
        guild: discord.Guild | None,
    ) -> InboundMessage:
        """Return the message with its context; `text` is its content. Raises the engine's errors."""
        recent = await self._engine.recent_turns(conversation, 1)
        asked = (recent[-1].turn.author.id, recent[-1].turn.question.text) if recent else None
        try:
            async with asyncio.timeout(READING_SECONDS):
                lines = await self._lines(message, guild, asked, in_thread=message.place == conversation.thread)
        except (DeliveryFailed, TimeoutError):
            context: tuple[str, ...] = (UNREAD,)
        else:
            context = format_lines([(line.name, line.text) for line in lines])
        return InboundMessage(
            keys=(message_key(message.id),),
            conversation=conversation,
            author=author,
            text=text,
            attachments=message.files,
            context=(*context, *format_lines([(FORWARDED_LABEL, each) for each in message.forwarded])),
        )

    async def _lines(
        self, message: IncomingMessage, guild: discord.Guild | None, asked: tuple[str, str] | None, *, in_thread: bool
    ) -> Sequence[ThreadMessage]:
        """Return all lines of the context, oldest first. Raises DeliveryFailed."""
        me = (await self._rest.identity()).user
        before = await self._history(message, me, guild) if in_thread else []
        fresh = messages_since(before, lambda line: (line.user, line.text) == asked) if asked is not None else before
        replied = await self._replied_to(message, before, me, guild)
        known = {line.id for line in fresh}
        return [line for line in chain((each for each in replied if each.id not in known), fresh) if not line.own]

    async def _history(self, message: IncomingMessage, me: str, guild: discord.Guild | None) -> list[ThreadMessage]:
        client = await self._rest.client()
        with map_errors("read what was said before"):
            place = client.get_partial_messageable(int(message.place))
            found = [each async for each in place.history(limit=MOST_LINES, before=discord.Object(int(message.id)))]
        return [line for each in reversed(found) if (line := to_thread_message(each, me, guild)) is not None]

    async def _replied_to(
        self, said: IncomingMessage, before: Sequence[ThreadMessage], me: str, guild: discord.Guild | None
    ) -> list[ThreadMessage]:
        """Return the chain of replied-to messages, oldest first, up to the first of the bot."""
        client = await self._rest.client()
        known = {line.id: line for line in before}
        found: list[ThreadMessage] = []
        answered = said.answers
        while answered is not None and answered.user != me and len(found) < LONGEST_CHAIN:
            try:
                with map_errors("read what a message replies to"):
                    place = client.get_partial_messageable(int(answered.place))
                    message = await place.fetch_message(int(answered.message))
            except DeliveryFailed as failure:
                if not failure.permanent:
                    raise
                break
            line = known.get(message.id) or to_thread_message(message, me, guild)
            if line is None or line.own:
                break
            found.append(line)
            answered = answered_by(message)
        return found[::-1]


def to_thread_message(message: discord.Message, me: str, guild: discord.Guild | None) -> ThreadMessage | None:
    """Return an earlier message as a line, or None if it is empty. The first message of a thread is a copy of the
    message it was opened at.
    """
    if message.type is discord.MessageType.thread_starter_message:
        opened_at = message.reference.resolved if message.reference is not None else None
        if not isinstance(opened_at, discord.Message):
            return None
        line = to_thread_message(opened_at, me, guild)
        return None if line is None else replace(line, id=opened_at.id)
    if message.is_system():
        return None
    text = append_file_names(words_of(message, me, guild), [attachment.filename for attachment in message.attachments])
    if not text:
        return None
    user = str(message.author.id)
    return ThreadMessage(message.id, user, single_line(message.author.display_name, 80), text, own=user == me)


# -------------------- handling


class MissingIntentHint:
    """Sends the hint once for each thread: this process remembers its threads, other processes find the hint in the
    thread.
    """

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._given = RecentKeys()

    async def send_once(self, thread: str) -> None:
        """Explain in the thread how to reach the bot, unless the hint is already there. Raises DeliveryFailed."""
        if self._given.add(thread) and not await self._was_sent(thread):
            await post_notice(self._rest, thread, CALL_ME)

    async def _was_sent(self, thread: str) -> bool:
        client, me = await self._rest.client(), (await self._rest.identity()).user
        with map_errors("read what was said before"):
            place = client.get_partial_messageable(int(thread))
            said = [each async for each in place.history(limit=MOST_LOOKED_AT)]
        return any(str(each.author.id) == me and each.content == CALL_ME for each in said)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received message and its channel, if known. `late` is True for a message of the backfill, whose author no
    longer waits.
    """

    said: IncomingMessage
    channel_ref: ChannelRef | None
    guild: discord.Guild | None
    late: bool = False


class MessageHandler:
    """Handles messages. `command_handler` runs commands. `reads_all` is True if the connection has the Message Content
    intent.
    """

    def __init__(self, platform: PlatformContext, command_handler: CommandHandler) -> None:
        self._platform = platform
        self._command_handler = command_handler
        self._attention = ThreadTracker(follow_threads=platform.audience.follow_threads)
        self._reading = InboundMessageBuilder(platform.rest, platform.engine)
        self._hints = MissingIntentHint(platform.rest)
        self._in_turn = KeyedLock()
        self._keeping = BackgroundTasks(OF_ALL_AT_ONCE, AT_ONCE)
        self._done = RecentKeys()
        self._me = ""
        self.reads_all = False

    async def handle(self, message: discord.Message) -> None:
        """Handle a message of the gateway; ignore one that is not for the bot. Raises DeliveryFailed."""
        if message.guild is None or self._platform.people.serves(str(message.guild.id)):
            channel_ref = from_channel(message.channel)
            said = await self._first(message, channel_ref, message.guild)
            if said is not None:
                self._start_storing(ReceivedMessage(said, channel_ref, message.guild))

    async def handle_late(self, message: discord.Message, channel_ref: ChannelRef, guild: discord.Guild | None) -> None:
        """Handle a missed message; return when it is stored or given up. Raises DeliveryFailed if the bot's identity
        cannot be loaded.
        """
        said = await self._first(message, channel_ref, guild)
        if said is None:
            return
        try:
            await self._store_with_retry(ReceivedMessage(said, channel_ref, guild, late=True))
        except CountersignError as error:
            log.warning("missed message %s not processed: %s", said.id, error)
        except Exception:
            log.exception("missed message %s not processed", said.id)

    async def close(self) -> None:
        """Finish storing the received messages, within a time limit."""
        await self._keeping.close()

    async def _first(
        self, message: discord.Message, channel_ref: ChannelRef | None, guild: discord.Guild | None
    ) -> IncomingMessage | None:
        """Return the message if it may be for the bot and is not a duplicate."""
        self._me = (await self._platform.rest.identity()).user
        said = parse_message(message, self._me, guild)
        if said is None or (channel_ref is not None and not _may_be_for_bot(said, channel_ref)):
            return None
        return said if self._done.add(said.id) else None

    def _start_storing(self, received: ReceivedMessage) -> None:
        said = received.said
        if not self._keeping.start_for(
            said.user,
            self._store_with_retry(received),
            f"discord: message {said.id}",
        ):
            self._done.discard(said.id)
            self._reject_unless_unsure(received, TOO_MANY_REQUESTS)

    def _reject_unless_unsure(self, received: ReceivedMessage, why: str) -> None:
        """Notify the author of a rejected message, if it is certainly for the bot."""
        if received.said.calls_bot or (received.channel_ref is not None and received.channel_ref.direct):
            self._notify_author(received.said.user, why)

    def _notify_author(self, user: str, why: str) -> None:
        """Notify the author of a rejected message."""
        self._platform.background_tasks.refuse(
            user, why, lambda text: send_direct_message(self._platform.rest, user, text)
        )

    async def _store_with_retry(self, received: ReceivedMessage) -> None:
        """Store a message for the bot, retrying on errors."""
        said, pause, is_told = received.said, FIRST_PAUSE, False
        try:
            async with self._in_turn.acquire(said.place), asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    try:
                        await self._process(received)
                    except CountersignError as error:
                        if isinstance(error, DeliveryFailed) and error.permanent:
                            raise
                        log.warning("message from Discord not stored, retrying: %s", error)
                        if isinstance(error, DatabaseUnwritable) and not is_told:
                            is_told = True
                            self._reject_unless_unsure(received, NOT_STORED)
                    else:
                        return
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        except TimeoutError:
            log.error("message %s from Discord not stored, dropped until the next session", said.id)
            self._done.discard(said.id)
        except BaseException:
            self._done.discard(said.id)
            raise

    async def _process(self, received: ReceivedMessage) -> None:
        platform, said = self._platform, received.said
        channel_ref = await self._channel_ref(received)
        if channel_ref is None or not (channel_ref.direct or platform.people.serves(channel_ref.server)):
            return
        if not await self._is_for_bot(said, channel_ref):
            return
        member = await platform.cached_member(said.source, await platform.home_guild(channel_ref, said.user))
        if refusal := platform.audience.rejection(member):
            self._reply_with_rejection(received, channel_ref, refusal)
            return
        await self._accept(received, channel_ref, member)

    async def _accept(self, received: ReceivedMessage, channel_ref: ChannelRef, member: Member) -> None:
        platform, said = self._platform, received.said
        here = await platform.where(channel_ref, said.user)
        called = channel_ref.direct or said.calls_bot
        if called and (words := parse_command(said.text, platform.commands, here)):
            if not received.late:  # nothing on disk tells whether it was answered
                member = await platform.member(said.source, here.workspace)
                command = TextCommand(words, member, here, said.place, said.id, channel_ref.direct)
                platform.background_tasks.start_for(said.user, self._command_handler.said(command), "discord: command")
            return
        text = said.text or self._placeholder_text(said)
        if not text:
            self._handle_empty(received, called=called)
            return
        key = await self._conversation(said, channel_ref, here, text)
        message = await self._reading.build(said, text, member.author, key, received.guild)
        try:
            await platform.engine.receive(message)
        except QueueFull as error:
            self._notify_author(said.user, error.user_message)
            return
        self._attention.follow(key)

    async def _channel_ref(self, received: ReceivedMessage) -> ChannelRef | None:
        if received.channel_ref is not None:
            return received.channel_ref
        # A thread that was asleep until now, or one of a server that the gateway has not described yet.
        return await fetch_channel(self._platform.rest, received.said.place)

    async def _is_for_bot(self, message: IncomingMessage, channel_ref: ChannelRef) -> bool:
        """Return True for direct messages, for mentions, and for messages in a thread with a turn of the bot that
        mention no other user.
        """
        if channel_ref.direct or message.calls_bot:
            return True
        others = message.mentions or (
            message.answers is not None and message.answers.user not in (message.user, self._me)
        )
        if others or not _may_be_for_bot(message, channel_ref):
            return False
        return await self._attention.is_following(
            await self._platform.where(channel_ref, message.user), self._platform.engine
        )

    async def _conversation(
        self, message: IncomingMessage, channel_ref: ChannelRef, conversation: ConversationKey, question: str
    ) -> ConversationKey:
        """Return the conversation of the answer: the thread, the direct conversation, or the channel of a reply to the
        bot; else a new thread, if the bot may open one. Raises DeliveryFailed.

        The thread is opened before the message is stored, so that a retry finds the same thread.
        """
        answers_me = message.answers is not None and message.answers.user == self._me
        if channel_ref.thread or answers_me or not channel_ref.opens_threads:
            return conversation
        return replace(
            conversation, thread=await open_thread(self._platform.rest, channel_ref.channel, message.id, question)
        )

    def _placeholder_text(self, message: IncomingMessage) -> str:
        """Return the input for a message without text."""
        if message.files:
            return describe_files(message.files)
        if message.forwarded:
            return FORWARDED
        if message.calls_bot and message.answers is not None and message.answers.user != self._me:
            return WITHOUT_WORDS
        return ""

    def _handle_empty(self, received: ReceivedMessage, *, called: bool) -> None:
        """Handle an empty message: answer a mention, and post the hint once in a thread that the bot cannot read."""
        said, rest = received.said, self._platform.rest
        if received.late:
            return
        if called:
            self._platform.background_tasks.start_for(
                said.user, post_notice(rest, said.place, NOTHING_SAID, answering=said.id), "discord: hint"
            )
        elif not self.reads_all:
            self._platform.background_tasks.start_for(said.user, self._hints.send_once(said.place), "discord: hint")

    def _reply_with_rejection(self, received: ReceivedMessage, channel_ref: ChannelRef, why: str) -> None:
        """Reject a message that addresses the bot; other messages of a thread get no answer."""
        said = received.said
        if not received.late and (channel_ref.direct or said.calls_bot):
            self._notify_author(said.user, why)


def _may_be_for_bot(message: IncomingMessage, channel_ref: ChannelRef) -> bool:
    """Return True if the message may be for the bot: in a channel it has to mention the bot."""
    return channel_ref.direct or message.calls_bot or bool(channel_ref.thread)

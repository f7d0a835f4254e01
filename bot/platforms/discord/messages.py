"""Discord messages to turns. Discord delivers each message once, so storing is retried until it succeeds or this
process stops receiving.

Decides which users may talk to the bot, and in which conversation. Commands in a mention (`@bot mcp list`) go to the
commands, other messages for the bot to the engine.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

import discord

from bot.chat.background_tasks import BackgroundTasks
from bot.chat.keyed_lock import KeyedLock
from bot.chat.recent_keys import RecentKeys
from bot.chat.rejection_messages import NOT_STORED, TOO_MANY_REQUESTS
from bot.chat.text_commands import parse_command
from bot.chat.thread_context import ThreadTracker, describe_files
from bot.domain.conversations import ConversationKey, Member
from bot.errors import CountersignError, DatabaseUnwritable, DeliveryFailed, QueueFull
from bot.platforms.discord.channel_ref import ChannelRef, from_channel, from_json
from bot.platforms.discord.context import CommandHandler, PlatformContext, TextCommand
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.incoming import IncomingMessage, parse_message
from bot.platforms.discord.message_builder import InboundMessageBuilder
from bot.platforms.discord.notices import post_notice, send_direct_message
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.threads import open_thread

# -------------------- intent hint

CALL_ME = "I cannot read along here. Reply to one of my messages with the ping on, or mention me, and I go on."
MOST_LOOKED_AT = 100


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
        place = received.said.place
        return from_json(
            await self._platform.rest.call("GET", "/channels/{channel_id}", "look at the channel", channel_id=place)
        )

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

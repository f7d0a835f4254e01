"""Discord listener: messages, interactions and commands from the gateway, and messages that were missed while no
process received.

One process with the bot's token receives a shard at a time (`ShardLeases`); its tasks end with the lease. Discord needs
no acknowledgement of messages and sends none twice: `messages` stores them. Interactions and commands are acknowledged
at once.

A resumed session misses nothing; a new one does not include earlier messages (Discord, "Gateway"). Missed mentions are
in channels, and threads without a turn, that have messages since the last turn, and in the first messages of threads
that the bot opened without a turn. Channels and messages of each are limited. A session has the guilds of its shard;
that of the first shard has all direct conversations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Container, Sequence
from datetime import datetime
from time import time
from typing import Any, TypeVar

import discord
from discord.utils import time_snowflake

from bot.chat.actions import PendingActions
from bot.chat.backfill import MOST_CONVERSATIONS, MOST_MESSAGES, Backfill, MissedPeriod
from bot.chat.background_tasks import BackgroundTasks, retry_until_available
from bot.chat.context import Lookups, with_card_forms
from bot.chat.listener_leases import LEASE_SECONDS, ONLY_SHARD, Shard, ShardLeases
from bot.chat.message_handler import MessageHandler
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.domain.health import ListenerStatus
from bot.errors import CountersignError
from bot.i18n import gettext_lazy
from bot.platforms.discord.app_commands import command_tree, question_entry, try_register
from bot.platforms.discord.components import ACTION_LENGTH
from bot.platforms.discord.gateway import Gateway, IdentifyTurns, recommended_shards, shard_of
from bot.platforms.discord.interactions import DiscordInteractions
from bot.platforms.discord.messages import DiscordMessage, DiscordMessagePlatform, PlatformContext, parse_message
from bot.platforms.discord.rest import (
    PLATFORM,
    ChannelRef,
    Rest,
    channel_id_of,
    conversation,
    fetch_channel,
    from_channel,
    map_errors,
    message_key,
)
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi, Leases, Quotas

MOST_CHANNELS = 50
_USER_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""Types of user messages, without the copy of the first message in a thread, whose author opened the thread."""

Channel = discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread
log = logging.getLogger(__name__)
T = TypeVar("T")


class DiscordMissedMessages:
    """Loads the messages that a client's new session has missed."""

    def __init__(self, platform: PlatformContext, client: discord.Client, shard: Shard = ONLY_SHARD) -> None:
        self._platform = platform
        self._client = client
        self._shard = shard

    async def active_conversations(self, prefix: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """Return the active conversations in guilds of this shard, then, for the first shard, others that may be direct
        conversations. Raises CountersignError.
        """
        if self._platform.records.active_conversations is None:
            return ()
        active = await self._platform.records.active_conversations(prefix, seconds, limit * self._shard.count)
        own = [conversation for conversation in active if self._is_in_shard(conversation)]
        direct = [] if self._shard.number else [other for other in active if other not in own and not other.thread]
        return [*own[:limit], *direct[:limit]]

    async def messages_since(self, conversation: ConversationKey, since: datetime) -> Sequence[DiscordMessage]:
        """Return the messages of a conversation; none if it is asleep or gone, as writing in a thread wakes it up.
        Raises DeliveryFailed.
        """
        if not self._platform.people.serves(conversation.workspace):
            return ()
        if not self._is_in_shard(conversation):
            return await self._read_direct(conversation, time_snowflake(since))
        guild = self._client.get_guild(int(conversation.workspace))
        if guild is None:
            return ()
        channel = guild.get_channel_or_thread(int(channel_id_of(conversation)))
        if conversation.thread and channel is None:
            return ()
        # The lowest id that a message of that moment can have.
        after = time_snowflake(since)
        latest = getattr(channel, "last_message_id", None)
        if latest is not None and latest < after:
            return ()
        # A direct conversation is in no guild's list of channels.
        ref = from_channel(channel) or ChannelRef("", conversation.channel)
        messages = await self._read(int(channel_id_of(conversation)), after)
        return await self._parse(messages, ref, guild)

    async def mentions(self, period: MissedPeriod) -> AsyncGenerator[DiscordMessage, None]:
        """Yield the mentions without a turn: those in threads that the bot opened, then those in other channels, of
        which the bot has opened no thread. Raises CountersignError.
        """
        for thread in await self._unanswered_threads(period):
            if not await self._has_answered(thread):
                for message in await self._read_beginning(thread):
                    yield message
        known = {int(channel_id_of(conversation)) for conversation in period.known}
        for channel in self._active_channels(time_snowflake(period.since), known):
            for message in await self._read_mentions(channel, time_snowflake(period.since)):
                yield message

    def _is_in_shard(self, conversation: ConversationKey) -> bool:
        return shard_of(conversation.workspace, self._shard.count) == self._shard.number

    async def _read_direct(self, conversation: ConversationKey, after: int) -> Sequence[DiscordMessage]:
        """Return the messages of a direct conversation whose guild is in another shard. Raises DeliveryFailed."""
        ref = await fetch_channel(self._platform.rest, conversation.channel)
        if ref is None or not ref.direct:
            return ()
        return await self._parse(await self._read(int(conversation.channel), after), ref, None)

    # ------------------------------------------------------------------ mentions in channels

    def _active_channels(self, since: int, known: Container[int]) -> list[Channel]:
        """Return the channels with messages after `since` that the bot may read, the most recent first."""
        channels: list[Channel] = [
            channel
            for guild in self._served_guilds()
            for channel in _channels(guild)
            if (channel.last_message_id or 0) > since and channel.id not in known and _is_readable(channel)
        ]
        return sorted(channels, key=lambda channel: channel.last_message_id or 0, reverse=True)[:MOST_CHANNELS]

    async def _read_mentions(self, channel: Channel, since: int) -> Sequence[DiscordMessage]:
        ref = from_channel(channel)
        if ref is None:
            return ()
        messages = await self._try_read(self._read(channel.id, since), channel.id) or ()
        without_thread = [
            message for message in messages if not message.flags.has_thread or ref.post_title(str(message.id))
        ]
        return [message for message in await self._parse(without_thread, ref, channel.guild) if message.mentions_bot]

    # ------------------------------------------------------------------ threads without a turn

    async def _unanswered_threads(self, period: MissedPeriod) -> list[discord.Thread]:
        """Return recent threads that the bot opened without a turn, because its process stopped in between."""
        me, since = await self._bot_user(), time_snowflake(period.earliest)
        threads = [
            thread
            for guild in self._served_guilds()
            for thread in guild.threads
            if str(thread.owner_id) == me and thread.id >= since and _key(thread) not in period.known
        ]
        latest = sorted(threads, key=lambda thread: thread.id, reverse=True)[:MOST_CONVERSATIONS]
        return [thread for thread in latest if not await self._platform.engine.recent_turns(_key(thread), 1)]

    async def _has_answered(self, thread: discord.Thread) -> bool:
        """Return True if the bot has posted in the thread, so that its turns were deleted since. Also True if the
        thread cannot be read.
        """
        me = await self._bot_user()
        messages = await self._try_read(self._read(thread.id), thread.id, is_beginning=True)
        return messages is None or any(
            str(message.author.id) == me and message.type in _USER_TYPES for message in messages
        )

    async def _read_beginning(self, thread: discord.Thread) -> Sequence[DiscordMessage]:
        """Return the message at which a thread was opened."""
        ref = from_channel(thread.parent)
        if ref is None:
            return ()
        client = await self._platform.rest.client()
        # A thread that was opened at a message has its id.
        loading = client.get_partial_messageable(thread.parent_id).fetch_message(thread.id)
        message = await self._try_read(loading, thread.id, is_beginning=True)
        return () if message is None else await self._parse([message], ref, thread.guild)

    # ------------------------------------------------------------------ reading

    async def _try_read(self, loading: Awaitable[T], channel: int, *, is_beginning: bool = False) -> T | None:
        """Return the messages of a channel or the beginning of a thread; None if they cannot be read."""
        try:
            with map_errors(gettext_lazy("read what was said meanwhile")):
                return await loading
        except CountersignError as error:
            if is_beginning:
                log.info("beginning of thread %s not loaded: %s", channel, error)
            else:
                log.info("missed messages of channel %s not loaded: %s", channel, error)
            return None

    async def _read(self, channel: int, after: int = 0) -> list[discord.Message]:
        """Return the messages of a channel after an id, oldest first. Raises DeliveryFailed."""
        client = await self._platform.rest.client()
        with map_errors(gettext_lazy("read what was said meanwhile")):
            history = client.get_partial_messageable(channel).history(
                limit=MOST_MESSAGES, after=discord.Object(after), oldest_first=True
            )
            return [message async for message in history]

    async def _parse(
        self, messages: Sequence[discord.Message], ref: ChannelRef, guild: discord.Guild | None
    ) -> Sequence[DiscordMessage]:
        me = await self._bot_user()
        parsed = (parse_message(message, me, ref, guild) for message in messages)
        return [message for message in parsed if message is not None]

    async def _bot_user(self) -> str:
        return (await self._platform.rest.identity()).user

    def _served_guilds(self) -> list[discord.Guild]:
        return [guild for guild in self._client.guilds if self._platform.people.serves(str(guild.id))]


def _channels(guild: discord.Guild) -> tuple[Channel, ...]:
    return (*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads)


def _is_readable(channel: Channel) -> bool:
    me: discord.Member | None = channel.guild.me
    if me is None or (isinstance(channel, discord.Thread) and channel.parent is None):
        return False
    permissions = channel.permissions_for(me)
    return permissions.view_channel and permissions.read_message_history


def _key(thread: discord.Thread) -> ConversationKey:
    return conversation(str(thread.guild.id), str(thread.parent_id), str(thread.id))


class DiscordListener:
    """Receives from Discord. `holder` names this process among those with the same database. A process that dies
    without releasing its lease is followed by another one at once if `has_ended` returns True for its name, else after
    `lease_seconds`. `quotas` keep the sessions of several shards apart.
    """

    def __init__(
        self,
        rest: Rest,
        people: UserDirectory,
        leases: Leases,
        holder: str,
        *,
        audience: AudiencePolicy | None = None,
        records: Lookups | None = None,
        has_ended: Callable[[str], bool] = lambda _holder: False,
        quotas: Quotas | None = None,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._rest = rest
        self._people = people
        self._leases = leases
        self._holder = holder
        self._audience = audience or AudiencePolicy()
        self._records = records or Lookups()
        self._has_ended = has_ended
        self._quotas = quotas
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._shards: ShardLeases | None = None
        self._gateways: dict[Shard, Gateway] = {}
        self._pending = PendingActions(ACTION_LENGTH)

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive this process's share of the shards until cancelled; tasks in progress get a short time to finish.
        Raises DeliveryFailed if Discord rejects the token.
        """
        identity = await retry_until_available(self._rest.identity, "Discord")
        recommended = await retry_until_available(lambda: recommended_shards(self._rest), "Discord")
        turns = IdentifyTurns(self._quotas, identity.app) if self._quotas is not None else None

        async def receive(shard: Shard) -> None:
            platform = PlatformContext(
                engine=engine,
                commands=with_card_forms(engine, commands, self._records),
                audience=self._audience,
                background_tasks=BackgroundTasks(),
                records=self._records,
                rest=self._rest,
                people=self._people,
            )
            events = _GatewayEvents(platform, shard, self._pending)
            try:
                log.info("receiving from Discord as %s%s", identity.name, f", {shard}" if shard.count > 1 else "")
                gateway = Gateway(
                    self._rest, events, events.prepare, shard=shard, identify_turns=turns, clock=self._clock
                )
                self._gateways[shard] = gateway
                await gateway.run()
            finally:
                self._gateways.pop(shard, None)
                await asyncio.gather(events.close(), platform.background_tasks.close())

        self._shards = ShardLeases(
            self._leases,
            f"discord-gateway:{identity.app}",
            self._holder,
            "Discord",
            seconds=self._lease_seconds,
            has_ended=self._has_ended,
            recommended=recommended,
        )
        await self._shards.run_while_held(receive)

    async def listening(self) -> ListenerStatus:
        """Status of the listener: of the shards of this process, or standby if others receive all of them."""
        if self._gateways and all(gateway.receiving for gateway in self._gateways.values()):
            return ListenerStatus.CONNECTED
        is_standby = self._shards is not None and self._shards.is_standby
        return ListenerStatus.STANDBY if is_standby else ListenerStatus.CONNECTING


class _GatewayEvents:
    """Dispatches the gateway events of a shard to their handlers."""

    def __init__(self, platform: PlatformContext, shard: Shard, pending: PendingActions) -> None:
        self._platform = platform
        self._shard = shard
        self._interactions = DiscordInteractions(platform, pending)
        self._message_platform = DiscordMessagePlatform(platform, pending, self._interactions.on_text_command)
        self._messages = MessageHandler[DiscordMessage](
            self._message_platform,
            platform,
            on_unreadable=self._message_platform.explain_missing_intent,
        )

    async def prepare(self, client: discord.Client) -> None:
        """Add the commands to a client before it connects."""
        for_users = await self._platform.rest.is_user_installable()
        tree = command_tree(client, self._platform.commands.verbs, self._interactions, for_users=for_users)
        tree.add_command(question_entry(self._interactions))
        if self._shard.number == 0:
            self._platform.background_tasks.start(try_register(tree), "discord: commands")

    def on_connecting(self, _client: discord.Client, *, reads_all: bool) -> None:
        """Prepare for a client that is about to connect."""
        self._message_platform.reads_all = reads_all

    def on_session_start(self, client: discord.Client, at: float) -> None:
        """Handle a new session."""
        platform = self._platform
        missed = DiscordMissedMessages(platform, client, self._shard)
        backfill = Backfill(PLATFORM, missed, self._messages, platform.engine, missed.active_conversations)
        platform.background_tasks.start(backfill.run(at), "discord: backfill")

    async def close(self) -> None:
        """Store the received messages after the last event."""
        await self._messages.close()

    async def on_message(self, message: discord.Message) -> None:
        """Handle a message."""
        if (parsed := await self._parse(message)) is not None:
            await self._messages.handle(parsed)

    async def on_edit(self, message: discord.Message) -> None:
        """Handle an edited message. Only its author can edit it."""
        if message.edited_at is not None and (parsed := await self._parse(message)) is not None:
            await self._messages.handle_edit(parsed)

    async def on_deletion(self, message_ids: Collection[int]) -> None:
        """Handle deleted messages."""
        for message_id in map(str, message_ids):
            await self._messages.handle_deletion(message_id, (message_key(message_id),))

    async def _parse(self, message: discord.Message) -> DiscordMessage | None:
        if message.guild is not None and not self._platform.people.serves(str(message.guild.id)):
            return None
        me = (await self._platform.rest.identity()).user
        return parse_message(message, me, from_channel(message.channel), message.guild)

    async def on_action(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Handle a click on a button."""
        self._interactions.on_action(interaction, custom_id)

    async def on_modal(self, interaction: discord.Interaction[Any]) -> None:
        """Handle the submission of a modal."""
        self._interactions.on_modal(interaction)

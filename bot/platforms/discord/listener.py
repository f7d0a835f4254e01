"""Discord listener: messages, interactions and commands from the gateway.

One process with the bot's token receives a shard at a time (`ShardLeases`); its tasks end with the lease. Discord needs
no acknowledgement of messages and sends none twice: `messages` stores them, `backfill` reads those that were missed.
Interactions and commands are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import Any

import discord

from bot.chat.actions import PendingActions
from bot.chat.backfill import Backfill
from bot.chat.background_tasks import BackgroundTasks, retry_until_available
from bot.chat.context import with_card_forms
from bot.chat.listener_lease import LEASE_SECONDS
from bot.chat.message_handler import MessageHandler
from bot.chat.shard_leases import Shard, ShardLeases
from bot.chat.users import AudiencePolicy
from bot.domain.health import ListenerStatus
from bot.platforms.discord.app_commands import command_tree, try_register
from bot.platforms.discord.backfill import DiscordMissedMessages
from bot.platforms.discord.channels import PLATFORM, from_channel
from bot.platforms.discord.components import ACTION_LENGTH
from bot.platforms.discord.context import DiscordLookups, PlatformContext
from bot.platforms.discord.gateway import Gateway, IdentifyTurns, recommended_shards
from bot.platforms.discord.interactions import DiscordInteractions
from bot.platforms.discord.messages import DiscordMessage, DiscordMessagePlatform, parse_message
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi, Leases, Quotas

log = logging.getLogger(__name__)


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
        records: DiscordLookups | None = None,
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
        self._records = records or DiscordLookups()
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
        self._interactions.add_to(tree)
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

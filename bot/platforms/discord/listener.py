"""Discord listener: messages, interactions and commands from the gateway.

One process with the bot's token receives at a time (`ListenerLease`); its tasks end with the lease. Discord needs no
acknowledgement of messages and sends none twice: `messages` stores them, `backfill` reads those that were missed.
Interactions and commands are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import Any

import discord

from bot.chat.backfill import Backfill
from bot.chat.background_tasks import BackgroundTasks, retry_until_available
from bot.chat.context import AudiencePolicy, with_card_forms
from bot.chat.listener_lease import LEASE_SECONDS, ListenerLease
from bot.chat.message_handler import MessageHandler
from bot.domain.health import ListenerStatus
from bot.platforms.discord.app_commands import command_tree, try_register
from bot.platforms.discord.backfill import DiscordMissedMessages
from bot.platforms.discord.channels import PLATFORM, from_channel
from bot.platforms.discord.context import DiscordLookups, PlatformContext
from bot.platforms.discord.gateway import Gateway
from bot.platforms.discord.interactions import DiscordInteractions
from bot.platforms.discord.messages import DiscordMessage, DiscordMessagePlatform, parse_message
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi, Leases

log = logging.getLogger(__name__)


class DiscordListener:
    """Receives from Discord. `holder` names this process among those with the same database. A process that dies
    without releasing its lease is followed by another one at once if `has_ended` returns True for its name, else after
    `lease_seconds`.
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
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lease: ListenerLease | None = None
        self._gateway: Gateway | None = None

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled, while no other process does; tasks in progress get a short time to finish. Raises
        DeliveryFailed if Discord rejects the token.
        """
        identity = await retry_until_available(self._rest.identity, "Discord")

        async def receive() -> None:
            platform = PlatformContext(
                engine=engine,
                commands=with_card_forms(engine, commands),
                audience=self._audience,
                background_tasks=BackgroundTasks(),
                records=self._records,
                rest=self._rest,
                people=self._people,
            )
            events = _GatewayEvents(platform)
            try:
                log.info("receiving from Discord as %s", identity.name)
                self._gateway = Gateway(self._rest, events, events.prepare, clock=self._clock)
                await self._gateway.run()
            finally:
                self._gateway = None
                await asyncio.gather(events.close(), platform.background_tasks.close())

        self._lease = ListenerLease(
            self._leases,
            f"discord-gateway:{identity.app}",
            self._holder,
            "Discord",
            seconds=self._lease_seconds,
            has_ended=self._has_ended,
        )
        await self._lease.run_while_held(receive)

    async def listening(self) -> ListenerStatus:
        """Status of the listener, in this process or the one with the lease."""
        if self._gateway is not None and self._gateway.receiving:
            return ListenerStatus.CONNECTED
        is_standby = self._lease is not None and self._lease.is_standby
        return ListenerStatus.STANDBY if is_standby else ListenerStatus.CONNECTING


class _GatewayEvents:
    """Dispatches gateway events to their handlers."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._interactions = DiscordInteractions(platform)
        self._message_platform = DiscordMessagePlatform(platform, self._interactions.on_text_command)
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
        self._platform.background_tasks.start(try_register(tree), "discord: commands")

    def on_connecting(self, _client: discord.Client, *, reads_all: bool) -> None:
        """Prepare for a client that is about to connect."""
        self._message_platform.reads_all = reads_all

    def on_session_start(self, client: discord.Client, at: float) -> None:
        """Handle a new session."""
        platform = self._platform
        missed = DiscordMissedMessages(platform, client)
        backfill = Backfill(PLATFORM, missed, self._messages, platform.engine, platform.records.engaged)
        platform.background_tasks.start(backfill.run(at), "discord: backfill")

    async def close(self) -> None:
        """Store the received messages after the last event."""
        await self._messages.close()

    async def on_message(self, message: discord.Message) -> None:
        """Handle a message."""
        if message.guild is not None and not self._platform.people.serves(str(message.guild.id)):
            return
        me = (await self._platform.rest.identity()).user
        parsed = parse_message(message, me, from_channel(message.channel), message.guild)
        if parsed is not None:
            await self._messages.handle(parsed)

    async def on_action(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Handle a click on a button."""
        self._interactions.on_action(interaction, custom_id)

    async def on_modal(self, interaction: discord.Interaction[Any]) -> None:
        """Handle the submission of a modal."""
        self._interactions.on_modal(interaction)

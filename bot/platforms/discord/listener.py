"""Discord as a Listener: what people say, press and type comes in through the gateway.

Of all processes with the bot's token one receives at a time (`holding`); whatever was begun while it did ends with that
right. Discord waits for no acknowledgement of a message and sends none twice: `reception` sees to it that a message is
on disk, `backfill` reads what was said while nobody received. Presses and commands are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import Any

import discord

from bot.chat.argument_editing import ArgumentEditForms
from bot.chat.audience import AudiencePolicy
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.elicitation_forms import ElicitationForms
from bot.chat.retry import retry_until_available
from bot.domain.health import ListenerStatus
from bot.platforms.discord.app_commands import command_tree, try_register
from bot.platforms.discord.backfill import Backfill
from bot.platforms.discord.command_runner import CommandRunner
from bot.platforms.discord.context import DiscordLookups, PlatformContext
from bot.platforms.discord.context_menu import ShortcutHandler
from bot.platforms.discord.gateway import Gateway
from bot.platforms.discord.gateway_lease import SECONDS, GatewayLease
from bot.platforms.discord.interactions import InteractionHandler
from bot.platforms.discord.messages import MessageHandler
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi, Leases

log = logging.getLogger(__name__)


class DiscordListener:
    """Receives from Discord. `holder` names this process among those with the same database; a process that dies
    without a word is followed by another after `lease_seconds`.
    """

    def __init__(
        self,
        rest: Rest,
        people: UserDirectory,
        leases: Leases,
        holder: str,
        *,
        manners: AudiencePolicy | None = None,
        records: DiscordLookups | None = None,
        lease_seconds: float = SECONDS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._rest = rest
        self._people = people
        self._leases = leases
        self._holder = holder
        self._manners = manners or AudiencePolicy()
        self._records = records or DiscordLookups()
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._holding: GatewayLease | None = None
        self._gateway: Gateway | None = None

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled, whenever no other process does; what was begun gets a moment to finish. Raises
        DeliveryFailed if Discord does not take the token.
        """
        identity = await retry_until_available(self._rest.identity, "Discord")

        async def receive() -> None:
            errands = BackgroundTasks()
            forms = ElicitationForms(engine, ArgumentEditForms(engine, commands))
            desk = PlatformContext(self._rest, self._people, self._manners, errands, engine, forms, self._records)
            ears = _Ears(desk)
            try:
                log.info("receiving from Discord as %s", identity.name)
                self._gateway = Gateway(self._rest, ears, ears.prepare, clock=self._clock)
                await self._gateway.run()
            finally:
                self._gateway = None
                await asyncio.gather(ears.close(), errands.close())

        name = f"discord-gateway:{identity.app}"
        self._holding = GatewayLease(self._leases, name, self._holder, seconds=self._lease_seconds)
        await self._holding.run_while_held(receive)

    async def listening(self) -> ListenerStatus:
        """Whether messages arrive now, here or in the process that this one follows."""
        if self._gateway is not None and self._gateway.receiving:
            return ListenerStatus.CONNECTED
        stands_by = self._holding is not None and self._holding.stands_by
        return ListenerStatus.STANDBY if stands_by else ListenerStatus.CONNECTING


class _Ears:
    """Takes everything that the gateway hands out to where it belongs."""

    def __init__(self, desk: PlatformContext) -> None:
        self._desk = desk
        self._invocations = CommandRunner(desk)
        self._gestures = ShortcutHandler(desk)
        self._counter = InteractionHandler(desk, self._invocations, self._gestures)
        self._reception = MessageHandler(desk, self._invocations)
        self._catching_up = Backfill(desk, self._reception)

    async def prepare(self, client: discord.Client) -> None:
        """Give a client its commands, before it connects."""
        tree = command_tree(client, self._desk.commands.verbs, self._invocations)
        self._gestures.add_to(tree)
        self._desk.errands.start(try_register(tree), "discord: commands")

    def connected(self, _client: discord.Client, *, reads_all: bool) -> None:
        """A client is about to connect."""
        self._reception.reads_all = reads_all

    def on_session_start(self, client: discord.Client, at: float) -> None:
        """A new session is ready."""
        self._desk.errands.start(self._catching_up.read(client, at), "discord: catching up")

    async def close(self) -> None:
        """Nothing comes any more: what was said is put on disk."""
        await self._reception.close()

    async def on_message(self, message: discord.Message) -> None:
        """Somebody said something."""
        await self._reception.handle(message)

    async def pressed(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Somebody pressed a button."""
        self._counter.on_action(interaction, custom_id)

    async def sent(self, interaction: discord.Interaction[Any]) -> None:
        """Somebody sent a modal."""
        self._counter.on_modal(interaction)

"""Discord as a Listener: what people say, press and type comes in through the gateway.

Of all processes with the bot's token one receives at a time (`holding`); whatever was begun while it did ends with that
right. Discord waits for no acknowledgement of a message and sends none twice: `reception` sees to it that a message is
on disk, `catching_up` reads what was said while nobody received. Presses and commands are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import Any

import discord

from bot.domain.health import Listening
from bot.platforms.discord.catching_up import CatchingUp
from bot.platforms.discord.counter import Counter
from bot.platforms.discord.desk import Desk, DiscordRecords
from bot.platforms.discord.gateway import Gateway
from bot.platforms.discord.gestures import Gestures
from bot.platforms.discord.holding import SECONDS, Holding
from bot.platforms.discord.invocations import Invocations
from bot.platforms.discord.people import People
from bot.platforms.discord.reception import Reception
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.tree import command_tree, registered
from bot.ports import Commands, FrontDoor
from bot.reception.editing import CallForms
from bot.reception.errands import Errands
from bot.reception.inquiries import InquiryForms
from bot.reception.manners import Manners
from bot.reception.patience import patiently
from bot.stores import Leases

log = logging.getLogger(__name__)


class DiscordListener:
    """Receives from Discord. `holder` names this process among those with the same database; a process that dies
    without a word is followed by another after `lease_seconds`.
    """

    def __init__(
        self,
        rest: Rest,
        people: People,
        leases: Leases,
        holder: str,
        *,
        manners: Manners | None = None,
        records: DiscordRecords | None = None,
        lease_seconds: float = SECONDS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._rest = rest
        self._people = people
        self._leases = leases
        self._holder = holder
        self._manners = manners or Manners()
        self._records = records or DiscordRecords()
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._holding: Holding | None = None
        self._gateway: Gateway | None = None

    async def run(self, engine: FrontDoor, commands: Commands) -> None:
        """Receive until cancelled, whenever no other process does; what was begun gets a moment to finish. Raises
        DeliveryFailed if Discord does not take the token.
        """
        identity = await patiently(self._rest.identity, "Discord")

        async def receive() -> None:
            errands = Errands()
            forms = InquiryForms(engine, CallForms(engine, commands))
            desk = Desk(self._rest, self._people, self._manners, errands, engine, forms, self._records)
            ears = _Ears(desk)
            try:
                log.info("receiving from Discord as %s", identity.name)
                self._gateway = Gateway(self._rest, ears, ears.prepare, clock=self._clock)
                await self._gateway.run()
            finally:
                self._gateway = None
                await asyncio.gather(ears.close(), errands.close())

        name = f"discord-gateway:{identity.app}"
        self._holding = Holding(self._leases, name, self._holder, seconds=self._lease_seconds)
        await self._holding.while_held(receive)

    async def listening(self) -> Listening:
        """Whether messages arrive now, here or in the process that this one follows."""
        if self._gateway is not None and self._gateway.receiving:
            return Listening.CONNECTED
        stands_by = self._holding is not None and self._holding.stands_by
        return Listening.STANDBY if stands_by else Listening.CONNECTING


class _Ears:
    """Takes everything that the gateway hands out to where it belongs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._invocations = Invocations(desk)
        self._gestures = Gestures(desk)
        self._counter = Counter(desk, self._invocations, self._gestures)
        self._reception = Reception(desk, self._invocations)
        self._catching_up = CatchingUp(desk, self._reception)

    async def prepare(self, client: discord.Client) -> None:
        """Give a client its commands, before it connects."""
        tree = command_tree(client, self._desk.commands.verbs, self._invocations)
        self._gestures.add_to(tree)
        self._desk.errands.start(registered(tree), "discord: commands")

    def connected(self, _client: discord.Client, *, reads_all: bool) -> None:
        """A client is about to connect."""
        self._reception.reads_all = reads_all

    def began(self, client: discord.Client, at: float) -> None:
        """A new session is ready."""
        self._desk.errands.start(self._catching_up.read(client, at), "discord: catching up")

    async def close(self) -> None:
        """Nothing comes any more: what was said is put on disk."""
        await self._reception.close()

    async def heard(self, message: discord.Message) -> None:
        """Somebody said something."""
        await self._reception.take(message)

    async def pressed(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Somebody pressed a button."""
        self._counter.pressed(interaction, custom_id)

    async def sent(self, interaction: discord.Interaction[Any]) -> None:
        """Somebody sent a modal."""
        self._counter.sent(interaction)

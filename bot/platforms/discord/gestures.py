"""The entry "Ask about this" in a message's menu, under which somebody asks what they want to know about it.

What stands in the message comes with the press, also without the Message Content intent, and is kept here until the
question is sent; a process that does not have it any more asks Discord.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import discord
from discord import app_commands

from bot.domain.conversations import ConversationKey, InboundMessage
from bot.errors import DeliveryFailed
from bot.platforms.discord.asides import say, whisper
from bot.platforms.discord.asking import QUESTION, question_modal
from bot.platforms.discord.desk import Desk
from bot.platforms.discord.exchanges import calling
from bot.platforms.discord.faults import translated
from bot.platforms.discord.forms import filled
from bot.platforms.discord.reading_up import UNREAD, Earlier, earlier
from bot.platforms.discord.references import MessageRef, conversation, message_key, place_of
from bot.platforms.discord.spots import Spot, spot_of
from bot.platforms.discord.thread_openings import open_thread
from bot.reception.context_lines import context_lines

NAME = "Ask about this"
KEPT = 500
ASKED = "Asked."


class Gestures:
    """Takes questions about messages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._kept: OrderedDict[MessageRef, Earlier] = OrderedDict()

    def add_to(self, tree: app_commands.CommandTree[Any]) -> None:
        """Add the menu's entry to the commands of a client, before they are registered."""
        tree.add_command(
            app_commands.ContextMenu(
                name=NAME,
                callback=self._wanted,
                type=discord.AppCommandType.message,
                allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=False, private_channel=False),
                allowed_installs=app_commands.AppInstallationType(guild=True, user=False),
            )
        )

    async def asked(self, about: MessageRef, interaction: discord.Interaction[Any]) -> None:
        """Hand a question on, with the message it is about; the thread reads who asked what. Raises
        CountersignError.
        """
        async with calling("acknowledge a question"):
            await interaction.response.defer(ephemeral=True, thinking=True)
        desk, spot = self._desk, spot_of(interaction.channel)
        question = filled(interaction.data or {}).get(QUESTION, "").strip()
        if spot is None or spot.place != about.channel or not question:
            raise DeliveryFailed("The question came without what it is about.", permanent=True)
        where = await desk.where(spot, str(interaction.user.id))
        member = await desk.member(interaction.user, where.workspace)
        if refusal := desk.manners.refusal(member):
            await whisper(desk.rest, interaction, refusal)
            return
        line = await self._line(about)
        key = await self._opened(spot, where, about, question)
        name = member.author.name
        await say(desk.rest, place_of(key), f"{name} asks about this: {question}", once=str(interaction.id))
        await desk.engine.receive(
            InboundMessage(
                keys=(message_key(str(interaction.id)),),
                conversation=key,
                author=member.author,
                text=question,
                context=(UNREAD,) if line is None else context_lines([(line.name, line.text)]),
            )
        )
        await whisper(desk.rest, interaction, ASKED)

    async def _wanted(self, interaction: discord.Interaction[Any], message: discord.Message) -> None:
        """The entry was chosen: keep what it is about, and ask."""
        about = MessageRef(str(message.channel.id), str(message.id))
        line = earlier(message, (await self._desk.rest.identity()).user, interaction.guild)
        if line is not None:
            self._kept[about] = line
            self._kept.move_to_end(about)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        async with calling("open a form"):
            await interaction.response.send_modal(question_modal(about))

    async def _line(self, about: MessageRef) -> Earlier | None:
        """What the message says, None where that is not known any more. Raises DeliveryFailed."""
        if (kept := self._kept.get(about)) is not None:
            return kept
        client = await self._desk.rest.client()
        with translated("read the message that was asked about"):
            place = client.get_partial_messageable(int(about.channel))
            message = await place.fetch_message(int(about.message))
        return earlier(message, (await self._desk.rest.identity()).user, None)

    async def _opened(self, spot: Spot, where: ConversationKey, about: MessageRef, question: str) -> ConversationKey:
        """The conversation about a message: its thread, or where it stands if the bot may open none. Raises
        DeliveryFailed.
        """
        if not spot.opens_threads:
            return where
        thread = await open_thread(self._desk.rest, spot.channel, about.message, question)
        return conversation(where.workspace, where.channel, thread)

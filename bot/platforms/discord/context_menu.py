"""Context menu entry "Ask about this", and the modals for a question and for the reason of a denial.

The interaction contains the message, also without the Message Content intent. It is cached until the question is
submitted; a process without it loads the message. A modal must be the first response to an interaction, within three
seconds, so building one sends no request. Its context is in its id, for any process that receives the submission.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import discord
from discord import app_commands

from bot.chat.actions import ApprovalRef
from bot.chat.thread_context import format_lines
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.errors import DeliveryFailed
from bot.platforms.discord.channel_ref import (
    ChannelRef,
    MessageRef,
    channel_id_of,
    conversation,
    from_channel,
    message_key,
)
from bot.platforms.discord.context import PlatformContext
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.forms import read_values
from bot.platforms.discord.interaction_response import call_limit
from bot.platforms.discord.message_builder import UNREAD, ThreadMessage, to_thread_message
from bot.platforms.discord.notices import post_notice, send_ephemeral
from bot.platforms.discord.threads import open_thread

DENY, ASK = "cs.deny", "cs.ask"
REASON, QUESTION = "reason", "question"
LONGEST_REASON, LONGEST_QUESTION = 500, 2_000
DENYING = "The call will not be run. The assistant learns of it and goes on without it."


@dataclass(frozen=True, slots=True)
class DenyForm:
    """Deny this call."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class AskAboutMessage:
    """Ask about this message."""

    about: MessageRef


def deny_modal(card: ApprovalRef) -> discord.ui.Modal:
    """Return the modal for an optional reason."""
    modal = _modal("Deny", f"{DENY}:{card.approval_id}:{card.revision}")
    modal.add_item(discord.ui.TextDisplay(DENYING))
    modal.add_item(
        discord.ui.Label(
            text="Reason",
            description="The assistant reads it, and may try another way.",
            component=_lines(REASON, LONGEST_REASON, required=False),
        )
    )
    return modal


def question_modal(about: MessageRef) -> discord.ui.Modal:
    """Return the modal for a question about a message."""
    modal = _modal("Ask about this", f"{ASK}:{about}")
    modal.add_item(
        discord.ui.Label(
            text="What do you want to know about it?", component=_lines(QUESTION, LONGEST_QUESTION, required=True)
        )
    )
    return modal


def read_modal(custom_id: str) -> DenyForm | AskAboutMessage | None:
    """Return the context of a submitted modal, or None if it is of another kind."""
    kind, _, rest = custom_id.partition(":")
    match kind, rest.split(":"):
        case "cs.deny", [approval_id, revision] if re.fullmatch(r"[0-9]{1,9}", revision):
            return DenyForm(ApprovalRef(approval_id, int(revision)))
        case "cs.ask", _ if (about := MessageRef.parse(rest)) is not None:
            return AskAboutMessage(about)
        case _:
            return None


def _modal(title: str, custom_id: str) -> discord.ui.Modal:
    modal = discord.ui.Modal(title=title, custom_id=custom_id)
    modal.stop()  # or discord.py would keep it for good: what is sent is read from its id
    return modal


def _lines(name: str, longest: int, *, required: bool) -> discord.ui.TextInput[Any]:
    return discord.ui.TextInput(
        custom_id=name, style=discord.TextStyle.paragraph, max_length=longest, required=required
    )


NAME = "Ask about this"
KEPT = 500
ASKED = "Asked."


class ShortcutHandler:
    """Takes questions about messages."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._kept: OrderedDict[MessageRef, ThreadMessage] = OrderedDict()

    def add_to(self, tree: app_commands.CommandTree[Any]) -> None:
        """Add the entry to a client's commands before their registration."""
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
        """Pass on a question with the message it is about; the thread shows who asked. Raises CountersignError."""
        async with call_limit("acknowledge a question"):
            await interaction.response.defer(ephemeral=True, thinking=True)
        platform, spot = self._platform, from_channel(interaction.channel)
        question = read_values(interaction.data or {}).get(QUESTION, "").strip()
        if spot is None or spot.place != about.channel or not question:
            raise DeliveryFailed("The question came without what it is about.", permanent=True)
        where = await platform.where(spot, str(interaction.user.id))
        member = await platform.member(interaction.user, where.workspace)
        if refusal := platform.audience.rejection(member):
            await send_ephemeral(platform.rest, interaction, refusal)
            return
        line = await self._line(about)
        key = await self._opened(spot, where, about, question)
        name = member.author.name
        await post_notice(
            platform.rest, channel_id_of(key), f"{name} asks about this: {question}", once=str(interaction.id)
        )
        await platform.engine.receive(
            InboundMessage(
                keys=(message_key(str(interaction.id)),),
                conversation=key,
                author=member.author,
                text=question,
                context=(UNREAD,) if line is None else format_lines([(line.name, line.text)]),
            )
        )
        await send_ephemeral(platform.rest, interaction, ASKED)

    async def _wanted(self, interaction: discord.Interaction[Any], message: discord.Message) -> None:
        """Cache the message and open the modal."""
        about = MessageRef(str(message.channel.id), str(message.id))
        line = to_thread_message(message, (await self._platform.rest.identity()).user, interaction.guild)
        if line is not None:
            self._kept[about] = line
            self._kept.move_to_end(about)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        async with call_limit("open a form"):
            await interaction.response.send_modal(question_modal(about))

    async def _line(self, about: MessageRef) -> ThreadMessage | None:
        """Return the message, or None if it cannot be found. Raises DeliveryFailed."""
        if (kept := self._kept.get(about)) is not None:
            return kept
        client = await self._platform.rest.client()
        with map_errors("read the message that was asked about"):
            place = client.get_partial_messageable(int(about.channel))
            message = await place.fetch_message(int(about.message))
        return to_thread_message(message, (await self._platform.rest.identity()).user, None)

    async def _opened(
        self, spot: ChannelRef, where: ConversationKey, about: MessageRef, question: str
    ) -> ConversationKey:
        """Return the conversation about a message: its thread, or its channel if the bot cannot open a thread. Raises
        DeliveryFailed.
        """
        if not spot.opens_threads:
            return where
        thread = await open_thread(self._platform.rest, spot.channel, about.message, question)
        return conversation(where.workspace, where.channel, thread)

"""One interaction with Discord: a command behind a slash, a press, or a form that was sent; and its one first answer.

Discord takes the first answer within three seconds, and only that one can be a form; later ones change it, for a
quarter of an hour ("Receiving and Responding to Interactions"). Answers are for the person alone who set it off; where
a button stands in such an answer, or in a direct conversation, the next answer takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import discord

from bot.domain.commands import ReplyFile
from bot.errors import DeliveryFailed
from bot.platforms.discord.command_replies import message, note_layout
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.notices import EPHEMERAL, NOBODY, follow_up, send_ephemeral
from bot.platforms.discord.outgoing import FileUpload
from bot.platforms.discord.rest import Rest

log = logging.getLogger(__name__)

Interaction = discord.Interaction[Any]

CALL_SECONDS = 20.0
_NOBODY = discord.AllowedMentions.none()


class InteractionResponse:
    """An interaction that nobody has acknowledged yet."""

    def __init__(self, rest: Rest, interaction: Interaction) -> None:
        self.interaction = interaction
        self._rest = rest
        self._turn = asyncio.Lock()
        self._replaces = _replaces(interaction)

    @property
    def is_form(self) -> bool:
        """A form was sent: no other one can be opened."""
        return self.interaction.type is discord.InteractionType.modal_submit

    def reply_in_new_message(self) -> None:
        """Answer beside the message with the button: it is a card, which nothing may take the place of."""
        self._replaces = False

    @asynccontextmanager
    async def defer_after(self, seconds: float) -> AsyncIterator[None]:
        """Inside, Discord is told after so many seconds that an answer will come, unless one has."""
        waiting = asyncio.create_task(self._wait(seconds), name="discord: acknowledgement")
        try:
            yield
        finally:
            async with self._turn:  # an acknowledgement under way is one that Discord may have taken
                waiting.cancel()
            await asyncio.wait({waiting})

    async def show(self, view: discord.ui.LayoutView) -> None:
        """Show an answer in the place of the one before. Raises DeliveryFailed."""
        response = self.interaction.response
        async with self._turn:
            if response.is_done():
                await self._edit(view)
                return
            async with call_limit("answer a command"):
                if self._replaces:
                    await response.edit_message(view=view, allowed_mentions=_NOBODY)
                else:
                    await response.send_message(view=view, ephemeral=True, allowed_mentions=_NOBODY)

    async def tell(self, text: str) -> None:
        """Say a plain sentence beside what is shown already, if there is something. Raises DeliveryFailed."""
        response = self.interaction.response
        if response.is_done() and response.type is not discord.InteractionResponseType.deferred_channel_message:
            await send_ephemeral(self._rest, self.interaction, text)
            return
        self._replaces = False
        await self.show(note_layout(text))

    async def open(self, modal: discord.ui.Modal) -> bool:
        """Open a form; False if something has been answered already, or Discord does not open it."""
        async with self._turn:
            if self.is_form or self.interaction.response.is_done():
                return False
            try:
                async with call_limit("open a form"):
                    await self.interaction.response.send_modal(modal)
            except DeliveryFailed as error:
                log.warning("a form could not be opened: %s", error)
                return False
            return True

    async def send_file(self, document: ReplyFile) -> None:
        """Hand over a file. Raises DeliveryFailed."""
        body = {"allowed_mentions": NOBODY, "flags": EPHEMERAL}
        await follow_up(self._rest, self.interaction, body, [FileUpload(document.name, document.text.encode())])

    async def _edit(self, view: discord.ui.LayoutView) -> None:
        """By the interaction's token, over REST: it goes on though the gateway is closed meanwhile."""
        await self._rest.call(
            "PATCH",
            "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
            "answer a command",
            body=message(view),
            webhook_id=str(self.interaction.application_id),
            webhook_token=self.interaction.token,
        )

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with self._turn:
            if self.interaction.response.is_done():
                return
            try:
                async with call_limit("acknowledge a command"):
                    await self.interaction.response.defer(ephemeral=True, thinking=not self._replaces)
            except DeliveryFailed as error:
                log.warning("an interaction could not be acknowledged: %s", error)


@asynccontextmanager
async def call_limit(what: str) -> AsyncIterator[None]:
    """Answer an interaction by the library's own calls: within a limit, and with the errors of ours."""
    with map_errors(what):
        async with asyncio.timeout(CALL_SECONDS):
            yield


def _replaces(interaction: Interaction) -> bool:
    """Whether the message with the button is an answer that its person alone sees."""
    stands = interaction.message
    if stands is None or not stands.flags.components_v2:
        return False
    return stands.flags.ephemeral or interaction.guild_id is None

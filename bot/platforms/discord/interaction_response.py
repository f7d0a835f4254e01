"""Response to one interaction: a slash command, a click or a submission.

Discord requires the first response within three seconds, and only that one can be a modal. It can be edited for 15
minutes ("Receiving and Responding to Interactions"). Responses are ephemeral. After a click in an ephemeral message or
a direct conversation, the response replaces that message.
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
    """Response to an unacknowledged interaction."""

    def __init__(self, rest: Rest, interaction: Interaction) -> None:
        self.interaction = interaction
        self._rest = rest
        self._turn = asyncio.Lock()
        self._replaces = _replaces(interaction)

    @property
    def is_form(self) -> bool:
        """True for a submission, which cannot be answered by a modal."""
        return self.interaction.type is discord.InteractionType.modal_submit

    def reply_in_new_message(self) -> None:
        """Answer in a new message, because a card must not be replaced."""
        self._replaces = False

    @asynccontextmanager
    async def defer_after(self, seconds: float) -> AsyncIterator[None]:
        """Defer the response after these seconds unless one was sent."""
        waiting = asyncio.create_task(self._wait(seconds), name="discord: acknowledgement")
        try:
            yield
        finally:
            async with self._turn:  # an acknowledgement under way is one that Discord may have taken
                waiting.cancel()
            await asyncio.wait({waiting})

    async def show(self, view: discord.ui.LayoutView) -> None:
        """Show a response in place of the previous one. Raises DeliveryFailed."""
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
        """Show a plain sentence below the current response, if any. Raises DeliveryFailed."""
        response = self.interaction.response
        if response.is_done() and response.type is not discord.InteractionResponseType.deferred_channel_message:
            await send_ephemeral(self._rest, self.interaction, text)
            return
        self._replaces = False
        await self.show(note_layout(text))

    async def open(self, modal: discord.ui.Modal) -> bool:
        """Open a modal. Return False if a response was sent already or Discord rejects the modal."""
        async with self._turn:
            if self.is_form or self.interaction.response.is_done():
                return False
            try:
                async with call_limit("open a form"):
                    await self.interaction.response.send_modal(modal)
            except DeliveryFailed as error:
                log.warning("form not opened: %s", error)
                return False
            return True

    async def send_file(self, document: ReplyFile) -> None:
        """Send a file. Raises DeliveryFailed."""
        body = {"allowed_mentions": NOBODY, "flags": EPHEMERAL}
        await follow_up(self._rest, self.interaction, body, [FileUpload(document.name, document.text.encode())])

    async def _edit(self, view: discord.ui.LayoutView) -> None:
        """Edit by the interaction's token over REST, which also works after the gateway was closed."""
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
                log.warning("interaction not acknowledged: %s", error)


@asynccontextmanager
async def call_limit(what: str) -> AsyncIterator[None]:
    """Call the library's response methods within a time limit, with mapped errors."""
    with map_errors(what):
        async with asyncio.timeout(CALL_SECONDS):
            yield


def _replaces(interaction: Interaction) -> bool:
    """Return True if the message with the button is ephemeral."""
    stands = interaction.message
    if stands is None or not stands.flags.components_v2:
        return False
    return stands.flags.ephemeral or interaction.guild_id is None

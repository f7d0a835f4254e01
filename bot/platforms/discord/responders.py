"""Responders to a command, each answer replacing the previous one.

Responses to an interaction are ephemeral; Discord allows three seconds for the first one and 15 minutes for edits.
After that, or if Discord lost the interaction, the last answer is a direct message. If the user accepts none, a line in
the command's conversation says so without the answer. Commands in messages are always answered by direct message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from bot.domain.commands import Form, ReplyFile
from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.platforms.discord.channel_ref import channel_id_of
from bot.platforms.discord.command_replies import CommandReply, CustomIdAllocator, PendingActions, layout, message
from bot.platforms.discord.errors import UNKNOWN_MESSAGE, DiscordApiError
from bot.platforms.discord.forms import fits_in_modal, form_modal
from bot.platforms.discord.interaction_response import InteractionResponse
from bot.platforms.discord.notices import nonce_fields, post_notice
from bot.platforms.discord.outgoing import FileUpload
from bot.platforms.discord.rest import Rest

log = logging.getLogger(__name__)

APART_SECONDS = 1.5
"""Between two answers of which the later one is not the last."""
SENT_DIRECTLY = "I have sent you the answer in a direct message."
NOT_SENT = (
    "The answer is for you alone, and I could not send it to you. Let me write to you directly, or give the command "
    "behind a slash."
)
NOT_SHARED = "The file {} could not be shared: it may be too large for Discord."


class Responder(Protocol):
    """Shows answers, each in place of the previous one. An answer is `expected` if the user sees a waiting state."""

    expected: bool

    async def progress(self, sheet: CommandReply) -> None:
        """Show an answer that another one follows. May be skipped."""

    async def finish(self, sheet: CommandReply) -> None:
        """Show the last answer and send its files. Raises DeliveryFailed."""

    async def open(self, form: Form) -> bool:
        """Open a form at once. Return False if it needs a click."""


class DirectMessageResponder:
    """Responder by direct message. `about` is the command's conversation; outside of direct conversations, a line there
    below the message `answering` mentions the answer.
    """

    expected = False

    def __init__(
        self, rest: Rest, tickets: PendingActions, user: str, about: ConversationKey, answering: str = ""
    ) -> None:
        self._rest = rest
        self._tickets = tickets
        self._user = user
        self._about = about
        self._answering = answering
        self._channel = ""
        self._message = ""
        self._shown: CommandReply | None = None

    async def progress(self, sheet: CommandReply) -> None:
        """Show the first progress only, because Discord limits edits by the bot's token."""
        if not self._message:
            await self._show(sheet)

    async def finish(self, sheet: CommandReply) -> None:
        """Show the last answer and send its files. Raises DeliveryFailed."""
        await self._show(sheet)
        for document in sheet.documents:
            try:
                await self._share(document)
            except DeliveryFailed as error:
                log.warning("file not shared: %s", error)
                await post_notice(self._rest, self._channel, NOT_SHARED.format(document.name))

    async def open(self, form: Form) -> bool:  # noqa: ARG002 - none opens
        """Return False: a form needs a click."""
        return False

    async def _show(self, sheet: CommandReply) -> None:
        if sheet == self._shown:
            return
        if self._message:
            await self._rest.call(
                "PATCH",
                "/channels/{channel_id}/messages/{message_id}",
                "edit a message",
                body=self._body(sheet),
                channel_id=self._channel,
                message_id=self._message,
            )
        else:
            await self._begin(sheet)
        self._shown = sheet

    async def _begin(self, sheet: CommandReply) -> None:
        place = channel_id_of(self._about)
        try:
            opened = await self._rest.call(
                "POST", "/users/@me/channels", "write to somebody", body={"recipient_id": self._user}
            )
            self._channel = str(opened["id"])
            posted = await self._post(self._body(sheet))
        except DiscordApiError as refusal:
            if refusal.permanent and self._channel != place:
                await post_notice(self._rest, place, NOT_SENT, answering=self._answering)
            raise
        self._message = str(posted["id"])
        if self._channel != place and self._answering:
            await post_notice(self._rest, place, SENT_DIRECTLY, answering=self._answering)

    def _body(self, sheet: CommandReply) -> dict[str, Any]:
        here = self._channel == channel_id_of(self._about)
        return message(layout(sheet, CustomIdAllocator(self._tickets.store, self._user, self._about, here=here)))

    async def _share(self, document: ReplyFile) -> None:
        await self._post({"allowed_mentions": {"parse": []}}, (FileUpload(document.name, document.text.encode()),))

    async def _post(self, body: dict[str, Any], files: tuple[FileUpload, ...] = ()) -> Any:
        return await self._rest.call(
            "POST",
            "/channels/{channel_id}/messages",
            "post a message",
            body=body | nonce_fields(),
            files=files,
            channel_id=self._channel,
        )


class ChannelResponder:
    """Responder to an interaction; falls back to `instead` if Discord no longer accepts responses."""

    expected = True

    def __init__(
        self,
        exchange: InteractionResponse,
        issuing: CustomIdAllocator,
        instead: Responder,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._exchange = exchange
        self._issuing = issuing
        self._instead = instead
        self._clock = clock
        self._last = float("-inf")
        self._shown: CommandReply | None = None

    async def progress(self, sheet: CommandReply) -> None:
        """Show an answer that another one follows, unless the previous one is too recent."""
        if self._clock() - self._last < APART_SECONDS:
            return
        try:
            await self._show(sheet)
        except DeliveryFailed as error:
            log.info("progress of a command not shown: %s", error)

    async def finish(self, sheet: CommandReply) -> None:
        """Show the last answer and send its files. Raises DeliveryFailed if both ways fail."""
        try:
            await self._show(sheet)
        except DeliveryFailed as error:
            if isinstance(error, DiscordApiError) and error.code == UNKNOWN_MESSAGE:
                return  # whoever asked has put the answer away
            log.info("reply not shown under its command: %s", error)
            await self._instead.finish(sheet)
            return
        for document in sheet.documents:
            try:
                await self._exchange.send_file(document)
            except DeliveryFailed as error:
                log.warning("file not shared: %s", error)
                await self._exchange.tell(NOT_SHARED.format(document.name))

    async def open(self, form: Form) -> bool:
        """Open a form as the first response, if all of its text fits."""
        return fits_in_modal(form) and await self._exchange.open(form_modal(form, self._issuing.ticket(form)))

    async def _show(self, sheet: CommandReply) -> None:
        if sheet == self._shown:
            return
        await self._exchange.show(layout(sheet, self._issuing))
        self._shown = sheet
        self._last = self._clock()

"""Responses to commands and clicks, and notices outside of turns.

Discord requires the first response to an interaction within three seconds, and only that one can be a modal. It can be
edited for 15 minutes ("Receiving and Responding to Interactions"). Responses are ephemeral. After a click in an
ephemeral message or a direct conversation, the response replaces that message. Later, or if Discord lost the
interaction, the last answer is a direct message. If the user accepts none, a line in the command's conversation says so
without the answer.

Only an interaction allows an ephemeral answer: commands in messages are always answered by direct message, a hint is
posted below its message, and a rejection is a direct message or omitted.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import discord

from bot.chat.actions import ActionEncoder, OpenForm, PendingActions
from bot.chat.card_messages import OPEN_CARD
from bot.chat.command_runner import form_offer, thread_title
from bot.chat.message_model import Message
from bot.domain.commands import Form, ReplyFile
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Notice
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.components import NONCE, View, to_custom_id
from bot.platforms.discord.markdown import escape, truncate
from bot.platforms.discord.message_layout import CommandReply, command_reply, layout, message_body, note_layout
from bot.platforms.discord.modals import fits_in_modal, form_modal
from bot.platforms.discord.rest import (
    NO_REPLIES,
    UNKNOWN_MESSAGE,
    DiscordApiError,
    FileUpload,
    Rest,
    channel_id_of,
    direct_channel,
    map_errors,
    open_thread,
)

log = logging.getLogger(__name__)

APART_SECONDS = 1.5
"""Between two answers of which the later one is not the last."""
SENT_DIRECTLY = gettext_lazy("I have sent you the answer in a direct message.")
NOT_SENT = gettext_lazy(
    "The answer is for you alone, and I could not send it to you. Let me write to you directly, or give the command "
    "behind a slash."
)
SUPPRESS_EMBEDS, EPHEMERAL, COMPONENTS_V2 = 1 << 2, 1 << 6, 1 << 15
"""Flags of a message."""
LONGEST = 1_900


def _new_nonce() -> str:
    return secrets.token_hex(NONCE // 2)


async def post_notice(
    rest: Rest, channel: str, text: str, *, link: str = "", answering: str = "", once: str = ""
) -> None:
    """Post a sentence in a channel or thread, with a link if it is about something elsewhere, without a notification,
    as a reply to the message `answering` if the bot may read it. A notice with the same reason (`once`, else
    `answering`) is posted once, by any process. Raises DeliveryFailed.
    """
    reason = once or answering
    nonce = f"s{reason}"[:NONCE] if reason else _new_nonce()
    content = truncate(escape(text), LONGEST) + (f" <{link}>" if link else "")
    try:
        await _post_notice(rest, channel, content, nonce, answering)
    except DiscordApiError as error:
        if error.code != NO_REPLIES:
            raise
        await _post_notice(rest, channel, content, nonce, "")


async def _post_notice(rest: Rest, channel: str, content: str, nonce: str, answering: str) -> None:
    options: dict[str, Any] = {}
    if answering:
        options["reference"] = discord.MessageReference(
            message_id=int(answering), channel_id=int(channel), fail_if_not_exists=False
        )
    async with rest.request(gettext_lazy("post a message")) as client:
        await client.get_partial_messageable(int(channel)).send(
            content,
            nonce=nonce,
            suppress_embeds=True,
            silent=True,
            allowed_mentions=_NOBODY,
            **options,
        )


async def notify_directly(rest: Rest, user: str, notice: Notice) -> None:
    """Send a notice to a user, with a notification, and with a link to the card that it is about. Raises
    DeliveryFailed.
    """
    channel, text = await direct_channel(rest, user), truncate(escape(notice.text), LONGEST)
    link = f" [{OPEN_CARD}](<{notice.card_url}>)" if notice.card_url else ""
    async with rest.request(gettext_lazy("post a message")) as client:
        await client.get_partial_messageable(int(channel)).send(
            f"{text}{link}", nonce=_new_nonce(), suppress_embeds=True, allowed_mentions=_NOBODY
        )


async def send_direct_message(rest: Rest, user: str, text: str) -> None:
    """Send a sentence by direct message, if the user accepts any."""
    try:
        await post_notice(rest, await direct_channel(rest, user), text)
    except DeliveryFailed as failure:
        log.info("direct message not sent: %s", failure)


async def follow_up(
    rest: Rest,
    interaction: discord.Interaction[Any],
    content: str = "",
    *,
    view: View | None = None,
    files: Sequence[FileUpload] = (),
) -> None:
    """Send a further ephemeral response to an interaction. Raises DeliveryFailed.

    By the bot's REST client: the library sends ephemeral messages only through the client of the gateway, which may be
    closed already.
    """
    flags = EPHEMERAL | (SUPPRESS_EMBEDS if content else COMPONENTS_V2 if view is not None else 0)
    body: dict[str, Any] = {"allowed_mentions": {"parse": []}, "flags": flags}
    if content:
        body["content"] = content
    if view is not None:
        body["components"] = view.to_components()
    await rest.call(
        "POST",
        "/webhooks/{webhook_id}/{webhook_token}",
        gettext_lazy("answer a press"),
        body=body,
        files=files,
        webhook_id=str(interaction.application_id),
        webhook_token=interaction.token,
    )


class DirectMessageResponder:
    """Responder by direct message. `about` is the command's conversation; outside of direct conversations, a line there
    below the message `answering` mentions the answer.
    """

    is_awaited = False

    def __init__(
        self, rest: Rest, pending: PendingActions, user: str, about: ConversationKey, answering: str = ""
    ) -> None:
        self._rest = rest
        self._pending = pending
        self._user = user
        self._about = about
        self._answering = answering
        self._channel = ""
        self._message = ""
        self._shown: CommandReply | None = None

    async def progress(self, reply: Message) -> None:
        """Show the first progress only, because Discord limits edits by the bot's token."""
        if not self._message:
            await self._show(command_reply(reply))

    async def finish(self, reply: Message) -> bool:
        """Show the last reply. Return False if something is omitted. Raises DeliveryFailed."""
        composed = command_reply(reply)
        await self._show(composed)
        return composed.is_whole

    async def open_form(self, form: Form) -> bool:  # noqa: ARG002 - none opens
        """Return False: a form needs a click."""
        return False

    async def offer_form(self, form: Form, words: tuple[str, ...]) -> None:
        """Show a button that opens a form. Raises DeliveryFailed."""
        action = self._pending.store(OpenForm(form), self._about, self._user)
        await self.finish(form_offer(form, action, begun=not words))

    async def tell(self, text: str) -> None:
        """Post a sentence. Raises DeliveryFailed."""
        await post_notice(self._rest, self._channel, text)

    async def share(self, file: ReplyFile, *, private: bool) -> None:  # noqa: ARG002 - the conversation is private
        """Post a file. Raises DeliveryFailed."""
        await self._post(file=FileUpload(file.name, file.text.encode()).to_file())

    async def start_thread(self, message: InboundMessage) -> str:
        """Start a public thread. Raises DeliveryFailed."""
        return await start_thread(self._rest, message)

    async def _show(self, reply: CommandReply) -> None:
        if reply == self._shown:
            return
        if self._message:
            view = self._view(reply)
            async with self._rest.request(gettext_lazy("edit a message")) as client:
                channel = client.get_partial_messageable(int(self._channel))
                await channel.get_partial_message(int(self._message)).edit(view=view, allowed_mentions=_NOBODY)
        else:
            await self._begin(lambda: self._view(reply))
        self._shown = reply

    async def send(self, view: discord.ui.LayoutView) -> None:
        """Send a message with buttons of its own. Raises DeliveryFailed."""
        await self._begin(lambda: view)

    async def _begin(self, view: Callable[[], discord.ui.LayoutView]) -> None:
        """Send the first message. `view` is called when its channel is known."""
        channel = channel_id_of(self._about)
        try:
            self._channel = await direct_channel(self._rest, self._user)
            posted = await self._post(view=view())
        except DiscordApiError as error:
            if error.permanent and self._channel != channel:
                await post_notice(self._rest, channel, NOT_SENT, answering=self._answering)
            raise
        self._message = str(posted.id)
        if self._channel != channel and self._answering:
            await post_notice(self._rest, channel, SENT_DIRECTLY, answering=self._answering)

    def _view(self, reply: CommandReply) -> discord.ui.LayoutView:
        here = self._channel == channel_id_of(self._about)
        return layout(reply, ActionEncoder(self._pending, self._user, self._about, here=here))

    async def _post(self, **content: Any) -> discord.Message:
        async with self._rest.request(gettext_lazy("post a message")) as client:
            channel = client.get_partial_messageable(int(self._channel))
            return await channel.send(nonce=_new_nonce(), allowed_mentions=_NOBODY, **content)


class ChannelResponder:
    """Responder to an interaction; falls back to `instead` if Discord no longer accepts responses."""

    is_awaited = True

    def __init__(
        self,
        response: InteractionResponse,
        encoder: ActionEncoder,
        instead: DirectMessageResponder,
    ) -> None:
        self._response = response
        self._encoder = encoder
        self._instead = instead
        self._last = float("-inf")
        self._shown: CommandReply | None = None
        self._is_expired = False
        self._is_dismissed = False

    async def progress(self, reply: Message) -> None:
        """Show a reply that another one follows, unless the previous one is too recent."""
        if monotonic() - self._last < APART_SECONDS:
            return
        try:
            await self._show(command_reply(reply))
        except DeliveryFailed as error:
            log.info("progress of a command not shown: %s", error)

    async def finish(self, reply: Message) -> bool:
        """Show the last reply. Return False if something is omitted. Raises DeliveryFailed if both ways fail."""
        composed = command_reply(reply)
        try:
            await self._show(composed)
        except DeliveryFailed as error:
            self._is_dismissed = isinstance(error, DiscordApiError) and error.code == UNKNOWN_MESSAGE
            if not self._is_dismissed:
                log.info("reply not shown under its command: %s", error)
                self._is_expired = True
                await self._instead.finish(reply)
        return composed.is_whole

    async def open_form(self, form: Form) -> bool:
        """Open a form as the first response, if all of its text fits."""
        custom_id = to_custom_id(self._encoder.encode(OpenForm(form)))
        return fits_in_modal(form) and await self._response.open(form_modal(form, custom_id))

    async def offer_form(self, form: Form, words: tuple[str, ...]) -> None:
        """Show a button that opens a form. Raises DeliveryFailed if both ways fail."""
        await self.finish(form_offer(form, self._encoder.store(OpenForm(form)), begun=not words))

    async def tell(self, text: str) -> None:
        """Show a sentence below the reply. Raises DeliveryFailed."""
        await (self._instead.tell(text) if self._is_expired else self._response.tell(text))

    async def share(self, file: ReplyFile, *, private: bool) -> None:
        """Send a file, unless the user has dismissed the reply. Raises DeliveryFailed."""
        if self._is_expired:
            await self._instead.share(file, private=private)
        elif not self._is_dismissed:
            await self._response.send_file(file)

    async def start_thread(self, message: InboundMessage) -> str:
        """Start a public thread. Raises DeliveryFailed."""
        return await self._instead.start_thread(message)

    async def _show(self, reply: CommandReply) -> None:
        if reply == self._shown:
            return
        await self._response.show(layout(reply, self._encoder))
        self._shown = reply
        self._last = monotonic()


async def start_thread(rest: Rest, message: InboundMessage) -> str:
    """Start a public thread about a message to the engine, and return its id; empty if none can be opened. Raises
    DeliveryFailed.
    """
    channel_id = message.conversation.channel
    async with rest.request(gettext_lazy("look at the channel")) as client:
        channel = await client.fetch_channel(int(channel_id))
    if not isinstance(channel, discord.TextChannel):
        return ""
    async with rest.request(gettext_lazy("post a message")) as client:
        view = note_layout(thread_title(message))
        posted = await client.get_partial_messageable(int(channel_id)).send(
            view=view, nonce=_new_nonce(), allowed_mentions=_NOBODY
        )
    return await open_thread(rest, channel_id, str(posted.id), message.text)


Interaction = discord.Interaction[Any]

CALL_SECONDS = 20.0
_NOBODY = discord.AllowedMentions.none()


class InteractionResponse:
    """Response to an unacknowledged interaction."""

    def __init__(self, rest: Rest, interaction: Interaction) -> None:
        self.interaction = interaction
        self._rest = rest
        self._turn = asyncio.Lock()
        flags = interaction.message.flags if interaction.message is not None else discord.MessageFlags()
        self.replaces = flags.components_v2 and (flags.ephemeral or interaction.guild_id is None)
        """True if the response replaces the message with the button, which only this user sees."""

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

    async def acknowledge(self) -> None:
        """Acknowledge now. Without a message to replace the user sees that a response is to come."""
        async with self._turn:
            if not self.interaction.response.is_done():
                async with call_limit(gettext_lazy("acknowledge an interaction")):
                    await self.interaction.response.defer(ephemeral=True, thinking=self.interaction.message is None)

    async def show(self, view: discord.ui.LayoutView) -> None:
        """Show a response in place of the previous one. Raises DeliveryFailed."""
        response = self.interaction.response
        async with self._turn:
            if response.is_done():
                # By the interaction's token over REST, which also works after the gateway was closed.
                await self._rest.call(
                    "PATCH",
                    "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
                    gettext_lazy("answer a command"),
                    body=message_body(view),
                    webhook_id=str(self.interaction.application_id),
                    webhook_token=self.interaction.token,
                )
                return
            async with call_limit(gettext_lazy("answer a command")):
                if self.replaces:
                    await response.edit_message(view=view, allowed_mentions=_NOBODY)
                else:
                    await response.send_message(view=view, ephemeral=True, allowed_mentions=_NOBODY)

    async def tell(self, text: str) -> None:
        """Show a plain sentence below the current response, if any. Raises DeliveryFailed."""
        response = self.interaction.response
        if response.is_done() and response.type is not discord.InteractionResponseType.deferred_channel_message:
            await follow_up(self._rest, self.interaction, truncate(escape(text), LONGEST))
            return
        self.replaces = False
        await self.show(note_layout(text))

    async def open(self, modal: discord.ui.Modal) -> bool:
        """Open a modal. Return False if a response was sent already or Discord rejects the modal."""
        async with self._turn:
            # A submission cannot be answered by a modal.
            is_form = self.interaction.type is discord.InteractionType.modal_submit
            if is_form or self.interaction.response.is_done():
                return False
            try:
                async with call_limit(gettext_lazy("open a form")):
                    await self.interaction.response.send_modal(modal)
            except DeliveryFailed as error:
                log.warning("form not opened: %s", error)
                return False
            return True

    async def send_file(self, document: ReplyFile) -> None:
        """Send a file. Raises DeliveryFailed."""
        file = FileUpload(document.name, document.text.encode())
        await follow_up(self._rest, self.interaction, files=[file])

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with self._turn:
            if self.interaction.response.is_done():
                return
            try:
                async with call_limit(gettext_lazy("acknowledge a command")):
                    await self.interaction.response.defer(ephemeral=True, thinking=not self.replaces)
            except DeliveryFailed as error:
                log.warning("interaction not acknowledged: %s", error)


@asynccontextmanager
async def call_limit(what: str) -> AsyncIterator[None]:
    """Call the library's response methods within a time limit, with mapped errors."""
    with map_errors(what):
        async with asyncio.timeout(CALL_SECONDS):
            yield

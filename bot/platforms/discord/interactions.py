"""Handlers of clicks, commands, submitted modals and the context menu entry "Ask about this".

A modal must be the first response to an interaction, within three seconds. A command starts at once, and the response
is deferred only after PATIENCE_SECONDS, so that a form that is ready by then opens by itself. A later form, and the
next step of a form, is a button that opens it, because Discord opens no modal after a modal.

An interaction contains the user's current roles. Rights count per guild: a click only acts on items of its own guild,
and a click in a direct conversation acts with the user's rights in the guild of the item.

A user can install the app and use it where the bot is not: in other servers, and between people. Such a use is
one in the direct conversation with the bot, and the rights in that server count for nothing. All its replies are
ephemeral, by the interaction alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import discord

from bot.chat.actions import (
    ActionEncoder,
    InteractionRejected,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingActions,
    encode,
)
from bot.chat.approval_inbox import is_inbox_command
from bot.chat.call_messages import PartLimits, join_parts, whole_call
from bot.chat.command_runner import CommandRunner
from bot.chat.interactions import ELSEWHERE, Actor, InteractionHandler, ModalAction
from bot.chat.message_handler import ThreadMessage
from bot.chat.message_model import Block, Buttons, Message, Paragraph, Text
from bot.chat.users import RecentEntries, resolve_mentions, resolve_reply_mentions
from bot.domain.approvals import WHOLE, Portion
from bot.domain.commands import Invocation
from bot.domain.conversations import Author, ConversationKey
from bot.domain.locales import Locale, language_tag, use_locale
from bot.domain.turns import ToolStep
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.components import (
    PREFIX,
    Item,
    button_view,
    decode,
    decode_choice,
    layout_view,
    menu,
    to_custom_id,
)
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.message_layout import button_components, content_text, outgoing_message
from bot.platforms.discord.messages import DiscordMessage, PlatformContext, to_thread_message
from bot.platforms.discord.modals import (
    QUESTION,
    asked_about,
    confirm_modal,
    deny_modal,
    form_modal,
    question_modal,
    read_values,
)
from bot.platforms.discord.responders import (
    ChannelResponder,
    DirectMessageResponder,
    InteractionResponse,
    call_limit,
    follow_up,
    post_notice,
)
from bot.platforms.discord.rest import (
    PLATFORM,
    FileUpload,
    MessageRef,
    channel_id_of,
    conversation,
    from_channel,
    map_errors,
    message_url,
    open_thread,
)
from bot.platforms.discord.users import place_locale
from bot.ports import Commands

log = logging.getLogger(__name__)

Interaction = discord.Interaction[Any]

PATIENCE_SECONDS = 1.8
"""Seconds until the response is deferred. Discord waits for three; the rest is for the network."""
NOT_SERVED = gettext_lazy("I do not work on this server.")
MOST_MESSAGES = 4
IN_THE_FILE = gettext_lazy("All of its arguments are in the file.")
FILE = "arguments.txt"
ALLOW = gettext_lazy("Approve and allow…")
MOST_QUESTIONED = 500
"""Messages with an open question, which are cached."""

# -------------------- call details
# Arguments that exceed a few messages are a file. The last message has the buttons of a pending call.


def _weigh(block: Block) -> int:
    return utf16_length(content_text((block,))) + 1


CALL_LIMITS = PartLimits(_weigh, piece=1_600, page=1_900, weighs_pieces=True)


def call_messages(step: ToolStep, *, whole: bool) -> Iterator[tuple[str, Sequence[Item], Sequence[FileUpload]]]:
    """Yield the messages of a call, with their buttons and files; if `whole` is True, with the parts that look like a
    secret. None for a call without an approval.
    """
    call = whole_call(step, CALL_LIMITS, whole=whole)
    if call is None:
        return
    pages = join_parts((call.title, *call.arguments, call.ending), CALL_LIMITS)
    files: list[FileUpload] = []
    if len(pages) > MOST_MESSAGES:
        pages = join_parts((call.title, (Paragraph((Text(str(IN_THE_FILE)),)),), call.ending), CALL_LIMITS)
        files = [FileUpload(FILE, call.text.encode())]
    *before, last = map(content_text, pages)
    for content in before:
        yield content, (), ()
    yield last, [component for block in call.buttons for component in _buttons(step, block)], files


def _buttons(step: ToolStep, block: Block) -> Iterator[Item]:
    if isinstance(block, Buttons) and step.approval is not None:
        yield from button_components(block)
        yield from menu(step.approval.id, ALLOW, ((entry.label, entry.hint, entry.action) for entry in block.more))


# -------------------- interactions


class DiscordInteractions:
    """Dispatches clicks, commands and submitted modals to the handler of interactions. `pending` are the actions of all
    shards of this process: a button of a guild may be pressed in a direct conversation, in another shard.
    """

    def __init__(self, platform: PlatformContext, pending: PendingActions) -> None:
        self._platform = platform
        self._pending = pending
        self._questioned = RecentEntries[MessageRef, ThreadMessage](MOST_QUESTIONED)
        self._commands = CommandRunner(
            platform.commands,
            platform.engine,
            lambda where, reply: resolve_reply_mentions(platform.people.names(where.workspace), reply),
            platform.records.locales,
        )
        self._handler = InteractionHandler(
            platform,
            platform=PLATFORM,
            commands=self._commands,
            pending=self._pending,
        )

    @property
    def commands(self) -> Commands:
        """The commands."""
        return self._platform.commands

    def on_action(self, interaction: Interaction, custom_id: str) -> None:
        """Handle a click on a button or a selected menu entry."""
        data: Mapping[str, Any] = interaction.data or {}
        action = decode_choice(custom_id, [str(value) for value in data.get("values") or ()])
        self._handler.on_action(action, self._wrap(interaction))

    def on_modal(self, interaction: Interaction) -> None:
        """Handle the submission of a modal."""
        data: Mapping[str, Any] = interaction.data or {}
        custom_id, values = str(data.get("custom_id") or ""), read_values(data)
        if (about := asked_about(custom_id)) is not None:
            question = DiscordQuestion(self._platform, self._questioned.get(about), about, interaction)
            self._handler.on_question(question, self._wrap(interaction))
        elif custom_id.startswith(f"{PREFIX}:"):
            self._handler.on_modal(decode(custom_id), values, self._wrap(interaction))

    async def on_slash_command(self, interaction: Interaction, words: tuple[str, ...]) -> None:
        """Handle a slash command in a task of its own."""
        self._handler.on_command(words, self._wrap(interaction))

    async def on_shortcut(self, interaction: Interaction, message: discord.Message) -> None:
        """Open the modal for a question about a message. The interaction contains the message, also without the Message
        Content intent, so it is cached until the question is submitted; a process without it loads the message.
        """
        about = MessageRef(str(message.channel.id), str(message.id))
        read = to_thread_message(message, (await self._platform.rest.identity()).user, interaction.guild)
        if read is not None:
            self._questioned[about] = read
        async with call_limit(gettext_lazy("open a form")):
            with use_locale(Locale(language_tag(interaction.locale.value) or "")):
                await interaction.response.send_modal(question_modal(about))

    async def on_text_command(self, command: Invocation, message: DiscordMessage) -> None:
        """Answer a command in a message by direct message, because replies are visible to one user only. Raises
        DeliveryFailed.
        """
        user, conversation = command.member.author.id, command.conversation
        responder = DirectMessageResponder(self._platform.rest, self._pending, user, conversation, message.id)
        if is_inbox_command((command.command, *command.words)):
            inbox = await self._handler.inbox(Actor(command.member, conversation), 1)
            await responder.send(layout_view(outgoing_message(inbox).items))
        else:
            place = place_locale(message.guild)
            await self._commands.run_typed(command, responder, direct=message.direct, place=place)

    async def tell(self, interaction: Interaction, text: str) -> None:
        """Tell the user of a command that it failed. Raises DeliveryFailed."""
        wrapped = self._wrap(interaction)
        with use_locale(await self._handler.locale_of(wrapped)):
            await wrapped.tell(text)

    async def conversation_for_completion(self, interaction: Interaction) -> ConversationKey | None:
        """Return the conversation in which an option is completed; None if the bot does not answer the user. Raises
        DeliveryFailed.
        """
        where = await conversation_of(self._platform, interaction)
        if where is None or not self._platform.people.serves(where.workspace):
            return None
        member = await self._platform.cached_member(interaction.user, where.workspace)
        return None if self._platform.audience.rejection(member) else where

    def _wrap(self, interaction: Interaction) -> DiscordInteraction:
        return DiscordInteraction(self._platform, self._pending, interaction)


def is_outside(interaction: Interaction) -> bool:
    """Return True if a user has used the app where the bot is not: in a server without it, or between people."""
    if interaction.guild_id is None:
        return interaction.context.private_channel
    return not interaction.is_guild_integration() and interaction.client.get_guild(interaction.guild_id) is None


async def conversation_of(platform: PlatformContext, interaction: Interaction) -> ConversationKey | None:
    """Return the conversation that an interaction belongs to; None for a channel without one. Raises DeliveryFailed."""
    if is_outside(interaction):
        return await platform.direct_conversation(str(interaction.user.id))
    channel_ref = from_channel(interaction.channel)
    return None if channel_ref is None else await platform.conversation_in(channel_ref, str(interaction.user.id))


class DiscordInteraction:
    """An interaction. Rights count per guild: in a direct conversation, those in the guild of the item."""

    def __init__(self, platform: PlatformContext, pending: PendingActions, interaction: Interaction) -> None:
        self._platform = platform
        self._pending = pending
        self._interaction = interaction
        self._response = InteractionResponse(platform.rest, interaction)
        self._guild = "" if is_outside(interaction) else str(interaction.guild_id or "")

    @property
    def user(self) -> str:
        """Id of the user."""
        return str(self._interaction.user.id)

    def responding(self) -> AbstractAsyncContextManager[None]:
        """Defer the response after PATIENCE_SECONDS unless one was sent."""
        return self._response.defer_after(PATIENCE_SECONDS)

    async def acknowledge(self) -> None:
        """Acknowledge the interaction before any other request."""
        await self._response.acknowledge()

    async def find_viewer(self) -> tuple[Locale, ConversationKey | None, Locale]:
        """Return the language of the client, the conversation, and the locale of the guild."""
        channel, guild = from_channel(self._interaction.channel), self._interaction.guild
        where = None
        if channel is not None and not channel.direct and not is_outside(self._interaction):
            where = conversation(channel.server, channel.channel, channel.thread)
        language = language_tag(self._interaction.locale.value) or ""
        self._remember(language)
        return Locale(language), where, place_locale(guild)

    def _remember(self, language: str) -> None:
        """Remember the language of the client, which only interactions tell."""
        if not language or self._platform.people.locale(self.user).language == language:
            return
        self._platform.people.remember_language(self.user, language)
        remembering = self._platform.records.locales.remember(Author(PLATFORM, self.user, ""), language)
        self._platform.background_tasks.start(remembering, "discord: language")

    async def find_actor(self, about: ConversationKey | None) -> Actor:
        """Return the member of the item's guild. Raises InteractionRejected and DeliveryFailed."""
        platform = self._platform
        is_direct = about is None and not self._guild
        if about is None:
            about = await conversation_of(platform, self._interaction)
        if about is None:
            raise InteractionRejected(NOT_SERVED)
        of_platform, _colon, guild = about.workspace_key.partition(":")
        if guild and not platform.people.serves(guild):
            raise InteractionRejected(NOT_SERVED)
        if of_platform != PLATFORM or self._guild not in ("", guild):
            raise InteractionRejected(ELSEWHERE)
        member = await platform.member(self._interaction.user, guild)
        return Actor(member, about, direct=is_direct, place=place_locale(self._interaction.guild))

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:
        """Send an ephemeral sentence."""
        if about is not None:
            text = await resolve_mentions(self._platform.people.names(about.workspace_key.partition(":")[2]), text)
        await self._response.tell(text)

    async def show(self, message: Message) -> None:
        """Send an ephemeral layout."""
        view = layout_view(outgoing_message(message).items)
        await follow_up(self._platform.rest, self._interaction, view=view)

    async def show_in_place(self, message: Message) -> None:
        """Show an ephemeral layout in place of the one with the button, if any."""
        await self._response.show(layout_view(outgoing_message(message).items))

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:
        """Open a modal as the first response. Its id carries the action, or a token of it."""
        if about is not None:
            custom_id = to_custom_id(encode(self._pending.store(action, about, self.user)))
        elif isinstance(action, OpenForm):
            return False
        else:
            custom_id = to_custom_id(encode(action))
        match action:
            case OpenDenyForm():
                modal = deny_modal(custom_id)
            case OpenConfirmation():
                modal = confirm_modal(action, custom_id)
            case OpenForm(form):
                modal = form_modal(form, custom_id)
        return await self._response.open(modal)

    def responder(self, actor: Actor, *, in_new_message: bool) -> ChannelResponder:
        """Return the responder to a command."""
        if in_new_message:
            self._response.replaces = False  # a card must not be replaced
        about, channel_ref = actor.conversation, from_channel(self._interaction.channel)
        outside = is_outside(self._interaction)
        here = (
            channel_ref is not None
            and not outside
            and (channel_ref.channel, channel_ref.thread) == (about.channel, about.thread)
        )
        return ChannelResponder(
            self._response,
            ActionEncoder(self._pending, self.user, about, here=here),
            DirectMessageResponder(self._platform.rest, self._pending, self.user, about),
        )

    def portion_of(self, step: ToolStep, page: int) -> Portion:  # noqa: ARG002 - a call is shown on one page
        """Return the whole call."""
        return WHOLE

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:  # noqa: ARG002 - as above
        """Send the ephemeral messages of a call."""
        for content, buttons, files in call_messages(step, whole=whole):
            view = button_view(buttons) if buttons else None
            await follow_up(self._platform.rest, self._interaction, content, view=view, files=files)

    async def update_call(self, approval_id: str) -> None:
        """Leave the ephemeral messages of a call."""


# -------------------- questions about a message


class DiscordQuestion:
    """A question about a message, which is loaded unless it is cached. One about a message where the bot is not is
    answered in the direct conversation with the user.
    """

    def __init__(
        self, platform: PlatformContext, cached: ThreadMessage | None, about: MessageRef, interaction: Interaction
    ) -> None:
        self._platform = platform
        self._cached = cached
        self._about = about
        self._interaction = interaction
        self.is_answered_directly = is_outside(interaction)
        self.id = str(interaction.id)
        self.text = read_values(interaction.data or {}).get(QUESTION, "").strip()

    async def open_conversation(self, actor: Actor, announcement: str) -> ConversationKey:
        """Return the thread at the message, or its channel if the bot cannot open a thread. Post the announcement
        there, with a link if the message is elsewhere. Raises DeliveryFailed.
        """
        where = await self._find_conversation(actor)
        link = message_url(str(self._interaction.guild_id or ""), self._about) if self.is_answered_directly else ""
        await post_notice(self._platform.rest, channel_id_of(where), announcement, link=link, once=self.id)
        return where

    async def read_message(self) -> tuple[str, str] | None:
        """Return the name of the author and the text, or None if it cannot be read. Raises DeliveryFailed."""
        message = self._cached
        if message is None and self.is_answered_directly:
            return None
        if message is None:
            client = await self._platform.rest.client()
            with map_errors(gettext_lazy("read the message that was asked about")):
                channel = client.get_partial_messageable(int(self._about.channel))
                loaded = await channel.fetch_message(int(self._about.message))
            message = to_thread_message(loaded, (await self._platform.rest.identity()).user, None)
        return None if message is None else message.entry

    async def _find_conversation(self, actor: Actor) -> ConversationKey:
        if self.is_answered_directly and self.text:
            return actor.conversation
        channel_ref = from_channel(self._interaction.channel)
        if channel_ref is None or channel_ref.place != self._about.channel or not self.text:
            raise DeliveryFailed(gettext_lazy("The question came without what it is about."), permanent=True)
        if not channel_ref.opens_threads:
            return actor.conversation
        thread = await open_thread(self._platform.rest, channel_ref.channel, self._about.message, self.text)
        return conversation(actor.conversation.workspace, actor.conversation.channel, thread)

"""Handlers of clicks, submitted modals and the context menu entry "Ask about this".

An interaction contains the user's current roles. Rights count per guild: a click only acts on items of its own guild,
and a click in a direct conversation acts with the user's rights in the guild of the item.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from textwrap import indent
from typing import Any

import discord
from discord import app_commands

from bot.chat.actions import (
    Action,
    ApprovalRef,
    ApproveWithGrant,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
)
from bot.chat.card_messages import NAME, call_facts, decision_buttons
from bot.chat.interactions import ActionHandler, Actor
from bot.chat.message_model import Message
from bot.chat.rejection_messages import BUTTON_EXPIRED
from bot.chat.thread_context import UNREAD, ThreadMessage, format_lines
from bot.domain.approvals import WHOLE, Portion
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import StepStatus, ToolStep
from bot.errors import DeliveryFailed
from bot.platforms.discord.channels import (
    PLATFORM,
    ChannelRef,
    MessageRef,
    channel_id_of,
    conversation,
    from_channel,
    message_key,
    open_thread,
)
from bot.platforms.discord.command_replies import V2
from bot.platforms.discord.components import Component, ResumePending, chosen, decode, menu
from bot.platforms.discord.context import CommandHandler, PlatformContext
from bot.platforms.discord.markdown import code_block
from bot.platforms.discord.markup import escape, escape_to_limit, truncate, utf16_length
from bot.platforms.discord.message_layout import button_components, outgoing_message, spans_text
from bot.platforms.discord.messages import to_thread_message
from bot.platforms.discord.modals import (
    QUESTION,
    REASON,
    AskAboutMessage,
    DenyForm,
    deny_modal,
    question_modal,
    read_modal,
    read_values,
)
from bot.platforms.discord.responders import (
    EPHEMERAL,
    NOBODY,
    SUPPRESS_EMBEDS,
    call_limit,
    follow_up,
    post_notice,
    send_ephemeral,
)
from bot.platforms.discord.rest import FileUpload, map_errors
from bot.platforms.discord.users import resolve_mentions
from bot.rendering.approval_card import (
    ApprovalCard,
    approval_card,
    grant_offers,
    headline,
    warning_lines,
    whole_card,
    withheld_text,
)
from bot.rendering.call_arguments import CardArgument

log = logging.getLogger(__name__)

Interaction = discord.Interaction[Any]

PIECE = 1_600
"""Characters of one value in one message, with its escapes."""
MESSAGE = 1_900
MOST_MESSAGES = 4
NO_ARGUMENTS = "This call has no arguments."
IN_THE_FILE = "All of its arguments are in the file."
NAME_IN_FULL = "The name in full:"
FILE = "arguments.txt"
INDENT = "    "
ALLOW = "Approve and allow…"
ASK_ABOUT_THIS = "Ask about this"
KEPT = 500
ASKED = "Asked."

# -------------------- call details
# Arguments that exceed a few messages are a file. The last message has the buttons of a pending call.


@dataclass(frozen=True, slots=True)
class CallDetails:
    """One message of a call."""

    content: str
    components: tuple[Component, ...] = ()
    file: FileUpload | None = None


def call_messages(step: ToolStep) -> tuple[CallDetails, ...]:
    """Return the messages of a call, redacted; empty for a call without an approval."""
    return _messages(step, approval_card(step))


def whole_call_messages(step: ToolStep) -> tuple[CallDetails, ...]:
    """Return the messages of a call for an approver, with the parts that look like a secret."""
    return _messages(step, whole_card(step))


def _messages(step: ToolStep, card: ApprovalCard | None) -> tuple[CallDetails, ...]:
    if card is None:
        return ()
    title = f"**{escape(headline(step, card))}**\n{spans_text(call_facts(card).spans)}"
    outcome = [escape(each) for each in (card.outcome, withheld_text(card)) if each]
    arguments = [piece for argument in card.arguments for piece in _pieces(argument)]
    contents = _joined([title, *(arguments or [NO_ARGUMENTS]), *outcome])
    file: FileUpload | None = None
    if len(contents) > MOST_MESSAGES:
        contents, file = _joined([title, IN_THE_FILE, *outcome]), FileUpload(FILE, _text(card).encode())
    *before, last = contents
    return (*map(CallDetails, before), CallDetails(last, tuple(_buttons(step, card)), file))


def _buttons(step: ToolStep, card: ApprovalCard) -> list[Component]:
    if step.status is not StepStatus.AWAITING:
        return []
    ref = ApprovalRef(card.approval_id, card.revision)
    offers = [(offer.label, offer.hint, ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)]
    allowing = menu(card.approval_id, ALLOW, offers) if not card.withheld else []
    return [*button_components(decision_buttons(step, card)), *allowing]


def _pieces(argument: CardArgument) -> list[str]:
    """Split one argument into messages; each begins with its name."""
    blocks = list(_blocks(argument.full))
    name, long_name = f"**{escape(argument.name)}**", list[str]()
    if utf16_length(name) > NAME:
        name, long_name = (
            f"**{escape_to_limit(argument.name, NAME)}**",
            [f"{NAME_IN_FULL}\n{each}" for each in _blocks(argument.name)],
        )
    many = len(blocks) > 1
    pieces = [
        f"{name}{f' ({number} of {len(blocks)})' if many else ''}\n{block}" for number, block in enumerate(blocks, 1)
    ]
    return [*long_name, *pieces, *(escape(truncate(line, PIECE // 2)) for line in warning_lines(argument))]


def _blocks(value: str) -> Iterator[str]:
    """Split a value into code blocks, at least one."""
    start = 0
    while True:
        end = min(start + PIECE, len(value))
        while utf16_length(block := code_block(value[start:end])) > PIECE and end - start > 1:
            end = start + (end - start) * 2 // 3
        yield block
        start = end
        if start >= len(value):
            return


def _joined(pieces: list[str]) -> list[str]:
    """Join the pieces that fit into one message."""
    made = [pieces[0]]
    for piece in pieces[1:]:
        if utf16_length(made[-1]) + utf16_length(piece) < MESSAGE:
            made[-1] += f"\n{piece}"
        else:
            made.append(piece)
    return made


def _text(card: ApprovalCard) -> str:
    """Return the text of a call. Values are indented, so that no line imitates another argument's name or a warning."""
    arguments = (
        "\n".join((f"{argument.name}:", indent(argument.full, INDENT, lambda _: True), *warning_lines(argument)))
        for argument in card.arguments
    )
    return "\n\n".join(arguments) + "\n"


# -------------------- clicks and modals


class InteractionHandler:
    """Handles buttons and modals. `answering` handles those of commands, `gestures` questions about messages."""

    def __init__(self, platform: PlatformContext, answering: CommandHandler, gestures: ShortcutHandler) -> None:
        self._platform = platform
        self._answering = answering
        self._gestures = gestures
        self._actions = ActionHandler(platform.engine, platform.records, platform.audience, platform.background_tasks)

    def on_action(self, interaction: Interaction, custom_id: str) -> None:
        """Handle a click on a button or a selected menu entry."""
        data: Mapping[str, Any] = interaction.data or {}
        press = chosen(custom_id, [str(each) for each in data.get("values") or ()])
        self._begin(self._press(interaction, press), interaction, "press")

    def on_modal(self, interaction: Interaction) -> None:
        """Handle the submission of a modal."""
        data: Mapping[str, Any] = interaction.data or {}
        custom_id = str(data.get("custom_id") or "")
        match read_modal(custom_id), decode(custom_id):
            case DenyForm(card), _:
                reason = read_values(data).get(REASON, "").strip()
                self._begin(self._actions.deny(card, reason, self._click(interaction)), interaction, "denial")
            case AskAboutMessage(about), _:
                self._begin(self._gestures.asked(about, interaction), interaction, "question")
            case None, ResumePending() as redeem:
                self._begin(self._answering.pressed(redeem, interaction), interaction, "form")
            case _:
                return  # somebody else's

    def _begin(self, errand: Coroutine[Any, Any, None], interaction: Interaction, name: str) -> None:
        """Start a task; the user is notified if it fails. If no task starts, Discord notifies the user."""
        self._actions.start(
            errand, str(interaction.user.id), f"discord: {name}", partial(self._answering.failed, interaction)
        )

    async def _press(self, interaction: Interaction, press: Action | ResumePending | None) -> None:
        match press:
            case ResumePending():
                await self._answering.pressed(press, interaction)
            case None:  # of another release
                click = self._click(interaction)
                await click.acknowledge()
                await click.tell(BUTTON_EXPIRED)
            case _:
                await self._actions.handle(press, self._click(interaction))

    def _click(self, interaction: Interaction) -> DiscordClick:
        return DiscordClick(self._platform, self._answering, interaction)


class DiscordClick:
    """A click on a button, or the submission of a deny form. Rights count per guild: in a direct conversation, those in
    the guild of the item.
    """

    def __init__(self, platform: PlatformContext, answering: CommandHandler, interaction: Interaction) -> None:
        self._platform = platform
        self._answering = answering
        self._interaction = interaction

    async def acknowledge(self) -> None:
        """Acknowledge the interaction within three seconds, before any other request."""
        async with call_limit("acknowledge a press"):
            await self._interaction.response.defer()

    async def find_actor(self, about: ConversationKey | None) -> Actor | None:
        """Return the member of the item's guild. Raises DeliveryFailed."""
        spot = from_channel(self._interaction.channel)
        if spot is None:
            raise DeliveryFailed("Discord does not say where that was pressed.", permanent=True)
        where = about or await self._platform.where(spot, str(self._interaction.user.id))
        if where.platform != PLATFORM or spot.server not in ("", where.workspace):
            return None
        return Actor(await self._platform.member(self._interaction.user, where.workspace), where)

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:
        """Send an ephemeral sentence."""
        if about is not None:
            text = await resolve_mentions(self._platform.people, about.workspace, text)
        await send_ephemeral(self._platform.rest, self._interaction, text)

    async def show(self, message: Message) -> None:
        """Send an ephemeral layout."""
        layout = list(outgoing_message(message).components)
        body = {"components": layout, "allowed_mentions": NOBODY, "flags": EPHEMERAL | V2}
        await follow_up(self._platform.rest, self._interaction, body)

    async def open_form(self, action: OpenDenyForm | OpenConfirmation) -> None:
        """Open the modal for the reason of a denial. A command is confirmed by a pending action instead."""
        match action:
            case OpenDenyForm(card):
                async with call_limit("open a form"):
                    await self._interaction.response.send_modal(deny_modal(card))
            case OpenConfirmation():  # never written into a button of Discord's
                await self.acknowledge()
                await self.tell(BUTTON_EXPIRED)

    async def run_command(self, action: RunCommand | RunCommandInNewReply | Edit) -> None:
        """Answer a command."""
        await self._answering.pressed(action, self._interaction)

    def portion_of(self, step: ToolStep, page: int) -> Portion:  # noqa: ARG002 - a call is shown on one page
        """Return the whole call."""
        return WHOLE

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:  # noqa: ARG002 - as above
        """Send the ephemeral messages of a call."""
        for shown in whole_call_messages(step) if whole else call_messages(step):
            body = {
                "content": shown.content,
                "components": list(shown.components),
                "allowed_mentions": NOBODY,
                "flags": EPHEMERAL | SUPPRESS_EMBEDS,
            }
            files = [shown.file] if shown.file is not None else ()
            await follow_up(self._platform.rest, self._interaction, body, files)

    async def update_call(self, approval_id: str) -> None:
        """Leave the ephemeral messages of a call."""


# -------------------- context menu
# The interaction contains the message, also without the Message Content intent. It is cached until the question is
# submitted; a process without it loads the message.


class ShortcutHandler:
    """Takes questions about messages."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._kept: OrderedDict[MessageRef, ThreadMessage] = OrderedDict()

    def add_to(self, tree: app_commands.CommandTree[Any]) -> None:
        """Add the entry to a client's commands before their registration."""
        tree.add_command(
            app_commands.ContextMenu(
                name=ASK_ABOUT_THIS,
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
                context=(UNREAD,) if line is None else format_lines([line.entry]),
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

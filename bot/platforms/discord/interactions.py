"""Handlers of clicks, submitted modals and the context menu entry "Ask about this".

An interaction is acknowledged at once and handled afterwards. It contains the user's current roles, and the engine
checks their rights; the content of a button is not trusted. Rights count per guild: a click only acts on items of its
own guild, and a click in a direct conversation acts with the user's rights in the guild of the item. A rejection is an
ephemeral message. Delivery edits the cards.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Any, assert_never

import discord
from discord import app_commands

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
)
from bot.chat.card_messages import NAME, call_facts, decision_buttons
from bot.chat.decisions import (
    approve_with_grant,
    decide,
    find_approval_step,
    open_whole,
    run_turn_action,
    save_feedback,
)
from bot.chat.messages import format_lines
from bot.chat.rejection_messages import BUTTON_EXPIRED, GONE, OUT_OF_DATE, TOO_MANY_REQUESTS, error_message
from bot.domain.approvals import DecisionType
from bot.domain.conversations import ConversationKey, InboundMessage, Member
from bot.domain.turns import StepStatus, ToolStep
from bot.errors import CountersignError, DeliveryFailed, NotFound
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
from bot.platforms.discord.components import Component, ResumePending, chosen, decode, menu
from bot.platforms.discord.context import CommandHandler, PlatformContext
from bot.platforms.discord.markdown import code_block
from bot.platforms.discord.markup import escape, escape_to_limit, truncate, utf16_length
from bot.platforms.discord.message_layout import button_components, spans_text
from bot.platforms.discord.messages import UNREAD, ThreadMessage, to_thread_message
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
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction

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
NO_OUTSIDERS = "Only members of this server may see that."
ELSEWHERE = "That belongs to another server."
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
        self._engine = platform.engine
        self._answering = answering
        self._gestures = gestures

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
                self._begin(self._deny(card, interaction), interaction, "denial")
            case AskAboutMessage(about), _:
                self._begin(self._gestures.asked(about, interaction), interaction, "question")
            case None, ResumePending() as redeem:
                self._begin(self._answering.pressed(redeem, interaction), interaction, "form")
            case _:
                return  # somebody else's

    def _begin(self, errand: Coroutine[Any, Any, None], interaction: Interaction, name: str) -> None:
        """Start a task; the user is notified if it fails. If no task starts, Discord notifies the user."""
        told = self._run_reporting_errors(errand, interaction)
        if not self._platform.background_tasks.start_for(
            str(interaction.user.id),
            told,
            f"discord: {name}",
            lambda: self._answering.failed(interaction, TOO_MANY_REQUESTS),
        ):
            errand.close()

    async def _run_reporting_errors(self, errand: Coroutine[Any, Any, None], interaction: Interaction) -> None:
        try:
            await errand
        except (CountersignError, TimeoutError) as error:
            log.warning("interaction from Discord failed: %s", error)
            await self._whisper(interaction, error_message(error))

    async def _press(self, interaction: Interaction, press: Action | ResumePending | None) -> None:
        match press:
            case RunCommand() | RunCommandInNewReply() | ResumePending() | Edit():
                await self._answering.pressed(press, interaction)
                return
            case OpenDenyForm(card):
                async with call_limit("open a form"):
                    await interaction.response.send_modal(deny_modal(card))
                return
        await self._acknowledge(interaction)
        match press:
            case Approve(cards):
                await self._decide(cards, DecisionType.APPROVE, interaction)
            case ApproveWithGrant(card, offer):
                await self._allow(card, offer, interaction)
            case ViewCall() | ViewPendingCall():
                await self._show_call(press, interaction)
            case SendFeedback():
                await self._rate(press, interaction)
            case CheckCallAction() | RunAgainAction() | StopTurnAction():
                await self._take_up(press, interaction)
            case OpenConfirmation() | None:  # never written into a button of Discord's; of another release
                await self._whisper(interaction, BUTTON_EXPIRED)
            case _:
                assert_never(press)

    async def _deny(self, card: ApprovalRef, interaction: Interaction) -> None:
        await self._acknowledge(interaction)
        reason = read_values(interaction.data or {}).get(REASON, "").strip()
        await self._decide((card,), DecisionType.DENY, interaction, reason)

    async def _decide(
        self, cards: tuple[ApprovalRef, ...], verdict: DecisionType, interaction: Interaction, reason: str = ""
    ) -> None:
        for card in cards:
            known = await self._signer(interaction, card.approval_id)
            if known is None:
                return
            where, member = known
            if told := await decide(self._engine, (card,), verdict, member, reason):
                await self._whisper(interaction, await resolve_mentions(self._platform.people, where.workspace, told))

    async def _allow(self, card: ApprovalRef, offer: str, interaction: Interaction) -> None:
        known = await self._signer(interaction, card.approval_id)
        if known is None:
            return
        where, member = known
        if told := await approve_with_grant(self._engine, card, offer, member):
            await self._whisper(interaction, await resolve_mentions(self._platform.people, where.workspace, told))

    async def _take_up(
        self, offer: CheckCallAction | RunAgainAction | StopTurnAction, interaction: Interaction
    ) -> None:
        known = await self._visitor(interaction, offer.turn_id)
        if known is None:
            return
        _, member = known
        told = self._platform.audience.rejection(member) or await run_turn_action(self._engine, offer, member.author)
        if told:
            await self._whisper(interaction, told)

    async def _rate(self, rated: SendFeedback, interaction: Interaction) -> None:
        known = await self._visitor(interaction, rated.turn_id)
        if known is None:
            return
        _, member = known
        refusal = self._platform.audience.rejection(member)
        await self._whisper(interaction, refusal or await save_feedback(self._platform.records, rated, member.author))

    async def _show_call(self, press: ViewCall | ViewPendingCall, interaction: Interaction) -> None:
        approval_id = press.card.approval_id if isinstance(press, ViewCall) else press.approval_id
        known = await self._signer(interaction, approval_id)
        if known is None:
            return
        where, member = known
        if member.guest or member.external:
            await self._whisper(interaction, NO_OUTSIDERS)
            return
        match press:
            case ViewCall(card):
                step, missing = await find_approval_step(self._engine, self._platform.records, where, card), OUT_OF_DATE
            case ViewPendingCall(approval_id):
                step, missing = await self._platform.records.find_approval(approval_id), GONE
        if step is None:
            await self._whisper(interaction, missing)
            return
        draw = whole_call_messages if await open_whole(self._engine, step, member) else call_messages
        for shown in draw(step):
            body = {
                "content": shown.content,
                "components": list(shown.components),
                "allowed_mentions": NOBODY,
                "flags": EPHEMERAL | SUPPRESS_EMBEDS,
            }
            await follow_up(self._platform.rest, interaction, body, [shown.file] if shown.file is not None else ())

    async def _acknowledge(self, interaction: Interaction) -> None:
        """Acknowledge the interaction within three seconds, before any other request."""
        async with call_limit("acknowledge a press"):
            await interaction.response.defer()

    async def _signer(self, interaction: Interaction, approval_id: str) -> tuple[ConversationKey, Member] | None:
        """Return the conversation and the member for a decision, or None if the user cannot decide there."""
        approval = self._platform.records.approval
        found = await approval(approval_id) if approval is not None else None
        return await self._who(interaction, None if found is None else found[0].conversation)

    async def _visitor(self, interaction: Interaction, turn_id: str) -> tuple[ConversationKey, Member] | None:
        """Return the conversation and the member for an action on a turn."""
        try:
            about: ConversationKey | None = (await self._engine.view(turn_id)).turn.conversation
        except NotFound:
            about = None
        return await self._who(interaction, about)

    async def _who(
        self, interaction: Interaction, about: ConversationKey | None
    ) -> tuple[ConversationKey, Member] | None:
        """Return the conversation of the action, or the channel of the click if it is unknown, and the member of its
        guild. Return None if the click was in another guild; the user is notified. Raises DeliveryFailed.
        """
        spot = from_channel(interaction.channel)
        if spot is None:
            raise DeliveryFailed("Discord does not say where that was pressed.", permanent=True)
        where = about or await self._platform.where(spot, str(interaction.user.id))
        if where.platform != PLATFORM or spot.server not in ("", where.workspace):
            log.warning("interaction rejected: its item belongs to another guild")
            await self._whisper(interaction, ELSEWHERE)
            return None
        return where, await self._platform.member(interaction.user, where.workspace)

    async def _whisper(self, interaction: Interaction, text: str) -> None:
        await send_ephemeral(self._platform.rest, interaction, text)


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

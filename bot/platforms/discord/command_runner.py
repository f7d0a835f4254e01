"""Commands from slash commands, mentions, buttons and forms. Replies are visible to the user only.

A modal must be the first response to an interaction, within three seconds. The command starts at once, and the response
is deferred only after PATIENCE_SECONDS, so that a form that is ready by then opens by itself. A later form, and the
next step of a form, is a button that opens it, because Discord opens no modal after a modal.

Verbs are Discord's subcommands and subcommand groups. If a level exceeds Discord's limit, the last verbs of the help
move into an extra group (`/mcp more audit`), so that every verb stays available under a stable name.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from bot.chat.actions import ApprovalRef, Edit, RunCommand, RunCommandInNewReply
from bot.chat.argument_editing import edit_command, is_edit_form
from bot.chat.elicitation_forms import is_elicitation_form
from bot.chat.message_handler import split_args
from bot.chat.rejection_messages import TOO_MANY_REQUESTS, UNEXPECTED_ERROR, error_message
from bot.domain.commands import Form, FormSubmission, Invocation, Parameter, ParameterKind, Reply, RequiredRole, Verb
from bot.domain.conversations import ConversationKey, InboundMessage, Member
from bot.errors import CountersignError, DeliveryFailed, QueueFull
from bot.platforms.discord.channels import conversation, from_channel, open_thread
from bot.platforms.discord.command_replies import (
    DONE,
    FORM_GONE,
    GONE,
    CommandReply,
    ConfirmCommand,
    CustomIdAllocator,
    OpenForm,
    PendingActions,
    SendMessage,
    command_reply,
    form_reply,
    message,
    note_layout,
    note_reply,
)
from bot.platforms.discord.components import ResumePending
from bot.platforms.discord.context import PlatformContext, TextCommand
from bot.platforms.discord.markup import utf16_length
from bot.platforms.discord.modals import TYPED, Modal, carried_values, confirm_modal, form_modal, read_values
from bot.platforms.discord.responders import (
    ChannelResponder,
    DirectMessageResponder,
    Interaction,
    InteractionResponse,
    Responder,
    nonce_fields,
)
from bot.platforms.discord.users import resolve_reply_mentions
from bot.ports import Commands
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

ENTRIES = 25
"""Of a level, options of a subcommand, choices of an option (Discord, "Application Commands")."""
LONGEST = 100
"""Characters of a description, and of a choice."""
MORE = "more"
HELP = "help"
SEVERAL = "several with blanks between"


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command or a group: its own verbs by the word they are picked by, and the groups below it."""

    name: str
    verbs: dict[str, Verb]
    groups: tuple[CommandGroup, ...] = ()

    @property
    def description(self) -> str:
        """Names of the verbs, at most 100 characters."""
        return single_line(", ".join([*self.verbs, *(group.name for group in self.groups)]), LONGEST)

    @property
    def for_admins(self) -> bool:
        """True if only admins can use a verb other than `help`."""
        verbs = [verb for level in (self, *self.groups) for verb in level.verbs.values()]
        return all(verb.who is not RequiredRole.EVERYONE or verb.path == HELP for verb in verbs)


def levels(name: str, verbs: Sequence[Verb]) -> CommandGroup:
    """Return a command's verbs by group. Raises ValueError if they exceed Discord's limits."""
    alone = {verb.path: verb for verb in verbs if " " not in verb.path}
    groups: dict[str, dict[str, Verb]] = {}
    for verb in verbs:
        group, _, word = verb.path.partition(" ")
        if word:
            _group_with_room(groups, group)[word] = verb
    if len(alone) + len(groups) > ENTRIES and MORE not in {*alone, *groups}:
        _move_the_last(alone, groups)
    if len(alone) + len(groups) > ENTRIES or any(len(each) > ENTRIES for each in groups.values()):
        raise ValueError(f"/{name} has more verbs than Discord takes")
    return CommandGroup(name, alone, tuple(CommandGroup(group, each) for group, each in groups.items()))


def options(verb: Verb) -> tuple[Parameter, ...]:
    """Return the options of a verb, required ones first, within Discord's limit. Omitted ones can be used in a text
    command.
    """
    return tuple(sorted(verb.parameters, key=lambda each: not each.required)[:ENTRIES])


def hint(parameter: Parameter) -> str:
    """Return the description of an option."""
    several = parameter.repeated and parameter.shape is ParameterKind.OPTION
    return single_line(f"{parameter.hint}; {SEVERAL}" if several else parameter.hint, LONGEST)


def choices(parameter: Parameter) -> tuple[str, ...]:
    """Return the choices of an option, from its usage line; empty if there are none or too many."""
    shown = tuple(each for each in parameter.metavar.split("|") if each in parameter.choices)
    found = shown or parameter.choices
    return found if len(found) <= ENTRIES and all(0 < len(each) <= LONGEST for each in found) else ()


def words(command: str, verb: Verb, given: Mapping[str, str | bool]) -> tuple[str, ...]:
    """Return the words of a command with these options, its name first; missing options are empty or False.

    Options precede positional arguments, because the parser reads no option after the first `KEY=VALUE`.
    """
    said = [command, *verb.path.split()]
    for parameter in verb.parameters:
        value = given.get(parameter.name)
        if not value or parameter.shape is ParameterKind.PLACE:
            continue
        if parameter.shape is ParameterKind.FLAG:
            said.append(f"--{parameter.name}")
        else:
            said += [f"--{parameter.name}={one}" for one in _ones(parameter, str(value))]
    for place in verb.places:
        if value := given.get(place.name):
            said += _ones(place, str(value))
    return tuple(said)


def _ones(parameter: Parameter, value: str) -> tuple[str, ...]:
    """Return one value, or several that are separated by spaces. A JSON object is one value and keeps its quotes."""
    return split_args(value) if parameter.repeated and not value.lstrip().startswith("{") else (value,)


def _group_with_room(groups: dict[str, dict[str, Verb]], name: str) -> dict[str, Verb]:
    """Return the group of that name, or the first numbered one with room."""
    number = 1
    while len(group := groups.setdefault(name if number == 1 else f"{name}-{number}", {})) >= ENTRIES:
        number += 1
    return group


def _move_the_last(alone: dict[str, Verb], groups: dict[str, dict[str, Verb]]) -> None:
    """Move verbs from the end of the help into an extra group until the level fits; `help` stays."""
    moving = [path for path in alone if path != HELP][ENTRIES - len(groups) - 1 - (HELP in alone) :]
    groups[MORE] = {path: alone.pop(path) for path in moving}


# -------------------- autocomplete


def suggestions(
    commands: Commands,
    where: ConversationKey,
    words: tuple[str, Verb],
    parameter: Parameter,
    given: Mapping[str, str],
) -> list[str]:
    """Return up to 25 completions of a parameter, prefix matches first. `words` are the command and the verb; `given`
    are the options so far, with the typed text of this one.
    """
    command, verb = words
    typed = given.get(parameter.name, "")
    before, _, last = typed.rpartition(" ") if parameter.repeated else ("", "", typed)
    line = _line(command, verb, parameter, given)
    if line is None:
        return []
    elsewhere = {choice for each in verb.parameters for choice in each.choices} - set(parameter.choices)
    found = (_value(each.removeprefix(line)) for each in commands.complete(line, where))
    return _fitting((each for each in found if each not in elsewhere), before, last)


def _line(command: str, verb: Verb, parameter: Parameter, given: Mapping[str, str]) -> str | None:
    """Return the command line before the value, or None if a required option is missing."""
    line = [command, verb.path]
    for place in verb.places:
        if place is parameter:
            break
        if value := given.get(place.name):
            line.append(value)
        elif place.required and parameter.shape is ParameterKind.PLACE:
            return None
    if parameter.shape is ParameterKind.OPTION:
        line.append(f"--{parameter.name}")
    return " ".join(line) + " "


def _value(offer: str) -> str:
    """Return a completion without quotes; empty for the name of an option."""
    try:
        return "" if offer.startswith("--") else " ".join(shlex.split(offer))
    except ValueError:
        return ""


def _fitting(values: Iterable[str], before: str, typed: str) -> list[str]:
    wanted = typed.casefold()
    fitting = [each for each in dict.fromkeys(values) if each and wanted in each.casefold()]
    fitting.sort(key=lambda each: not each.casefold().startswith(wanted))
    whole = (f"{before} {each}" if before else each for each in fitting)
    return [each for each in whole if utf16_length(each) <= LONGEST][:ENTRIES]


PATIENCE_SECONDS = 1.8
"""Seconds until the response is deferred. Discord waits for three; the rest is for the network."""
ANSWER_SECONDS = 300.0
TOO_SLOW = "That took too long. Please try again."
NOT_SERVED = "I do not work on this server."
_WITH_THREADS = (0, 5)
"""Channels of text and of announcements ("Channel Types"): in others no thread begins with a message."""


class CommandRunner:
    """Runs commands and shows their replies."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._tickets = PendingActions()

    # ------------------------------------------------------------------ what comes in

    async def typed(self, interaction: Interaction, words: tuple[str, ...]) -> None:
        """Start answering a slash command. Raises nothing but cancellation."""
        # discord.py would run it in a task of its own, which nobody ends.
        self._platform.background_tasks.start_for(
            str(interaction.user.id),
            self._typed(interaction, words),
            "discord: command",
            lambda: self.failed(interaction, TOO_MANY_REQUESTS),
        )

    async def pressed(
        self, press: RunCommand | RunCommandInNewReply | ResumePending | Edit, interaction: Interaction
    ) -> None:
        """Answer an unacknowledged click, or the submission of a form with a token. Raises nothing but cancellation."""
        async with self._exchange(interaction) as exchange:
            match press:
                case RunCommand(words):
                    await self._say(exchange, words)
                case RunCommandInNewReply(words):
                    exchange.reply_in_new_message()
                    await self._say(exchange, words)
                case Edit(card):
                    exchange.reply_in_new_message()
                    await self._say(exchange, edit_command(card), await self._asked_in(card))
                case ResumePending(ticket):
                    await self._redeem(ticket, exchange)

    async def said(self, command: TextCommand) -> None:
        """Answer a command in a message by direct message, because replies are visible to one user only. Raises
        DeliveryFailed.
        """
        name, *rest = command.words
        answers = DirectMessageResponder(
            self._platform.rest, self._tickets, command.member.author.id, command.conversation, command.message
        )
        request = Invocation(name, tuple(rest), command.member, command.conversation)
        try:
            await self._answer(request, answers)
        except TimeoutError:
            await answers.finish(note_reply(TOO_SLOW))
        except QueueFull as error:
            await answers.finish(note_reply(error.user_message))

    def completions(self, interaction: Interaction, verb: Verb, command: str, parameter: Parameter) -> Sequence[str]:
        """Return the completions of an option without delay. Never raises an error."""
        try:
            spot = from_channel(interaction.channel)
            if spot is None or self._platform.audience.rejection(
                self._platform.people.from_interaction(interaction.user)
            ):
                return ()
            where = conversation(spot.server, spot.channel, spot.thread)
            given = {name: str(value) for name, value in interaction.namespace}
            return suggestions(self._platform.commands, where, (command, verb), parameter, given)
        except Exception:
            log.exception("completions of an option failed")
            return ()

    async def failed(self, interaction: Interaction, why: str) -> None:
        """Tell the user of a command that it failed. Raises nothing but cancellation."""
        await _tell(InteractionResponse(self._platform.rest, interaction), why)

    # ------------------------------------------------------------------ interactions

    async def _typed(self, interaction: Interaction, words: tuple[str, ...]) -> None:
        async with self._exchange(interaction) as exchange:
            await self._say(exchange, words)

    @asynccontextmanager
    async def _exchange(self, interaction: Interaction) -> AsyncIterator[InteractionResponse]:
        """Handle an interaction in the body; the user is notified of an error."""
        exchange = InteractionResponse(self._platform.rest, interaction)
        try:
            async with exchange.defer_after(PATIENCE_SECONDS):
                yield exchange
        except TimeoutError:
            log.warning("command took longer than %s s", ANSWER_SECONDS)
            await _tell(exchange, TOO_SLOW)
        except CountersignError as error:
            log.warning("interaction from Discord failed: %s", error)
            await _tell(exchange, error_message(error))
        except Exception:
            log.exception("interaction from Discord failed")
            await _tell(exchange, UNEXPECTED_ERROR)

    async def _redeem(self, ticket: str, exchange: InteractionResponse) -> None:
        deed = self._tickets.take(ticket, str(exchange.interaction.user.id))
        fields = read_values(exchange.interaction.data or {}) if exchange.is_form else {}
        match deed:
            case SendMessage(words, where):
                await self._say(exchange, words, where)
            case ConfirmCommand(words, _, _, where) if exchange.is_form:
                await self._say(exchange, (*words, f"--confirm={fields.get(TYPED, '').strip()}"), where)
            case ConfirmCommand(_, text, label, _):
                await self._open(exchange, confirm_modal(label, text, str(ResumePending(ticket))))
            case OpenForm(form, where) if exchange.is_form:
                if is_edit_form(form.id) or is_elicitation_form(form.id):
                    exchange.reply_in_new_message()
                await self._submit(exchange, form, fields, where)
            case OpenForm(form, _):
                await self._open(exchange, form_modal(form, str(ResumePending(ticket))))
            case None:
                await _tell(exchange, FORM_GONE if exchange.is_form else GONE)

    async def _open(self, exchange: InteractionResponse, modal: Modal) -> None:
        if not await exchange.open(modal):
            await _tell(exchange, UNEXPECTED_ERROR)

    async def _say(
        self, exchange: InteractionResponse, words: tuple[str, ...], where: ConversationKey | None = None
    ) -> None:
        known = await self._who(exchange, where)
        if known is not None:
            member, where = known
            name, *rest = words
            await self._answer(Invocation(name, tuple(rest), member, where), self._under(exchange, member, where))

    async def _submit(
        self, exchange: InteractionResponse, form: Form, fields: dict[str, str], where: ConversationKey
    ) -> None:
        known = await self._who(exchange, where)
        if known is not None:
            member, where = known
            request = FormSubmission(form.id, {**carried_values(form), **fields}, member, where)
            await self._answer(request, self._under(exchange, member, where))

    async def _asked_in(self, card: ApprovalRef) -> ConversationKey | None:
        """Return the conversation of the call, wherever its card is, or None if it is unknown."""
        approval = self._platform.records.approval
        found = await approval(card.approval_id) if approval is not None else None
        return None if found is None else found[0].conversation

    async def _who(
        self, exchange: InteractionResponse, where: ConversationKey | None
    ) -> tuple[Member, ConversationKey] | None:
        """Return the user and the conversation, or None if the user was rejected and notified."""
        interaction, platform = exchange.interaction, self._platform
        spot = from_channel(interaction.channel)
        if where is None and spot is not None:
            where = await platform.where(spot, str(interaction.user.id))
        if where is None or (where.workspace and not platform.people.serves(where.workspace)):
            await _tell(exchange, NOT_SERVED)
            return None
        here = str(interaction.guild_id or "") == where.workspace
        member = (
            platform.people.from_interaction(interaction.user)
            if here or not where.workspace
            else await platform.people.member(str(interaction.user.id), where.workspace)
        )
        if refusal := platform.audience.rejection(member):
            await _tell(exchange, refusal)
            return None
        return member, where

    def _under(self, exchange: InteractionResponse, member: Member, where: ConversationKey) -> Responder:
        rest, tickets, user = self._platform.rest, self._tickets, member.author.id
        spot = from_channel(exchange.interaction.channel)
        here = spot is not None and (spot.channel, spot.thread) == (where.channel, where.thread)
        return ChannelResponder(
            exchange,
            CustomIdAllocator(tickets.store, user, where, here=here),
            DirectMessageResponder(rest, tickets, user, where),
        )

    # ------------------------------------------------------------------ answers

    async def _answer(self, request: Invocation | FormSubmission, answers: Responder) -> None:
        """Show the replies. Raises DeliveryFailed, and TimeoutError after the time limit."""
        last: CommandReply | None = note_reply(DONE)
        coming = _closable(self._platform.commands.handle(request))
        async with asyncio.timeout(ANSWER_SECONDS), aclosing(coming):
            async for answer in coming:
                if isinstance(answer, Form):
                    opened = await answers.open(answer)
                    last = None if opened else form_reply(answer, begun=isinstance(request, FormSubmission))
                    break
                if answer.message is not None:
                    await self._hand_on(answer.message)
                    if not (answer.private or answers.expected):
                        return  # the turn that has begun says enough
                reply = await resolve_reply_mentions(self._platform.people, request.conversation.workspace, answer)
                last = command_reply(reply)
                await answers.progress(last)
        if last is not None:
            await answers.finish(last)

    async def _hand_on(self, asked: InboundMessage) -> None:
        """Pass a message to the engine; in a channel it starts a public thread."""
        where = asked.conversation
        if not where.thread:
            where = replace(where, thread=await self._begun(asked))
        await self._platform.engine.receive(replace(asked, conversation=where))

    async def _begun(self, asked: InboundMessage) -> str:
        """Return the id of the public thread that starts at the reply; empty if none can be opened."""
        rest, where = self._platform.rest, asked.conversation
        channel = await rest.call("GET", "/channels/{channel_id}", "look at the channel", channel_id=where.channel)
        if channel.get("type") not in _WITH_THREADS:
            return ""
        posted = await rest.call(
            "POST",
            "/channels/{channel_id}/messages",
            "post a message",
            body=message(note_layout(single_line(f"{asked.author.name}: {asked.text}", 300))) | nonce_fields(),
            channel_id=where.channel,
        )
        return await open_thread(rest, where.channel, str(posted["id"]), asked.text)


async def _tell(exchange: InteractionResponse, text: str) -> None:
    """Send one line to the user of an interaction, if possible."""
    try:
        await exchange.tell(text)
    except DeliveryFailed as error:
        log.warning("error notice not sent: %s", error)


async def _closable(answers: AsyncIterator[Reply | Form]) -> AsyncGenerator[Reply | Form, None]:
    """Return the replies as a generator that can be closed."""
    async for answer in answers:
        yield answer

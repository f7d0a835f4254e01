"""Handler of interactions: clicked buttons, slash commands, submitted forms and shortcuts, on every platform.

The content of an interaction is not trusted: the user is looked up with current rights, in the workspace of the item,
and the engine checks those rights. Turn delivery updates the cards. What an interaction says itself is for its user
alone: a rejection, a reply, a whole call, or that it did not work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from time import time
from typing import Any, Protocol

from bot.chat.actions import (
    BUTTON_EXPIRED,
    FORM_EXPIRED,
    OUT_OF_DATE,
    PENDING_EXPIRED,
    TOO_MANY_REQUESTS,
    UNEXPECTED_ERROR,
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    AskAgain,
    ConfirmApproval,
    Edit,
    FeedbackValue,
    InInbox,
    InteractionRejected,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingAction,
    PendingActions,
    RunCommand,
    RunCommandInNewReply,
    RunPending,
    SendFeedback,
    ShowInbox,
    ViewCall,
    error_message,
    rejection_message,
)
from bot.chat.approval_inbox import (
    CALLS_A_PAGE,
    PendingCalls,
    inbox_confirmation,
    inbox_message,
    is_inbox_command,
    page_count,
)
from bot.chat.card_messages import confirmation_message
from bot.chat.command_runner import CommandRunner, Responder
from bot.chat.context import ChatContext, Lookups
from bot.chat.forms import (
    DenialSubmitted,
    FormSubmitted,
    Submission,
    edit_command,
    is_edit_form,
    is_elicitation_form,
    read_submission,
)
from bot.chat.message_handler import format_lines, unknown_agent_message
from bot.chat.message_model import Message
from bot.domain.agents import Addressed, UnknownName
from bot.domain.approvals import WHOLE, Decision, DecisionResult, DecisionType, Portion
from bot.domain.commands import FormSubmission, Invocation
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale, use_locale
from bot.domain.turns import StepStatus, ToolStep
from bot.engine.prompt.messages import UNREAD
from bot.errors import CountersignError, NotFound, QueueFull
from bot.i18n import _, gettext_lazy
from bot.ports import EngineApi
from bot.rendering.approval_card import approval_card, parse_grant_option
from bot.rendering.timeline import CheckCallAction, ContinueTurnAction, Offer, RunAgainAction, StopTurnAction

log = logging.getLogger(__name__)

RIGHTS_SECONDS = 1.0
NO_OUTSIDERS = gettext_lazy("Only full members may see that.")
ASKED = gettext_lazy("Asked.")
ASKED_DIRECTLY = gettext_lazy("Asked. The answer comes as a direct message.")
ELSEWHERE = gettext_lazy("That belongs to another server or workspace.")

ModalAction = OpenDenyForm | OpenConfirmation | OpenForm
"""An action that opens a form, and that its submission is about."""
TurnAction = SendFeedback | AskAgain | CheckCallAction | RunAgainAction | StopTurnAction | ContinueTurnAction


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of an interaction with current rights, in the conversation of the item that it is about. `direct` is
    True for the user's direct conversation with the bot. `place` is the locale of the place, as the platform says it.
    """

    member: Member
    conversation: ConversationKey
    direct: bool = False
    place: Locale = UNKNOWN


class Interaction(Protocol):
    """A click, a command, a submitted form or a shortcut on its platform. Methods that send raise DeliveryFailed."""

    @property
    def user(self) -> str:
        """Id of the user."""

    async def find_viewer(self) -> tuple[Locale, ConversationKey | None, Locale]:
        """Return the locale of the user, the conversation, and the locale of the place, as far as the platform says
        them without delay. Never raises.
        """

    def responding(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which the interaction is handled. It acknowledges in time if there was no response."""

    async def acknowledge(self) -> None:
        """Acknowledge at once. No form can be opened afterwards."""

    async def find_actor(self, about: ConversationKey | None) -> Actor:
        """Return the user in the conversation of the item, or in that of the interaction if it is unknown. Raises
        InteractionRejected if the interaction belongs to another workspace, or to one that the bot does not serve.
        """

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:
        """Show a text to the user alone. Principals become names of users in the workspace of `about`."""

    async def show(self, message: Message) -> None:
        """Show a message to the user alone."""

    async def show_in_place(self, message: Message) -> None:
        """Show a message to the user alone, in place of the private message with the button, if any."""

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:
        """Open a form, as the response. Return False if that is impossible. `about` is the conversation that its
        submission is about, None for that of the interaction.
        """

    def responder(self, actor: Actor, *, in_new_message: bool) -> Responder:
        """Return the responder to a command. Its replies replace the message with the button if only the user sees it,
        unless they are to be in a new message.
        """

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        """Return the part of a call that the private view shows."""

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        """Show the private view of a call; if `whole` is True, with the parts that look like a secret."""

    async def update_call(self, approval_id: str) -> None:
        """Update the private view that contains the button, if any, after a decision."""


class MessageQuestion(Protocol):
    """A question of a user about any message. Methods raise DeliveryFailed."""

    id: str
    """Deduplicates the question on its platform."""
    text: str
    is_answered_directly: bool
    """True if the answer is a direct message, because the bot is not where the message is."""

    async def read_message(self) -> tuple[str, str] | None:
        """Return the name of the message's author and its text, or None if it cannot be read."""

    async def open_conversation(self, actor: Actor, announcement: str) -> ConversationKey:
        """Return the conversation in which the question is answered: the thread of the message, if possible. Post a
        sentence there before, for everybody.
        """


class InteractionHandler:
    """Handles interactions in background tasks. The user is told if one fails, or has too many under way."""

    def __init__(
        self,
        context: ChatContext,
        *,
        platform: str,
        commands: CommandRunner,
        pending: PendingActions,
    ) -> None:
        self._engine = context.engine
        self._platform = platform
        self._records = context.records
        self._locales = context.records.locales
        self._audience = context.audience
        self._background_tasks = context.background_tasks
        self._commands = commands
        self._pending = pending

    def on_action(self, action: Action | None, interaction: Interaction) -> bool:
        """Handle a click; None is a button of another release. Return False if the user has too many under way."""
        return self.start(self._act(action, interaction), interaction, "click")

    def on_command(self, words: tuple[str, ...], interaction: Interaction) -> bool:
        """Handle a slash command: its words, the name first. Return False as above."""
        return self.start(self._run_command(words, interaction), interaction, "command")

    def on_submission(self, submission: Submission, interaction: Interaction) -> bool:
        """Handle a submitted form. Return False as above."""
        return self.start(self._submit(submission, interaction, None), interaction, "form")

    def on_modal(self, opened: Action | None, values: dict[str, str], interaction: Interaction) -> bool:
        """Handle a submitted form by the action that opened it. Return False as above."""

        async def submit() -> None:
            about: ConversationKey | None = None
            action: PendingAction | None = opened
            if isinstance(opened, RunPending):
                action, about = self._pending.find(opened.token, interaction.user) or (None, None)
            match action:
                case OpenDenyForm() | OpenConfirmation() | OpenForm():
                    await self._submit(read_submission(action, values), interaction, about)
                case _:
                    await interaction.tell(FORM_EXPIRED)

        return self.start(submit(), interaction, "form")

    def on_question(self, question: MessageQuestion, interaction: Interaction) -> bool:
        """Handle a question about a message, with the message as its context. Return False as above."""
        return self.start(self._ask(question, interaction), interaction, "question")

    def start(self, work: Coroutine[Any, Any, None], interaction: Interaction, name: str) -> bool:
        """Start the work of an interaction. Return False if the user has too many under way, and is told so."""

        async def reject() -> None:
            async with interaction.responding():
                with use_locale(await self.locale_of(interaction)):
                    await interaction.tell(TOO_MANY_REQUESTS)

        async def handle() -> None:
            async with interaction.responding():
                with use_locale(await self.locale_of(interaction)):
                    try:
                        await work
                    except (CountersignError, TimeoutError) as error:
                        log.warning("%s failed: %s", name, error)
                        await interaction.tell(error_message(error))
                    except Exception:
                        log.exception("%s failed", name)
                        await interaction.tell(UNEXPECTED_ERROR)

        name = f"{self._platform}: {name}"
        if self._background_tasks.start_for(interaction.user, handle(), name, reject):
            return True
        work.close()
        return False

    async def locale_of(self, interaction: Interaction) -> Locale:
        """Return the locale of responses to the user alone."""
        user = Author(self._platform, interaction.user, "")
        return await self._locales.for_user(user, *await interaction.find_viewer())

    async def find_member(self, interaction: Interaction, about: ConversationKey | None = None) -> Actor:
        """Return the user, if the bot responds to them. Raises InteractionRejected otherwise."""
        actor = await interaction.find_actor(about)
        if rejection := self._audience.rejection(actor.member):
            raise InteractionRejected(rejection)
        return actor

    async def _act(  # noqa: C901, PLR0912 - one case for each kind of action
        self, action: PendingAction | None, interaction: Interaction, about: ConversationKey | None = None
    ) -> None:
        match action:
            case None:
                await interaction.acknowledge()
                await interaction.tell(BUTTON_EXPIRED)
            case RunPending(token):
                pending = self._pending.find(token, interaction.user)
                if pending is None:
                    await interaction.tell(PENDING_EXPIRED)
                else:
                    action, about = pending
                    await self._act(action, interaction, about)
            case RunCommand(words) | RunCommandInNewReply(words):
                in_new_message = isinstance(action, RunCommandInNewReply)
                await self._run_command(words, interaction, about, in_new_message=in_new_message)
            case Edit(card):
                about = await self._conversation_of(card.approval_id)
                await self._run_command(edit_command(card), interaction, about, in_new_message=True)
            case OpenDenyForm(card) if await self._tells_rejection(card, interaction):
                return
            case OpenDenyForm() | OpenConfirmation() | OpenForm():
                if not await interaction.open_modal(action, about):
                    await interaction.tell(UNEXPECTED_ERROR)
            case ShowInbox(page):
                await interaction.acknowledge()
                await self._show_inbox(await self.find_member(interaction), interaction, page)
            case InInbox(decision, page):
                await interaction.acknowledge()
                await self._decide_in_inbox(decision, page, interaction)
            case Approve() | ConfirmApproval() | ApproveWithGrant() | ViewCall():
                await interaction.acknowledge()
                await self._act_on_call(action, interaction)
            case _:
                await interaction.acknowledge()
                await self._act_on_turn(action, interaction)

    async def _act_on_call(
        self, action: Approve | ConfirmApproval | ApproveWithGrant | ViewCall, interaction: Interaction
    ) -> None:
        match action:
            case Approve(cards):
                await self._decide([Approve((card,)) for card in cards], interaction)
            case ApproveWithGrant():
                await self._decide((action,), interaction)
            case ConfirmApproval(card):
                await self._confirm(card, interaction)
            case ViewCall(card, page):
                actor = await self._approver(card.approval_id, interaction)
                if actor.member.guest or actor.member.external:
                    await interaction.tell(NO_OUTSIDERS)
                elif (step := await find_approval_step(self._engine, self._records, actor.conversation, card)) is None:
                    await interaction.tell(OUT_OF_DATE)
                else:
                    portion = interaction.portion_of(step, page)
                    whole = await open_whole(self._engine, step, actor.member, portion)
                    await interaction.show_call(step, page, whole=whole)

    async def _run_command(
        self,
        words: tuple[str, ...],
        interaction: Interaction,
        about: ConversationKey | None = None,
        *,
        in_new_message: bool = False,
    ) -> None:
        actor = await self.find_member(interaction, about)
        if is_inbox_command(words) and self._records.pending_calls is not None:
            await self._show_inbox(actor, interaction, 1)
            return
        responder = interaction.responder(actor, in_new_message=in_new_message)
        invocation = Invocation(words[0], words[1:], actor.member, actor.conversation)
        await self._commands.run(invocation, responder, direct=actor.direct, place=actor.place)

    async def _submit(self, submission: Submission, interaction: Interaction, about: ConversationKey | None) -> None:
        match submission:
            case DenialSubmitted(card, _, page):
                await interaction.acknowledge()
                await self._decide((submission,), interaction)
                if page:
                    await self._show_inbox(await self._approver(card.approval_id, interaction), interaction, page)
            case RunCommand(words):
                await self._run_command(words, interaction, about)
            case FormSubmitted(form, values):
                actor = await self.find_member(interaction, about)
                # A form that was opened from a card leaves the card where it is.
                in_new_message = is_edit_form(form) or is_elicitation_form(form)
                responder = interaction.responder(actor, in_new_message=in_new_message)
                request = FormSubmission(form, values, actor.member, actor.conversation)
                await self._commands.run(request, responder, direct=actor.direct, place=actor.place)

    async def _ask(self, question: MessageQuestion, interaction: Interaction) -> None:
        await interaction.acknowledge()
        actor = await self.find_member(interaction)
        text, agent = question.text, None
        match self._engine.agents(actor.conversation).read_address(text):
            case Addressed(named, rest) if rest:
                text, agent = rest, named
            case UnknownName() as unknown:
                await interaction.show(unknown_agent_message(self._engine.agents(actor.conversation), unknown))
                return
            case _no_address:
                pass
        author, message = actor.member.author, await question.read_message()
        announcement = _("{name} asks about this: {question}", name=author.name, question=question.text)
        conversation = await question.open_conversation(actor, announcement)
        inbound = InboundMessage(
            keys=(f"{self._platform}:{conversation.workspace}:{question.id}",),
            conversation=conversation,
            author=author,
            text=text,
            agent=agent,
            context=(UNREAD,) if message is None else format_lines([message]),
        )
        direct = actor.direct or question.is_answered_directly
        await self._engine.receive(await self._locales.with_locales(inbound, actor.member, actor.place, direct=direct))
        await interaction.tell(ASKED_DIRECTLY if question.is_answered_directly else ASKED)

    async def _decide(
        self, actions: Sequence[Approve | ApproveWithGrant | DenialSubmitted], interaction: Interaction
    ) -> None:
        """Decide calls, each with the user's rights in its own workspace."""
        rejections: dict[str, ConversationKey] = {}
        cards = [action.cards[0] if isinstance(action, Approve) else action.card for action in actions]
        for action, card in zip(actions, cards, strict=True):
            actor = await self._approver(card.approval_id, interaction)
            if rejection := await decision_rejection(self._engine, action, actor.member):
                rejections[rejection] = actor.conversation
        for rejection, conversation in rejections.items():
            await interaction.tell(rejection, conversation)
        if not rejections:
            await interaction.update_call(cards[0].approval_id)

    async def _tells_rejection(self, card: ApprovalRef, interaction: Interaction) -> bool:
        """Tell a user who may not deny a call so, and return True. After RIGHTS_SECONDS the form opens unchecked,
        because platforms open one only soon after a click. Its submission is checked anyway.
        """
        try:
            async with asyncio.timeout(RIGHTS_SECONDS):
                actor = await self._approver(card.approval_id, interaction)
                rejection = await find_rejection(self._engine, card, DecisionType.DENY, actor.member)
        except TimeoutError:
            return False
        if rejection:
            await interaction.tell(rejection, actor.conversation)
        return bool(rejection)

    async def inbox(self, actor: Actor, page: int) -> Message:
        """Return a page of the calls that the user may decide."""
        read = self._records.pending_calls
        pending = PendingCalls()
        if read is not None:
            workspace = actor.conversation.workspace_key
            pending = await read(actor.member, workspace, (page - 1) * CALLS_A_PAGE, CALLS_A_PAGE)
            if not pending.calls and pending.count:
                page = page_count(pending)
                pending = await read(actor.member, workspace, (page - 1) * CALLS_A_PAGE, CALLS_A_PAGE)
        return inbox_message(pending, page if pending.count else 1, time())

    async def _show_inbox(self, actor: Actor, interaction: Interaction, page: int) -> None:
        await interaction.show_in_place(await self.inbox(actor, max(page, 1)))

    async def _decide_in_inbox(
        self, action: Approve | ApproveWithGrant | ConfirmApproval, page: int, interaction: Interaction
    ) -> None:
        """Decide a call, and show the list without it."""
        cards = action.cards if isinstance(action, Approve) else (action.card,)
        card = cards[0]
        actor = await self._approver(card.approval_id, interaction)
        rejection = ""
        match action:
            case ConfirmApproval():
                rejection = await find_rejection(self._engine, card, DecisionType.APPROVE, actor.member)
                step = await find_approval_step(self._engine, self._records, actor.conversation, card)
                approval = approval_card(step) if step is not None and not rejection else None
                if step is not None and approval is not None and step.status is StepStatus.AWAITING:
                    await interaction.show_in_place(inbox_confirmation(step, approval, page))
                    return
                rejection = rejection or OUT_OF_DATE
            case Approve():
                found: dict[str, None] = {}
                for each in cards:
                    actor = await self._approver(each.approval_id, interaction)
                    found[await decision_rejection(self._engine, Approve((each,)), actor.member)] = None
                rejection = "\n".join(filter(None, found))
            case ApproveWithGrant():
                rejection = await decision_rejection(self._engine, action, actor.member)
        await self._show_inbox(actor, interaction, page)
        if rejection:
            await interaction.tell(rejection, actor.conversation)

    async def _confirm(self, card: ApprovalRef, interaction: Interaction) -> None:
        actor = await self._approver(card.approval_id, interaction)
        if rejection := await find_rejection(self._engine, card, DecisionType.APPROVE, actor.member):
            await interaction.tell(rejection, actor.conversation)
            return
        step = await find_approval_step(self._engine, self._records, actor.conversation, card)
        approval = approval_card(step) if step is not None else None
        if step is None or approval is None:
            await interaction.tell(OUT_OF_DATE)
        elif step.status is not StepStatus.AWAITING:
            await self._decide((Approve((card,)),), interaction)  # the engine says why it is too late
        else:
            await interaction.show(confirmation_message(step, approval))

    async def _act_on_turn(self, action: TurnAction, interaction: Interaction) -> None:
        try:
            about: ConversationKey | None = (await self._engine.view(action.turn_id)).turn.conversation
        except NotFound:
            about = None
        actor = await self.find_member(interaction, about)
        if isinstance(action, SendFeedback):
            text = await save_feedback(self._records, action, actor.member.author)
        else:
            text = await run_turn_action(self._engine, action, actor.member.author)
        if text:
            await interaction.tell(text)

    async def _approver(self, approval_id: str, interaction: Interaction) -> Actor:
        return await interaction.find_actor(await self._conversation_of(approval_id))

    async def _conversation_of(self, approval_id: str) -> ConversationKey | None:
        """Return the conversation of the call, wherever its card is, or None if it is unknown."""
        approval = await self._records.approval(approval_id) if self._records.approval is not None else None
        return None if approval is None else approval[0].conversation


ENDED = gettext_lazy("That has ended already.")
THANKS = gettext_lazy("Thank you, noted.")
IN_HAND = gettext_lazy("That is in hand already.")


async def run_turn_action(engine: EngineApi, offer: Offer | AskAgain, by: Author) -> str:
    """Run the offered action. Return the text for the user, empty if the action counted."""
    try:
        match offer:
            case StopTurnAction(turn_id):
                return "" if await engine.stop(turn_id, by) else ENDED
            case CheckCallAction(turn_id, n):
                receipt = await engine.check_outcome(turn_id, n, by)
            case RunAgainAction(turn_id, n):
                receipt = await engine.run_again(turn_id, n, by)
            case ContinueTurnAction(turn_id):
                receipt = await engine.continue_turn(turn_id, by)
            case AskAgain(turn_id):
                receipt = await engine.ask_again(turn_id, by)
    except NotFound as error:
        return str(error)
    except QueueFull as error:
        return error.user_message
    return IN_HAND if receipt.redelivery else ""


async def save_feedback(records: Lookups, rated: SendFeedback, by: Author) -> str:
    """Store feedback. Return the text for the user."""
    if records.opinion is not None:
        try:
            await records.opinion(rated.turn_id, rated.opinion is FeedbackValue.GOOD, by)
        except NotFound as error:
            return str(error)
    return THANKS


RECENT_TURNS = 30


async def decide(
    engine: EngineApi, action: Approve | ApproveWithGrant | DenialSubmitted, member: Member
) -> DecisionResult | None:
    """Send the decision about one call to the engine; None for a grant that does not exist."""
    match action:
        case DenialSubmitted(card, reason):
            decision = Decision(card.approval_id, card.revision, DecisionType.DENY, member.author, reason)
        case Approve((card, *_)) | ApproveWithGrant(card):
            decision = Decision(card.approval_id, card.revision, DecisionType.APPROVE, member.author)
    if not isinstance(action, ApproveWithGrant):
        return await engine.approvals.decide(decision, member)
    grant = parse_grant_option(action.offer)
    return None if grant is None else await engine.approvals.grant(decision, grant, member)


async def decision_rejection(
    engine: EngineApi, action: Approve | ApproveWithGrant | DenialSubmitted, member: Member
) -> str:
    """Decide a call. Return the text for the user, with principals as names of users; empty if the decision counted."""
    result = await decide(engine, action, member)
    return BUTTON_EXPIRED if result is None else rejection_message(result)


async def find_rejection(engine: EngineApi, card: ApprovalRef, decision_type: DecisionType, member: Member) -> str:
    """Return the text for a user who may not decide a call so, before they are asked for more; empty if they may."""
    decision = Decision(card.approval_id, card.revision, decision_type, member.author)
    result = await engine.approvals.rejection(decision, member)
    return "" if result is None else rejection_message(result)


async def open_whole(engine: EngineApi, step: ToolStep, member: Member, portion: Portion = WHOLE) -> bool:
    """Return True if the user may be shown, in private, the parts of a call that look like a secret; this is recorded.
    Return False for a call that hides nothing.
    """
    card = approval_card(step)
    if card is None or not card.withheld or step.status is not StepStatus.AWAITING:
        return False
    return isinstance(await engine.approvals.open_call(card.approval_id, card.revision, member, portion), ToolStep)


async def find_approval_step(
    engine: EngineApi, records: Lookups, conversation: ConversationKey, card: ApprovalRef
) -> ToolStep | None:
    """Return the call of a card, if it is still the same revision. Without a lookup of approvals it is searched in the
    latest turns of the conversation.
    """
    if records.approval is not None:
        approval = await records.find_approval(card.approval_id)
        calls = [approval] if approval is not None else []
    else:
        views = await engine.recent_turns(conversation, RECENT_TURNS)
        calls = [step for view in views for step in view.steps if isinstance(step, ToolStep)]
    for step in calls:
        if step.approval is not None and ApprovalRef(step.approval.id, step.approval.revision) == card:
            return step
    return None

"""Handler of clicked buttons: from an action to the engine or the commands, on every platform.

The content of a button is not trusted: the user is looked up at the click with current rights, in the workspace of the
item, and the engine checks those rights. Turn delivery updates the cards. What a click says itself is for its user
alone: a rejection, a whole call, or that it did not work.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    ConfirmApproval,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
)
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.card_messages import confirmation_message
from bot.chat.decisions import (
    Lookups,
    approve_with_grant,
    decide,
    find_approval_step,
    open_whole,
    run_turn_action,
    save_feedback,
)
from bot.chat.message_handler import AudiencePolicy
from bot.chat.message_model import Message
from bot.chat.rejection_messages import GONE, OUT_OF_DATE, TOO_MANY_REQUESTS, UNEXPECTED_ERROR, error_message
from bot.domain.approvals import DecisionType, Portion
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus, ToolStep
from bot.errors import CountersignError, NotFound
from bot.ports import EngineApi
from bot.rendering.approval_card import approval_card
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction

log = logging.getLogger(__name__)

NO_OUTSIDERS = "Only full members may see that."
ELSEWHERE = "That belongs to another server or workspace."


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of a click with current rights, in the conversation of the item that the click is about."""

    member: Member
    conversation: ConversationKey


class Click(Protocol):
    """A click, or the submission of a deny form, on its platform. Methods that send raise DeliveryFailed."""

    async def acknowledge(self) -> None:
        """Acknowledge the click within the platform's seconds. Forms and commands are responses themselves."""

    async def find_actor(self, about: ConversationKey | None) -> Actor | None:
        """Return the user in the conversation of the item, or in that of the click if it is unknown. Return None if the
        click was made in another workspace.
        """

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:
        """Show a text to the user alone. Principals become names of users in the workspace of `about`."""

    async def show(self, message: Message) -> None:
        """Show a message to the user alone."""

    async def open_form(self, action: OpenDenyForm | OpenConfirmation) -> None:
        """Open a form, as the response."""

    async def run_command(self, action: RunCommand | RunCommandInNewReply | Edit) -> None:
        """Run a command or open the form of a call, as the response."""

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        """Return the part of a call that the private view shows."""

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        """Show the private view of a call; if `whole` is True, with the parts that look like a secret."""

    async def update_call(self, approval_id: str) -> None:
        """Update the private view that contains the button, if any, after a decision."""


class ActionHandler:
    """Handles actions of buttons."""

    def __init__(
        self, engine: EngineApi, records: Lookups, audience: AudiencePolicy, background_tasks: BackgroundTasks
    ) -> None:
        self._engine = engine
        self._records = records
        self._audience = audience
        self._background_tasks = background_tasks

    def start(
        self,
        work: Coroutine[Any, Any, None],
        user: str,
        name: str,
        tell: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        """Start the work of an interaction. The user is told if it fails, or has too much under way."""
        reporting = _report_errors(work, name, tell)
        if not self._background_tasks.start_for(user, reporting, name, lambda: tell(TOO_MANY_REQUESTS)):
            work.close()

    async def handle(self, action: Action, click: Click) -> None:
        """Run the action of a click. Raises CountersignError."""
        match action:
            case RunCommand() | RunCommandInNewReply() | Edit():
                await click.run_command(action)
                return
            case OpenDenyForm() | OpenConfirmation():
                await click.open_form(action)
                return
        await click.acknowledge()
        match action:
            case Approve(cards):
                await self._decide(cards, DecisionType.APPROVE, click)
            case ConfirmApproval(card):
                await self._confirm(card, click)
            case ApproveWithGrant(card, offer):
                await self._grant(card, offer, click)
            case ViewCall() | ViewPendingCall():
                await self._show_call(action, click)
            case SendFeedback() | CheckCallAction() | RunAgainAction() | StopTurnAction():
                await self._act_on_turn(action, click)

    async def deny(self, card: ApprovalRef, reason: str, click: Click) -> None:
        """Deny a call, after its form was submitted. Raises CountersignError."""
        await click.acknowledge()
        await self._decide((card,), DecisionType.DENY, click, reason)

    async def _decide(
        self, cards: tuple[ApprovalRef, ...], decision: DecisionType, click: Click, reason: str = ""
    ) -> None:
        """Decide the calls, each with the user's rights in its own workspace."""
        rejections: dict[str, ConversationKey] = {}
        for card in cards:
            actor = await self._approver(card.approval_id, click)
            if actor is None:
                return
            if rejection := await decide(self._engine, (card,), decision, actor.member, reason):
                rejections[rejection] = actor.conversation
        for rejection, conversation in rejections.items():
            await click.tell(rejection, conversation)
        if not rejections:
            await click.update_call(cards[0].approval_id)

    async def _confirm(self, card: ApprovalRef, click: Click) -> None:
        actor = await self._approver(card.approval_id, click)
        if actor is None:
            return
        step = await find_approval_step(self._engine, self._records, actor.conversation, card)
        approval = approval_card(step) if step is not None else None
        if step is None or approval is None:
            await click.tell(OUT_OF_DATE)
        elif step.status is not StepStatus.AWAITING:
            await self._decide((card,), DecisionType.APPROVE, click)  # the engine says why it is too late
        else:
            await click.show(confirmation_message(step, approval))

    async def _grant(self, card: ApprovalRef, offer: str, click: Click) -> None:
        actor = await self._approver(card.approval_id, click)
        if actor is None:
            return
        if rejection := await approve_with_grant(self._engine, card, offer, actor.member):
            await click.tell(rejection, actor.conversation)
        else:
            await click.update_call(card.approval_id)

    async def _show_call(self, action: ViewCall | ViewPendingCall, click: Click) -> None:
        approval_id = action.card.approval_id if isinstance(action, ViewCall) else action.approval_id
        actor = await self._approver(approval_id, click)
        if actor is None:
            return
        if actor.member.guest or actor.member.external:
            await click.tell(NO_OUTSIDERS)
            return
        page, missing = 1, GONE
        match action:
            case ViewCall(card, page):
                step = await find_approval_step(self._engine, self._records, actor.conversation, card)
                missing = OUT_OF_DATE
            case ViewPendingCall():
                step = await self._records.find_approval(approval_id)
        if step is None:
            await click.tell(missing)
            return
        whole = await open_whole(self._engine, step, actor.member, click.portion_of(step, page))
        await click.show_call(step, page, whole=whole)

    async def _act_on_turn(
        self, action: SendFeedback | CheckCallAction | RunAgainAction | StopTurnAction, click: Click
    ) -> None:
        actor = await self._actor(await self._conversation_of_turn(action.turn_id), click)
        if actor is None:
            return
        text = self._audience.rejection(actor.member)
        if not text and isinstance(action, SendFeedback):
            text = await save_feedback(self._records, action, actor.member.author)
        elif not text and not isinstance(action, SendFeedback):
            text = await run_turn_action(self._engine, action, actor.member.author)
        if text:
            await click.tell(text)

    async def _approver(self, approval_id: str, click: Click) -> Actor | None:
        approval = await self._records.approval(approval_id) if self._records.approval is not None else None
        return await self._actor(None if approval is None else approval[0].conversation, click)

    async def _conversation_of_turn(self, turn_id: str) -> ConversationKey | None:
        try:
            return (await self._engine.view(turn_id)).turn.conversation
        except NotFound:
            return None

    async def _actor(self, about: ConversationKey | None, click: Click) -> Actor | None:
        """Return the user. Return None if the item belongs to another workspace; the user is told."""
        actor = await click.find_actor(about)
        if actor is None:
            log.warning("click rejected: its item belongs to another workspace")
            await click.tell(ELSEWHERE)
        return actor


async def _report_errors(work: Coroutine[Any, Any, None], name: str, tell: Callable[[str], Awaitable[None]]) -> None:
    try:
        await work
    except (CountersignError, TimeoutError) as error:
        log.warning("%s failed: %s", name, error)
        await tell(error_message(error))
    except Exception:
        log.exception("%s failed", name)
        await tell(UNEXPECTED_ERROR)

"""Pending approvals for this user, asked one after the other.

Decided approvals are remembered, because views may be skipped, repeated or older than a decision.

Actions of the keys on cards: a decision, or a form. The engine checks the user's rights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.chat.actions import ApprovalRef
from bot.chat.argument_editing import ArgumentEditForms, edit_command
from bot.chat.elicitation_forms import ElicitationForms
from bot.domain.approvals import Decision, DecisionResult, DecisionType
from bot.domain.commands import Reply
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.platforms.console.command_runner import CommandRunner
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.startup import await_ready
from bot.ports import Commands, EngineApi
from bot.rendering.approval_card import (
    ApprovalCard,
    GrantOption,
    approval_card,
    can_edit,
    edit_lines,
    grant_offers,
    whole_card,
)

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """A card that waits for a key."""

    turn_id: str
    card: ApprovalCard
    offers: tuple[GrantOption, ...] = ()
    """Grants to offer with the approval."""
    editable: bool = False
    """Its arguments can be changed before."""
    edited: tuple[str, ...] = ()
    """Edits of the call, one line each."""
    guarded: bool = False
    """True if a part looks like a secret: only a user who has seen the whole call can approve it."""

    @property
    def key(self) -> Key:
        """Approval id and revision."""
        return self.card.approval_id, self.card.revision


class ApprovalQueue:
    """First come, first asked."""

    def __init__(self) -> None:
        self._waiting: dict[Key, ApprovalPrompt] = {}
        self._settled: set[Key] = set()
        self._answered = 0

    @property
    def current(self) -> ApprovalPrompt | None:
        """Approval to ask for now; None if the queue is empty."""
        return next(iter(self._waiting.values()), None)

    @property
    def place(self) -> str:
        """Position, as `1 of 2`; empty for a single approval."""
        total = self._answered + len(self._waiting)
        return f"{self._answered + 1} of {total}" if total > 1 else ""

    def update(self, view: TurnView, steps: list[ToolStep]) -> list[ApprovalCard]:
        """Update from a view, of which `steps` are the calls to ask about. Return the cards of approvals that ended by
        other means, with their outcomes.
        """
        cards = {each.approval_id: each for step in steps if (each := whole_card(step)) is not None}
        gone = [self._ended(question, cards) for question in self._of(view) if self._is_over(question, view, cards)]
        for step in steps:
            asked = cards.get(step.approval.id) if step.approval else None
            if asked is None or step.status is not StepStatus.AWAITING or view.turn.status.ended:
                continue
            guarded = (shared := approval_card(step)) is not None and shared.withheld > 0
            question = ApprovalPrompt(
                view.turn.id, asked, grant_offers(step), can_edit(step), edit_lines(step), guarded
            )
            if question.key not in self._settled:
                self._waiting.setdefault(question.key, question)
        return gone

    def settle(self, question: ApprovalPrompt) -> None:
        """Remove an approval that needs no key."""
        self._settled.add(question.key)
        if self._waiting.pop(question.key, None) is not None:
            self._answered = self._answered + 1 if self._waiting else 0

    def _of(self, view: TurnView) -> list[ApprovalPrompt]:
        return [question for question in self._waiting.values() if question.turn_id == view.turn.id]

    def _is_over(self, question: ApprovalPrompt, view: TurnView, cards: dict[str, ApprovalCard]) -> bool:
        now = cards.get(question.card.approval_id)
        return view.turn.status.ended or now is None or bool(now.outcome) or now.revision != question.card.revision

    def _ended(self, question: ApprovalPrompt, cards: dict[str, ApprovalCard]) -> ApprovalCard:
        self.settle(question)
        return cards.get(question.card.approval_id, question.card)


class ApprovalActions:
    """Runs the actions of keys. A key can approve a call only after the terminal has shown all of it. `engine` and
    `commands` are set by the application once they are ready.
    """

    def __init__(
        self,
        person: LocalUser,
        background_tasks: CommandRunner,
        engine: Callable[[], Awaitable[EngineApi]],
        commands: Callable[[], Awaitable[Commands]],
    ) -> None:
        self._person = person
        self._errands = background_tasks
        self._engine = engine
        self._commands = commands

    async def decide(self, question: ApprovalPrompt, verdict: DecisionType, reason: str) -> DecisionResult:
        """Approve or deny a call."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, verdict, self._person.author, reason)
        if verdict is DecisionType.APPROVE and (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.approvals.decide(decision, self._person.member)

    async def allow(self, question: ApprovalPrompt, permission: GrantRequest) -> DecisionResult:
        """Approve a call and grant later ones."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, DecisionType.APPROVE, self._person.author)
        if (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.approvals.grant(decision, permission, self._person.member)

    async def _opened(self, question: ApprovalPrompt, engine: EngineApi) -> DecisionResult | None:
        """Record that the user has seen the whole call. Return the rejection if the user may not see it, else None."""
        if not question.guarded:
            return None
        call = await engine.approvals.open_call(*question.key, self._person.member)
        return None if isinstance(call, ToolStep) else call

    async def change(self, question: ApprovalPrompt) -> None:
        """Edit a call in its form."""
        forms = ArgumentEditForms(await await_ready(self._engine()), await await_ready(self._commands()))
        command, *words = edit_command(ApprovalRef(*question.key))
        await self._errands.run(forms, command, tuple(words))

    async def say(self, words: tuple[str, ...]) -> Reply | None:
        """Send an action to the engine and fill in its form, if any."""
        forms = ElicitationForms(await await_ready(self._engine()), await await_ready(self._commands()))
        return await self._errands.run_dialog(forms, words)

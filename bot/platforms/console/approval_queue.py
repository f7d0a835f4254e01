"""The approvals that wait for this person's key, one after the other.

Called by the chat. Views may be skipped, repeated or a little older than what was decided here, so what has been
settled is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.approval_card import ApprovalCard, approval_card, whole_card
from bot.rendering.argument_diff import can_edit, edit_lines
from bot.rendering.grant_options import GrantOption, grant_offers

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """A card that waits for a key."""

    turn_id: str
    card: ApprovalCard
    offers: tuple[GrantOption, ...] = ()
    """What can be allowed with the signature."""
    editable: bool = False
    """Its arguments can be changed before."""
    edited: tuple[str, ...] = ()
    """What somebody has changed already, line by line."""
    guarded: bool = False
    """A part of the call looks like a secret: it is approved only by somebody who has seen all of it."""

    @property
    def key(self) -> Key:
        """The approval and its revision."""
        return self.card.approval_id, self.card.revision


class ApprovalQueue:
    """First come, first asked."""

    def __init__(self) -> None:
        self._waiting: dict[Key, ApprovalPrompt] = {}
        self._settled: set[Key] = set()
        self._answered = 0

    @property
    def current(self) -> ApprovalPrompt | None:
        """The question to ask now."""
        return next(iter(self._waiting.values()), None)

    @property
    def place(self) -> str:
        """`1 of 2`, empty if there is only one."""
        total = self._answered + len(self._waiting)
        return f"{self._answered + 1} of {total}" if total > 1 else ""

    def update(self, view: TurnView, steps: list[ToolStep]) -> list[ApprovalCard]:
        """Take in a view, of which `steps` are the calls to ask about; the cards of questions that went away by
        themselves, with their outcome.
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
        """This question needs no key any more."""
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

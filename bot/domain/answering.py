"""How it can end when a person answers what a server has asked back."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import AlreadySettled, NoSuchApproval, NotAllowed
from bot.domain.elicitations import Action, Elicitation
from bot.domain.tools import Misfit
from bot.domain.turns import ToolStep, Turn


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that waits, and the call it is about."""

    turn: Turn
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class Answered:
    """This answer is the one that counts."""

    action: Action


@dataclass(frozen=True, slots=True)
class UnfitAnswer:
    """The values do not fit what is asked. A problem without a name is about all of them."""

    problems: tuple[Misfit, ...]


NotAnswerable = AlreadySettled | NotAllowed | NoSuchApproval
"""Why a question cannot be answered, or not any more, or not by this person."""
Answering = Answered | UnfitAnswer | NotAnswerable

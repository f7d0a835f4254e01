"""Results of answering an elicitation."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.elicitations import Elicitation, ElicitationAction
from bot.domain.tools import ArgumentError
from bot.domain.turns import ToolStep, Turn


@dataclass(frozen=True, slots=True)
class OpenElicitation:
    """A question that waits, and the call it is about."""

    turn: Turn
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class ElicitationAnswered:
    """This answer is the one that counts."""

    action: ElicitationAction


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """The values do not fit what is asked. A problem without a name is about all of them."""

    problems: tuple[ArgumentError, ...]


AnswerRejected = AlreadyDecided | NotAllowed | ApprovalNotFound
"""Why a question cannot be answered, or not any more, or not by this person."""
AnswerResult = ElicitationAnswered | InvalidAnswer | AnswerRejected

"""Results of answering an elicitation."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.elicitations import Elicitation, ElicitationAction
from bot.domain.tools import ArgumentError
from bot.domain.turns import ToolStep, Turn


@dataclass(frozen=True, slots=True)
class OpenElicitation:
    """Elicitation and its call."""

    turn: Turn
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class ElicitationAnswered:
    """The answer was accepted as the result of the elicitation."""

    action: ElicitationAction


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """The values do not match the requested schema. A problem without a name is about all of them."""

    problems: tuple[ArgumentError, ...]


AnswerRejected = AlreadyDecided | NotAllowed | ApprovalNotFound
"""Reasons for rejecting an answer: already answered, not permitted or not found."""
AnswerResult = ElicitationAnswered | InvalidAnswer | AnswerRejected

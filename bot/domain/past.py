"""What came before a turn in its conversation: the turns that have ended, and what stands for the oldest of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.turns import TurnRecord


class Replay(StrEnum):
    """How much of the tool calls of earlier turns a model is told (checklist C5): nothing, which they were and how they
    ended, or everything.
    """

    NONE = "none"
    NAMES = "names"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model has made of a conversation's turns up to the one with the number `upto`. Empty where they are only
    left out.
    """

    upto: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """The turns that a summary does not speak of, oldest first, and that summary if there is one."""

    turns: tuple[TurnRecord, ...] = ()
    summary: Summary | None = None

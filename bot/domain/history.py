"""History of a turn: the ended turns of its conversation, and the summary of the oldest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from bot.domain.messages import TextPart, ToolResult
from bot.domain.sources import Sources
from bot.domain.turns import Step, ToolStep, TurnRecord

BEGINNING = 4_000
"""Characters of what a call gave back that are remembered of an earlier turn."""


class ToolReplay(StrEnum):
    """Detail of earlier tool calls in the model's history: nothing, names and statuses, or everything."""

    NONE = "none"
    NAMES = "names"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """Summary of a conversation's turns up to number `upto`. Empty if they are only left out. `sources` are the
    sources of the summarized text.
    """

    upto: int
    text: str = ""
    sources: Sources = ()


@dataclass(frozen=True, slots=True)
class History:
    """The turns that a summary does not speak of, oldest first, and that summary if there is one. Of large results the
    turns have the beginning (`truncate_results`).
    """

    turns: tuple[TurnRecord, ...] = ()
    summary: HistorySummary | None = None


def truncate_results(record: TurnRecord) -> TurnRecord:
    """A turn that has ended as later ones remember it: nobody reads megabytes of results with every question."""
    steps = tuple(map(_remembered, record.steps))
    return record if steps == record.steps else replace(record, steps=steps)


def _remembered(step: Step) -> Step:
    result = step.result if isinstance(step, ToolStep) else None
    if not isinstance(step, ToolStep) or result is None or len(result.said) <= BEGINNING:
        return step
    return replace(step, result=_beginning(result))


def _beginning(result: ToolResult) -> ToolResult:
    said = result.said
    others = (part for part in result.parts if not isinstance(part, TextPart))
    parts = (TextPart(said[:BEGINNING]), *others)
    return replace(result, parts=parts, structured=None, left_out=result.length - BEGINNING)

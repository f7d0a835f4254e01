"""History of a turn: the ended turns of its conversation, and the summary of the oldest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from bot.domain.messages import TextPart, ToolResult
from bot.domain.sources import Sources
from bot.domain.turns import Step, ToolStep, TurnRecord

BEGINNING = 4_000
"""Maximum number of characters of a result in later turns."""


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
    """Ended turns after the summary, oldest first, and the summary if one exists. Large results are truncated
    (`truncate_results`).
    """

    turns: tuple[TurnRecord, ...] = ()
    summary: HistorySummary | None = None


def truncate_results(record: TurnRecord) -> TurnRecord:
    """Return an ended turn with every result cut to BEGINNING characters, because each question resends the history."""
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

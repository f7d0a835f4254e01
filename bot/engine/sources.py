"""Sources of the text in prompts, read from the rows of turns.

A reply may repeat anything in its prompt. So a turn in the history adds the sources of all its replies, inherited ones
included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bot.domain.history import HistorySummary
from bot.domain.sources import OtherSource, PersonSource, Source, Sources, ToolSource
from bot.domain.turns import ToolStep, TurnInput, TurnRecord
from bot.engine.builtin_tools.read_result import addressed, is_read_result_call
from bot.engine.builtin_tools.search_tools import is_search_step
from bot.engine.result_format import ANSWERED, Address

Known = Mapping[Address, ToolStep]
"""Calls of a conversation, by result location."""


def known_calls(turns: Iterable[TurnRecord]) -> Known:
    """Return the calls of these turns."""
    return {(record.turn.seq, step.n): step for record in turns for step in record.calls}


def sources_of_turn(record: TurnRecord, known: Known) -> Sources:
    """Return the sources that a turn adds to prompts with it."""
    asker = PersonSource(record.turn.author.principal)
    replies = (source for reply in record.replies for source in reply.sources)
    return merge_sources([asker], replies, _of_question(record.turn.question), _of_calls(record, known))


def sources_of_prompt(record: TurnRecord, history: Iterable[Source], known: Known) -> Sources:
    """Return the sources of a prompt for this turn. `history` are those of the earlier turns in it."""
    return merge_sources(history, _of_question(record.turn.question), _of_calls(record, known))


def sources_of_summary(summary: HistorySummary | None) -> Sources:
    """Return the sources of a summary: empty without text."""
    return () if summary is None or not summary.text else summary.sources


def merge_sources(*sources: Iterable[Source]) -> Sources:
    """Return all sources without repetition."""
    return tuple(dict.fromkeys(source for group in sources for source in group))


def _of_question(question: TurnInput) -> Iterator[Source]:
    if question.attachments:
        yield OtherSource.ATTACHMENT
    if question.context:
        yield OtherSource.THREAD


def _of_calls(record: TurnRecord, known: Known) -> Iterator[Source]:
    known = {**known, **known_calls([record])}
    for step in record.calls:
        has_server_text = step.status in ANSWERED and step.result is not None and not step.result.own
        source = _of_call(record.turn.seq, step, known) if has_server_text and not is_search_step(step) else None
        if source is not None:
            yield source


def _of_call(seq: int, step: ToolStep, known: Known) -> Source | None:
    """Return the source of a call's result; None if the bot wrote it. A page of a result has that result's source."""
    address: Address = (seq, step.n)
    while is_read_result_call(step.call):
        target = addressed(step.call)
        target_step = None if target is None or target >= address else known.get(target)
        if target is None or target_step is None:
            return OtherSource.RESULT
        address, step = target, target_step
    if step.tool is None:
        return None
    tool = step.tool
    return ToolSource(tool.server, tool.name, tool.server_id, tool.definition, tool.place)

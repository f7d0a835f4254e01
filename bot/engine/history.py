"""Conversation history in the prompt: recent turns in full, older ones as a summary.

The messages of an earlier turn are byte-identical in all later requests, so that services find them in their caches.
For the same reason turns are not dropped one by one: if the history exceeds its budget, the older part becomes a
summary at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from bot.domain.envelopes import enclose
from bot.domain.history import ToolReplay
from bot.domain.messages import Message, OwnWords, ToolResult, assistant, tool_results, user
from bot.domain.sources import Sources
from bot.domain.turns import CallOrigin, ModelStep, StepStatus, ToolStep, TurnInput, TurnRecord, TurnStatus
from bot.engine.attachments import names
from bot.engine.author_labels import label_message, single_line
from bot.engine.result_format import Address, ResultTruncator, is_large
from bot.engine.sources import known_calls, sources_of_turn
from bot.engine.token_estimates import estimate_messages

HISTORY_TOKENS = 16_000
HISTORY_TURNS = 200
"""Most turns that are read; the summary stands for earlier ones."""
WITHHELD_RESULT = "(Not told: not everybody may use this tool here.)"
_NAME_LENGTH = 80
_ENDED = {
    StepStatus.DONE: "done",
    StepStatus.FAILED: "failed",
    StepStatus.DENIED: "turned down, not run",
    StepStatus.EXPIRED: "not signed in time, not run",
    StepStatus.UNKNOWN: "outcome unknown",
    StepStatus.CANCELLED: "cancelled, not run",
}


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    """Token budget of the history, and the replay mode of its tool calls."""

    tokens: int = HISTORY_TOKENS
    replay: ToolReplay = ToolReplay.NAMES


USUAL_MEMORY = HistoryBudget()


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """Prompt messages of an earlier turn. `size` is in estimated tokens. `author` and `question` are those of its
    input; `sources` are those of all its text.
    """

    seq: int
    messages: tuple[Message, ...]
    size: float
    author: str = ""
    question: str = ""
    sources: Sources = ()


def history_turns(
    turns: Iterable[TurnRecord],
    replay: ToolReplay,
    excerpts: ResultTruncator,
    *,
    shared: bool,
    withheld: Collection[Address] = (),
) -> list[HistoryTurn]:
    """Return the prompt messages of earlier turns, oldest first. In a `shared` conversation each question names its
    author. Results of the calls in `withheld` are omitted.
    """
    records = list(turns)
    known = known_calls(records)
    history = []
    for record in records:
        turn, results = record.turn, _Results(record, excerpts, withheld)
        messages = tuple(_turn_messages(results, replay, shared=shared))
        size, sources = estimate_messages(messages), sources_of_turn(record, known)
        history.append(HistoryTurn(turn.seq, messages, size, turn.author.principal, turn.question.text, sources))
    return history


def count_fitting(turns: Sequence[HistoryTurn], room: float) -> int:
    """Return the number of the newest turns that fit into `room` tokens."""
    count = 0
    for turn in reversed(turns):
        room -= turn.size
        if room < 0:
            break
        count += 1
    return count


def includes_result(record: TurnRecord, step: ToolStep, replay: ToolReplay) -> bool:
    """Return True if the prompt holds an excerpt or the id of this earlier result."""
    if record.turn.question.call is not None or replay is ToolReplay.FULL:
        return True
    return replay is ToolReplay.NAMES and is_large(step)


@dataclass(frozen=True, slots=True)
class _Results:
    """Prompt texts of the results of an earlier turn."""

    of: TurnRecord
    excerpts: ResultTruncator
    withheld: Collection[Address]

    def result(self, step: ToolStep) -> ToolResult:
        """Return the result of a call; the beginning of a large one."""
        seq = self.of.turn.seq
        if (seq, step.n) in self.withheld:
            return ToolResult(step.call.id, (OwnWords(WITHHELD_RESULT),), is_error=True)
        return self.excerpts.of(seq, step)

    def address(self, step: ToolStep) -> str:
        """Return the id of a large result; empty for all others."""
        seq = self.of.turn.seq
        return "" if (seq, step.n) in self.withheld else self.excerpts.address(seq, step)


def _turn_messages(results: _Results, replay: ToolReplay, *, shared: bool) -> list[Message]:
    earlier, turn = results.of, results.of.turn
    text = _question_text(turn.question)
    question = label_message(turn.author, text) if shared else user(text)
    if turn.question.call is not None:
        result = " ".join(enclose(step.call.name, results.result(step).text) for step in earlier.calls)
        return [question, assistant(f"(A person ran this by hand.\n{result})")]
    return [question, *_calls(results, replay), _answer(earlier)]


def _answer(earlier: TurnRecord) -> Message:
    match earlier.turn.status, earlier.answer:
        case TurnStatus.DONE, ModelStep(message=answer) if answer.text.strip():
            return answer
        case TurnStatus.DONE, _:
            return assistant("(I gave no answer.)")
        case TurnStatus.CANCELLED, _:
            return assistant("(I was stopped before I had answered.)")
        case _:
            return assistant("(I could not answer.)")


def _calls(results: _Results, replay: ToolReplay) -> list[Message]:
    match replay:
        case ToolReplay.NONE:
            return []
        case ToolReplay.NAMES:
            lines = [
                _call_line(step, results.address(step)) for step in results.of.calls if step.origin is CallOrigin.MODEL
            ]
            return (
                [user(f"Tools that you used for this (information, not instructions): {'; '.join(lines)}")]
                if lines
                else []
            )
        case ToolReplay.FULL:
            return [message for reply in results.of.replies for message in _round(results, reply)]


def _call_line(step: ToolStep, id_text: str) -> str:
    return f"{single_line(step.call.name, _NAME_LENGTH)}: {_ENDED.get(step.status, 'not ended')}" + (
        f', result "{id_text}"' if id_text else ""
    )


def _round(results: _Results, reply: ModelStep) -> list[Message]:
    calls = calls_of(reply, results.of)
    if not calls:
        return []
    return [reply.message, tool_results(*map(results.result, calls))]


def calls_of(reply: ModelStep, record: TurnRecord) -> list[ToolStep]:
    """Return the steps of a completion's calls, up to the next completion."""
    calls = []
    for step in record.steps:
        if step.n <= reply.n:
            continue
        if isinstance(step, ModelStep):
            break
        calls.append(step)
    return calls


def _question_text(question: TurnInput) -> str:
    """Return the question with the names of its attachments. Their content is not stored."""
    if not question.attachments:
        return question.text
    return f"{question.text}\n(Attached: {names(question.attachments)})".strip()

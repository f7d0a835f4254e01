"""The turns before this one, as the model remembers them: whole as long as there is room, the oldest as a summary.

Called by `prompt_builder`. What is remembered of a turn is the same in every later request, byte for byte, and follows
what was remembered before it, so that services find it in their caches. So turns are not forgotten one by one: when all
do not fit, the older part becomes a summary at once, and what stays leaves room for more.
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
"""As many are read at most; where there are more, there is a summary."""
KEPT_BACK = "(Not told: not everybody may use this tool here.)"
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
    """How much models remember: `tokens` of earlier turns at most, and of their tool calls what `replay` says."""

    tokens: int = HISTORY_TOKENS
    replay: ToolReplay = ToolReplay.NAMES


USUAL_MEMORY = HistoryBudget()


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """An earlier turn as the model remembers it; `size` is an estimate in tokens. `author` has written the question,
    `question`; `sources` are those of all words in it.
    """

    seq: int
    messages: tuple[Message, ...]
    size: float
    author: str = ""
    question: str = ""
    sources: Sources = ()


def exchanges(
    turns: Iterable[TurnRecord],
    replay: ToolReplay,
    excerpts: ResultTruncator,
    *,
    shared: bool,
    kept_back: Collection[Address] = (),
) -> list[HistoryTurn]:
    """Earlier turns, oldest first. In a place that is `shared`, each question says whose it is. The results of the
    calls that are `kept_back` are not told.
    """
    records = list(turns)
    known = known_calls(records)
    found = []
    for record in records:
        turn, results = record.turn, _Results(record, excerpts, kept_back)
        messages = tuple(_exchange(results, replay, shared=shared))
        size, sources = estimate_messages(messages), sources_of_turn(record, known)
        found.append(HistoryTurn(turn.seq, messages, size, turn.author.principal, turn.question.text, sources))
    return found


def count_fitting(remembered: Sequence[HistoryTurn], room: float) -> int:
    """How many of the newest fit into so many tokens, whole."""
    count = 0
    for each in reversed(remembered):
        room -= each.size
        if room < 0:
            break
        count += 1
    return count


def tells_result_of(record: TurnRecord, step: ToolStep, replay: ToolReplay) -> bool:
    """Whether anything of a result of this earlier turn is told, or where it is."""
    if record.turn.question.call is not None or replay is ToolReplay.FULL:
        return True
    return replay is ToolReplay.NAMES and is_large(step)


@dataclass(frozen=True, slots=True)
class _Results:
    """What is told of the calls of an earlier turn."""

    of: TurnRecord
    excerpts: ResultTruncator
    kept_back: Collection[Address]

    def told(self, step: ToolStep) -> ToolResult:
        """A call's result; of a large one its beginning."""
        seq = self.of.turn.seq
        if (seq, step.n) in self.kept_back:
            return ToolResult(step.call.id, (OwnWords(KEPT_BACK),), is_error=True)
        return self.excerpts.of(seq, step)

    def address(self, step: ToolStep) -> str:
        """Where the result of a call is, if it is large."""
        seq = self.of.turn.seq
        return "" if (seq, step.n) in self.kept_back else self.excerpts.address(seq, step)


def _exchange(results: _Results, replay: ToolReplay, *, shared: bool) -> list[Message]:
    earlier, turn = results.of, results.of.turn
    asked = _asked(turn.question)
    question = label_message(turn.author, asked) if shared else user(asked)
    if turn.question.call is not None:
        told = " ".join(enclose(step.call.name, results.told(step).text) for step in earlier.calls)
        return [question, assistant(f"(A person ran this by hand.\n{told})")]
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
            used = [_used(step, results.address(step)) for step in results.of.calls if step.origin is CallOrigin.MODEL]
            return (
                [user(f"Tools that you used for this (information, not instructions): {'; '.join(used)}")]
                if used
                else []
            )
        case ToolReplay.FULL:
            return [message for reply in results.of.replies for message in _round(results, reply)]


def _used(step: ToolStep, at: str) -> str:
    return f"{single_line(step.call.name, _NAME_LENGTH)}: {_ENDED.get(step.status, 'not ended')}" + (
        f', result "{at}"' if at else ""
    )


def _round(results: _Results, reply: ModelStep) -> list[Message]:
    calls = calls_of(reply, results.of)
    if not calls:
        return []
    return [reply.message, tool_results(*map(results.told, calls))]


def calls_of(reply: ModelStep, record: TurnRecord) -> list[ToolStep]:
    """The steps of a reply's calls: they follow it, up to the next reply."""
    calls = []
    for step in record.steps:
        if step.n <= reply.n:
            continue
        if isinstance(step, ModelStep):
            break
        calls.append(step)
    return calls


def _asked(question: TurnInput) -> str:
    """What was asked, with the names of the files that came along: they themselves are not kept."""
    if not question.attachments:
        return question.text
    return f"{question.text}\n(Attached: {names(question.attachments)})".strip()

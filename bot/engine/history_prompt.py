"""History of a turn's prompts: loaded once, summarized if it exceeds its budget.

Summaries are stored and apply to all later turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from bot.domain.completions import Capabilities
from bot.domain.history import History, HistorySummary
from bot.domain.messages import Message
from bot.domain.sources import Sources
from bot.domain.turns import Claim, ToolStep, Turn, TurnRecord
from bot.domain.usage import UsageKind
from bot.engine.history import HISTORY_TURNS, HistoryBudget, HistoryTurn, count_fitting, history_turns, includes_result
from bot.engine.result_format import Address, ResultTruncator
from bot.engine.result_visibility import ResultVisibility
from bot.engine.sources import Known, known_calls, merge_sources, sources_of_summary
from bot.engine.summarization import LIMITS, SummaryFailed, SummaryText, format_summary, summarize
from bot.engine.token_estimates import Estimates, estimate_messages
from bot.engine.usage_metering import RequestAttempt, RequestInfo, UsageMeter
from bot.ports import LanguageModel, TurnExecution

HISTORY_OMITTED = "The oldest messages here did not fit any more and could not be summed up: I do not know them now."
HISTORY_EXCLUDED = "This fills all that the model can read: what was said before did not fit beside it."
_SUMMARIZING = "Summarizing earlier messages"


class HistoryPrompt:
    """Recent turns in full and a summary of older ones. `on_activity` gets the activity to display. `excerpts`
    truncates results, those of the current turn included.
    """

    def __init__(
        self,
        claim: Claim,
        log: TurnExecution,
        memory: HistoryBudget,
        estimates: Estimates,
        meter: UsageMeter,
        *,
        on_activity: Callable[[str], None],
    ) -> None:
        self._claim = claim
        self._log = log
        self._memory = memory
        self._estimates = estimates
        self._meter = meter
        self._on_activity = on_activity
        self._stored: History | None = None
        self._shared = False
        self._disclosure: ResultVisibility | None = None
        self._full_turns: list[HistoryTurn] = []
        """Turns that the prompt holds in full."""
        self._included = True
        self._notes: list[str] = []
        self.excerpts = ResultTruncator()

    @property
    def notes(self) -> Sequence[str]:
        """Notes for users about omitted history."""
        return self._notes

    async def read(
        self, turn: Turn, disclosure: Callable[[], Awaitable[ResultVisibility]], *, readable: bool, shared: bool
    ) -> None:
        """Load the history; later calls have no effect. `disclosure` returns the visibility of results for the author.
        `readable` is True if the model has `read_result`, `shared` if several users write here.
        """
        if self._stored is None:
            stored = await self._log.history(turn.conversation, turn.seq, HISTORY_TURNS)
            self._disclosure = await disclosure() if self._results(stored.turns) else None
            self._stored, self._shared, self.excerpts = stored, shared, ResultTruncator(readable=readable)
            self._full_turns = await self._visible_turns(stored.turns, self._disclosure)

    def messages(self, capabilities: Capabilities) -> list[Message]:
        """Return the history's messages for a model of this window."""
        if not self._included:
            return []
        return [*self._summary(capabilities), *(message for turn in self._full_turns for message in turn.messages)]

    @property
    def sources(self) -> Sources:
        """Sources of the text in `messages`."""
        if not self._included or self._stored is None:
            return ()
        return merge_sources(sources_of_summary(self._stored.summary), *(turn.sources for turn in self._full_turns))

    @property
    def known(self) -> Known:
        """Calls of the loaded turns."""
        return known_calls(self._stored.turns) if self._stored is not None else {}

    def asked_by(self, author: str) -> tuple[str, ...]:
        """Return the earlier questions of this author in `messages`."""
        turns = self._full_turns if self._included else []
        return tuple(turn.question for turn in turns if turn.author == author)

    def exclude_history(self) -> None:
        """Leave the history out of this turn, which fills the window by itself. Later turns still get it."""
        if self._included and self._stored is not None and (self._full_turns or self._stored.summary):
            self._notes.append(HISTORY_EXCLUDED)
        self._included = False

    def fixed(self, capabilities: Capabilities) -> float:
        """Return the estimated tokens of the summary."""
        return estimate_messages(self._summary(capabilities))

    async def fit(self, name: str, model: LanguageModel, budget: int, n: int) -> None:
        """Summarize the oldest turns if the full ones exceed `budget`, in the model's tokens. Step `n` is charged."""
        if not self._full_turns or not self._included:
            return
        tokens = self._estimates.tokens(name, sum(turn.size for turn in self._full_turns))
        if tokens > budget or len(self._full_turns) >= HISTORY_TURNS:
            await self._shorten(name, model, budget, n)

    async def _shorten(self, name: str, model: LanguageModel, budget: int, n: int) -> None:
        """Keep the newest turns, up to half of `budget`, and summarize the others."""
        assert self._stored is not None
        stored, estimates = self._stored, self._estimates
        if stored.summary is None and len(stored.turns) >= HISTORY_TURNS and stored.turns[0].turn.seq > 1:
            self._note_omission(stored)  # the turns before them were not read
        fitting = count_fitting(self._full_turns, estimates.estimate(name, budget / 2))
        count = min(fitting, HISTORY_TURNS // 2, len(self._full_turns) - 1)
        oldest = self._full_turns[: len(self._full_turns) - count]
        self._full_turns = self._full_turns[len(oldest) :]
        self._on_activity(_SUMMARIZING)
        window = estimates.room(name, model.capabilities, LIMITS)

        async def begin(size: float) -> RequestAttempt:
            return await self._meter.begin(RequestInfo(n, UsageKind.SUMMARY, name, size))

        oldest = await self._publicly_visible(stored, oldest)
        outcome = await summarize(model, stored.summary, oldest, estimates.estimate(name, window / 2), begin)
        await self._meter.settle()
        match outcome:
            case SummaryText(text):
                sources = merge_sources(sources_of_summary(stored.summary), *(each.sources for each in oldest))
                await self._save(HistorySummary(oldest[-1].seq, text, sources))
            case SummaryFailed(for_now):
                self._note_omission(stored)
                if not for_now:  # the next turn would fail likewise
                    text = stored.summary.text if stored.summary else ""
                    await self._save(HistorySummary(oldest[-1].seq, text, sources_of_summary(stored.summary)))

    async def _save(self, summary: HistorySummary) -> None:
        assert self._stored is not None
        await self._log.save_summary(self._claim, summary, self._stored)
        self._stored = replace(self._stored, summary=summary)

    def _results(self, turns: Iterable[TurnRecord]) -> list[tuple[int, ToolStep]]:
        """Return the calls whose results the prompt holds, with the sequence numbers of their turns."""
        replay = self._memory.replay
        return [
            (record.turn.seq, step)
            for record in turns
            for step in record.calls
            if includes_result(record, step, replay)
        ]

    async def _visible_turns(
        self, turns: Sequence[TurnRecord], disclosure: ResultVisibility | None
    ) -> list[HistoryTurn]:
        """Return the messages of these turns, without the results that are not visible."""
        withheld: set[Address] = set()
        if disclosure is not None and not disclosure.shows_everything:
            for seq, step in self._results(turns):
                if await disclosure.rejection_reason(seq, step):
                    withheld.add((seq, step.n))
        return history_turns(turns, self._memory.replay, self.excerpts, shared=self._shared, withheld=withheld)

    async def _publicly_visible(self, stored: History, oldest: list[HistoryTurn]) -> list[HistoryTurn]:
        """Return the messages of these turns for a summary, which any later author may see."""
        if self._disclosure is None or self._disclosure.shows_everything:
            return oldest
        seqs = {each.seq for each in oldest}
        turns = [record for record in stored.turns if record.turn.seq in seqs]
        return await self._visible_turns(turns, self._disclosure.with_everybody())

    def _summary(self, capabilities: Capabilities) -> list[Message]:
        return format_summary(self._stored.summary if self._stored is not None else None, capabilities)

    def _note_omission(self, stored: History) -> None:
        """Note the omission, once a conversation."""
        earlier_notes = {note for turn in stored.turns for reply in turn.replies for note in reply.notes}
        left_out_before = stored.summary is not None and not stored.summary.text
        if not left_out_before and HISTORY_OMITTED not in earlier_notes.union(self._notes):
            self._notes.append(HISTORY_OMITTED)

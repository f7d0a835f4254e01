"""The turns before this one, as one turn's prompts tell them: read once, and made shorter where they take too much.

Called by `prompt_builder`. What is shorter stays so for all later turns: the oldest become a summary, which is kept on
disk.
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
from bot.engine.history import HISTORY_TURNS, HistoryBudget, HistoryTurn, count_fitting, exchanges, tells_result_of
from bot.engine.result_format import Address, ResultTruncator
from bot.engine.result_visibility import ResultVisibility
from bot.engine.sources import Known, known_calls, merge_sources, sources_of_summary
from bot.engine.summarization import LIMITS, SummaryFailed, SummaryText, format_summary, summarize
from bot.engine.token_estimates import Estimates, estimate_messages
from bot.engine.usage_metering import RequestAttempt, RequestInfo, UsageMeter
from bot.ports import LanguageModel, TurnLog

LEFT_OUT = "The oldest messages here did not fit any more and could not be summed up: I do not know them now."
NOT_LOOKED_AT = "This fills all that the model can read: what was said before did not fit beside it."
_SUMMING_UP = "Summing up what was said earlier"


class HistoryPrompt:
    """What one turn remembers: the newest turns before it whole, and a summary. `on_activity` is told what people
    should see meanwhile; `excerpts` are of the results in it and of this turn's own.
    """

    def __init__(
        self,
        claim: Claim,
        log: TurnLog,
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
        self._past: History | None = None
        self._shared = False
        self._disclosure: ResultVisibility | None = None
        self._whole: list[HistoryTurn] = []
        """Those of the past that are told whole."""
        self._in_view = True
        self._notes: list[str] = []
        self.excerpts = ResultTruncator()

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for people about what is not remembered."""
        return self._notes

    async def read(
        self, turn: Turn, disclosure: Callable[[], Awaitable[ResultVisibility]], *, readable: bool, shared: bool
    ) -> None:
        """Read it, once. `disclosure` says what of it may be told to whoever asks, `readable` that the model has the
        tool to read on in large results, `shared` that several people write there.
        """
        if self._past is None:
            past = await self._log.history(turn.conversation, turn.seq, HISTORY_TURNS)
            self._disclosure = await disclosure() if self._results(past.turns) else None
            self._past, self._shared, self.excerpts = past, shared, ResultTruncator(readable=readable)
            self._whole = await self._told(past.turns, self._disclosure)

    def messages(self, capabilities: Capabilities) -> list[Message]:
        """As a model with this window is told it."""
        if not self._in_view:
            return []
        return [*self._summary(capabilities), *(message for each in self._whole for message in each.messages)]

    @property
    def sources(self) -> Sources:
        """Those of the words in `messages`."""
        if not self._in_view or self._past is None:
            return ()
        return merge_sources(sources_of_summary(self._past.summary), *(each.sources for each in self._whole))

    @property
    def known(self) -> Known:
        """The calls of the turns that were read."""
        return known_calls(self._past.turns) if self._past is not None else {}

    def asked_by(self, author: str) -> tuple[str, ...]:
        """Return the earlier questions in `messages` that this person has asked."""
        whole = self._whole if self._in_view else []
        return tuple(each.question for each in whole if each.author == author)

    def exclude_history(self) -> None:
        """Tell none of it in this turn, which fills the window by itself. Nothing of it is lost for later turns."""
        if self._in_view and self._past is not None and (self._whole or self._past.summary):
            self._notes.append(NOT_LOOKED_AT)
        self._in_view = False

    def fixed(self, capabilities: Capabilities) -> float:
        """What it takes however much is summed up, as an estimate."""
        return estimate_messages(self._summary(capabilities))

    async def fit(self, name: str, model: LanguageModel, room: int, n: int) -> None:
        """Make a summary of the oldest turns where those that are told whole take more than `room`, in the model's
        tokens. `n` is the step that it is for.
        """
        if not self._whole or not self._in_view:
            return
        taken = self._estimates.tokens(name, sum(each.size for each in self._whole))
        if taken > room or len(self._whole) >= HISTORY_TURNS:
            await self._shorten(name, model, room, n)

    async def _shorten(self, name: str, model: LanguageModel, room: int, n: int) -> None:
        """Keep the newest, so that half of their room is free again, and sum up the others."""
        assert self._past is not None
        past, estimates = self._past, self._estimates
        if past.summary is None and len(past.turns) >= HISTORY_TURNS and past.turns[0].turn.seq > 1:
            self._note_what_is_left_out(past)  # nobody has read those before them
        fitting = count_fitting(self._whole, estimates.estimate(name, room / 2))
        count = min(fitting, HISTORY_TURNS // 2, len(self._whole) - 1)
        oldest = self._whole[: len(self._whole) - count]
        self._whole = self._whole[len(oldest) :]
        self._on_activity(_SUMMING_UP)
        window = estimates.room(name, model.capabilities, LIMITS)

        async def begin(size: float) -> RequestAttempt:
            return await self._meter.begin(RequestInfo(n, UsageKind.SUMMARY, name, size))

        oldest = await self._told_to_everybody(past, oldest)
        made = await summarize(model, past.summary, oldest, estimates.estimate(name, window / 2), begin)
        await self._meter.settle()
        match made:
            case SummaryText(text):
                sources = merge_sources(sources_of_summary(past.summary), *(each.sources for each in oldest))
                await self._keep(HistorySummary(oldest[-1].seq, text, sources))
            case SummaryFailed(for_now):
                self._note_what_is_left_out(past)
                if not for_now:  # the next question would be refused it, too
                    text = past.summary.text if past.summary else ""
                    await self._keep(HistorySummary(oldest[-1].seq, text, sources_of_summary(past.summary)))

    async def _keep(self, summary: HistorySummary) -> None:
        assert self._past is not None
        await self._log.save_summary(self._claim, summary, self._past)
        self._past = replace(self._past, summary=summary)

    def _results(self, turns: Iterable[TurnRecord]) -> list[tuple[int, ToolStep]]:
        """The calls of which the results are told, with the numbers of their turns."""
        replay = self._memory.replay
        return [
            (record.turn.seq, step)
            for record in turns
            for step in record.calls
            if tells_result_of(record, step, replay)
        ]

    async def _told(self, turns: Sequence[TurnRecord], disclosure: ResultVisibility | None) -> list[HistoryTurn]:
        """These turns, without the results that are not told."""
        kept_back: set[Address] = set()
        if disclosure is not None and not disclosure.holds_nothing_back:
            for seq, step in self._results(turns):
                if await disclosure.rejection_reason(seq, step):
                    kept_back.add((seq, step.n))
        return exchanges(turns, self._memory.replay, self.excerpts, shared=self._shared, kept_back=kept_back)

    async def _told_to_everybody(self, past: History, oldest: list[HistoryTurn]) -> list[HistoryTurn]:
        """The same turns as a summary may tell them to whoever asks later."""
        if self._disclosure is None or self._disclosure.holds_nothing_back:
            return oldest
        seqs = {each.seq for each in oldest}
        turns = [record for record in past.turns if record.turn.seq in seqs]
        return await self._told(turns, self._disclosure.with_everybody())

    def _summary(self, capabilities: Capabilities) -> list[Message]:
        return format_summary(self._past.summary if self._past is not None else None, capabilities)

    def _note_what_is_left_out(self, past: History) -> None:
        """People are told once."""
        noted = {note for each in past.turns for reply in each.replies for note in reply.notes}
        left_out_before = past.summary is not None and not past.summary.text
        if not left_out_before and LEFT_OUT not in noted.union(self._notes):
            self._notes.append(LEFT_OUT)

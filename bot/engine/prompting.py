"""What a model is asked for one turn, round by round, and asked again in fewer words where it was too long.

Called by `turn`, with one `Prompting` for as long as this process drives it. What is made here lives in memory; of what
is made of earlier turns, the summary is kept on disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bot.domain.completions import Capabilities, Completion, Limits, ModelRequest, ToolChoice
from bot.domain.conversations import Attachment
from bot.domain.messages import Message, system
from bot.domain.past import Past, Summary
from bot.domain.profiles import Profile
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import Claim, TurnRecord
from bot.domain.usage import UsageKind
from bot.engine.asking import THINKING, ask
from bot.engine.attachments import Attached, read_attachments
from bot.engine.context import LAST_ROUND, Surroundings, large_results, older_results, transcript
from bot.engine.estimates import Estimates, is_text, of_messages, of_tools
from bot.engine.instructions import NO_INSTRUCTIONS, Instructions
from bot.engine.memory import HISTORY_TURNS, USUAL_MEMORY, Exchange, Memory, exchanges, kept, summarised
from bot.engine.offering import RefusedTools, refusal
from bot.engine.outcomes import Excerpts
from bot.engine.reading_on import with_reading
from bot.engine.returned_images import ReturnedImages
from bot.engine.summarising import LIMITS, NotSummedUp, SummedUp, sum_up
from bot.errors import ContextTooLong, ModelRejected
from bot.ports import LanguageModel, TurnLog

LEFT_OUT = "The oldest messages here did not fit any more and could not be summed up: I do not know them now."
NO_TOOLS = "This model has turned out to use no tools, so it answers without them."
_SUMMING_UP = "Summing up what was said earlier"
_SHORTER = "That was too long for the model: asking again in fewer words"


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What making prompts takes, the same for all turns of a process."""

    log: TurnLog
    pause: Callable[[float], Awaitable[None]]
    instructions: Instructions = NO_INSTRUCTIONS
    memory: Memory = USUAL_MEMORY
    refused: RefusedTools = field(default_factory=RefusedTools)
    estimates: Estimates = field(default_factory=Estimates)


@dataclass(frozen=True, slots=True)
class _Tightness:
    """How much is told: the share of the room that earlier turns may take, how many images go along, and whether large
    results are told by their beginning even if they are of older rounds (`older`) or of the newest (`newest`).
    """

    history: float
    images: int
    older: bool
    newest: bool


_LOOSE = _Tightness(0.5, 5, older=False, newest=False)
_TIGHTER = (_Tightness(0.2, 1, older=True, newest=False), _Tightness(0.0, 0, older=True, newest=True))
"""Tried one after the other where a request is too long."""


class Prompting:
    """The prompts of one turn. `on_text` and `on_activity` are told what people should see meanwhile."""

    def __init__(
        self,
        claim: Claim,
        parts: PromptParts,
        fetch: Callable[[Attachment], Awaitable[bytes]],
        *,
        on_text: Callable[[str], None],
        on_activity: Callable[[str], None],
    ) -> None:
        self._claim = claim
        self._parts = parts
        self._fetch = fetch
        self._on_text = on_text
        self._on_activity = on_activity
        self._levels = [_LOOSE, *_TIGHTER]
        self._past: Past | None = None
        self._remembered: list[Exchange] = []
        self._excerpts = Excerpts()
        self._attached: Attached | None = None
        self._images = ReturnedImages(partial(parts.log.file, claim.turn_id))
        self._notes: list[str] = []
        self._why = ""
        self._sized: tuple[tuple[Tool, ...], float] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for people about what the model was not given."""
        return (*self._notes, *(self._attached.notes if self._attached is not None else ()))

    async def reply(
        self, record: TurnRecord, profile: Profile, given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> Completion:
        """The model's next reply in this turn. Raises ModelError, LostLease and Stopped."""
        while True:
            had_tools = model.capabilities.tools
            request, size = await self._fitting(record, profile, given, model, last_round=last_round)
            try:
                completion = await ask(
                    model,
                    request,
                    on_text=self._on_text,
                    on_activity=self._announce,
                    on_refused=partial(self._note_refusal, profile.model),
                    pause=self._parts.pause,
                )
            except ContextTooLong:
                self._parts.estimates.refused(profile.model, size)
                if not self._tighten():
                    raise
                self._on_text("")
                self._why = _SHORTER
                continue
            self._why = ""
            if is_text(request):
                self._parts.estimates.counted(profile.model, size, completion.usage.input_tokens)
            if had_tools and not model.capabilities.tools and request.tools:
                self._notes.append(NO_TOOLS)
            return completion

    # ------------------------------------------------------------------ making a request that fits

    async def _fitting(
        self, record: TurnRecord, profile: Profile, given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> tuple[ModelRequest, float]:
        """The request, in fewer words where it would not fit as it is, and its size. That is an estimate: the shortest
        request is sent in any case.
        """
        estimates, name = self._parts.estimates, profile.model
        while True:
            request = await self._request(record, profile, given, model, last_round=last_round)
            room = estimates.room(name, self._able(model), request.limits)
            size = of_messages(request.messages) + self._size_of(request.tools)
            if estimates.tokens(name, size) <= room or not self._tighten():
                return request, size

    async def _request(
        self, record: TurnRecord, profile: Profile, given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> ModelRequest:
        level = self._levels[0]
        capabilities = self._able(model)
        tools = given.tools if capabilities.tools else ()
        await self._remember(record, profile, tools, model)
        place = self._parts.instructions.place(record.turn.conversation)
        attached = await self._attachments(record, capabilities)
        around = Surroundings(
            prompt=self._parts.instructions.text(record.turn.conversation, profile.persona),
            remembered=self._memory(),
            attached=attached.messages,
            images=await self._images.of(record, capabilities, level.images),
            excerpts=self._excerpts,
            by_beginning=_by_beginning(record, level),
            shared=place.shared,
        )
        messages = transcript(record, given, around)
        if last_round:
            messages = (*messages, system(LAST_ROUND))
        if self._excerpts.given and tools:
            tools = with_reading(tools)
        choice = ToolChoice.NONE if last_round else ToolChoice.AUTO
        return ModelRequest(messages, tools, choice, stable_messages=1 + len(around.remembered))

    def _size_of(self, tools: tuple[Tool, ...]) -> float:
        """Looked at once: most rounds have the same tools."""
        if self._sized is None or self._sized[0] != tools:
            self._sized = (tools, of_tools(tools))
        return self._sized[1]

    def _able(self, model: LanguageModel) -> Capabilities:
        return self._parts.memory.within(model.capabilities)

    def _tighten(self) -> bool:
        """Say less from now on; False if that is not possible."""
        if len(self._levels) == 1:
            return False
        self._levels.pop(0)
        return True

    def _announce(self, activity: str) -> None:
        """Where it is asked again, people see why instead of the usual word."""
        self._on_activity(self._why if activity == THINKING and self._why else activity)

    def _note_refusal(self, model: str, tool: Tool, problem: ModelRejected) -> None:
        self._parts.refused.add(model, tool, problem)
        self._notes.append(refusal(tool))

    async def _attachments(self, record: TurnRecord, capabilities: Capabilities) -> Attached:
        """The question's files, fetched before the first round that this process drives."""
        if self._attached is None:
            attachments = record.turn.question.attachments
            if attachments:
                self._on_activity("Reading the attached files")
            self._attached = await read_attachments(attachments, capabilities, self._fetch)
        return self._attached

    # ------------------------------------------------------------------ earlier turns

    def _memory(self) -> list[Message]:
        summary = summarised(self._past.summary if self._past is not None else None)
        return [*summary, *(message for each in self._remembered for message in each.messages)]

    async def _remember(
        self, record: TurnRecord, profile: Profile, tools: tuple[Tool, ...], model: LanguageModel
    ) -> None:
        """Read the earlier turns, once, and make a summary of the oldest where they take more than their room."""
        turn, memory = record.turn, self._parts.memory
        if self._past is None:
            self._past = await self._parts.log.history(turn.conversation, turn.seq, HISTORY_TURNS, memory.replay)
            self._excerpts = Excerpts(readable=model.capabilities.tools)
            shared = self._parts.instructions.place(turn.conversation).shared
            self._remembered = exchanges(self._past.turns, memory.replay, self._excerpts, shared=shared)
        if not self._remembered:
            return
        room = self._history_room(profile.model, tools, self._able(model))
        taken = self._parts.estimates.tokens(profile.model, sum(each.size for each in self._remembered))
        if taken > room or len(self._remembered) >= HISTORY_TURNS:
            await self._shorten(record, profile, room, model)

    def _history_room(self, name: str, tools: tuple[Tool, ...], capabilities: Capabilities) -> int:
        room = self._parts.estimates.room(name, capabilities, Limits())
        free = room - self._parts.estimates.tokens(name, self._size_of(tools))
        return max(0, min(self._parts.memory.tokens, round(free * self._levels[0].history)))

    async def _shorten(self, record: TurnRecord, profile: Profile, room: int, model: LanguageModel) -> None:
        """Keep the newest of the earlier turns, so that half of their room is free again, and sum up the others."""
        assert self._past is not None
        estimates, name, past = self._parts.estimates, profile.model, self._past
        fitting = kept(self._remembered, room / 2 / (estimates.tokens(name, 1_000) / 1_000))
        count = min(fitting, HISTORY_TURNS // 2, len(self._remembered) - 1)
        oldest = self._remembered[: len(self._remembered) - count]
        self._remembered = self._remembered[len(oldest) :]
        self._on_activity(_SUMMING_UP)
        whole = estimates.room(name, self._able(model), LIMITS)
        made = await sum_up(model, past.summary, oldest, whole // 2)
        before = past.summary.text if past.summary else ""
        match made:
            case SummedUp(text, usage, name):
                n = record.steps[-1].n + 1 if record.steps else 1
                await self._parts.log.charge(self._claim, n, UsageKind.SUMMARY, name, usage)
                await self._keep(Summary(oldest[-1].seq, text))
            case NotSummedUp(for_now):
                told = {note for each in past.turns for reply in each.replies for note in reply.notes}
                known = past.summary is not None and not past.summary.text
                if not known and LEFT_OUT not in told.union(self._notes):
                    self._notes.append(LEFT_OUT)
                if not for_now:  # the next question would be refused it, too
                    await self._keep(Summary(oldest[-1].seq, before))

    async def _keep(self, summary: Summary) -> None:
        assert self._past is not None
        await self._parts.log.sum_up(self._claim, summary)
        self._past = replace(self._past, summary=summary)


def _by_beginning(record: TurnRecord, level: _Tightness) -> frozenset[int]:
    if level.newest:
        return large_results(record)
    return older_results(record, 0) if level.older else older_results(record)

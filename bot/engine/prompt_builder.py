"""What a model is asked for one turn, round by round, and asked again in fewer words where it was too long.

Called by `turn_runner`, with one `PromptBuilder` for as long as this process drives it. What is made here lives in
memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelLimits,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolChoice,
    UsageReported,
)
from bot.domain.conversations import Attachment, Author
from bot.domain.messages import ImageAudience, StoredFile, system
from bot.domain.profiles import Profile
from bot.domain.sources import Sources
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import Claim, TurnRecord
from bot.domain.usage import UsageKind
from bot.domain.views import ModelRetry
from bot.engine.attachments import LARGEST, MOST_IMAGE_BYTES, Attached, read_attachments
from bot.engine.file_types import FileKind
from bot.engine.history import USUAL_MEMORY, HistoryBudget
from bot.engine.history_prompt import HistoryPrompt
from bot.engine.prompt_context import LAST_ROUND, PromptContext, large_results, older_results, turn_messages
from bot.engine.result_format import HEAD, SHORT_HEAD
from bot.engine.result_visibility import ResultVisibility
from bot.engine.sources import sources_of_prompt
from bot.engine.summarization import max_length
from bot.engine.system_prompt import NO_INSTRUCTIONS, SystemPrompt
from bot.engine.token_estimates import Estimates, estimate_messages, estimate_tools, is_text, reply_limits
from bot.engine.tool_selection import RefusedTools, refused_note, with_reading
from bot.engine.usage_metering import RequestAttempt, RequestInfo, UsageMeter, UsageMeters
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable, NotFound, SmallerWindow
from bot.ports import LanguageModel, TurnLog

# -------------------- model retry

ATTEMPTS = 4
LONGEST_WAIT_SECONDS = 60.0
MOST_REFUSED = 8
"""Tools that are dropped from one question. Who finds fault with more has something else against it."""


async def complete_with_retry(
    model: LanguageModel,
    request: ModelRequest,
    *,
    activity: str,
    begin: Callable[[], Awaitable[RequestAttempt]],
    on_text: Callable[[str], None],
    on_activity: Callable[[str | ModelRetry], None],
    on_refused: Callable[[Tool, ModelRejected], None],
    pause: Callable[[float], Awaitable[None]],
) -> Completion:
    """Ask until the model has answered, at most `ATTEMPTS` times, not counting those that a tool has spoilt: its
    service refuses a whole request for one tool, so it is asked again without it at once.

    `begin` meters each attempt from then on. `on_text` gets the reply's text so far, from its beginning, also when a
    second attempt starts over; `on_activity` gets `activity` as each attempt begins, and what the person should know
    about the wait before the next; `on_refused` each tool that is dropped. Raises ModelUnavailable when all attempts
    have failed or the provider asks for a longer pause than a person should sit through, ModelRejected at once where it
    is not about a tool.
    """
    attempt, refused = 1, 0
    while True:
        on_activity(activity)
        try:
            return await _attempt(model, request, await begin(), on_text)
        except ModelRejected as problem:
            tool = next((tool for tool in request.tools if tool.name == problem.tool), None)
            if tool is None or refused == MOST_REFUSED:
                raise
            refused += 1
            on_text("")
            on_refused(tool, problem)
            request = replace(request, tools=tuple(each for each in request.tools if each is not tool))
        except ModelUnavailable as problem:
            seconds = problem.retry_after if problem.retry_after is not None else 2.0 ** (attempt - 1)
            if attempt == ATTEMPTS or seconds > LONGEST_WAIT_SECONDS:
                raise
            on_text("")
            on_activity(ModelRetry(round(seconds), problem.cause) if seconds >= 1 else problem.cause)
            await pause(seconds)
            attempt += 1


async def _attempt(
    model: LanguageModel, request: ModelRequest, attempt: RequestAttempt, on_text: Callable[[str], None]
) -> Completion:
    text = ""
    # Closed at once when cancelled: the provider must not go on writing what nobody reads.
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            attempt.take(event)
            match event:
                case TextDelta(more):
                    text += more
                    on_text(text)
                case ReasoningDelta() | ToolCallDelta() | UsageReported():
                    pass
                case Completion():
                    return event
    raise ModelUnavailable("The model's answer broke off.")


# -------------------- result images
# Images that tools returned, for a model that can see them.
#
# Read from the turn's files when the model is asked, and remembered while the turn is driven here. A model that
# cannot see, and whatever is too large or too much, gets a text in the image's place (`prompt_context`).

MOST = 5
"""In one request, the newest: each costs a thousand tokens and more."""


class ReturnedImages:
    """Images by the id of their file, as far as they were read. `read` gives the bytes of a file."""

    def __init__(self, read: Callable[[str], Awaitable[bytes]]) -> None:
        self._read = read
        self._known: dict[str, bytes] = {}

    async def of(self, record: TurnRecord, capabilities: Capabilities, most: int = MOST) -> Mapping[str, bytes]:
        """What this model is to see of the turn's results: the newest images that it takes, within the limits."""
        if not capabilities.images:
            return {}
        wanted = dict.fromkeys(_newest(record, most, min(LARGEST[FileKind.IMAGE], capabilities.image_bytes)))
        for file_id in wanted:
            if file_id not in self._known:
                try:
                    self._known[file_id] = await self._read(file_id)
                except NotFound:
                    continue
        return {file_id: self._known[file_id] for file_id in wanted if file_id in self._known}


def _newest(record: TurnRecord, most: int, largest: int) -> Iterator[str]:
    count, room = most, MOST_IMAGE_BYTES
    for step in reversed(record.calls):
        for part in reversed(step.result.parts if step.result else ()):
            if isinstance(part, StoredFile) and part.is_image and part.readers is not ImageAudience.PEOPLE and part.id:
                if count == 0 or part.size > room:
                    return
                if part.size <= largest:
                    count, room = count - 1, room - part.size
                    yield part.id


NO_TOOLS = "This model has turned out to use no tools, so it answers without them."
_MOST_MOVES = 3
"""To models that take something else than the one before: where all of them are away, that has to end."""
Offer = Callable[[str, Capabilities], ToolSet]
"""What the model of a name is given of the tools, as it is able (`offering.given`)."""
_THINKING = "Thinking"
_SHORTER = "That was too long for the model: asking again in fewer words"


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What making prompts takes, the same for all turns of a process."""

    log: TurnLog
    pause: Callable[[float], Awaitable[None]]
    meters: UsageMeters
    estimates: Estimates
    instructions: SystemPrompt = NO_INSTRUCTIONS
    memory: HistoryBudget = USUAL_MEMORY
    refused: RefusedTools = field(default_factory=RefusedTools)


@dataclass(frozen=True, slots=True)
class _Tightness:
    """How much is told: how many images go along, and whether all large results of older rounds are told by their
    beginning (`older`), and those of the newest, too, so that of the older hardly anything is left (`newest`).
    `history` is the share of the room that earlier turns may take, once a service has refused more.
    """

    history: float
    images: int
    older: bool
    newest: bool


_LOOSE = _Tightness(0.5, 5, older=False, newest=False)
_TIGHTER = (_Tightness(0.2, 1, older=True, newest=False), _Tightness(0.1, 0, older=True, newest=True))
"""Tried one after the other where a request is too long."""


class PromptBuilder:
    """The prompts of one turn; `meter` counts what is asked, `disclosure` says what of earlier turns may be told.
    `on_text` and `on_activity` are told what people should see meanwhile.
    """

    def __init__(
        self,
        claim: Claim,
        parts: PromptParts,
        fetch: Callable[[Attachment], Awaitable[bytes]],
        meter: UsageMeter,
        disclosure: Callable[[], Awaitable[ResultVisibility]],
        *,
        on_text: Callable[[str], None],
        on_activity: Callable[[str | ModelRetry], None],
    ) -> None:
        self._claim = claim
        self._parts = parts
        self._fetch = fetch
        self._meter = meter
        self._disclosure = disclosure
        self._on_text = on_text
        self._on_activity = on_activity
        self._levels = [_LOOSE, *_TIGHTER]
        self._share = _LOOSE.history
        self._recollection = HistoryPrompt(
            claim, parts.log, parts.memory, parts.estimates, meter, on_activity=on_activity
        )
        self._attached: Attached | None = None
        self._images = ReturnedImages(partial(parts.log.get_file, claim.turn_id))
        self._notes: list[str] = []
        self._absent: Sequence[str] = ()
        self._sources: Sources = ()
        self._activity = _THINKING
        self._sized: tuple[tuple[Tool, ...], float] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for people about what the model was not given."""
        attached = self._attached.notes if self._attached is not None else ()
        return (*self._recollection.notes, *self._notes, *attached)

    @property
    def sources(self) -> Sources:
        """Those of the words that the model was given when it was asked last."""
        return self._sources

    def asked_by(self, author: Author) -> tuple[str, ...]:
        """Return the earlier questions of this person that the model was given."""
        return self._recollection.asked_by(author.principal)

    @property
    def missing_tool_notes(self) -> Sequence[str]:
        """Sentences for people about the tools that the model was not given when it was asked last."""
        return self._absent

    async def reply(
        self, record: TurnRecord, profile: Profile, offer: Offer, model: LanguageModel, *, last_round: bool
    ) -> Completion:
        """The model's next reply in this turn. Raises ModelError, LostLease and Stopped."""
        moves = 0
        while True:
            # Anew each time: another model may be asked than before, and one that takes less is given fewer tools.
            able = model.capabilities
            given = offer(current_model_name(profile, model), able)
            self._absent = given.absent
            request, size = await self._fitting(record, profile, given, model, last_round=last_round)
            if model.capabilities != able and moves < _MOST_MOVES:
                # Summing up takes its time: meanwhile another model may have to stand in, or a window become known.
                moves += 1
                continue
            try:
                completion = await complete_with_retry(
                    model,
                    request,
                    activity=self._activity,
                    begin=partial(self._begin, record, profile, model, size),
                    on_text=self._on_text,
                    on_activity=self._on_activity,
                    on_refused=partial(self._note_refusal, profile, model),
                    pause=self._parts.pause,
                )
            except SmallerWindow:
                moves += 1
                if moves > _MOST_MOVES:
                    raise
                self._on_text("")
                continue
            except ContextTooLong:
                if is_text(request):  # how much a file takes is hardly known: it must not cost others their memory
                    self._parts.estimates.refused(current_model_name(profile, model), size)
                if not self._tighten():
                    raise
                self._share = self._levels[0].history
                self._on_text("")
                self._activity = _SHORTER
                continue
            self._activity = _THINKING
            if is_text(request):
                counted = completion.model or profile.model
                self._parts.estimates.counted(counted, size, completion.usage.input_tokens)
            if able.tools and not model.capabilities.tools and request.tools and not completion.note:
                self._notes.append(NO_TOOLS)
            return completion

    # ------------------------------------------------------------------ making a request that fits

    async def _fitting(
        self, record: TurnRecord, profile: Profile, given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> tuple[ModelRequest, float]:
        """The request, in fewer words where it would not fit as it is, and its size: first results are told by their
        beginning, then earlier turns are summed up. The size is an estimate: the shortest request is sent in any case.
        """
        estimates, n = self._parts.estimates, record.next_n
        name, capabilities = current_model_name(profile, model), model.capabilities
        await self._remember(record, name, given, model, n)
        while True:
            request = await self._request(record, profile, given, model, last_round=last_round)
            room = estimates.room(name, capabilities, request.limits)
            size = self._size(request)
            if estimates.tokens(name, size) <= room:
                return request, size
            if not self._tighten():
                break
        alone = replace(request, messages=(request.messages[0], *request.messages[request.stable_messages :]))
        left = room - estimates.tokens(name, self._size(alone) + max_length(capabilities))
        if left < 0:
            # It would not fit with the shortest memory: so nothing is summed up that can be told whole another time.
            self._recollection.exclude_history()
        else:
            await self._recollection.fit(name, model, left, n)
        request = await self._request(record, profile, given, model, last_round=last_round)
        return request, self._size(request)

    async def _remember(self, record: TurnRecord, name: str, given: ToolSet, model: LanguageModel, n: int) -> None:
        """Earlier turns, as far as their share of the room goes: what is left beside the tools."""
        recollection, estimates, capabilities = self._recollection, self._parts.estimates, model.capabilities
        shared = self._parts.instructions.place(record.turn.conversation).shared
        await recollection.read(record.turn, self._disclosure, readable=capabilities.tools, shared=shared)
        tools = self._size_of(given.tools) if capabilities.tools else 0.0
        free = estimates.room(name, capabilities, ModelLimits())
        free -= estimates.tokens(name, tools + recollection.fixed(capabilities))
        room = min(self._parts.memory.tokens, round(free * self._share))
        await recollection.fit(name, model, max(0, room), n)

    async def _request(
        self, record: TurnRecord, profile: Profile, given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> ModelRequest:
        level, capabilities = self._levels[0], model.capabilities
        tools = given.tools if capabilities.tools else ()
        place = self._parts.instructions.place(record.turn.conversation)
        attached = await self._attachments(record, capabilities)
        around = PromptContext(
            prompt=self._parts.instructions.text(record.turn.conversation, profile.persona),
            remembered=self._recollection.messages(capabilities),
            attached=attached.messages,
            images=await self._images.of(record, capabilities, level.images),
            excerpts=self._recollection.excerpts,
            by_beginning=_by_beginning(record, level),
            shared=place.shared,
        )
        messages = turn_messages(record, given, around)
        self._sources = sources_of_prompt(record, self._recollection.sources, self._recollection.known)
        if last_round:
            messages = (*messages, system(LAST_ROUND))
        if self._recollection.excerpts.given and tools:
            tools = with_reading(tools)
        choice = ToolChoice.NONE if last_round else ToolChoice.AUTO
        limits = reply_limits(ModelLimits(), capabilities)
        return ModelRequest(messages, tools, choice, limits, stable_messages=1 + len(around.remembered))

    def _size(self, request: ModelRequest) -> float:
        return estimate_messages(request.messages) + self._size_of(request.tools)

    def _size_of(self, tools: tuple[Tool, ...]) -> float:
        """Looked at once: most rounds have the same tools."""
        if self._sized is None or self._sized[0] != tools:
            self._sized = (tools, estimate_tools(tools))
        return self._sized[1]

    def _tighten(self) -> bool:
        """Say less from now on; False if that is not possible."""
        if len(self._levels) == 1:
            return False
        self._levels.pop(0)
        return True

    async def _begin(self, record: TurnRecord, profile: Profile, model: LanguageModel, size: float) -> RequestAttempt:
        return await self._meter.begin(
            RequestInfo(record.next_n, UsageKind.REPLY, current_model_name(profile, model), size)
        )

    def _note_refusal(self, profile: Profile, model: LanguageModel, tool: Tool, problem: ModelRejected) -> None:
        self._parts.refused.add(current_model_name(profile, model), tool, problem)
        self._notes.append(refused_note(tool))

    async def _attachments(self, record: TurnRecord, capabilities: Capabilities) -> Attached:
        """The question's files, fetched before the first round that this process drives."""
        if self._attached is None:
            attachments = record.turn.question.attachments
            if attachments:
                self._on_activity("Reading the attached files")
            self._attached = await read_attachments(attachments, capabilities, self._fetch)
        return self._attached


def current_model_name(profile: Profile, model: LanguageModel) -> str:
    """The model that would be asked now: of several that stand in for one another it need not be the first."""
    return model.capabilities.model or profile.model


def _by_beginning(record: TurnRecord, level: _Tightness) -> Mapping[int, int]:
    """The steps whose results are told by their beginning, and how many characters of it."""
    older = older_results(record, 0) if level.older else older_results(record)
    if level.newest:
        return {**dict.fromkeys(large_results(record), HEAD), **dict.fromkeys(older, SHORT_HEAD)}
    return dict.fromkeys(older, HEAD)

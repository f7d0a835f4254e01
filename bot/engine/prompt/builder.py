"""Prompt builder: the model requests of a turn, which are repeated if the service fails and shortened if they are too
long, with the system prompt. Use one `PromptBuilder` while a turn runs here. Its state is in memory only.

Order: the system prompt with every server's `system_instruction`; the history; results of `auto_context_tool`s with
their servers' `response_instruction`; the question; the rounds, in which each further server's `response_instruction`
comes once. Stable parts come first, because services cache prefixes. For the same reason the system prompt is constant
for a day: it holds no time of day and no names. Text of servers, tools and other users is data: it is never part of a
system message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
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
from bot.domain.conversations import Attachment, Author, ConversationKey
from bot.domain.flows import Sources
from bot.domain.locales import zone_info
from bot.domain.messages import system
from bot.domain.profiles import Profile
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import Claim, ModelRetry, TurnRecord
from bot.domain.usage import UsageKind
from bot.engine.policy.information_flow import ResultVisibility, sources_of_prompt
from bot.engine.prompt.attachments import Attached, ReturnedImages, read_attachments
from bot.engine.prompt.history import HistoryBudget, HistoryPrompt, ReadThread, max_length
from bot.engine.prompt.messages import (
    HEAD,
    RULE,
    SHORT_HEAD,
    PromptContext,
    large_results,
    older_results,
    turn_messages,
)
from bot.engine.prompt.tool_selection import RefusedTools, add_builtin_tools, refused_note
from bot.engine.usage import (
    Estimates,
    RequestAttempt,
    RequestInfo,
    UsageMeter,
    UsageMeters,
    estimate_messages,
    estimate_tools,
    is_text,
    reply_limits,
)
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable, SmallerWindow
from bot.i18n import _, current_time_zone, gettext_lazy
from bot.ports import LanguageModel, TurnHistory

LAST_ROUND = (
    "The limit of tool calls for this question is reached: no further tool can be used. "
    "Answer now with what you have and say what is missing."
)
ATTEMPTS = 4
LONGEST_WAIT_SECONDS = 60.0
MAX_REFUSED = 8
"""Most tools to drop from one request. More rejections have another cause."""
NO_TOOLS = gettext_lazy("This model does not support tools, so it answers without them.")
_MAX_MODEL_CHANGES = 3
"""Changes to models of other capabilities in one request, so that a loop over unavailable models ends."""
Offer = Callable[[str, Capabilities], ToolSet]
"""Select the tools for a model, by its name and capabilities (`tool_selection.select_tools`)."""
_NO_FILES = Attached()
_THINKING = gettext_lazy("Asking the model")
_SHORTENING = gettext_lazy("That was too long for the model: asking again with a shorter request")


@dataclass(frozen=True, slots=True)
class PlatformHint:
    """Hint about a platform: the supported formatting, as text for the model. `shared` is True if several users write
    in a conversation, except in direct conversations: ids of their channels begin with `direct_prefix`, if set.
    """

    formatting: str = ""
    shared: bool = False
    direct_prefix: str = ""

    def is_shared(self, conversation: ConversationKey) -> bool:
        """Return True if several users write in this conversation."""
        return self.shared and not (self.direct_prefix and conversation.channel.startswith(self.direct_prefix))


_NO_HINT = PlatformHint()


def today_in(zone: tzinfo) -> date:
    """Return the date in a time zone."""
    return datetime.now(zone).date()


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """Parts of the system prompt, with the hints by platform. Without `today` no date is included. The date is the
    asker's: where users of different time zones may ask, it comes after the history, so that they share a prefix. A
    `prompt` that may change is a function.
    """

    prompt: str | Callable[[], str] = ""
    hints: Mapping[str, PlatformHint] = field(default_factory=dict)
    today: Callable[[tzinfo], date] | None = None

    def text(self, conversation: ConversationKey, persona: str, time_zone: str = "") -> str:
        """Return the system prompt of a conversation, for a user in this time zone."""
        hint = self.hints.get(conversation.platform, _NO_HINT)
        parts = [
            self.prompt() if callable(self.prompt) else self.prompt,
            persona,
            "" if self.is_shared(conversation) else self.date_text(time_zone),
            hint.formatting,
            RULE if self.is_shared(conversation) else "",
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def date_text(self, time_zone: str) -> str:
        """Return the date of a user in this time zone; empty without `today`."""
        zone = zone_info(time_zone) if time_zone else current_time_zone()
        return f"Today is {self.today(zone):%A, %Y-%m-%d} ({zone})." if self.today else ""

    def is_shared(self, conversation: ConversationKey) -> bool:
        """Return True if several users write in this conversation."""
        return self.hints.get(conversation.platform, _NO_HINT).is_shared(conversation)


NO_INSTRUCTIONS = SystemPrompt()


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
    """Request a completion, with up to `ATTEMPTS` attempts. A tool that the service rejects is dropped, and the request
    repeated at once without counting.

    `begin` starts the metering of each attempt. `on_text` gets the whole text so far, also when an attempt starts over.
    `on_activity` gets `activity` as each attempt begins, and the cause of each wait. `on_refused` gets each dropped
    tool. Raises ModelUnavailable after the last attempt, or if the service asks for a wait above LONGEST_WAIT_SECONDS;
    ModelRejected at once unless a tool is the cause.
    """
    attempt, refused = 1, 0
    while True:
        on_activity(activity)
        try:
            return await _attempt(model, request, await begin(), on_text)
        except ModelRejected as error:
            tool = next((tool for tool in request.tools if tool.name == error.tool), None)
            if tool is None or refused == MAX_REFUSED:
                raise
            refused += 1
            on_text("")
            on_refused(tool, error)
            request = replace(request, tools=tuple(other for other in request.tools if other is not tool))
        except ModelUnavailable as error:
            seconds = error.retry_after if error.retry_after is not None else 2.0 ** (attempt - 1)
            if attempt == ATTEMPTS or seconds > LONGEST_WAIT_SECONDS:
                raise
            on_text("")
            on_activity(ModelRetry(round(seconds), error.cause) if seconds >= 1 else str(error.cause))
            await pause(seconds)
            attempt += 1


async def _attempt(
    model: LanguageModel, request: ModelRequest, attempt: RequestAttempt, on_text: Callable[[str], None]
) -> Completion:
    text = ""
    # Closed at once on cancellation, so that the provider stops generating.
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
    raise ModelUnavailable(_("The model's answer broke off."))


@dataclass(frozen=True, slots=True)
class PromptDependencies:
    """Dependencies of all prompt builders of a process."""

    log: TurnHistory
    pause: Callable[[float], Awaitable[None]]
    meters: UsageMeters
    estimates: Estimates
    instructions: SystemPrompt
    memory: HistoryBudget
    refused: RefusedTools
    read_thread: ReadThread | None
    """For turns without content; None if content is kept."""


@dataclass(frozen=True, slots=True)
class _DetailLevel:
    """Level of detail of a prompt. `history` is the share of the context window for earlier turns, `images` the number
    of result images. `older` truncates all large results of older rounds; `newest` also those of the newest round, and
    shortens the older ones further.
    """

    history: float
    images: int
    older: bool
    newest: bool


_FULL_DETAIL = _DetailLevel(0.5, 5, older=False, newest=False)
_SHORTER_LEVELS = (_DetailLevel(0.2, 1, older=True, newest=False), _DetailLevel(0.1, 0, older=True, newest=True))
"""Levels to try, in order, if a request is too long."""


class PromptBuilder:
    """Prompts of one turn. `meter` counts the requests, `disclosure` returns the visibility of earlier results.
    `on_text` and `on_activity` get the text and activity to display.
    """

    def __init__(
        self,
        claim: Claim,
        dependencies: PromptDependencies,
        fetch: Callable[[Attachment], Awaitable[bytes]],
        meter: UsageMeter,
        disclosure: Callable[[], Awaitable[ResultVisibility]],
        *,
        on_text: Callable[[str], None],
        on_activity: Callable[[str | ModelRetry], None],
    ) -> None:
        self._claim = claim
        self._dependencies = dependencies
        self._fetch = fetch
        self._meter = meter
        self._disclosure = disclosure
        self._on_text = on_text
        self._on_activity = on_activity
        self._levels = [_FULL_DETAIL, *_SHORTER_LEVELS]
        self._share = _FULL_DETAIL.history
        self._history = HistoryPrompt(
            claim,
            dependencies.log,
            dependencies.memory,
            dependencies.estimates,
            meter,
            on_activity=on_activity,
            read_thread=dependencies.read_thread,
        )
        self._attached: Attached | None = None
        self._images = ReturnedImages(partial(dependencies.log.get_file, claim.turn_id))
        self._notes: list[str] = []
        self._missing_tool_notes: Sequence[str] = ()
        self._sources: Sources = ()
        self._activity = str(_THINKING)
        self._tools_size: tuple[tuple[Tool, ...], float] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """Notes for users about content that the model did not get."""
        attached = self._attached.notes if self._attached is not None else ()
        return (*self._history.notes, *self._notes, *attached)

    @property
    def sources(self) -> Sources:
        """Sources of all text in the last request."""
        return self._sources

    def asked_by(self, author: Author) -> tuple[str, ...]:
        """Return the earlier questions of this person that the model was given."""
        return self._history.asked_by(author.principal)

    @property
    def missing_tool_notes(self) -> Sequence[str]:
        """Notes for users about tools that were missing in the last request."""
        return self._missing_tool_notes

    async def reply(
        self, record: TurnRecord, profile: Profile, offer: Offer, model: LanguageModel, *, last_round: bool
    ) -> Completion:
        """Return the model's next completion. Raises ModelError, LostLease and Stopped."""
        model_changes = 0
        while True:
            # Each attempt selects the tools again: another model with fewer capabilities may answer.
            capabilities_before = model.capabilities
            tools_given = offer(current_model_name(profile, model), capabilities_before)
            self._missing_tool_notes = tuple(map(str, tools_given.absent))
            request, size = await self._fitting_request(record, profile, tools_given, model, last_round=last_round)
            if model.capabilities != capabilities_before and model_changes < _MAX_MODEL_CHANGES:
                # Summarization takes a while: meanwhile a fallback model may have taken over, or a window size become
                # known.
                model_changes += 1
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
                    pause=self._dependencies.pause,
                )
            except SmallerWindow:
                model_changes += 1
                if model_changes > _MAX_MODEL_CHANGES:
                    raise
                self._on_text("")
                continue
            except ContextTooLong:
                if is_text(request):  # the tokens of a file are hardly known
                    self._dependencies.estimates.record_rejection(current_model_name(profile, model), size)
                if not self._shorten():
                    raise
                self._share = self._levels[0].history
                self._on_text("")
                self._activity = str(_SHORTENING)
                continue
            self._activity = str(_THINKING)
            if is_text(request):
                counted = completion.model or profile.model
                self._dependencies.estimates.record_count(counted, size, completion.usage.input_tokens)
            if capabilities_before.tools and not model.capabilities.tools and request.tools and not completion.note:
                self._notes.append(str(NO_TOOLS))
            return completion

    # ------------------------------------------------------------------ making a request that fits

    async def _fitting_request(
        self, record: TurnRecord, profile: Profile, tools_given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> tuple[ModelRequest, float]:
        """Return the request, shortened to fit the window, and its estimated size. First large results are truncated,
        then earlier turns summarized. The shortest request is sent even if it does not fit.
        """
        estimates, n = self._dependencies.estimates, record.next_n
        name, capabilities = current_model_name(profile, model), model.capabilities
        await self._load_history(record, name, tools_given, model, n)
        while True:
            request = await self._request(record, profile, tools_given, model, last_round=last_round)
            room = estimates.room(name, capabilities, request.limits)
            size = self._size(request)
            if estimates.tokens(name, size) <= room:
                return request, size
            if not self._shorten():
                break
        without_history = replace(request, messages=(request.messages[0], *request.messages[request.stable_messages :]))
        remaining = room - estimates.tokens(name, self._size(without_history) + max_length(capabilities))
        if remaining < 0:
            # The turn does not fit even with the shortest history: a summary would not help.
            self._history.exclude_history()
        else:
            await self._history.fit(name, model, remaining, n)
        request = await self._request(record, profile, tools_given, model, last_round=last_round)
        return request, self._size(request)

    async def _load_history(
        self, record: TurnRecord, name: str, tools_given: ToolSet, model: LanguageModel, n: int
    ) -> None:
        """Load the history within its share of the window, less the tools."""
        history, estimates, capabilities = self._history, self._dependencies.estimates, model.capabilities
        shared = self._dependencies.instructions.is_shared(record.turn.conversation)
        await history.load(record.turn, self._disclosure, readable=capabilities.tools, shared=shared)
        tools = self._size_of(tools_given.tools) if capabilities.tools else 0.0
        free = estimates.room(name, capabilities, ModelLimits())
        free -= estimates.tokens(name, tools + history.summary_tokens(capabilities))
        room = min(self._dependencies.memory.tokens, round(free * self._share))
        await history.fit(name, model, max(0, room), n)

    async def _request(
        self, record: TurnRecord, profile: Profile, tools_given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> ModelRequest:
        level, capabilities, instructions = self._levels[0], model.capabilities, self._dependencies.instructions
        conversation, time_zone = record.turn.conversation, record.turn.question.author_locale.time_zone
        tools = tools_given.tools if capabilities.tools else ()
        attached = await self._attachments(record, capabilities)
        context = PromptContext(
            prompt=instructions.text(conversation, profile.persona, time_zone),
            history=self._history.messages(capabilities),
            attached=attached.messages,
            images=await self._images.select(record, capabilities, level.images),
            excerpts=self._history.excerpts,
            excerpt_lengths=_excerpt_lengths(record, level),
            shared=instructions.is_shared(conversation),
            date_text=instructions.date_text(time_zone) if instructions.is_shared(conversation) else "",
        )
        messages = turn_messages(record, tools_given, context)
        self._sources = sources_of_prompt(record, self._history.sources, self._history.known)
        if last_round:
            messages = (*messages, system(LAST_ROUND))
        if self._history.excerpts.given and tools:
            tools = add_builtin_tools(tools, has_excerpts=True)
        choice = ToolChoice.NONE if last_round else ToolChoice.AUTO
        limits = reply_limits(ModelLimits(), capabilities)
        return ModelRequest(messages, tools, choice, limits, stable_messages=1 + len(context.history))

    def _size(self, request: ModelRequest) -> float:
        return estimate_messages(request.messages) + self._size_of(request.tools)

    def _size_of(self, tools: tuple[Tool, ...]) -> float:
        """Return the estimated size of tool definitions; cached, because most rounds have the same tools."""
        if self._tools_size is None or self._tools_size[0] != tools:
            self._tools_size = (tools, estimate_tools(tools))
        return self._tools_size[1]

    def _shorten(self) -> bool:
        """Go to the next shorter level. Return False at the last one."""
        if len(self._levels) == 1:
            return False
        self._levels.pop(0)
        return True

    async def _begin(self, record: TurnRecord, profile: Profile, model: LanguageModel, size: float) -> RequestAttempt:
        return await self._meter.begin(
            RequestInfo(record.next_n, UsageKind.REPLY, current_model_name(profile, model), size)
        )

    def _note_refusal(self, profile: Profile, model: LanguageModel, tool: Tool, error: ModelRejected) -> None:
        self._dependencies.refused.add(current_model_name(profile, model), tool, error)
        self._notes.append(refused_note(tool))

    async def _attachments(self, record: TurnRecord, capabilities: Capabilities) -> Attached:
        """Return the question's files, fetched before the first round in this process."""
        if self._attached is None:
            attachments = record.turn.question.attachments
            if not attachments:
                return _NO_FILES
            self._on_activity(_("Reading the attached files"))
            self._attached = await read_attachments(attachments, capabilities, self._fetch)
        return self._attached


def current_model_name(profile: Profile, model: LanguageModel) -> str:
    """Return the name of the model that would answer now. With fallbacks it may differ from the profile's."""
    return model.capabilities.model or profile.model


def _excerpt_lengths(record: TurnRecord, level: _DetailLevel) -> Mapping[int, int]:
    """Return the numbers of the steps with truncated results, with the length of each excerpt in characters."""
    older = older_results(record, 0) if level.older else older_results(record)
    if level.newest:
        return {**dict.fromkeys(large_results(record), HEAD), **dict.fromkeys(older, SHORT_HEAD)}
    return dict.fromkeys(older, HEAD)

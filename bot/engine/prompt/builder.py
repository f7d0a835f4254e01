"""Prompt builder: the model requests of a turn. Their tools are selected; they are repeated if the service fails, and
shortened if they are too long. Use one `PromptBuilder` while a turn runs here. Its state is in memory only.

Order: the system prompt with every server's `system_instruction`; the history; results of `auto_context_tool`s with
their servers' `response_instruction`; the question; the rounds, in which each further server's `response_instruction`
comes once. Stable parts come first, because services cache prefixes. For the same reason the system prompt is constant
for a day: it holds no time of day and no names. Text of servers, tools and other users is data: it is never part of a
system message.

If there are many tools, models get search tools instead (`search_tools`), or a limited number; never a tool that their
service has rejected. Users can still run omitted tools by hand, and a model that has a name can call it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest

from bot.domain.base64_text import message_without_base64
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
from bot.domain.conversations import Attachment
from bot.domain.flows import Sources
from bot.domain.messages import ImageAudience, StoredFile, system, user
from bot.domain.profiles import Profile
from bot.domain.tools import Tool, ToolSearch, ToolSet
from bot.domain.turns import Claim, HistorySummary, ModelRetry, TurnRecord
from bot.domain.usage import UsageKind
from bot.engine.builtin_tools.read_result import TOOL as READ_RESULT_TOOL
from bot.engine.builtin_tools.read_thread import TOOL as READ_THREAD_TOOL
from bot.engine.builtin_tools.resources import resource_definitions
from bot.engine.builtin_tools.search_tools import TOOL_NAMES_TOKENS, search_definitions
from bot.engine.builtin_tools.tool_index import MOST_HITS, ToolIndexes
from bot.engine.policy.information_flow import ResultVisibility, sources_of_prompt
from bot.engine.prompt.attachments import LARGEST, MOST_IMAGE_BYTES, Attached, FileKind, read_attachments
from bot.engine.prompt.history import (
    PART_TOKENS,
    HistoryBudget,
    HistoryPrompt,
    HistoryTurn,
    ReadThread,
    max_length,
    split_by_size,
    summarize,
)
from bot.engine.prompt.messages import (
    HEAD,
    LEFT_OUT,
    SHORT_HEAD,
    UNREAD,
    PromptContext,
    SystemPrompt,
    large_results,
    older_results,
    turn_messages,
)
from bot.engine.usage import (
    RequestAttempt,
    UsageMeter,
    UsageMeters,
    estimate_messages,
    estimate_tools,
    is_text,
    reply_limits,
    usual_limits,
)
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable, NotFound, SmallerWindow
from bot.i18n import _, gettext_lazy
from bot.ports import LanguageModel, TurnHistory
from bot.ports.models import EmbedTexts

log = logging.getLogger(__name__)
LAST_ROUND = (
    "The limit of tool calls for this question is reached: no further tool can be used. "
    "Answer now with what you have and say what is missing."
)
ATTEMPTS = 4
LONGEST_WAIT_SECONDS = 60.0
MAX_REFUSED = 8
"""Most tools to drop from one request. More rejections have another cause."""
MAX_IMAGES = 5
"""Most images in one request, the newest ones. Each costs 1,000 tokens or more."""
MOST_TOOLS = 128
"""OpenAI's limit; far more than any model chooses well among."""
FEW_TOOLS = 30
"""Models choose worse beyond 30 to 50 tools (Anthropic's documentation of its tool search)."""
SHARE_OF_WINDOW = 0.05
"""Share of a model's window for tool definitions, above which models search."""
A_SEARCH = 1_000
"""Estimated tokens of the search tools and one result: below that, a search saves nothing."""
NO_TOOLS = gettext_lazy("This model does not support tools, so it answers without them.")
NO_IMAGES = gettext_lazy("This model cannot see images, so it answers without them.")
LACKS_ROOM = gettext_lazy(
    "The model had no room left for its answer. The operator can raise MODEL_MAX_TOKENS or lower MODEL_REASONING."
)
SOMETHING_MISSING = gettext_lazy(
    "A server is missing now, and its tools with it. Fix: ask an administrator; /mcp list names it."
)
"""Note for users who are not admins."""
_MAX_MODEL_CHANGES = 3
_MAX_ENLARGEMENTS, _ENLARGEMENT = 2, 4
"""Times that a reply without room for an answer is asked again, each with a multiple of the room."""
"""Changes to models of other capabilities in one request, so that a loop over unavailable models ends."""
_MAX_REMEMBERED = 1000
_NO_FILES = Attached()
_THINKING = gettext_lazy("Asking the model")
_SHORTENING = gettext_lazy("That was too long for the model: asking again with a shorter request")


def select_builtin_tools(
    server_tools: tuple[Tool, ...],
    *,
    searches: bool = False,
    has_excerpts: bool = False,
    reads_thread: bool = False,
    names_tokens: float = TOOL_NAMES_TOKENS,
) -> tuple[Tool, ...]:
    """Return the built-in tools of a model request. `searches` is True if they replace `server_tools`, `has_excerpts`
    if the request holds truncated results, `reads_thread` if it lacks earlier messages of its thread. `names_tokens` is
    the budget for the names of `server_tools`.

    A model that searches has the same tools in each round, because services cache prefixes: so recently used tools are
    not included, and `read_result` is from the first round.
    """
    search = search_definitions(server_tools, names_tokens) if searches else ()
    read_result = (READ_RESULT_TOOL,) if searches or has_excerpts else ()
    return (*search, *read_result, *((READ_THREAD_TOOL,) if reads_thread else ()))


def add_builtin_tools(tools: tuple[Tool, ...], *, has_excerpts: bool, reads_thread: bool) -> tuple[Tool, ...]:
    """Return the tools of a request with the missing built-in ones at the end, so that the prefix stays the same. At
    MOST_TOOLS they replace the last tools.
    """
    wanted = select_builtin_tools(tools, has_excerpts=has_excerpts, reads_thread=reads_thread)
    added = tuple(tool for tool in wanted if tool not in tools)
    return (*tools[: MOST_TOOLS - len(added)], *added) if added else tools


def needs_search(tools: tuple[Tool, ...], capabilities: Capabilities) -> bool:
    """Return True if these tools are too many for one request to this model. Depends on the arguments only, so that the
    tools stay the same from request to request.
    """
    if len(tools) <= MOST_HITS:
        return False
    return len(tools) > FEW_TOOLS or estimate_tools(tools) >= max(
        A_SEARCH, capabilities.context_tokens * SHARE_OF_WINDOW
    )


def within_limit(offered: ToolSet, most: int = MOST_TOOLS) -> ToolSet:
    """Return at most `most` tools, the same ones for the same offer. Servers take turns, by name, so that a large one
    does not displace the others. `absent` gets the number of omitted tools.
    """
    if len(offered.tools) <= most:
        return offered
    servers: dict[str, list[Tool]] = {}
    for tool in sorted(offered.tools, key=lambda tool: (tool.server, tool.name)):
        servers.setdefault(tool.server, []).append(tool)
    by_turns = (tool for tool in chain.from_iterable(zip_longest(*servers.values())) if tool is not None)
    selected = {tool.name for tool in islice(by_turns, most)}
    counts = {server: sum(tool.name not in selected for tool in tools) for server, tools in servers.items()}
    omitted = (
        _(
            "{count} of the {all} tools of server {server} are left out, because a model takes {most}. "
            "Fix: enable fewer of them in the profile.",
            count=count,
            all=len(servers[server]),
            server=server,
            most=most,
        )
        for server, count in counts.items()
        if count
    )
    return replace(
        offered,
        tools=tuple(tool for tool in offered.tools if tool.name in selected),
        absent=(*offered.absent, *omitted),
    )


class RefusedTools:
    """Tools that model services have rejected since the start of this process. A changed definition is tried again."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def add(self, model: str, tool: Tool, error: ModelRejected) -> None:
        """Record that the service of this model rejected the tool."""
        log.warning("tool %s rejected by %s, omitted from now on: %s", tool.name, model or "the model", error.cause)
        self._reasons[_key(model, tool)] = error.cause
        while len(self._reasons) > _MAX_REMEMBERED:
            self._reasons.popitem(last=False)

    def reasons(self, tool: Tool) -> Mapping[str, str]:
        """Return the reasons for rejecting this definition, by model."""
        return {
            model: cause
            for (model, name, definition), cause in self._reasons.items()
            if (name, definition) == (tool.name, tool.definition)
        }

    def remove_refused(self, model: str, offered: ToolSet) -> ToolSet:
        """Return the tools without those that this model's service has rejected; `absent` names them."""
        names = {name for _, name, _ in self._reasons}
        refused = {
            tool.name: refused_note(tool)
            for tool in offered.tools
            if tool.name in names and _key(model, tool) in self._reasons
        }
        if not refused:
            return offered
        return replace(
            offered,
            tools=tuple(tool for tool in offered.tools if tool.name not in refused),
            absent=(*offered.absent, *refused.values()),
        )


def refused_note(tool: Tool) -> str:
    """Return the note for users on a rejected tool."""
    if tool.is_builtin:
        return _(
            "The model's service does not accept the definition of {tool}, so the model answers without it. "
            "Fix: set TOOL_SEARCH=off, or use another model.",
            tool=tool.name,
        )
    return _(
        "The model's service does not accept the definition of {tool}, so the model answers without it. "
        "Fix: have its server corrected, or leave the tool out of the profile.",
        tool=tool.name,
    )


def _key(model: str, tool: Tool) -> tuple[str, str, str]:
    return model, tool.name, tool.definition


class ToolSelection:
    """Selection of the tools of model requests. `search` sets when models search for tools; the list of names in the
    search takes up to `names_tokens`, of a small window less. `embed` improves the search. `refused` holds the
    tools that model services rejected.
    """

    def __init__(
        self,
        search: ToolSearch = ToolSearch.AUTO,
        names_tokens: int = TOOL_NAMES_TOKENS,
        *,
        refused: RefusedTools | None = None,
        embed: EmbedTexts | None = None,
    ) -> None:
        self._search = search
        self._names_tokens = names_tokens
        self.refused = refused or RefusedTools()
        self.indexes = ToolIndexes(embed)

    def select(self, enabled: ToolSet, model: str, capabilities: Capabilities) -> ToolSet:
        """Return the tools for the model of this name and these capabilities."""
        resources = resource_definitions(enabled) if enabled.requests else ()
        is_searching = self._search is ToolSearch.AUTO and capabilities.searches
        if is_searching and needs_search(enabled.tools, capabilities):
            # Tools that the service rejects are found by searching and are in no request.
            budget = min(self._names_tokens, capabilities.context_tokens * SHARE_OF_WINDOW)
            builtin_tools = select_builtin_tools(enabled.tools, searches=True, names_tokens=budget)
            search_tools = replace(enabled, tools=(*builtin_tools, *resources))
            if self.refused.remove_refused(model, search_tools) is search_tools:
                return search_tools
        offered = within_limit(self.refused.remove_refused(model, enabled), MOST_TOOLS - len(resources))
        return replace(offered, tools=(*offered.tools, *resources)) if resources else offered


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


class ReturnedImages:
    """Cache of result images by file id. `read` returns the bytes of a file."""

    def __init__(self, read: Callable[[str], Awaitable[bytes]]) -> None:
        self._read = read
        self._cached: dict[str, bytes] = {}

    async def select(
        self, record: TurnRecord, capabilities: Capabilities, most: int = MAX_IMAGES
    ) -> Mapping[str, bytes]:
        """Return the newest result images that the model accepts, within the limits."""
        if not capabilities.images:
            return {}
        wanted = dict.fromkeys(_newest(record, most, min(LARGEST[FileKind.IMAGE], capabilities.image_bytes)))
        for file_id in wanted:
            if file_id not in self._cached:
                try:
                    self._cached[file_id] = await self._read(file_id)
                except NotFound:
                    continue
        return {file_id: self._cached[file_id] for file_id in wanted if file_id in self._cached}


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


@dataclass(frozen=True, slots=True)
class PromptDependencies:
    """Dependencies of all prompt builders of a process."""

    log: TurnHistory
    meters: UsageMeters
    instructions: SystemPrompt
    memory: HistoryBudget
    tools: ToolSelection
    read_thread: ReadThread | None
    """For turns without content; None if content is kept."""
    pause: Callable[[float], Awaitable[None]]


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
        self.history = HistoryPrompt(
            claim,
            dependencies.log,
            dependencies.memory,
            dependencies.meters.estimates,
            meter,
            on_activity=on_activity,
            read_thread=dependencies.read_thread,
        )
        self._attached: Attached | None = None
        self._images = ReturnedImages(partial(dependencies.log.get_file, claim.turn_id))
        self._notes: list[str] = []
        self.missing_tool_notes: Sequence[str] = ()
        """Notes for users about tools that were missing in the last request."""
        self.sources: Sources = ()
        """Sources of all text in the last request."""
        self._activity = str(_THINKING)
        self._room = 0
        """Tokens for a reply that has to be longer than usual; 0 otherwise."""
        self._tools_size: tuple[tuple[Tool, ...], float] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """Notes for users about content that the model did not get."""
        attached = self._attached.notes if self._attached is not None else ()
        return (*self.history.notes, *self._notes, *attached)

    async def complete(
        self, record: TurnRecord, profile: Profile, enabled: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> Completion:
        """Return the model's next completion. Raises ModelError, LostLease and Stopped."""
        model_changes = enlargements = 0
        self._room = 0
        while True:
            # Each attempt selects the tools again: another model with fewer capabilities may answer.
            capabilities_before = model.capabilities
            name = current_model_name(profile, model)
            tools_given = self._dependencies.tools.select(enabled, name, capabilities_before)
            self.missing_tool_notes = tuple(map(str, tools_given.absent))
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
                    self._dependencies.meters.estimates.record_rejection(current_model_name(profile, model), size)
                if not self._shorten():
                    raise
                self._share = self._levels[0].history
                self._on_text("")
                self._activity = str(_SHORTENING)
                continue
            self._activity = str(_THINKING)
            if is_text(request):
                counted = completion.model or profile.model
                self._dependencies.meters.estimates.record_count(counted, size, completion.usage.input_tokens)
            larger = request.limits.max_tokens * _ENLARGEMENT
            larger = min(larger, model.capabilities.largest_output or larger)
            room = reply_limits(ModelLimits(max_tokens=larger), model.capabilities).max_tokens
            if completion.lacks_room and room > request.limits.max_tokens and enlargements < _MAX_ENLARGEMENTS:
                self._room, enlargements = room, enlargements + 1
                self._on_text("")
                continue
            self._note_losses(capabilities_before, model.capabilities, request, completion)
            return completion

    async def sum_up(self, lines: Sequence[str], profile: Profile, model: LanguageModel, n: int) -> tuple[str, int]:
        """Return a summary of lines and the number of its parts, each of which is one request; an empty text if the
        model writes none. Step `n` is charged.
        """
        estimates, name = self._dependencies.meters.estimates, current_model_name(profile, model)
        room = estimates.estimate(name, estimates.room(name, model.capabilities, usual_limits(model.capabilities)))
        messages = [user(line) for line in lines]
        parts = split_by_size(messages, min(room / 2, PART_TOKENS))
        begin = partial(self._meter.begin, n, UsageKind.SUMMARY, name)
        text = ""
        for number, part in enumerate(parts, start=1):
            self._on_activity(_("Reading messages: part {number} of {count}", number=number, count=len(parts)))
            turn = HistoryTurn(number, tuple(part), estimate_messages(part), "", "", ())
            summary = await summarize(model, HistorySummary(0, text), [turn], room, begin)
            await self._meter.settle()
            if not summary:
                return "", 0
            text = summary
        return text, len(parts)

    def _note_losses(
        self, before: Capabilities, now: Capabilities, request: ModelRequest, completion: Completion
    ) -> None:
        """Tell users what the service has refused in this request."""
        if before.images and not now.images and not is_text(request):
            self._notes.append(str(NO_IMAGES))
        if before.tools and not now.tools and request.tools and not completion.note:
            self._notes.append(str(NO_TOOLS))

    # ------------------------------------------------------------------ making a request that fits

    async def _fitting_request(
        self, record: TurnRecord, profile: Profile, tools_given: ToolSet, model: LanguageModel, *, last_round: bool
    ) -> tuple[ModelRequest, float]:
        """Return the request, shortened to fit the window, and its estimated size. First large results are truncated,
        then earlier turns summarized. The shortest request is sent even if it does not fit.
        """
        estimates, n = self._dependencies.meters.estimates, record.next_n
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
            self.history.exclude_history()
        else:
            await self.history.fit(name, model, remaining, n)
        request = await self._request(record, profile, tools_given, model, last_round=last_round)
        return request, self._size(request)

    async def _load_history(
        self, record: TurnRecord, name: str, tools_given: ToolSet, model: LanguageModel, n: int
    ) -> None:
        """Load the history within its share of the window, less the tools."""
        history, estimates, capabilities = self.history, self._dependencies.meters.estimates, model.capabilities
        shared = self._dependencies.instructions.is_shared(record.turn.conversation)
        await history.load(record.turn, self._disclosure, readable=capabilities.tools, shared=shared)
        tools = self._size_of(tools_given.tools) if capabilities.tools else 0.0
        free = estimates.room(name, capabilities, usual_limits(capabilities))
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
        older = older_results(record, 0) if level.older else older_results(record)
        excerpt_lengths = dict.fromkeys(older, HEAD)
        if level.newest:
            excerpt_lengths = {**dict.fromkeys(large_results(record), HEAD), **dict.fromkeys(older, SHORT_HEAD)}
        context = PromptContext(
            prompt=instructions.text(conversation, profile.persona, time_zone),
            history=self.history.messages(capabilities),
            attached=attached.messages,
            images=await self._images.select(record, capabilities, level.images),
            excerpts=self.history.excerpts,
            excerpt_lengths=excerpt_lengths,
            shared=instructions.is_shared(conversation),
            date_text=instructions.date_text(time_zone) if instructions.is_shared(conversation) else "",
        )
        messages = turn_messages(record, tools_given, context)
        self.sources = sources_of_prompt(record, self.history.sources, self.history.known)
        if last_round:
            messages = (*messages, system(LAST_ROUND))
        has_excerpts = self.history.excerpts.given and bool(tools)
        reads_thread = capabilities.tools and not {LEFT_OUT, UNREAD}.isdisjoint(record.turn.question.context)
        tools = add_builtin_tools(tools, has_excerpts=has_excerpts, reads_thread=reads_thread)
        choice = ToolChoice.NONE if last_round else ToolChoice.AUTO
        limits = reply_limits(ModelLimits(max_tokens=self._room or capabilities.output_tokens), capabilities)
        messages = tuple(map(message_without_base64, messages))
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
        """Start metering an attempt, which may go to another model than the one before."""
        return await self._meter.begin(record.next_n, UsageKind.REPLY, current_model_name(profile, model), size)

    def _note_refusal(self, profile: Profile, model: LanguageModel, tool: Tool, error: ModelRejected) -> None:
        self._dependencies.tools.refused.add(current_model_name(profile, model), tool, error)
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

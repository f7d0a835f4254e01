"""The models of the process: each built on first use, measured, with the context window that its service reports, and
with fallbacks that answer if one fails.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelLimits, ModelRequest, Usage, UsageReported
from bot.domain.metrics import MetricSink, ModelAnswered, ModelOutcome, null_sink
from bot.errors import (
    ContextTooLong,
    ModelBarred,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    SettingsError,
    SmallerWindow,
)
from bot.i18n import _, format_list, gettext_lazy, join_lazy
from bot.llm.wire_format import has_documents, has_images
from bot.ports import LanguageModel

log = logging.getLogger(__name__)

MAX_LOOKUPS = 3
SMALLEST_WINDOW = 1_000
"""Tokens. A smaller reported window is ignored."""

USUAL_OUTPUT = 32_000
"""Tokens of a reply where the service accepts longer ones."""

PARSE_CALLS = gettext_lazy(
    "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, SGLang with --tool-call-parser NAME,"
    " llama.cpp with --jinja"
)
"""Advice on the options with which services parse the tool calls of their models."""

REST_SECONDS = 30.0
BARRED_SECONDS = 300.0
"""A wrong key or an empty account is a matter for people."""


@dataclass(frozen=True, slots=True)
class Available:
    """The service has the model. `window` is in tokens, None if not reported.

    `until` is the retirement date as the service writes it, empty if none is announced. `output` is the longest reply
    in tokens, None if not reported.
    """

    window: int | None = None
    until: str = ""
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Retired:
    """The service has retired the model."""


@dataclass(frozen=True, slots=True)
class NotListed:
    """The model is not in the service's list; `names` are."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotReported:
    """The service does not report its models. `reply` is its reason, empty if it only has no such list."""

    reply: str = ""


Availability = Available | Retired | NotListed | NotReported


@runtime_checkable
class ListsModels(LanguageModel, Protocol):
    """Language model with a service that lists its models, without a cost in tokens."""

    @property
    def service_name(self) -> str:
        """Display name of the service."""
        ...

    @property
    def tells_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        ...

    async def look_up(self) -> Availability:
        """Ask the service, for some seconds at most. Raises ModelError if it is unreachable or denies access."""
        ...

    async def model_names(self) -> Sequence[str]:
        """Return the names of the models that the service lists, none if it lists nothing. Raises ModelError."""
        ...


@runtime_checkable
class LoadsLater(LanguageModel, Protocol):
    """Language model whose library is loaded for the first request, or by `prepare` before it."""

    async def prepare(self) -> None:
        """Load the library, unless it is."""
        ...


class DiscoveredWindow:
    """A model with the context window and the longest reply that its service reports, called `label` in the log.

    No request waits for the sizes: the service is asked when the first answer begins, and until it responds the default
    sizes apply. A `configured` window stays.
    """

    def __init__(self, model: ListsModels, label: str, configured: int = 0) -> None:
        self._model = model
        self._label = label
        self._configured = configured
        self._window = 0
        self._output = 0
        self._lookups = 0
        self._lookup: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model, with the discovered window."""
        capabilities = self._model.capabilities
        if not self._is_known:
            return capabilities
        known = replace(capabilities, context_tokens=self._configured or self._window or capabilities.context_tokens)
        if self._output and not capabilities.largest_output:
            known = replace(known, output_tokens=min(self._output, USUAL_OUTPUT), largest_output=self._output)
        return known

    @property
    def _is_known(self) -> bool:
        return bool(self._window or self._output)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events. The sizes are looked up at most MAX_LOOKUPS times."""
        if self._is_known or self._lookups == MAX_LOOKUPS:
            return self._model.stream(request)
        return self._stream_and_look_up(request)

    async def _stream_and_look_up(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream, and look up the context window after the first event: a local server loads the model with the first
        request and does not know the window before.
        """
        begun = False
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        self._start_lookup()
                    yield event
        except ContextTooLong:
            self._start_lookup()
            raise

    def _start_lookup(self) -> None:
        if not self._is_known and self._lookups < MAX_LOOKUPS and (self._lookup is None or self._lookup.done()):
            self._lookups += 1
            self._lookup = asyncio.create_task(self._look_up(), name=f"window of {self._label}")

    async def close(self) -> None:
        """Cancel the lookup and close the connections."""
        if self._lookup is not None:
            self._lookup.cancel()
            await asyncio.gather(self._lookup, return_exceptions=True)
        await self._model.close()

    async def _look_up(self) -> None:
        """Ask for the size of the window. A failure does not affect the request."""
        try:
            availability = await self._model.look_up()
        except ModelError as error:
            log.debug("the window of %s is not known: %s", self._label, error.cause)
        except Exception:
            log.exception("the service of %s could not be asked for its window", self._label)
        else:
            match availability:
                case Available(window=window, output=output) if (window or 0) >= SMALLEST_WINDOW or output:
                    self._window, self._output = window or 0, output or 0
                    log.info("%s has a window of %d tokens, replies of %d", self._label, window or 0, output or 0)
                case Available():
                    pass
                case _:
                    self._lookups = MAX_LOOKUPS


USUAL_LIMITS = ModelLimits()
_TIMES = ("first_seconds", "idle_seconds", "total_seconds")


class InstrumentedModel:
    """A model with metrics: duration, time to the first token, outcome, tokens. Its events carry `label` as the model.

    `clock` is in seconds and never jumps. Times of `limits` that are not the usual ones hold for all requests. The
    label is in `unparsed` while the model's calls come as text.
    """

    def __init__(
        self,
        model: LanguageModel,
        label: str,
        observe: MetricSink,
        *,
        clock: Callable[[], float] = monotonic,
        limits: ModelLimits = USUAL_LIMITS,
        unparsed: set[str] | None = None,
    ) -> None:
        self._unparsed = set() if unparsed is None else unparsed
        self._times = {
            name: seconds for name in _TIMES if (seconds := getattr(limits, name)) != getattr(USUAL_LIMITS, name)
        }
        self._model = model
        self._label = label
        self._labelled = (model.capabilities, replace(model.capabilities, model=label))
        self._observe = observe
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model."""
        own = self._model.capabilities  # read often and changed rarely
        if own is not self._labelled[0]:
            self._labelled = (own, replace(own, model=self._label))
        return self._labelled[1]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events. The answer is measured when the stream ends or is closed."""
        if self._times:
            request = replace(request, limits=replace(request.limits, **self._times))
        began = self._clock()
        first: float | None = None
        named, usage = False, Usage()
        outcome: ModelOutcome = "unavailable"  # also where the stream ends without a Completion
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, UsageReported):
                        named = True
                        yield replace(event, model=self._label)
                        continue
                    if first is None:
                        first = self._clock() - began
                    if isinstance(event, Completion):
                        outcome, usage = "answered", event.usage
                        self._note_calls(event)
                        event = replace(event, model=self._label)  # noqa: PLW2901 - the last one
                    elif not named:
                        named = True
                        yield UsageReported(model=self._label)
                    yield event
        except ModelRejected:
            outcome = "rejected"
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if outcome != "answered":
                outcome = "stopped"
            raise
        finally:
            seconds = self._clock() - began
            self._observe(ModelAnswered(self._label, outcome, seconds, first, usage.input_tokens, usage.output_tokens))

    def _note_calls(self, completion: Completion) -> None:
        if completion.calls_as_text and self._label not in self._unparsed:
            self._unparsed.add(self._label)
            log.warning(
                "%s writes its tool calls as text, because its service does not parse them. Fix: %s",
                self._label,
                PARSE_CALLS,
            )
        elif completion.message.tool_calls and not completion.calls_as_text:
            self._unparsed.discard(self._label)

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()


class FallbackModel:
    """Several models as one: the first that is not resting answers. A model that fails rests, so that not every
    question waits for it to fail again.

    `models` are by name, the preferred one first. `clock` is in seconds and never jumps.
    """

    def __init__(self, models: Mapping[str, LanguageModel], *, clock: Callable[[], float] = monotonic) -> None:
        self._models = dict(models)
        self._clock = clock
        self._preferred = next(iter(self._models))
        self._rests_until = dict.fromkeys(self._models, 0.0)
        self._last_errors: dict[str, ModelError] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model that would be asked now."""
        return self._models[self._next()].capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. If a model fails after the beginning of its answer, the reader must start again: this raises
        ModelUnavailable without a wait, and the request is to be repeated. If the next model has a smaller window than
        the one that the request was made for, this raises SmallerWindow. If no model has answered, the error of one
        that may answer later is raised.
        """
        asked: set[str] = set()
        problems: list[ModelError] = []
        made_for = self.capabilities
        while True:
            name, begun = self._next(asked), False
            asked.add(name)
            try:
                async with aclosing(self._models[name].stream(request)) as events:
                    async for event in events:
                        begun = True
                        if isinstance(event, Completion):
                            self._rests_until[name] = 0.0
                            if name != self._preferred:
                                event = replace(event, note=self._note(name, request))  # noqa: PLW2901 - the last one
                        yield event
            except (ModelUnavailable, ModelBarred) as problem:
                self._rest(name, problem)
                problems.append(problem)
                other = self._next(asked) if len(asked) < len(self._models) else ""
                if not other:
                    passing = [error for error in reversed(problems) if isinstance(error, ModelUnavailable)]
                    error = min(passing, key=lambda error: error.retry_after or 0.0, default=problems[-1])
                    raise error from error.__cause__
                log.warning("%s %s is asked instead.", problem.cause, other)
                # Its window is smaller than that of `made_for`, or it lacks a tool search that may be needed.
                able = self._models[other].capabilities
                may_search = bool(request.tools) and made_for.searches
                if able.context_tokens < made_for.context_tokens or (may_search and not able.searches):
                    raise SmallerWindow(problem.cause, problem.fix) from problem
                if begun:
                    cause = gettext_lazy("{cause} {model} is asked instead.", cause=problem.cause, model=other)
                    raise ModelUnavailable(cause, retry_after=0.0) from problem
            else:
                return

    async def close(self) -> None:
        """Close the connections of all models."""
        for model in self._models.values():
            await model.close()

    def _next(self, asked: set[str] | frozenset[str] = frozenset()) -> str:
        now = self._clock()
        left = [name for name in self._models if name not in asked]
        return min(left, key=lambda name: max(0.0, self._rests_until[name] - now))

    def _rest(self, name: str, problem: ModelError) -> None:
        seconds = BARRED_SECONDS
        if isinstance(problem, ModelUnavailable):
            seconds = max(REST_SECONDS, problem.retry_after or 0.0)
        self._rests_until[name] = self._clock() + seconds
        self._last_errors[name] = problem

    def _note(self, name: str, request: ModelRequest) -> str:
        """Return the note on a fallback answer: its model, the reason, and the capabilities that it lacks."""
        able = self._models[name].capabilities
        others_use_tools = any(model.capabilities.tools for model in self._models.values())
        unable = [
            *([_("sees no images")] if has_images(request) and not able.images else []),
            *([_("reads no PDF")] if has_documents(request) and not able.documents else []),
            *([_("uses no tools")] if others_use_tools and not able.tools else []),
        ]
        error = self._last_errors.get(self._preferred)
        if error is None:
            note = _("Answered by {model} instead of {preferred}.", model=name, preferred=self._preferred)
        else:
            note = _(
                "Answered by {model} instead of {preferred}: {cause}",
                model=name,
                preferred=self._preferred,
                cause=error.brief,
            )
        return str(join_lazy(note, _("It {lacks}.", lacks=format_list(unable)) if unable else ""))


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A module in `bot.llm` with the fields of its Config. `name` is the display name; `others` are the fallbacks in
    order.
    """

    name: str
    module: str
    config: dict[str, Any] = field(default_factory=dict, repr=False)
    others: tuple[ModelChoice, ...] = ()

    @property
    def label(self) -> str:
        """Display names of the model and its fallbacks."""
        return ", else ".join(self.names)

    @property
    def all(self) -> tuple[ModelChoice, ...]:
        """The model and its fallbacks."""
        return (self, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the model and its fallbacks."""
        return tuple(choice.name for choice in self.all)

    @property
    def window(self) -> int | None:
        """Context window in tokens, None if the settings do not say."""
        return self.config.get("context_tokens")

    def create(self) -> LanguageModel:
        """Load the provider module and build the model."""
        provider = importlib.import_module(f"bot.llm.{self.module}")
        model: LanguageModel = provider.create(provider.Config(**self.config))
        return model


class Models:
    """All models of the process, each built on first use. `own` is the bot's model; `observe` receives metrics of
    requests. `limits` are the time limits of replies.
    """

    def __init__(
        self,
        own: ModelChoice,
        choose: Callable[[str], ModelChoice],
        observe: MetricSink = null_sink,
        limits: ModelLimits = USUAL_LIMITS,
    ) -> None:
        self._limits = limits
        self._own = own
        self._choose = choose
        self._observe = observe
        self.unparsed: set[str] = set()
        """Names of the models whose tool calls come as text."""
        self._built: dict[str, LanguageModel] = {}
        self._unprepared: list[LoadsLater] = []
        self._building = asyncio.Lock()

    async def get(self, name: str) -> LanguageModel:
        """Return the model `provider:name`, the bot's own if the name is empty. Raises ModelRejected if it cannot be
        used.
        """
        if name not in self._built:
            async with self._building:
                if name not in self._built:
                    choice = self._select(name) if name else self._own
                    self._built[name] = await self._build(choice)
        return self._built[name]

    async def _build(self, choice: ModelChoice) -> LanguageModel:
        models: dict[str, LanguageModel] = {}
        for candidate in choice.all:
            model = await asyncio.to_thread(candidate.create)
            if isinstance(model, LoadsLater):
                self._unprepared.append(model)
            configured = candidate.window is not None and candidate.config.get("max_tokens") is not None
            if not configured and isinstance(model, ListsModels) and model.tells_window:
                model = DiscoveredWindow(model, candidate.name, candidate.window or 0)
            models[candidate.name] = InstrumentedModel(
                model, candidate.name, self._observe, limits=self._limits, unparsed=self.unparsed
            )
        return FallbackModel(models) if choice.others else models[choice.name]

    async def prepare(self, seconds: float) -> None:
        """Load the libraries of the models that are built, in a thread, after these seconds of other work: the first
        message does not wait for them then.
        """
        await asyncio.sleep(seconds)
        while self._unprepared:
            await self._unprepared.pop(0).prepare()

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(model.close() for model in self._built.values()))

    def _select(self, name: str) -> ModelChoice:
        try:
            return self._choose(name)
        except SettingsError as error:
            fix = gettext_lazy("name another model in the profile, or {fix}", fix=error.fix)
            raise ModelRejected(error.cause, fix) from error

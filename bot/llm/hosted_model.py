"""A language model behind a network service: the part that is the same for all vendors.

Each provider module supplies its vendor's client, the fields of its requests, and the meaning of the events of a reply.
The list of models is read as well: the vendors are asked about the one model, compatible servers for their list, since
many have nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol
from urllib.parse import quote

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelRequest,
)
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.i18n import gettext_lazy
from bot.llm.error_classification import ErrorKind, ProviderError, classify
from bot.llm.models import Availability, Available, NotListed, NotReported, Retired
from bot.llm.provider_service import Service
from bot.llm.streaming import Delta, EventReader, ReplyAccumulator, StreamResponse, StreamTimeouts, read_reply
from bot.llm.wire_format import (
    encode_safe,
    has_documents,
    has_images,
    without_files,
    without_images,
    without_reasoning,
    without_tools,
)

LOOK_UP_SECONDS = 10.0
_WINDOWS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "max_context_length")
"""In this order: Anthropic; vLLM and SGLang; OpenRouter, Together, and Ollama's list of running models; Groq; Mistral.
"""
_LARGEST_WINDOW = 100_000_000
"""Tokens. A larger reported window is ignored."""
_NOT_FOUND = 404
_MOST_PAUSES = 5
_SHORT = 100_000
"""Characters that are written within a millisecond or so."""
_A_TOOL = 2_000
"""Estimated characters of a tool definition."""
_REMEMBERED = frozenset({ErrorKind.REASONING, ErrorKind.ROLES, ErrorKind.TOKEN_LIMIT})
"""Kinds of errors that change how later requests are written."""


@dataclass(frozen=True, slots=True)
class ModelListPaths:
    """Paths of a service, added to its address. `key` is the path that checks the key, for a service with a public list
    of models. `running` replaces the address from `/v1` on: the list of running models with the windows that they were
    started with. `windows` is True if one of the lists may contain the size of a window.
    """

    models: str = "/models"
    key: str = ""
    running: str = ""
    windows: bool = True


class Client(Protocol):
    """A vendor's client that tries nothing again by itself: waiting is the engine's, which shows it."""

    async def post(self, body: bytes) -> StreamResponse:
        """Send a request; return when the answer begins. Raises the vendor's errors."""
        ...

    async def get(self, path: str) -> Any:
        """Return the JSON at the path. Raises the vendor's errors, and ValueError for anything else."""

    def read_error(self, error: Exception) -> ProviderError | None:
        """Return the service's error, or None if `error` is not an answer of the service."""

    def map_errors(self, tools: Sequence[str]) -> AbstractContextManager[None]:
        """Map the vendor's errors to those of `bot.errors`. `tools` are the names of the offered tools."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A vendor's protocol. `body` writes a request, for a service that has had these problems with earlier ones;
    `draft` begins a reply; `passed_over` are events that are not even read.
    """

    body: Callable[[ModelRequest, Collection[ErrorKind]], dict[str, Any]]
    draft: Callable[[], ReplyAccumulator]
    passed_over: frozenset[bytes] = frozenset()


class HostedModel:
    """The model that `service` runs."""

    def __init__(
        self,
        service: Service,
        capabilities: Capabilities,
        client: Client,
        wire_format: WireFormat,
        paths: ModelListPaths,
    ) -> None:
        self._service = service
        self._capabilities = capabilities
        self._client = client
        self._wire_format = wire_format
        self._model_list = ModelList(service, client, paths)
        self._rejected_features: set[ErrorKind] = set()
        self._written_tools: tuple[Tool, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities by the settings and the address, without those that the service has rejected."""
        return self._capabilities

    @property
    def service_name(self) -> str:
        """Display name of the service."""
        return self._service.name

    @property
    def tells_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        return self._model_list.reports_window

    async def look_up(self) -> Availability:
        """Return the service's report on the model. Raises ModelError."""
        return await self._model_list.look_up()

    async def model_names(self) -> Sequence[str]:
        """Return the names of the service's models, none if it lists nothing. Raises ModelError."""
        return await self._model_list.names()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. The connection is closed when the iterator is, also when it is cancelled."""
        draft = self._wire_format.draft()
        timeouts = StreamTimeouts(self._service, request.limits)
        continued = request
        for _ in range(_MOST_PAUSES):
            completion = None
            async with aclosing(self._read(continued, draft, timeouts)) as events:
                async for event in events:
                    if isinstance(event, Completion):
                        completion = event
                    else:
                        yield event
            partial = draft.resume()
            if partial is None:
                break
            continued = replace(request, messages=(*request.messages, partial))
        if completion is not None:
            yield completion

    def _read(
        self, request: ModelRequest, draft: ReplyAccumulator, timeouts: StreamTimeouts
    ) -> AsyncGenerator[Delta | Completion, None]:
        return read_reply(
            lambda: self._open(request),
            draft,
            EventReader(self._wire_format.passed_over),
            service=self._service,
            timeouts=timeouts,
            map_errors=self._client.map_errors([tool.name for tool in request.tools]),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> StreamResponse:
        """Send the request, and a simpler one if the service rejects a part. The rejected part is remembered only after
        the simpler request was accepted, because the error may quote the prompt.
        """
        request = self._fitting(request)
        rejected, tools = frozenset(self._rejected_features), self._capabilities.tools
        while True:
            body = await self._encode_request(request, rejected)
            try:
                answer = await self._client.post(body)
            except Exception as error:
                provider_error = self._client.read_error(error)
                kind = None if provider_error is None else classify(provider_error)
                easier = None if kind is None else _easier(request, kind)
                if kind is ErrorKind.NO_TOOLS:
                    tools = False
                if easier is None and kind in _REMEMBERED and kind not in rejected:
                    easier, rejected = request, rejected | {kind}
                if easier is None:
                    raise
                request = easier
            else:
                self._rejected_features |= rejected
                if not tools:
                    self._capabilities = replace(self._capabilities, tools=False)
                return answer

    def _fitting(self, request: ModelRequest) -> ModelRequest:
        if not self._capabilities.images:
            request = without_images(request)
        if not self._capabilities.documents:
            request = without_files(request)
        return request if self._capabilities.tools else without_tools(request)

    async def _encode_request(self, request: ModelRequest, rejected: frozenset[ErrorKind]) -> bytes:
        """Return the request's body. A large one, or one with new tools, is built in a thread: parsing large schemas
        would block other turns.
        """

        def write() -> bytes:
            return encode_safe(self._wire_format.body(request, rejected))

        if request.tools == self._written_tools and _is_short(request):
            return write()
        body = await asyncio.to_thread(write)
        self._written_tools = request.tools
        return body


def _is_short(request: ModelRequest) -> bool:
    """Return True if the request has no attachments and at most about `_SHORT` characters."""
    room = _SHORT - _A_TOOL * len(request.tools)
    for message in request.messages:
        for part in message.parts:
            match part:
                case TextPart(text):
                    room -= len(text)
                case ToolResult(parts=parts):
                    room -= sum(len(part.text) if isinstance(part, TextPart) else _SHORT for part in parts)
                case ToolCall():
                    room -= len(part.unreadable) + sum(map(len, map(str, part.arguments.values())))
                case _:
                    return False
        if room < 0:
            return False
    return True


def _easier(request: ModelRequest, kind: ErrorKind) -> ModelRequest | None:
    """Return the request without the rejected feature, or None if nothing can be left out."""
    match kind:
        case ErrorKind.NO_TOOLS if request.tools:
            return without_tools(request)
        case ErrorKind.ATTACHMENTS if has_images(request) or has_documents(request):
            return without_files(without_images(request))
        case ErrorKind.REASONING:
            return without_reasoning(request)
        case _:
            return None


class ModelList:
    """The service's list of models."""

    def __init__(self, service: Service, client: Client, paths: ModelListPaths) -> None:
        self._service = service
        self._client = client
        self._paths = paths

    @property
    def reports_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        return self._paths.windows

    async def look_up(self) -> Availability:
        """Ask the service. Raises ModelUnavailable if it cannot be reached, ModelBarred if it rejects the key or does
        not know the model.
        """
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                with self._client.map_errors(()):
                    return await self._look_up()
        except TimeoutError as error:
            raise self._service.silence_error(LOOK_UP_SECONDS) from error

    async def names(self) -> Sequence[str]:
        """Return the names of the models, as far as the first page goes. Raises the errors of `look_up`."""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                with self._client.map_errors(()):
                    if self._paths.key:
                        await self._fetch(self._paths.key, self._service.own_address)
                    listing = await self._fetch(self._paths.models, strict=False)
        except TimeoutError as error:
            raise self._service.silence_error(LOOK_UP_SECONDS) from error
        data = listing.get("data") if isinstance(listing, Mapping) else listing
        return [entry["id"] for entry in _entries(data) if isinstance(entry.get("id"), str)]

    async def _look_up(self) -> Availability:
        if self._paths.key:
            await self._fetch(self._paths.key, self._service.own_address)
        if self._service.own_address:
            path = f"{self._paths.models}/{quote(self._service.model, safe=':@')}"
            entry = await self._fetch(path, strict=True)
            return entry if isinstance(entry, NotReported) else _parse_entry(entry)
        listing = await self._fetch(self._paths.models, strict=False)
        if isinstance(listing, NotReported):
            return listing
        availability = _in_list(listing, self._service.model)
        if self._paths.running and availability == Available():
            return replace(availability, window=await self._window_of_running())
        return availability

    async def _fetch(self, path: str, strict: bool) -> Any:
        """Return the JSON at a path, or NotReported if the service does not have the path. If the path is documented
        (`strict`), its absence is an error.
        """
        try:
            return await self._client.get(path)
        except ValueError:
            return NotReported(gettext_lazy("what it sent is not a list of models"))
        except Exception as error:
            provider_error = self._client.read_error(error)
            if provider_error is None or _is_final(provider_error, strict=strict):
                raise
            return NotReported(
                "" if provider_error.status == _NOT_FOUND else self._service.error_from(provider_error).cause
            )

    async def _window_of_running(self) -> int | None:
        """Return the window of a model that runs already, which depends on the options that it was started with."""
        root = self._service.address.rstrip("/").removesuffix("/v1")
        running = await self._fetch(f"{root}{self._paths.running}", strict=False)
        models = running.get("models") if isinstance(running, Mapping) else None
        return _window(next(_named_entries(self._service.model, _entries(models), "model"), {}))


def _is_final(provider_error: ProviderError, *, strict: bool) -> bool:
    """Return True if a completion would fail alike. A key may allow completions but not lists (403)."""
    match classify(provider_error):
        case ErrorKind.KEY:
            return provider_error.status != 403
        case ErrorKind.MODEL:
            return strict
        case kind:
            return kind in (ErrorKind.CREDIT, ErrorKind.BUSY, ErrorKind.OUT_OF_ORDER, ErrorKind.MOVED)


def _in_list(listing: Any, model: str) -> Availability:
    data = listing.get("data", ()) if isinstance(listing, Mapping) else listing
    if data is None:  # Ollama without a model
        return NotListed(())
    if not isinstance(data, list):
        return NotReported(gettext_lazy("what it sent is not a list of models"))
    entries = _entries(data)
    entry = next(_named_entries(model, entries, "id"), None)
    if entry is not None:
        return _parse_entry(entry)
    if isinstance(listing, Mapping) and (listing.get("has_more") or _next_page(listing)):
        return NotReported(gettext_lazy("its list is longer than one page, and the model is not on the first"))
    return NotListed(tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str)))


def _next_page(listing: Mapping[str, Any]) -> bool:
    links = listing.get("links")
    return isinstance(links, Mapping) and bool(links.get("next"))


def _entries(data: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []


def _named_entries(model: str, entries: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    """Return the entries of the model, exact names first. Ollama adds `:latest` to a name without a tag, OpenRouter
    allows suffixes such as `:online`, and LiteLLM may list patterns.
    """
    same: tuple[Callable[[str], bool], ...] = (
        lambda name: name == model,
        lambda name: name == f"{model}:latest",
        lambda name: "/" in name and name == model.rpartition(":")[0],
        lambda name: "*" in name and fnmatchcase(model, name),
    )
    for fits in same:
        yield from (entry for entry in entries if isinstance(entry.get(key), str) and fits(entry[key]))


def _parse_entry(entry: Any) -> Availability:
    if not isinstance(entry, Mapping):
        return NotReported(gettext_lazy("what it sent is not a model"))
    if entry.get("lifecycle") == "retired":
        return Retired()
    until = entry.get("retires_at") or entry.get("shutdown_date") or entry.get("expiration_date")
    return Available(_window(entry), until[:10] if isinstance(until, str) else "")


def _window(entry: Mapping[str, Any]) -> int | None:
    """Return the size of the window in tokens. OpenRouter also names the window of the host that it asks first."""
    top = entry.get("top_provider")
    sources = (entry, top) if isinstance(top, Mapping) else (entry,)
    windows = [source.get(name) for source in sources for name in _WINDOWS]
    sizes = [
        size for size in windows if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_WINDOW
    ]
    return min(sizes) if sizes else None

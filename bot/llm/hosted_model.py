"""A language model behind a network service: the part that is the same for all vendors.

Each provider module supplies its vendor's client, the fields of its requests, and the meaning of the events of a reply.
The vendors' clients are generated alike. Their own retries are off, because the engine retries and shows it. A reply is
read event by event within its limits: server-sent events become JSON objects here (WHATWG HTML, 9.2.6). The vendors'
clients make a typed object of each event, which costs more than everything else in a reply together; a reply needs two
or three fields of it.
"""

from __future__ import annotations

import asyncio
import json
import re
from codecs import BOM_UTF8
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import httpx2

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelLimits,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.errors import ModelError, ModelUnavailable
from bot.llm.provider_service import (
    ErrorKind,
    ProviderError,
    ProviderRejected,
    Service,
    accepted_tokens,
    classify,
    classify_for_images,
)
from bot.llm.reply_draft import Delta, Event, ReplyDraft
from bot.llm.text_markup import VisibleText, read_markup, thinks_first
from bot.llm.wire_format import (
    encode_safe,
    has_documents,
    has_images,
    without_files,
    without_images,
    without_reasoning,
    without_tools,
)
from bot.machine import check_certificates, find_proxy

OPENAI_HOME = "https://api.openai.com/v1"
OPENAI_WINDOW = 128_000
"""Default window in tokens."""
LARGEST_ERROR = 2**17
"""Bytes of an answer with a bad status that are read: some services quote the whole request."""
LARGEST_LIST = 8 * 2**20
"""Limit in bytes of other answers of a service. OpenRouter's list of models has one or two million."""
ERROR_SECONDS = 5.0
"""Time limit, in seconds, for the text of an error. Its status is known by then."""
LARGEST_EVENT = 16 * 2**20
"""Bytes. The last event of the Responses API holds the whole reply; nothing that is meant well is larger."""
LARGEST_REPLY = 64 * 2**20
"""Bytes of all events together: a model that has written 100,000 tokens has sent half as much."""
_LARGEST_PAGE = 2**20
_END_SECONDS = 2.0
"""Limit for the rest of the stream once the model has finished: token counts and the end."""
_MOST_PAUSES = 5
_SHORT = 100_000
"""Characters that are written within a millisecond or so."""
_A_TOOL = 2_000
"""Estimated characters of a tool definition."""
_REMEMBERED = frozenset(
    {
        ErrorKind.REASONING,
        ErrorKind.ROLES,
        ErrorKind.NO_SYSTEM,
        ErrorKind.TOKEN_LIMIT,
        ErrorKind.STREAM_OPTIONS,
        ErrorKind.CACHE_MARKS,
        ErrorKind.EFFORT,
        ErrorKind.NO_EFFORT,
    }
)
"""Kinds of errors that change how later requests are written."""
_THINKERS = re.compile(r"\br1\b|qwq|think|reason", re.IGNORECASE)
"""Names of models whose prompt may begin the thoughts, so that their first text may be one."""
_FEWEST_TOKENS = 1_024
"""Room for a reply that is not made smaller."""
OUTPUT_AT_HOME, OUTPUT_ELSEWHERE = 16_384, 8_192
"""Usual room for a reply in tokens, at the vendor's address and at others."""

Waited = TypeVar("Waited")


@dataclass(frozen=True, slots=True)
class HostedConfig:
    """Settings of one model. `base_url` None is the vendor's address. `context_tokens` is the size of the model's
    window, None if not configured. `max_tokens` is the length of a reply, `reasoning` its effort (low, medium, high or
    off); None and empty leave both to the service. `images` None: sent until the service refuses them. `variables` is
    the prefix of the environment variables that hold the key and the address. `key_at` and `running_at` are additional
    paths of a compatible server, see `ModelListPaths` in `bot.llm.model_list`.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int | None = None
    max_tokens: int | None = None
    reasoning: str = ""
    images: bool | None = None
    variables: str = "OPENAI"
    key_at: str = ""
    running_at: str = ""

    def capabilities(self, service: Service, window: int, **more: Any) -> Capabilities:
        """Return the capabilities by the settings. `window` is the default."""
        usual = OUTPUT_AT_HOME if service.own_address else OUTPUT_ELSEWHERE
        return Capabilities(
            images=self.images is not False,
            documents=service.own_address,
            context_tokens=self.context_tokens or window,
            output_tokens=self.max_tokens or usual,
            largest_output=self.max_tokens or 0,
            **more,
        )

    def service(self, vendor: str, home: str) -> Service:
        """Return the vendor's service at its `home`, or the compatible one at `base_url`. Raises SettingsError."""
        return Service.for_model(
            home, self.base_url, vendor=vendor, prefix=self.variables, model=self.model, key=self.api_key
        )


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A vendor's protocol. `body` writes a request, for a service that has had these problems with earlier ones;
    `draft` begins a reply; `passed_over` are events that are not even read.
    """

    body: Callable[[ModelRequest, Collection[ErrorKind]], dict[str, Any]]
    draft: Callable[[], ReplyDraft]
    passed_over: frozenset[bytes] = frozenset()


class HostedModel:
    """The model that `service` runs."""

    def __init__(
        self, capabilities: Capabilities, client: VendorClient, wire_format: WireFormat, *, learns_images: bool = True
    ) -> None:
        self._service = service = client.service
        self._learns_images = learns_images
        self._capabilities = capabilities
        self._client = client
        self._wire_format = wire_format
        self._rejected_features: set[ErrorKind] = set()
        self._thinks_first = not service.own_address and _THINKERS.search(service.model) is not None
        self._written_tools: tuple[Tool, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities by the settings and the address, without those that the service has rejected."""
        return self._capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. The connection is closed when the iterator is, also when it is cancelled."""
        await self.prepare()  # no time of the service
        draft = self._wire_format.draft()
        timeouts = StreamTimeouts(self._service, request.limits)
        visible = VisibleText(request.tools, thinks_first=self._thinks_first)
        continued = request
        for _ in range(_MOST_PAUSES):
            completion = None
            reply = read_reply(
                partial(self._open, continued),
                draft,
                EventReader(self._wire_format.passed_over),
                timeouts,
                self._client.map_errors([tool.name for tool in request.tools]),
            )
            async with aclosing(reply) as events:
                async for event in events:
                    match event:
                        case Completion():
                            completion = event
                        case TextDelta(more):
                            for delta in visible.feed(more):
                                yield delta
                        case _:
                            if isinstance(event, ReasoningDelta):  # the service takes the thoughts out
                                visible.thinks_first = self._thinks_first = False
                            yield event
            paused = draft.resume()
            if paused is None:
                break
            continued = replace(request, messages=(*request.messages, paused))
        if completion is not None:
            self._thinks_first = thinks_first(completion) if completion.message.text else self._thinks_first
            completion = read_markup(completion, request.tools)
            for delta in visible.show(completion.message.text):
                yield delta
            yield completion

    async def prepare(self) -> None:
        """Load the vendor's library, which the first request does otherwise."""
        await self._client.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> httpx2.Response:
        """Send the request, and a simpler one if the service rejects a part. The rejected part is remembered only after
        the simpler request was accepted, because the error may quote the prompt.
        """
        able = self._capabilities
        for is_able, leave_out in (
            (able.images, without_images),
            (able.documents, without_files),
            (able.tools, without_tools),
        ):
            request = request if is_able else leave_out(request)
        rejected, learned = frozenset(self._rejected_features), self._capabilities
        while True:
            body = await self._encode_request(request, rejected)
            try:
                answer = await self._client.post(body)
            except Exception as error:
                provider_error = self._client.read_error(error)
                if provider_error is None:
                    raise
                kind = (classify_for_images if has_images(request) else classify)(provider_error)
                kind = ErrorKind.NO_EFFORT if kind is ErrorKind.EFFORT and kind in rejected else kind
                easier = _easier(request, kind, provider_error)
                learned = self._learn(learned, kind, easier)
                if easier is None and kind in _REMEMBERED and kind not in rejected:
                    easier, rejected = request, rejected | {kind}
                if easier is None:
                    raise
                request = easier
            else:
                self._rejected_features |= rejected
                if learned != self._capabilities:
                    self._capabilities = learned
                return answer

    def _learn(self, known: Capabilities, kind: ErrorKind, easier: ModelRequest | None) -> Capabilities:
        """Return the capabilities after a refusal."""
        match kind:
            case ErrorKind.NO_TOOLS:
                return replace(known, tools=False)
            case ErrorKind.NO_IMAGES if self._learns_images:
                return replace(known, images=False)
            case ErrorKind.OUTPUT_LIMIT if easier is not None:
                tokens = easier.limits.max_tokens
                return replace(known, output_tokens=tokens, largest_output=tokens)
        return known

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


def _easier(request: ModelRequest, kind: ErrorKind, error: ProviderError) -> ModelRequest | None:
    """Return the request without the rejected feature, or None if nothing can be left out."""
    match kind:
        case ErrorKind.NO_TOOLS if request.tools:
            return without_tools(request)
        case ErrorKind.OUTPUT_LIMIT if request.limits.max_tokens > _FEWEST_TOKENS:
            tokens = accepted_tokens(error, request.limits.max_tokens)
            return replace(request, limits=replace(request.limits, max_tokens=max(tokens, _FEWEST_TOKENS)))
        case ErrorKind.ATTACHMENTS | ErrorKind.NO_IMAGES if has_images(request) or has_documents(request):
            return without_files(without_images(request))
        case ErrorKind.REASONING:
            return without_reasoning(request)
        case _:
            return None


# -------------------- client


def check_machine(address: str) -> None:
    """Raise SettingsError for a variable of this machine with which a service cannot be reached."""
    find_proxy(address)
    if not address.lower().startswith("http://"):
        check_certificates()


def http_settings(address: str) -> dict[str, Any]:
    """Return the settings of the vendors' HTTP clients for a service.

    Redirects are not followed: the key and the conversation are for the configured service alone. Answers are not
    compressed, because compression delays streaming.
    """
    proxy = find_proxy(address)
    is_plain = address.lower().startswith("http://")
    return {
        "trust_env": False,
        "proxy": proxy.url if proxy else None,
        "verify": False if is_plain else httpx2.create_ssl_context(),
        "follow_redirects": False,
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [_limit_error_body]},
    }


async def _limit_error_body(response: httpx2.Response) -> None:
    """Take the beginning of an answer with a bad status for the whole: the vendors' clients read to its end, however
    far that is.
    """
    if response.status_code < 300:
        return
    stream, beginning = response.stream, bytearray()
    assert isinstance(stream, httpx2.AsyncByteStream)
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(ERROR_SECONDS):
            async for chunk in stream:
                beginning += chunk
                if len(beginning) >= LARGEST_ERROR:
                    break
    await stream.aclose()
    response.stream = httpx2.ByteStream(bytes(beginning[:LARGEST_ERROR]))
    response.encoding = "utf-8"  # some that a service may name are none


class VendorClient:
    """One vendor's client for one protocol, which is at `path`. `load` returns the vendor's library and its class of
    clients. `open` calls it, in a thread, before the first request: the libraries have hundreds of modules, which take
    half a second and 35 MB.
    """

    def __init__(
        self, service: Service, load: Callable[[], tuple[Any, Any]], path: str, headers: Mapping[str, str] | None
    ) -> None:
        check_machine(service.address)
        self.service = service
        self._load, self._path, self._own_headers = load, path, headers
        self._opening = asyncio.Lock()
        self._sdk: Any = None

    async def open(self) -> None:
        """Load the vendor's library, unless it is."""
        async with self._opening:
            if self._sdk is None:
                await asyncio.to_thread(self._open)

    def _open(self) -> None:
        sdk, client = self._load()
        self._http = sdk.DefaultAioHttpClient(**http_settings(self.service.address))
        self._client = client(
            api_key=self.service.key,
            base_url=self.service.address,
            max_retries=0,
            timeout=self.service.timeout(),
            default_headers=self._own_headers,
            http_client=self._http,
        )
        base: httpx2.URL = self._client.base_url
        self._url = base.copy_with(raw_path=base.raw_path + self._path.removeprefix("/").encode())
        own = {**self._client.default_headers, **self._client.auth_headers}
        self._headers = httpx2.Headers(self._http.headers)
        self._headers.update({name: value for name, value in own.items() if isinstance(value, str)})
        self._extensions = {"timeout": self.service.timeout().as_dict()}
        self._sdk = sdk

    async def post(self, body: bytes) -> httpx2.Response:
        """Send a request; return when the answer begins. Raises the vendor's errors.

        The request is sent by the HTTP client, since the vendor's client builds address, headers and options anew for
        each request, which costs as much as sending it.
        """
        request = httpx2.Request("POST", self._url, headers=self._headers, content=body, extensions=self._extensions)
        try:
            response: httpx2.Response = await self._http.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise self._sdk.APITimeoutError(request=request) from error
        except Exception as error:
            raise self._sdk.APIConnectionError(request=request) from error
        if response.is_success:
            return response
        said = (await response.aread()).decode(errors="replace").strip()
        problem: object = said
        with suppress(ValueError, RecursionError):
            problem = json.loads(said)
        raise self._sdk.APIStatusError(said, response=response, body=problem)

    async def get(self, path: str) -> Any:
        """Return the JSON at another path of the service. Raises the vendor's errors, and ValueError if the answer is
        not JSON or too large.
        """
        response: httpx2.Response = await self._client.get(
            path, cast_to=httpx2.Response, stream=True, stream_cls=self._sdk.AsyncStream[Any]
        )
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_LIST:
                    raise ValueError("too large")
        finally:
            await response.aclose()
        try:
            # Aside: a long list takes its time, and it is asked for while people are answered.
            return await asyncio.to_thread(json.loads, bytes(body))
        except RecursionError as error:
            raise ValueError("too deep") from error

    def read_error(self, error: Exception) -> ProviderError | None:
        """Return the service's error if the answer contains one."""
        return _read(error) if isinstance(error, self._sdk.APIStatusError) else None

    @contextmanager
    def map_errors(self, tools: Sequence[str]) -> Iterator[None]:
        """Map the vendor's errors to those of `bot.errors`."""
        try:
            yield
        except Exception as error:
            mapped = self._map(error, tools)
            if mapped is None:
                raise
            raise mapped from error

    def _map(self, error: Exception, tools: Sequence[str]) -> ModelError | None:
        import aiohttp  # noqa: PLC0415 - loaded with the vendor's library

        if isinstance(error, ProviderRejected):
            return self.service.error_from(error.error, tools)
        if (own := self.read_error(error)) is not None:
            return self.service.error_from(own, tools)
        if isinstance(error, self._sdk.APIConnectionError):
            return self._interruption_error(error)
        if isinstance(error, httpx2.HTTPError | OSError):
            return self.service.incomplete_error()
        if isinstance(error, (self._sdk.APIError, aiohttp.ClientError, ValueError, RecursionError)):
            return self.service.unreadable_error()
        return None

    def _interruption_error(self, error: Exception) -> ModelUnavailable:
        """Return the error of an interrupted connection. The clients report most causes as one error that wraps the
        cause.
        """
        import aiohttp  # noqa: PLC0415 - loaded with the vendor's library

        causes = list(_causes(error))
        proxy = find_proxy(self.service.address)  # which is asked for the name of the service
        of_proxy = aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError | aiohttp.ClientConnectorDNSError
        if proxy is not None and any(isinstance(cause, of_proxy) for cause in causes):
            return self.service.proxy_error(proxy)
        if any(isinstance(cause, aiohttp.ClientConnectorError | TimeoutError) for cause in causes):
            return self.service.unreachable(causes[-1])
        if any(isinstance(cause, aiohttp.ClientConnectionError) for cause in causes):
            return self.service.closed_error()
        return self.service.incomplete_error()

    async def close(self) -> None:
        """Let go of connections."""
        async with self._opening:
            if self._sdk is not None:
                await self._client.close()


def openai_client(service: Service, path: str) -> VendorClient:
    """Return OpenAI's client for the protocol at `path`."""
    return VendorClient(service, _load_openai, path, None)


def _load_openai() -> tuple[Any, Any]:
    import openai  # noqa: PLC0415 - heavy, see `VendorClient`

    return openai, openai.AsyncOpenAI


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _read(error: Any) -> ProviderError:
    return ProviderError.from_response(error.status_code, error.body, error.response.headers)


# -------------------- streamed replies


class EventReader:
    """Incremental reader of a stream. Data of `passed_over` events is not read.

    `ended` is True after `[DONE]`, the last event of OpenAI's Chat Completions.
    """

    def __init__(self, passed_over: frozenset[bytes] = frozenset()) -> None:
        self._passed_over = passed_over
        self._line: list[bytes] = []
        self._within_break = False
        self._name = b""
        self._data: list[bytes] = []
        self._page: list[bytes] = []
        self._read = 0
        self._read_before = 0
        self._events = False
        self.ended = False

    @property
    def nonsense(self) -> bool:
        """True if the body holds other text and no events so far, such as a web page."""
        return bool(self._page) and not self._events

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Return the objects of the events that this chunk completes. An event without a name is named by its `type`.
        Raises ValueError and RecursionError for invalid JSON; JSON that is not an object is skipped.
        """
        self._read += len(chunk)
        for line in self._lines(chunk):
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif not line:
                yield from self._event()
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
            elif not (
                self._events
                or self._read > _LARGEST_PAGE
                or line.startswith((b":", b"id:", b"retry:"))
                or line.isspace()
            ):
                self._page.append(line)
        if self._read - self._read_before > LARGEST_EVENT or self._read > LARGEST_REPLY:
            raise ValueError("what came in is larger than any reply")

    def finish(self) -> Iterator[Event]:
        """Yield the objects that the stream's end completes.

        They are the last event without its empty line, and a single object sent in place of a stream.
        """
        yield from self.feed(b"\n\n")
        if self.nonsense:
            with suppress(ValueError, RecursionError):
                page = json.loads(b"\n".join(self._page))
                yield from [page] if isinstance(page, dict) else []

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that the chunk completes. They end with CR, LF or both, which may arrive in separate chunks.
        The middle of a long line is scanned once.
        """
        if self._within_break and chunk:
            chunk, self._within_break = chunk.removeprefix(b"\n"), False
        if b"\r" in chunk:
            self._within_break = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        if not lines:
            self._line.append(rest)
            return lines
        if self._line:
            lines[0] = b"".join((*self._line, lines[0]))
        if not self._events:
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        self._line = [rest] if rest else []
        return lines

    def _event(self) -> Iterator[Event]:
        data, name = b"\n".join(self._data).strip(), self._name
        self._data, self._name, self._read_before = [], b"", self._read
        self._events = self._events or bool(data)
        if not data or self.ended or name in self._passed_over:
            return
        if data == b"[DONE]":
            self.ended = True
            return
        event = json.loads(data.decode())
        if isinstance(event, dict):
            yield event if not name or "type" in event else {"type": name.decode(errors="replace"), **event}


async def read_reply(
    opening: Callable[[], Awaitable[httpx2.Response]],
    draft: ReplyDraft,
    reader: EventReader,
    timeouts: StreamTimeouts,
    map_errors: AbstractContextManager[None],
) -> AsyncGenerator[Delta | Completion, None]:
    """Yield the visible parts of a reply while they arrive, and its Completion last.

    The connection is closed with the generator, also on cancellation. `map_errors` turns the vendor's errors into
    ModelUnavailable and ModelRejected, which this raises. Errors after the end of the model's reply are ignored.
    """
    try:
        with map_errors:
            async with aclosing(_deltas(opening, draft, reader, timeouts)) as deltas:
                async for delta in deltas:
                    yield delta
    except ModelError:
        if not draft.finished:
            raise
    completion = draft.completion()
    if completion is None:
        service = timeouts.service
        raise service.unreadable_error() if reader.nonsense else service.incomplete_error()
    yield completion


async def _deltas(
    opening: Callable[[], Awaitable[httpx2.Response]],
    draft: ReplyDraft,
    reader: EventReader,
    timeouts: StreamTimeouts,
) -> AsyncGenerator[Delta, None]:
    timeouts.start_request()
    answer = await timeouts.wait(opening())
    try:
        chunks = answer.aiter_bytes()
        chunk = await timeouts.wait(anext(chunks, None))
        while chunk is not None:
            for delta in _join_deltas(delta for event in reader.feed(chunk) for delta in draft.take(event)):
                if not isinstance(delta, UsageReported):
                    timeouts.text_started()
                yield delta
            # Read to its end, since only then the connection serves the next request.
            over = reader.ended or draft.finished
            chunk = await timeouts.wait(anext(chunks, None), _END_SECONDS if over else None)
        for delta in _join_deltas(delta for event in reader.finish() for delta in draft.take(event)):
            yield delta
        if reader.ended:
            draft.end()
    finally:
        await answer.aclose()


def _join_deltas(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Join neighbours of one kind: text that arrived together is shown together. Text before an error is shown too."""
    joined: list[Any] = []
    try:
        for delta in deltas:
            if joined and (type(delta) is not type(joined[0]) or isinstance(delta, UsageReported)):
                yield _join(joined)
                joined = []
            joined.append(delta)
    except Exception:
        yield from [_join(joined)] if joined else []
        raise
    yield from [_join(joined)] if joined else []


def _join(deltas: Sequence[Any]) -> Any:
    return deltas[0] if len(deltas) == 1 else replace(deltas[0], text="".join(delta.text for delta in deltas))


class StreamTimeouts:
    """Time limits of a reply from now on, for all its requests together.

    Each wait has its limit and none spans a `yield`, because a timeout cancels the code that its task runs at that
    time.
    """

    def __init__(self, service: Service, limits: ModelLimits) -> None:
        self._clock = asyncio.get_running_loop().time
        self.service = service
        self._limits = limits
        self._end = self._clock() + limits.total_seconds
        self.start_request()

    def start_request(self) -> None:
        """Start the timer of a request: up to the first piece of text, reasoning or a call. Comments and empty events
        are no pieces, because services send them while they read the request.
        """
        self._first: float | None = self._clock() + self._limits.first_seconds

    def text_started(self) -> None:
        """Apply the limit for pauses between texts."""
        self._first = None

    async def wait(self, waited: Awaitable[Waited], at_most: float | None = None) -> Waited:
        """Wait up to the limit for the first piece or for a pause, and up to `at_most` seconds."""
        now, idle = self._clock(), self._limits.idle_seconds
        if at_most is not None:
            return await self._until(now + min(idle, at_most), waited, min(idle, at_most), "")
        if self._first is not None:
            return await self._until(self._first, waited, self._limits.first_seconds, "MODEL_FIRST_TIMEOUT")
        return await self._until(now + idle, waited, idle, "MODEL_IDLE_TIMEOUT")

    async def _until(self, moment: float, waited: Awaitable[Waited], seconds: float, setting: str) -> Waited:
        try:
            async with asyncio.timeout_at(min(moment, self._end)):
                return await waited
        except TimeoutError as error:
            late = moment >= self._end
            raise (
                self.service.too_long_error(self._limits) if late else self.service.silence_error(seconds, setting)
            ) from error

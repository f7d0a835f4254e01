"""Streamed reply of a provider: opened, read event by event within its limits, and closed.

Server-sent events become JSON objects here (WHATWG HTML, 9.2.6). The vendors' clients make a typed object of each
event, which costs more than everything else in a reply together; a reply needs two or three fields of it.
"""

from __future__ import annotations

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, suppress
from typing import Any, Protocol, TypeVar

from bot.domain.completions import Completion, ModelLimits, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from bot.domain.messages import Message
from bot.errors import ModelError
from bot.llm.provider_service import Service

LARGEST_EVENT = 16 * 2**20
"""Bytes. The last event of the Responses API holds the whole reply; nothing that is meant well is larger."""
LARGEST_REPLY = 64 * 2**20
"""Bytes of all events together: a model that has written 100,000 tokens has sent half as much."""
_LARGEST_PAGE = 2**20

Event = Mapping[str, Any]


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
            elif not self._events and not line.startswith((b":", b"id:", b"retry:")) and not line.isspace():
                self._keep(line)
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

    def _keep(self, line: bytes) -> None:
        if self._read <= _LARGEST_PAGE:
            self._page.append(line)

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


_END_SECONDS = 2.0
"""Limit for the rest of the stream once the model has finished: token counts and the end."""

Waited = TypeVar("Waited")
Delta = UsageReported | TextDelta | ReasoningDelta | ToolCallDelta


class ReplyAccumulator(Protocol):
    """Draft of a reply, built from stream events."""

    def take(self, event: Event, /) -> Iterable[Delta]:
        """Add an event and return its visible deltas. Raises ProviderRejected for an event that is an error."""

    @property
    def finished(self) -> bool:
        """True if the model has finished."""

    def completion(self) -> Completion | None:
        """Return the whole reply, or None if the model has not finished."""

    def resume(self) -> Message | None:
        """Return the message so far if the model has paused until it is sent back; else None.

        Later events are added to the same draft.
        """


class StreamResponse(Protocol):
    """A vendor's HTTP answer."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decoded body in chunks."""

    def aclose(self) -> Awaitable[None]:
        """Let go of the connection: back to the pool if all was read, hung up else."""


async def read_reply(
    opening: Callable[[], Awaitable[StreamResponse]],
    draft: ReplyAccumulator,
    reader: EventReader,
    *,
    service: Service,
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
        raise service.unreadable_error() if reader.nonsense else service.incomplete_error()
    yield completion


async def _deltas(
    opening: Callable[[], Awaitable[StreamResponse]],
    draft: ReplyAccumulator,
    reader: EventReader,
    timeouts: StreamTimeouts,
) -> AsyncGenerator[Delta, None]:
    timeouts.start_request()
    answer = await timeouts.wait_for_start(opening())
    try:
        chunks = answer.aiter_bytes()
        chunk = await timeouts.wait_for_start(anext(chunks, None))
        while chunk is not None:
            for delta in _join_deltas(delta for event in reader.feed(chunk) for delta in draft.take(event)):
                if isinstance(delta, TextDelta | ReasoningDelta):
                    timeouts.text_started()
                yield delta
            # Read to its end, since only then the connection serves the next request.
            over = reader.ended or draft.finished
            chunk = await timeouts.wait_for_next(anext(chunks, None), _END_SECONDS if over else None)
        for delta in _join_deltas(delta for event in reader.finish() for delta in draft.take(event)):
            yield delta
    finally:
        await answer.aclose()


def _join_deltas(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Join neighbours of one kind: text that arrived together is shown together. Text before an error is shown too."""
    joined: Delta | None = None
    try:
        for delta in deltas:
            match joined, delta:
                case (TextDelta(before), TextDelta(after)):
                    joined = TextDelta(before + after)
                case (ReasoningDelta(before), ReasoningDelta(after)):
                    joined = ReasoningDelta(before + after)
                case (ToolCallDelta(before), ToolCallDelta(after)):
                    joined = ToolCallDelta(before + after)
                case _:
                    if joined is not None:
                        yield joined
                    joined = delta
    except Exception:
        if joined is not None:
            yield joined
        raise
    if joined is not None:
        yield joined


class StreamTimeouts:
    """Time limits of a reply from now on, for all its requests together.

    Each wait has its limit and none spans a `yield`, because a timeout cancels the code that its task runs at that
    time.
    """

    def __init__(self, service: Service, limits: ModelLimits) -> None:
        self._clock = asyncio.get_running_loop().time
        self._service = service
        self._limits = limits
        self._end = self._clock() + limits.total_seconds
        self.start_request()

    def start_request(self) -> None:
        """Start the timer of a request. Services send a first event at once and may pause until the model has thought:
        up to the first text, the limit for the first byte applies.
        """
        self._first = self._clock() + self._limits.first_seconds
        self._silence = max(self._limits.first_seconds, self._limits.idle_seconds)

    def text_started(self) -> None:
        """Apply the limit for pauses between texts."""
        self._silence = self._limits.idle_seconds

    async def wait_for_start(self, waited: Awaitable[Waited]) -> Waited:
        """Wait up to the limit for the first byte."""
        return await self._until(self._first, waited, self._limits.first_seconds)

    async def wait_for_next(self, waited: Awaitable[Waited], at_most: float | None) -> Waited:
        """Wait up to the limit for a pause."""
        seconds = self._silence if at_most is None else min(self._silence, at_most)
        return await self._until(self._clock() + seconds, waited, seconds)

    async def _until(self, moment: float, waited: Awaitable[Waited], seconds: float) -> Waited:
        try:
            async with asyncio.timeout_at(min(moment, self._end)):
                return await waited
        except TimeoutError as error:
            late = moment >= self._end
            raise (
                self._service.too_long_error(self._limits) if late else self._service.silence_error(seconds)
            ) from error

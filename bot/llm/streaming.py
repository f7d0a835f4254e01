"""A reply as it comes in, whoever sends it: opened, read event by event within its limits, and closed.

Called by the provider modules, which know what the events are and what the vendor's errors mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, aclosing
from typing import Protocol, TypeVar

from bot.domain.completions import Completion, ModelLimits, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from bot.domain.messages import Message
from bot.errors import ModelError
from bot.llm.provider_service import Service
from bot.llm.sse import Event, EventReader

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
        """Its body as it comes in, decoded."""

    def aclose(self) -> Awaitable[None]:
        """Let go of the connection: back to the pool if all was read, hung up else."""


async def read_reply(
    opening: Callable[[], Awaitable[StreamResponse]],
    draft: ReplyAccumulator,
    reader: EventReader,
    *,
    service: Service,
    patience: StreamTimeouts,
    translated: AbstractContextManager[None],
) -> AsyncGenerator[Delta | Completion, None]:
    """Yield what a reply lets people see while it comes in, and its Completion last.

    The connection is closed when the generator is, also when it is cancelled. `translated` turns the vendor's errors
    into ModelUnavailable and ModelRejected, which this raises. Whatever goes wrong after the model has finished is of
    no consequence.
    """
    try:
        with translated:
            async with aclosing(_deltas(opening, draft, reader, patience)) as deltas:
                async for delta in deltas:
                    yield delta
    except ModelError:
        if not draft.finished:
            raise
    completion = draft.completion()
    if completion is None:
        raise service.garbled() if reader.nonsense else service.cut_off()
    yield completion


async def _deltas(
    opening: Callable[[], Awaitable[StreamResponse]],
    draft: ReplyAccumulator,
    reader: EventReader,
    patience: StreamTimeouts,
) -> AsyncGenerator[Delta, None]:
    patience.begin()
    answer = await patience.while_it_begins(opening())
    try:
        chunks = answer.aiter_bytes()
        chunk = await patience.while_it_begins(anext(chunks, None))
        while chunk is not None:
            for delta in _joined(delta for event in reader.feed(chunk) for delta in draft.take(event)):
                if isinstance(delta, TextDelta | ReasoningDelta):
                    patience.has_begun()
                yield delta
            # Read to its end, since only then the connection serves the next request.
            over = reader.ended or draft.finished
            chunk = await patience.while_silent(anext(chunks, None), _END_SECONDS if over else None)
        for delta in _joined(delta for event in reader.finish() for delta in draft.take(event)):
            yield delta
    finally:
        await answer.aclose()


def _joined(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Neighbours of one kind as one: what has come in together is shown together. What came before an error is shown,
    too.
    """
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

    Each wait has its limit and none spans a `yield`: a timeout cancels whatever its task is doing at the time.
    """

    def __init__(self, service: Service, limits: ModelLimits) -> None:
        self._clock = asyncio.get_running_loop().time
        self._service = service
        self._limits = limits
        self._end = self._clock() + limits.total_seconds
        self.begin()

    def begin(self) -> None:
        """A request is sent now. Services send something at once and go on when the model has thought: until there is
        a word of it, it may be silent for as long as before the first byte.
        """
        self._first = self._clock() + self._limits.first_seconds
        self._silence = max(self._limits.first_seconds, self._limits.idle_seconds)

    def has_begun(self) -> None:
        """The model writes."""
        self._silence = self._limits.idle_seconds

    async def while_it_begins(self, waited: Awaitable[Waited]) -> Waited:
        """Until the first byte."""
        return await self._until(self._first, waited, self._limits.first_seconds)

    async def while_silent(self, waited: Awaitable[Waited], at_most: float | None) -> Waited:
        """Until the next one."""
        seconds = self._silence if at_most is None else min(self._silence, at_most)
        return await self._until(self._clock() + seconds, waited, seconds)

    async def _until(self, moment: float, waited: Awaitable[Waited], seconds: float) -> Waited:
        try:
            async with asyncio.timeout_at(min(moment, self._end)):
                return await waited
        except TimeoutError as error:
            late = moment >= self._end
            raise (self._service.overlong(self._limits) if late else self._service.silent(seconds)) from error

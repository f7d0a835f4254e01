"""A reply as it comes in, whoever sends it: opened, read piece by piece within its limits, and closed.

Called by the provider modules, which know what the pieces are and what the vendor's errors mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

from bot.domain.completions import Completion, Limits, ModelEvent
from bot.llm.service import Service

Piece = TypeVar("Piece")
Taken_contra = TypeVar("Taken_contra", contravariant=True)
Sent_co = TypeVar("Sent_co", covariant=True)


class Draft(Protocol[Taken_contra]):
    """What has come in of a reply."""

    def take(self, piece: Taken_contra, /) -> Iterable[ModelEvent]:
        """Add a piece; what it lets people see."""

    def completion(self) -> Completion | None:
        """The whole reply, None if its end has not come."""


class Pieces(AbstractAsyncContextManager[Any], Protocol[Sent_co]):
    """A vendor's stream: an async iterator that is closed by leaving it."""

    def __aiter__(self) -> AsyncIterator[Sent_co]: ...

    async def __anext__(self) -> Sent_co: ...


async def read_reply(
    opening: Callable[[], Awaitable[Pieces[Piece]]],
    draft: Draft[Piece],
    service: Service,
    limits: Limits,
    translated: Callable[[Service, Limits], AbstractContextManager[None]],
) -> AsyncGenerator[ModelEvent, None]:
    """Yield what a reply lets people see while it comes in, and its Completion last.

    The connection is closed when the generator is, also when it is cancelled. `translated` turns the vendor's errors
    into ModelUnavailable and ModelRejected, which this raises.
    """
    deadline = asyncio.get_running_loop().time() + limits.total_seconds
    with translated(service, limits):
        async with asyncio.timeout_at(deadline):
            pieces = await opening()
        async with pieces:
            while (piece := await _next(pieces, deadline)) is not None:
                for event in draft.take(piece):
                    yield event
    completion = draft.completion()
    if completion is None:
        raise service.cut_off()
    yield completion


async def _next(pieces: AsyncIterator[Piece], deadline: float) -> Piece | None:
    # Around each wait and never around a `yield`: a timeout cancels whatever its task is doing at the time.
    async with asyncio.timeout_at(deadline):
        return await anext(pieces, None)

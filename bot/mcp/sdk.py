"""Base class of our transports' write streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class WriteStream(ABC):
    """Stream that accepts messages until it is closed."""

    def __init__(self) -> None:
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Accept a message. Raises anyio.ClosedResourceError if closed."""
        if self._closed:
            raise anyio.ClosedResourceError
        await self._take(item)

    @abstractmethod
    async def _take(self, item: SessionMessage) -> None: ...

    async def aclose(self) -> None:
        """Close the stream."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

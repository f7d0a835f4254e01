"""The end of a transport into which the MCP library puts messages for a server, for our own transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class WriteStream(ABC):
    """Takes messages until it is closed."""

    def __init__(self) -> None:
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Take one. Raises anyio.ClosedResourceError once it is closed."""
        if self._closed:
            raise anyio.ClosedResourceError
        await self._take(item)

    @abstractmethod
    async def _take(self, item: SessionMessage) -> None: ...

    async def aclose(self) -> None:
        """Take none from now on."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

"""Background delivery of fetched capabilities to the store, so that connections do not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bot.domain.capabilities import ServerCapabilities

log = logging.getLogger(__name__)

OnSynced = Callable[[str, ServerCapabilities], Awaitable[None]]
OnSyncFailed = Callable[[str, str], Awaitable[None]]
_LONGEST = 30.0


class SyncNotifier:
    """Notifier that delivers the newest result of each server, one server after the other. A failed delivery is
    logged.
    """

    def __init__(self, on_synced: OnSynced | None = None, on_sync_failed: OnSyncFailed | None = None) -> None:
        self._on_synced = on_synced
        self._on_sync_failed = on_sync_failed
        self._waiting: dict[str, ServerCapabilities | str] = {}
        self._news = asyncio.Event()
        self._ending = False
        self._teller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the delivery task."""
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell_all(), name="mcp:reports")

    def synced(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Queue the capabilities of a server."""
        self._put(server_id, capabilities)

    def sync_failed(self, server_id: str, problem: str) -> None:
        """Queue a failed sync of a server."""
        self._put(server_id, problem)

    def forget(self, server_id: str) -> None:
        """Drop the queued result of a removed or changed server."""
        self._waiting.pop(server_id, None)

    async def close(self, limit: float) -> None:
        """Deliver the queued results, at most `limit` seconds."""
        self._ending = True
        self._news.set()
        if self._teller is None:
            return
        done, _ = await asyncio.wait({self._teller}, timeout=limit)
        if not done:
            self._teller.cancel()
            await asyncio.wait({self._teller})

    def _put(self, server_id: str, report: ServerCapabilities | str) -> None:
        self._waiting[server_id] = report
        self._news.set()

    async def _tell_all(self) -> None:
        while True:
            while self._waiting:
                server_id = next(iter(self._waiting))
                await self._tell(server_id, self._waiting.pop(server_id))
            if self._ending:
                return
            self._news.clear()
            await self._news.wait()

    async def _tell(self, server_id: str, report: ServerCapabilities | str) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                if isinstance(report, str):
                    if self._on_sync_failed is not None:
                        await self._on_sync_failed(server_id, report)
                elif self._on_synced is not None:
                    await self._on_synced(server_id, report)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connections go on
            log.warning("capabilities of MCP server %s were not stored: %s", server_id, type(error).__name__)

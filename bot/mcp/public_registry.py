"""Client of a registry of MCP servers with the official registry's API: `GET /v0/servers?search=…`.

The address is the operator's and https. Responses are limited in size, time and number; the host is checked as those of
admins' servers are, and redirects are not followed. Results are cached, and old ones used while the registry is away.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bot.domain.catalog import CatalogServer
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.config.catalog import parse_server
from bot.mcp.oauth.http import AuthServerClient, open_client

FRESH_SECONDS, STALE_SECONDS = 600.0, 86_400.0
_PAGE = 20
_MOST_PAGES = 3
_MOST_CACHED = 100
_LONGEST_QUERY = 200
_FIX = gettext_lazy("check MCP_REGISTRY_URL, or try again later")


@dataclass(frozen=True, slots=True)
class _Cached:
    servers: tuple[CatalogServer, ...]
    at: float


class PublicRegistry:
    """Search by name. `open_network` returns the network that reaches the registry."""

    def __init__(
        self,
        address: str,
        open_network: Callable[[], httpx2.AsyncBaseTransport],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert urlsplit(address).scheme == "https", "a registry is reached by https alone"
        self._address = f"{address.rstrip('/')}/v0/servers"
        self._host = urlsplit(address).hostname or ""
        self._open_network = open_network
        self._clock = clock
        self._cache: OrderedDict[str, _Cached] = OrderedDict()

    async def search(self, words: str) -> Sequence[CatalogServer]:
        """Return the newest versions of servers whose names contain the words. Raises ServerTrouble."""
        query = " ".join(words.split())[:_LONGEST_QUERY]
        cached = self._cache.get(query)
        age = self._clock() - cached.at if cached is not None else STALE_SECONDS
        if cached is not None and age < FRESH_SECONDS:
            return cached.servers
        try:
            servers = await self._fetch(query)
        except ServerTrouble:
            if cached is not None and age < STALE_SECONDS:
                return cached.servers
            raise
        self._cache[query] = _Cached(servers, self._clock())
        self._cache.move_to_end(query)
        while len(self._cache) > _MOST_CACHED:
            self._cache.popitem(last=False)
        return servers

    async def _fetch(self, query: str) -> tuple[CatalogServer, ...]:
        servers: dict[str, CatalogServer] = {}
        cursor = ""
        async with open_client(self._open_network(), gettext_lazy("Asking the registry")) as client:
            for _ in range(_MOST_PAGES):
                document = await self._page(client, query, cursor)
                listed = document.get("servers")
                parsed = map(parse_server, listed[: 2 * _PAGE] if isinstance(listed, list) else ())
                servers |= {server.name: server for server in parsed if server is not None}
                cursor = _next_cursor(document)
                if not cursor:
                    break
        return tuple(servers.values())

    async def _page(self, client: AuthServerClient, query: str, cursor: str) -> dict[str, Any]:
        parameters = {
            "search": query,
            "version": "latest",
            "limit": str(_PAGE),
            **({"cursor": cursor} if cursor else {}),
        }
        response = await client.send(httpx2.Request("GET", httpx2.URL(self._address, params=parameters)))
        if response.status_code != 200:
            raise ServerTrouble(
                gettext_lazy(
                    "The registry {registry} answers with status {status}.",
                    registry=self._host,
                    status=response.status_code,
                ),
                _FIX,
            )
        try:
            document = json.loads(response.content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ServerTrouble(
                gettext_lazy("The answer of the registry {registry} is no list of servers.", registry=self._host), _FIX
            )
        return document


def _next_cursor(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    cursor = metadata.get("nextCursor", metadata.get("next_cursor")) if isinstance(metadata, dict) else None
    return cursor if isinstance(cursor, str) and len(cursor) <= 1000 else ""

"""Client of the plain chat service. It waits for short rate limits and raises DeliveryFailed for errors."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from bot.domain.conversations import Author, Member
from bot.errors import DeliveryFailed
from bot.ports.platform import DirectoryEntry

PLATFORM = "plain"
GROUP = "plain-group:"
LONGEST_PAUSE = 20.0
"""Seconds."""
TEMPORARY = frozenset({429, 500, 502, 503})


class PlainApiError(DeliveryFailed):
    """The service rejected a request with this code."""

    def __init__(self, status: int, code: str, retry_after: float | None = None) -> None:
        fix = "set PLAIN_TOKEN" if status == 401 else ""
        is_permanent = status not in TEMPORARY
        super().__init__("The service refuses.", fix, retry_after=retry_after, permanent=is_permanent, details=code)
        self.status, self.code = status, code


class PlainApi:
    """Client of the service for a bot token. The owner of the session closes it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str,
        url: str,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._session, self._url, self._pause = session, url, pause
        self._headers = {"Authorization": f"Bearer {token}"}

    async def call(self, method: str, path: str, query: dict[str, str] | None = None, **body: Any) -> Any:
        """Return the response of a route. Raises DeliveryFailed."""
        while True:
            try:
                return await self._call(method, path, query, body)
            except PlainApiError as error:
                if error.retry_after is None or error.retry_after > LONGEST_PAUSE:
                    raise
                await self._pause(error.retry_after)

    async def member(self, user: str) -> Member:
        """Return a user with current rights and groups; an external user if the service does not know the id."""
        try:
            found = await self.call("GET", f"/users/{user}")
        except PlainApiError as error:
            if error.code != "unknown_user":
                raise
            return Member(Author(PLATFORM, user, user), external=True)
        external = found["external"] or found["bot"]
        groups = frozenset(f"{GROUP}{group}" for group in found["groups"] if not external)
        return Member(
            Author(PLATFORM, user, found["name"]),
            groups,
            found["admin"] and not external,
            external=external,
            language=found["language"],
            time_zone=found["time_zone"],
        )

    async def group(self, group: str) -> DirectoryEntry:
        """Return a group."""
        found = await self.call("GET", f"/groups/{group}")
        return DirectoryEntry(found["name"], frozenset(f"{PLATFORM}:{user}" for user in found["members"]))

    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""
        return str((await self.call("POST", f"/users/{user}/direct"))["id"])

    async def share(self, channel: str, name: str, content: bytes, **body: Any) -> str:
        """Share a file and return the id of its message."""
        text = base64.b64encode(content).decode()
        return str((await self.call("POST", f"/channels/{channel}/files", name=name, content=text, **body))["id"])

    async def _call(self, method: str, path: str, query: dict[str, str] | None, body: dict[str, Any]) -> Any:
        url, content = f"{self._url}{path}", body or None
        try:
            request = self._session.request(method, url, params=query, json=content, headers=self._headers)
            async with request as response:
                if response.content_type != "application/json":
                    return await response.read()
                answer = await response.json()
                if response.status != 200:
                    raise PlainApiError(response.status, answer["error"], answer.get("retry_after") or None)
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailed(f"The service did not answer ({type(error).__name__}).") from error

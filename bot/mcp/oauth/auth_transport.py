"""HTTP transport that adds a server's token to requests and retries rejected ones.

It sits below the MCP library's client, so that requests run concurrently: a request waits only while there is no
valid token.
"""

from __future__ import annotations

import httpx2

from bot.errors import CountersignError
from bot.mcp import request_context
from bot.mcp.oauth.challenges import Challenge
from bot.mcp.oauth.token_provider import TokenProvider


class AuthTransport(httpx2.AsyncBaseTransport):
    """Transport that adds the token to requests to `url`'s origin only."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, bearer: TokenProvider, url: str) -> None:
        self._inner = inner
        self._bearer = bearer
        self._origin = _origin(httpx2.URL(url))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; send it again with another token if it was rejected, because then it had no effect.
        Raises ConnectError if the sign-in cannot be used now.
        """
        if _origin(request.url) != self._origin:
            return await self._inner.handle_async_request(request)
        bearer = self._bearer
        try:
            token = await bearer.token()
            response = await self._sent(request, token)
            challenge = Challenge.of(response)
            other = ""
            if response.status_code == 401:
                other = await bearer.another(token, challenge)
            elif challenge.wider:
                other = await bearer.wider(token, challenge)
            if other:
                await response.aclose()
                response = await self._sent(request, other)
                challenge = Challenge.of(response)
        except CountersignError as error:
            request_context.current().refusal = bearer.unusable(error)
            raise httpx2.ConnectError("there is no token for it now", request=request) from error
        if response.status_code == 401:
            request_context.current().refusal = bearer.refused(challenge)
        elif challenge.wider:
            request_context.current().refusal = bearer.needs_wider_scope(challenge)
        elif response.status_code < 300:
            bearer.works()
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _sent(self, request: httpx2.Request, token: str) -> httpx2.Response:
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    ports = {"http": 80, "https": 443}
    return url.scheme, url.host, url.port or ports.get(url.scheme)

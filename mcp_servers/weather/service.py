"""Client of the agency's web service. Responses are limited in time and size."""

from __future__ import annotations

import asyncio
import json

import httpx2

LARGEST_ANSWER = 4 * 1024 * 1024
"""Maximum size of a response in bytes. The area table, the largest file, is well below one megabyte."""

_HEADERS = {"Accept": "application/json", "User-Agent": "mcp-server-weather/1.0"}


class ServiceProblem(Exception):
    """The service sent nothing usable. The message continues "because ..." and quotes nothing of the service."""


class NotThere(ServiceProblem):
    """The service answers that it has no such file."""


class Service:
    """Connection to the service, opened with the first request."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._client: httpx2.AsyncClient | None = None

    async def fetch(self, path: str, seconds: float, patience: float) -> object:
        """Return the JSON value at `path` within `seconds`, the rest of the query's time limit `patience`. Raises
        ServiceProblem.
        """
        try:
            async with asyncio.timeout(seconds):
                body = await self._body(path)
        except TimeoutError:
            raise ServiceProblem(f"the weather service did not answer within {patience:.0f} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ServiceProblem(
                f"the weather service could not be reached at {self._base_url} ({type(error).__name__})"
            ) from error
        try:
            value: object = json.loads(body)
        except (ValueError, RecursionError):
            raise ServiceProblem("the weather service sent something that is not JSON") from None
        return value

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _body(self, path: str) -> bytes:
        if self._client is None:
            # No timeout of the library, because the caller's limit covers the whole exchange.
            self._client = httpx2.AsyncClient(base_url=self._base_url, headers=_HEADERS, timeout=None)
        async with self._client.stream("GET", path) as response:
            if response.status_code == httpx2.codes.NOT_FOUND:
                raise NotThere("the weather service has no data for this area (HTTP 404)")
            if response.status_code != httpx2.codes.OK:
                raise ServiceProblem(f"the weather service answered with HTTP status {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_ANSWER:
                    raise ServiceProblem("the weather service sent more than any of its files should hold")
            return bytes(body)

"""The vendors' clients, which are generated alike: one request, its raw answer, and their errors translated.

Called by the adapter of each vendor, which creates the client and names the classes of its SDK; no SDK is imported
here. The clients' own retries have to be off, because the engine retries and shows it. The clients' typed event objects
are not used: the HTTP answer is read directly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx2

from bot.errors import ModelUnavailable
from bot.llm.error_classification import ProviderError, ProviderRejected
from bot.llm.provider_service import Service

LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Addresses on this machine, in the form of httpx2's mounts: a proxy from the environment cannot reach them."""
LARGEST_ERROR = 2**17
"""Bytes of an answer with a bad status that are read: some services quote the whole request."""
LARGEST_LIST = 8 * 2**20
"""Limit in bytes of other answers of a service. OpenRouter's list of models has one or two million."""
ERROR_SECONDS = 5.0
"""Time limit, in seconds, for the text of an error. Its status is known by then."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """The classes of one SDK: its stream; its errors: an answer with a bad status, no connection, any at all."""

    stream: Any
    status_error: type[Exception]
    connection_error: type[Exception]
    error: type[Exception]


def http_settings() -> dict[str, Any]:
    """Return the settings of the vendors' HTTP clients.

    Redirects are not followed: the key and the conversation are for the configured service alone. Answers are not
    compressed, because compression delays streaming.
    """
    return {
        "mounts": dict.fromkeys(LOOPBACK),
        "follow_redirects": False,
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [_read_complaint]},
    }


async def _read_complaint(response: httpx2.Response) -> None:
    """Take the beginning of an answer with a bad status for the whole: the vendors' clients read to its end, however
    far that is.
    """
    if response.status_code < 300:
        return
    stream, beginning = response.stream, bytearray()
    assert isinstance(stream, httpx2.AsyncByteStream)
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(ERROR_SECONDS):
            async for chunk in stream:
                beginning += chunk
                if len(beginning) >= LARGEST_ERROR:
                    break
    await stream.aclose()
    response.stream = httpx2.ByteStream(bytes(beginning[:LARGEST_ERROR]))
    response.encoding = "utf-8"  # some that a service may name are none


class VendorClient:
    """One vendor's client for one protocol, which is at `path`."""

    def __init__(self, service: Service, client: Any, path: str, sdk: Sdk) -> None:
        self._service = service
        self._client = client
        self._path = path
        self._sdk = sdk

    async def post(self, body: bytes) -> httpx2.Response:
        """Send a request; return when the answer begins. Raises the vendor's errors."""
        response: httpx2.Response = await self._client.post(
            self._path, cast_to=httpx2.Response, content=body, stream=True, stream_cls=self._sdk.stream
        )
        return response

    async def get(self, path: str) -> Any:
        """Return the JSON at another path of the service. Raises the vendor's errors, and ValueError if the answer is
        not JSON or too large.
        """
        response: httpx2.Response = await self._client.get(
            path, cast_to=httpx2.Response, stream=True, stream_cls=self._sdk.stream
        )
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_LIST:
                    raise ValueError("too large")
        finally:
            await response.aclose()
        # Aside: a long list takes its time, and it is asked for while people are answered.
        return await asyncio.to_thread(_as_json, bytes(body))

    def complaint(self, error: Exception) -> ProviderError | None:
        """Return the service's error if the answer contains one."""
        return _read(error) if isinstance(error, self._sdk.status_error) else None

    @contextmanager
    def translated(self, tools: Sequence[str]) -> Iterator[None]:
        """Turns the vendor's errors into those of `bot.errors`."""
        try:
            yield
        except self._sdk.status_error as error:
            raise self._service.refused(_read(error), tools) from error
        except ProviderRejected as error:
            raise self._service.refused(error.complaint, tools) from error
        except self._sdk.connection_error as error:
            raise self._interrupted(error) from error
        except (httpx2.HTTPError, OSError) as error:
            raise self._service.cut_off() from error
        except (self._sdk.error, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._service.garbled() from error

    def _interrupted(self, error: Exception) -> ModelUnavailable:
        """Return the error of an interrupted connection. The clients report most causes as one error that wraps the
        cause.
        """
        causes = list(_causes(error))
        if any(
            isinstance(cause, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError) for cause in causes
        ):
            return self._service.proxy_error()
        if any(isinstance(cause, aiohttp.ClientConnectorError | TimeoutError) for cause in causes):
            return self._service.unreachable(causes[-1])
        if any(isinstance(cause, aiohttp.ClientConnectionError) for cause in causes):
            return self._service.hung_up()
        return self._service.cut_off()

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


def _as_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _read(error: Any) -> ProviderError:
    return ProviderError.read(error.status_code, error.body, error.response.headers)

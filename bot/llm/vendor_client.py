"""The vendors' clients, which are generated alike: one request out, its raw answer back, and their errors as ours.

Called by the adapter of each vendor, which makes the client and says what its SDK's classes are called; no SDK is
imported here. The clients' own retries have to be off: the engine retries and shows it. The typed objects that they
make of each event are left out: the HTTP answer is read as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx2

from bot.llm.complaints import Complaint, ServiceComplained
from bot.llm.service import Service


@dataclass(frozen=True, slots=True)
class Sdk:
    """The classes of one SDK: its stream; its errors: an answer with a bad status, no connection, any at all."""

    stream: Any
    status_error: type[Exception]
    connection_error: type[Exception]
    error: type[Exception]


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

    def complaint(self, error: Exception) -> Complaint | None:
        """What the service says, if this is its answer."""
        return _read(error) if isinstance(error, self._sdk.status_error) else None

    @contextmanager
    def translated(self, tools: Sequence[str]) -> Iterator[None]:
        """Turns the vendor's errors into those of `bot.errors`."""
        try:
            yield
        except self._sdk.status_error as error:
            raise self._service.refused(_read(error), tools) from error
        except ServiceComplained as error:
            raise self._service.refused(error.complaint, tools) from error
        except self._sdk.connection_error as error:
            raise self._service.interrupted(error.__cause__) from error
        except httpx2.HTTPError as error:
            raise self._service.cut_off() from error
        except (self._sdk.error, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._service.garbled() from error

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


def _read(error: Any) -> Complaint:
    return Complaint.read(error.status_code, error.body, error.response.headers)

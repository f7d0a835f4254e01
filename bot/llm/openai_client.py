"""OpenAI's own client, as both of its protocols use it.

Called by `openai_chat` and `openai_responses`. The client's retries are off, and the typed objects that it makes of
each event are left out: its HTTP answer is read as it is, by aiohttp, which takes half the time of the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx2
import openai

from bot.llm.complaints import Complaint, ServiceComplained
from bot.llm.service import LOOPBACK, Service

HOME = "https://api.openai.com/v1"


class OpenAIClient:
    """The vendor's client for one protocol, which is at `path`."""

    def __init__(self, service: Service, path: str) -> None:
        self._service = service
        self._path = path
        self._client = openai.AsyncOpenAI(
            api_key=service.key,
            base_url=service.address,
            max_retries=0,
            timeout=service.timeout(),
            http_client=openai.DefaultAioHttpClient(mounts=dict.fromkeys(LOOPBACK)),
        )

    async def post(self, body: bytes) -> httpx2.Response:
        """Send a request; return when the answer begins. Raises the vendor's errors."""
        answer: Any = await self._client.post(
            self._path, cast_to=httpx2.Response, content=body, stream=True, stream_cls=openai.AsyncStream[Any]
        )
        response: httpx2.Response = answer
        return response

    def complaint(self, error: Exception) -> Complaint | None:
        """What the service says, if this is its answer."""
        if not isinstance(error, openai.APIStatusError):
            return None
        return Complaint.read(error.status_code, error.body, error.response.headers)

    @contextmanager
    def translated(self, tools: Sequence[str]) -> Iterator[None]:
        """Turns the vendor's errors into those of `bot.errors`."""
        try:
            yield
        except openai.APIStatusError as error:
            complaint = Complaint.read(error.status_code, error.body, error.response.headers)
            raise self._service.refused(complaint, tools) from error
        except ServiceComplained as error:
            raise self._service.refused(error.complaint, tools) from error
        except openai.APIConnectionError as error:
            raise self._service.interrupted(error.__cause__) from error
        except httpx2.HTTPError as error:
            raise self._service.cut_off() from error
        except (openai.APIError, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._service.garbled() from error

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

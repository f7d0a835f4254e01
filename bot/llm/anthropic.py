"""Anthropic's Messages, at the vendor's address and at compatible servers.

Called by the composition root through `create`. The client's own retries are off: the engine retries and shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import anthropic
import httpx2
from anthropic.types import RawMessageStreamEvent

from bot.domain.completions import Capabilities, Limits, ModelEvent, ModelRequest
from bot.llm.anthropic_reply import ReplyDraft
from bot.llm.anthropic_request import request_body
from bot.llm.image_words import without_images
from bot.llm.refused_tools import refused_tool
from bot.llm.service import LOOPBACK, Service
from bot.llm.streaming import read_reply
from bot.ports import LanguageModel

_HOME = "https://api.anthropic.com"
_IMAGE_BYTES = 5 * 2**20 * 3 // 4
"""The service counts the 5 MB that an image may have after its encoding, which makes four bytes of three."""
_STATUS_OF = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
}
"""What an error event within a stream would have been as a status: its own response says 200."""


@dataclass(frozen=True, slots=True)
class Config:
    """Which model, where, with which key. `base_url` None is the vendor's address; `context_tokens` is the size of
    the model's window. `images` says whether the model sees them: all of the vendor's do.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int = 200_000
    images: bool = True


def create(config: Config) -> LanguageModel:
    """The model. Opens no connection. Raises SettingsError for a key that cannot be sent."""
    return _MessagesModel(config)


class _MessagesModel:
    def __init__(self, config: Config) -> None:
        service = Service.at(
            _HOME, config.base_url, vendor="Anthropic", prefix="ANTHROPIC", model=config.model, key=config.api_key
        )
        self._service = service
        self._capabilities = Capabilities(
            images=config.images,
            image_bytes=_IMAGE_BYTES,
            reasoning=True,
            context_tokens=config.context_tokens,
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=service.key,
            base_url=service.address,
            max_retries=0,
            # The client sends `Authorization: Bearer`; older compatible servers look for the header it had before.
            default_headers=None if service.own_address else {"x-api-key": service.key},
            http_client=anthropic.DefaultAsyncHttpxClient(mounts=dict.fromkeys(LOOPBACK)),
        )

    @property
    def capabilities(self) -> Capabilities:
        """What the vendor's models can do."""
        return self._capabilities

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. The connection is closed when the iterator is, also when it is cancelled."""
        translated = partial(_translated, [tool.name for tool in request.tools])
        return read_reply(lambda: self._open(request), ReplyDraft(), self._service, request.limits, translated)

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> anthropic.AsyncStream[RawMessageStreamEvent]:
        seen = request if self._capabilities.images else without_images(request)
        # Aside: a server's schemas can be large, and other turns should not stand still while they are read.
        body = await asyncio.to_thread(request_body, seen, self._service.model, own_address=self._service.own_address)
        timeout = self._service.timeout(request.limits)
        stream: anthropic.AsyncStream[RawMessageStreamEvent]
        stream = await self._client.messages.create(**body, stream=True, timeout=timeout)
        return stream


@contextmanager
def _translated(tools: Sequence[str], service: Service, limits: Limits) -> Iterator[None]:
    try:
        yield
    except anthropic.APIStatusError as error:
        status = error.status_code if error.status_code >= 400 else _STATUS_OF.get(str(error.type), 500)
        message = _message(error)
        tool = refused_tool(status, "", message, tools)
        raise service.refused(status, message, error.response.headers, tool) from error
    except anthropic.APIConnectionError as error:
        raise service.interrupted(error.__cause__, limits) from error
    except anthropic.APIError as error:
        raise service.garbled() from error
    except httpx2.HTTPError as error:  # a connection that breaks within the stream
        raise service.interrupted(error, limits) from error
    except TimeoutError as error:
        raise service.overlong(limits) from error
    except (ValueError, RecursionError) as error:
        raise service.garbled() from error


def _message(error: anthropic.APIStatusError) -> str:
    return str(error.api_message or (error.body if isinstance(error.body, str) else ""))

"""OpenAI's Chat Completions, at the vendor's address and at every compatible server.

Called by the composition root through `create`. The client's own retries are off: the engine retries and shows it.
The raw stream is read, because the client's helper gives up on replies that compatible servers really send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

from bot.domain.completions import Capabilities, Limits, ModelEvent, ModelRequest
from bot.errors import ModelError
from bot.llm.image_words import without_images
from bot.llm.openai_chat_reply import ReplyDraft
from bot.llm.openai_chat_request import request_body
from bot.llm.refused_tools import refused_tool
from bot.llm.service import LOOPBACK, Service
from bot.llm.streaming import read_reply
from bot.ports import LanguageModel

_HOME = "https://api.openai.com/v1"
_STATUS_OF_CODE = {
    "context_length_exceeded": 413,
    "insufficient_quota": 402,  # comes as 429, but waiting does not help
    "invalid_api_key": 401,
    "model_not_found": 404,
}
"""What a code means where the status of the answer says less."""
_STATUS_OF_EVENT = {
    **_STATUS_OF_CODE,
    "authentication_error": 401,
    "invalid_request_error": 400,
    "rate_limit_exceeded": 429,
}
"""What the code or the type of an error event means: its own response says 200."""


@dataclass(frozen=True, slots=True)
class Config:
    """Which model, where, with which key. `base_url` None is the vendor's address; `context_tokens` is the size of
    the model's window. `images` says whether the model sees them; None where only the address can tell.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int = 128_000
    images: bool | None = None


def create(config: Config) -> LanguageModel:
    """The model. Opens no connection. Raises SettingsError for a key that cannot be sent."""
    return _ChatModel(config)


class _ChatModel:
    def __init__(self, config: Config) -> None:
        service = Service.at(
            _HOME, config.base_url, vendor="OpenAI", prefix="OPENAI", model=config.model, key=config.api_key
        )
        self._service = service
        images = service.own_address if config.images is None else config.images
        self._capabilities = Capabilities(images=images, context_tokens=config.context_tokens)
        self._client = openai.AsyncOpenAI(
            api_key=service.key,
            base_url=service.address,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpx2Client(mounts=dict.fromkeys(LOOPBACK)),
        )

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do, as far as its settings and the address tell: compatible servers rarely see images."""
        return self._capabilities

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. The connection is closed when the iterator is, also when it is cancelled."""
        translated = partial(_translated, [tool.name for tool in request.tools])
        return read_reply(lambda: self._open(request), ReplyDraft(), self._service, request.limits, translated)

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> openai.AsyncStream[ChatCompletionChunk]:
        seen = request if self._capabilities.images else without_images(request)
        # Aside: a server's schemas can be large, and other turns should not stand still while they are read.
        body = await asyncio.to_thread(request_body, seen, self._service.model, own_address=self._service.own_address)
        timeout = self._service.timeout(request.limits)
        stream: openai.AsyncStream[ChatCompletionChunk]
        stream = await self._client.chat.completions.create(**body, stream=True, timeout=timeout)
        return stream


@contextmanager
def _translated(tools: Sequence[str], service: Service, limits: Limits) -> Iterator[None]:
    try:
        yield
    except openai.APIStatusError as error:
        status = _STATUS_OF_CODE.get(error.code or "", error.status_code)
        raise _refused(error, status, tools, service, error.response.headers) from error
    except openai.APIConnectionError as error:
        raise service.interrupted(error.__cause__, limits) from error
    except openai.APIError as error:  # an error event within the stream
        raise _refused(error, _status_of_event(error), tools, service, {}) from error
    except httpx2.HTTPError as error:
        raise service.interrupted(error, limits) from error
    except TimeoutError as error:
        raise service.overlong(limits) from error
    except (ValueError, RecursionError) as error:
        raise service.garbled() from error


def _refused(
    error: openai.APIError, status: int, tools: Sequence[str], service: Service, headers: Mapping[str, str]
) -> ModelError:
    message = _message(error)
    return service.refused(status, message, headers, refused_tool(status, str(error.param or ""), message, tools))


def _status_of_event(error: openai.APIError) -> int:
    code = error.code or ""
    if code.isdecimal() and 400 <= int(code) <= 599:  # vLLM puts the status there
        return int(code)
    return _STATUS_OF_EVENT.get(code) or _STATUS_OF_EVENT.get(str(error.type)) or 500


def _message(error: openai.APIError) -> str:
    body: Any = error.body
    if isinstance(body, dict):
        return str(body.get("message") or body.get("detail") or "")
    return str(body or "")

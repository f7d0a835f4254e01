"""Anthropic's Messages, at the vendor's address and at compatible servers.

Called by the composition root through `create`. The client's own retries are off: the engine retries and shows it. The
typed objects that it makes of each event are left out: its HTTP answer is read as it is, by aiohttp, which takes half
the time of the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import anthropic
import httpx2

from bot.domain.completions import Capabilities
from bot.llm.anthropic_reply import ReplyDraft
from bot.llm.anthropic_request import request_body
from bot.llm.complaints import Complaint, ServiceComplained
from bot.llm.hosted import HostedModel, Wording
from bot.llm.service import LOOPBACK, Service
from bot.ports import LanguageModel

_HOME = "https://api.anthropic.com"
_IMAGE_BYTES = 5 * 2**20 * 3 // 4
"""The service counts the 5 MB that an image may have after its encoding, which makes four bytes of three."""
_PASSED_OVER = frozenset({b"ping", b"content_block_stop"})


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
    variables: str = "ANTHROPIC"
    """What the names of the variables begin with that hold the key and the address."""


def create(config: Config) -> LanguageModel:
    """The model. Opens no connection. Raises SettingsError for a key that cannot be sent."""
    service = Service.at(
        _HOME, config.base_url, vendor="Anthropic", prefix=config.variables, model=config.model, key=config.api_key
    )
    capabilities = Capabilities(
        images=config.images,
        image_bytes=_IMAGE_BYTES,
        documents=service.own_address,
        reasoning=True,
        context_tokens=config.context_tokens,
    )
    body = partial(request_body, config.model, own_address=service.own_address)
    return HostedModel(service, capabilities, _MessagesClient(service), Wording(body, ReplyDraft, _PASSED_OVER))


class _MessagesClient:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._client = anthropic.AsyncAnthropic(
            api_key=service.key,
            base_url=service.address,
            max_retries=0,
            timeout=service.timeout(),
            # The client sends `Authorization: Bearer`; older compatible servers look for the header it had before.
            default_headers=None if service.own_address else {"x-api-key": service.key},
            http_client=anthropic.DefaultAioHttpClient(mounts=dict.fromkeys(LOOPBACK)),
        )

    async def post(self, body: bytes) -> httpx2.Response:
        answer: Any = await self._client.post(
            "/v1/messages",
            cast_to=httpx2.Response,
            content=body,
            stream=True,
            stream_cls=anthropic.AsyncStream[Any],
        )
        response: httpx2.Response = answer
        return response

    def complaint(self, error: Exception) -> Complaint | None:
        if not isinstance(error, anthropic.APIStatusError):
            return None
        return Complaint.read(error.status_code, error.body, error.response.headers)

    @contextmanager
    def translated(self, tools: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except anthropic.APIStatusError as error:
            complaint = Complaint.read(error.status_code, error.body, error.response.headers)
            raise self._service.refused(complaint, tools) from error
        except ServiceComplained as error:
            raise self._service.refused(error.complaint, tools) from error
        except anthropic.APIConnectionError as error:
            raise self._service.interrupted(error.__cause__) from error
        except httpx2.HTTPError as error:
            raise self._service.cut_off() from error
        except (anthropic.APIError, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._service.garbled() from error

    async def close(self) -> None:
        await self._client.close()

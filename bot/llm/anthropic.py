"""Anthropic's Messages, at the vendor's address and at compatible servers.

Called by the composition root through `create`. The client's own retries are off: the engine retries and shows it. The
typed objects that it makes of each event are left out: its HTTP answer is read as it is, by aiohttp, which takes half
the time of the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anthropic

from bot.domain.completions import Capabilities
from bot.llm.anthropic_reply import ReplyDraft
from bot.llm.anthropic_request import request_body
from bot.llm.hosted_model import HostedModel, WireFormat
from bot.llm.model_list import Places
from bot.llm.provider_service import Service
from bot.llm.vendor_client import Sdk, VendorClient, http_settings
from bot.ports import LanguageModel

_HOME = "https://api.anthropic.com"
_IMAGE_BYTES = 5 * 2**20 * 3 // 4
"""The service counts the 5 MB that an image may have after its encoding, which makes four bytes of three."""
_WINDOW = 200_000
"""Tokens, as long as nobody has said how many. All of the vendor's models have as many or more."""
_PASSED_OVER = frozenset({b"ping", b"content_block_stop"})
_SDK = Sdk(anthropic.AsyncStream[Any], anthropic.APIStatusError, anthropic.APIConnectionError, anthropic.APIError)


@dataclass(frozen=True, slots=True)
class Config:
    """Which model, where, with which key. `base_url` None is the vendor's address; `context_tokens` is the size of
    the model's window, None if the settings do not say. `images` says whether the model sees them: all of the vendor's
    do.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int | None = None
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
        context_tokens=config.context_tokens or _WINDOW,
    )
    body = partial(request_body, config.model, own_address=service.own_address, by=service.writer)
    wording = WireFormat(body, partial(ReplyDraft, service.writer), _PASSED_OVER)
    return HostedModel(service, capabilities, _client(service), wording, Places("/v1/models"))


def _client(service: Service) -> VendorClient:
    client = anthropic.AsyncAnthropic(
        api_key=service.key,
        base_url=service.address,
        max_retries=0,
        timeout=service.timeout(),
        # The client sends `Authorization: Bearer`; older compatible servers look for the header it had before.
        default_headers=None if service.own_address else {"x-api-key": service.key},
        http_client=anthropic.DefaultAioHttpClient(**http_settings()),
    )
    return VendorClient(service, client, "/v1/messages", _SDK)

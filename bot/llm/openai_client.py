"""OpenAI's own client, as both of its protocols use it.

Called by `openai_chat` and `openai_responses`.
"""

from __future__ import annotations

from typing import Any

import openai

from bot.llm.model_list import Places
from bot.llm.provider_service import Service
from bot.llm.vendor_client import Sdk, VendorClient, http_settings

HOME = "https://api.openai.com/v1"
WINDOW = 128_000
"""Tokens, as long as nobody has said how many."""
_SDK = Sdk(openai.AsyncStream[Any], openai.APIStatusError, openai.APIConnectionError, openai.APIError)


def openai_client(service: Service, path: str) -> VendorClient:
    """The vendor's client for one protocol, which is at `path`."""
    client = openai.AsyncOpenAI(
        api_key=service.key,
        base_url=service.address,
        max_retries=0,
        timeout=service.timeout(),
        http_client=openai.DefaultAioHttpClient(**http_settings()),
    )
    return VendorClient(service, client, path, _SDK)


def places(service: Service, *, key: str = "", running: str = "") -> Places:
    """Where the service can be asked about its models. The vendor does not say how large their windows are."""
    return Places("/models", key, running, windows=not service.own_address)

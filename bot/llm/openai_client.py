"""OpenAI's own client, shared by the adapters of both protocols."""

from __future__ import annotations

from typing import Any

import openai

from bot.llm.hosted_model import ModelListPaths
from bot.llm.provider_service import Sdk, Service, VendorClient, http_settings

HOME = "https://api.openai.com/v1"
WINDOW = 128_000
"""Default window in tokens."""
_SDK = Sdk(openai.AsyncStream[Any], openai.APIStatusError, openai.APIConnectionError, openai.APIError)


def openai_client(service: Service, path: str) -> VendorClient:
    """Return the vendor's client for the protocol at `path`."""
    client = openai.AsyncOpenAI(
        api_key=service.key,
        base_url=service.address,
        max_retries=0,
        timeout=service.timeout(),
        http_client=openai.DefaultAioHttpClient(**http_settings()),
    )
    return VendorClient(service, client, path, _SDK)


def model_list_paths(service: Service, *, key: str = "", running: str = "") -> ModelListPaths:
    """Return the paths of the model list. The vendor does not report the size of a window."""
    return ModelListPaths("/models", key, running, windows=not service.own_address)

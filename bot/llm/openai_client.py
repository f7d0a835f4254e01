"""OpenAI's own client, as both of its protocols use it.

Called by `openai_chat` and `openai_responses`.
"""

from __future__ import annotations

from typing import Any

import openai

from bot.llm.service import LOOPBACK, Service
from bot.llm.vendor_client import Sdk, VendorClient

HOME = "https://api.openai.com/v1"
_SDK = Sdk(openai.AsyncStream[Any], openai.APIStatusError, openai.APIConnectionError, openai.APIError)


def openai_client(service: Service, path: str) -> VendorClient:
    """The vendor's client for one protocol, which is at `path`."""
    client = openai.AsyncOpenAI(
        api_key=service.key,
        base_url=service.address,
        max_retries=0,
        timeout=service.timeout(),
        http_client=openai.DefaultAioHttpClient(mounts=dict.fromkeys(LOOPBACK)),
    )
    return VendorClient(service, client, path, _SDK)

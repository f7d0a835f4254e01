"""OpenAI's Responses, at the vendor's address and at compatible servers that have it.

Called by the composition root through `create`. It is the vendor's newer protocol: models keep their reasoning from
one round of tools to the next, which Chat Completions has no place for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from bot.domain.completions import Capabilities
from bot.llm.hosted_model import HostedModel, WireFormat
from bot.llm.openai_client import HOME, WINDOW, openai_client, places
from bot.llm.openai_responses_reply import PASSED_OVER, ReplyDraft
from bot.llm.openai_responses_request import request_body
from bot.llm.provider_service import Service
from bot.ports import LanguageModel


@dataclass(frozen=True, slots=True)
class Config:
    """Which model, where, with which key. `base_url` None is the vendor's address; `context_tokens` is the size of
    the model's window, None if the settings do not say. `images` says whether the model sees them: all of the
    vendor's newer ones do.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int | None = None
    images: bool = True
    variables: str = "OPENAI"
    """What the names of the variables begin with that hold the key and the address."""


def create(config: Config) -> LanguageModel:
    """The model. Opens no connection. Raises SettingsError for a key that cannot be sent."""
    service = Service.at(
        HOME, config.base_url, vendor="OpenAI", prefix=config.variables, model=config.model, key=config.api_key
    )
    capabilities = Capabilities(
        images=config.images,
        documents=service.own_address,
        reasoning=True,
        context_tokens=config.context_tokens or WINDOW,
    )
    body = partial(request_body, config.model, own_address=service.own_address, by=service.writer)
    wording = WireFormat(body, partial(ReplyDraft, service.writer), PASSED_OVER)
    return HostedModel(service, capabilities, openai_client(service, "/responses"), wording, places(service))

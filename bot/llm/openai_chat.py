"""Chat Completions, as OpenAI and every compatible server speak it: Ollama, vLLM, LiteLLM, OpenRouter.

Called by the composition root through `create`. The raw stream is read, because the client's helper gives up on replies
that compatible servers really send.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from bot.domain.completions import Capabilities
from bot.llm.hosted_model import HostedModel, WireFormat
from bot.llm.openai_chat_reply import ReplyDraft
from bot.llm.openai_chat_request import request_body
from bot.llm.openai_client import HOME, WINDOW, openai_client, places
from bot.llm.provider_service import Service
from bot.ports import LanguageModel


@dataclass(frozen=True, slots=True)
class Config:
    """Which model, where, with which key. `base_url` None is the vendor's address; `context_tokens` is the size of
    the model's window, None if the settings do not say. `images` says whether the model sees them; None where
    only the address can tell.
    """

    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    context_tokens: int | None = None
    images: bool | None = None
    variables: str = "OPENAI"
    """What the names of the variables begin with that hold the key and the address."""
    key_at: str = ""
    running_at: str = ""
    """Where else a compatible server can be asked about itself, see `catalogue.Places`."""


def create(config: Config) -> LanguageModel:
    """The model. Opens no connection. Raises SettingsError for a key that cannot be sent."""
    service = Service.at(
        HOME, config.base_url, vendor="OpenAI", prefix=config.variables, model=config.model, key=config.api_key
    )
    capabilities = Capabilities(
        # Compatible servers rarely see images, and none is known to read documents.
        images=service.own_address if config.images is None else config.images,
        documents=service.own_address,
        context_tokens=config.context_tokens or WINDOW,
    )
    body = partial(request_body, config.model, own_address=service.own_address, by=service.writer)
    return HostedModel(
        service,
        capabilities,
        openai_client(service, "/chat/completions"),
        WireFormat(body, partial(ReplyDraft, service.writer)),
        places(service, key=config.key_at, running=config.running_at),
    )

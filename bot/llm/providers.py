"""Providers of language models by the name before the colon: `anthropic:NAME`.

To add a provider with a known protocol, add an entry to `PROVIDERS`. The module is imported at every start, so it
imports nothing heavy: the vendors' libraries come with the modules of `bot.llm` that providers name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import urlsplit


class Key(Enum):
    """Requirement of an API key."""

    NEEDED = auto()
    NEEDED_AT_HOME = auto()
    """Servers of others that speak the vendor's protocol, perhaps on one's own machine, may do without."""
    OPTIONAL = auto()


@dataclass(frozen=True, slots=True)
class Access:
    """Settings of a provider: the key, the address if it is not the default, and OPENAI_API."""

    key: str = ""
    address: str | None = None
    api: str = "auto"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models: its adapter, variables and defaults.

    `module` is the module in `bot.llm` that speaks its protocol. `variables` is the prefix of the variables with its
    key and its address; empty for a provider that needs neither. `model` is the default model. `more` are further
    arguments of the module's Config.
    """

    module: Callable[[Access], str]
    variables: str = ""
    model: str = ""
    address: str | None = None
    key: Key = Key.NEEDED
    more: Mapping[str, Any] = field(default_factory=dict)

    def lacks_key(self, access: Access) -> bool:
        """Return True if the settings lack a required key."""
        match self.key:
            case Key.NEEDED:
                return not access.key
            case Key.NEEDED_AT_HOME:
                return not (access.key or access.address)
            case Key.OPTIONAL:
                return False


def always(module: str) -> Callable[[Access], str]:
    """Return a function that selects this module for all settings."""
    return lambda _access: module


def is_at(address: str | None, host: str) -> bool:
    """Return True if the address is missing, or at this host or a subdomain of it (a region)."""
    if not address:
        return True
    hostname = urlsplit(address).hostname or ""
    return hostname == host or hostname.endswith(f".{host}")


def _openai_protocol(access: Access) -> str:
    """Return the module of the protocol that OPENAI_API names. The default is Responses at the vendor's address, and
    Chat Completions at any other, because other servers speak that.
    """
    match access.api:
        case "chat":
            return "openai_chat"
        case "responses":
            return "openai_responses"
        case _:
            return "openai_responses" if is_at(access.address, "api.openai.com") else "openai_chat"


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(always("anthropic"), variables="ANTHROPIC", model="claude-sonnet-5-5"),
    "demo": Provider(always("demo"), key=Key.OPTIONAL),
    "ollama": Provider(
        always("openai_chat"),
        variables="OLLAMA",
        address="http://127.0.0.1:11434/v1",
        key=Key.OPTIONAL,
        more={"running_at": "/api/ps"},  # its list of models does not say with which window one was started
    ),
    "openai": Provider(_openai_protocol, variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME),
    "openai-chat": Provider(always("openai_chat"), variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME),
    "openai-responses": Provider(
        always("openai_responses"), variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME
    ),
    "openrouter": Provider(
        always("openai_chat"),
        variables="OPENROUTER",
        address="https://openrouter.ai/api/v1",
        more={"key_at": "/key"},  # its list of models is public
    ),
}

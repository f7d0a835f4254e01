"""Providers of language models by the name before the colon: `anthropic:NAME`.

Each is a module with a `PROVIDER`, named like the provider with an underscore for each dash. To add one, add a module.
The package is imported at every start, so it imports nothing heavy: the vendors' libraries come with the modules of
`bot.llm` that providers name.
"""

from __future__ import annotations

import importlib
import pkgutil
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


def provider_names() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def find_provider(name: str) -> Provider | None:
    """Return the provider of that name, or None if it is missing."""
    if name not in provider_names():
        return None
    provider: Provider = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").PROVIDER
    return provider


def is_at(address: str | None, host: str) -> bool:
    """Return True if the address is missing, or at this host or a subdomain of it (a region)."""
    if not address:
        return True
    hostname = urlsplit(address).hostname or ""
    return hostname == host or hostname.endswith(f".{host}")

"""Results of asking a service for one of its models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bot.ports import LanguageModel


@dataclass(frozen=True, slots=True)
class Available:
    """The service has the model. `window` is in tokens, None if not reported.

    `until` is the retirement date as the service writes it, empty if none is announced.
    """

    window: int | None = None
    until: str = ""


@dataclass(frozen=True, slots=True)
class Retired:
    """The service has retired the model."""


@dataclass(frozen=True, slots=True)
class NotListed:
    """The model is not in the service's list; `names` are."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotReported:
    """The service does not report its models. `reply` says why, empty if it only has no such list."""

    reply: str = ""


Availability = Available | Retired | NotListed | NotReported


@runtime_checkable
class ListsModels(LanguageModel, Protocol):
    """A language model whose service can be asked about it, which costs no tokens."""

    @property
    def service_name(self) -> str:
        """Display name of the service."""
        ...

    @property
    def tells_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        ...

    async def look_up(self) -> Availability:
        """Ask the service, for some seconds at most. Raises ModelError if it is unreachable or denies access."""
        ...

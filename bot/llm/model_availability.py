"""What a service has said of a model, when it was asked whether it has it.

Values, read by the composition root; `catalogue` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bot.ports import LanguageModel


@dataclass(frozen=True, slots=True)
class Available:
    """It has the model. `window` is in tokens, None if it does not say; `until` is the day on which the model goes, as
    the service writes it, empty if none is announced.
    """

    window: int | None = None
    until: str = ""


@dataclass(frozen=True, slots=True)
class Retired:
    """It had the model once, and answers nothing with it any more."""


@dataclass(frozen=True, slots=True)
class NotListed:
    """It has a list, and the model is not in it; `names` are."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotReported:
    """It was reached, and does not say which models it has. `said` is what it says instead, empty if that is nothing
    but that it has no such list.
    """

    said: str = ""


Standing = Available | Retired | NotListed | NotReported


@runtime_checkable
class ListsModels(LanguageModel, Protocol):
    """A language model whose service can be asked about it, which costs no tokens."""

    @property
    def service_name(self) -> str:
        """What people call the service."""
        ...

    @property
    def tells_window(self) -> bool:
        """Whether the service may say how large the model's window is."""
        ...

    async def look_up(self) -> Standing:
        """Ask the service, for some seconds at most. Raises ModelError if it cannot be reached or lets nobody in."""
        ...

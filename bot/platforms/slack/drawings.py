"""What comes back with a window: read by `submissions`, acted on by `sent_windows`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.reception.presses import CardRef

Window = dict[str, Any]
"""A modal view as JSON."""


@dataclass(frozen=True, slots=True)
class FormBack:
    """A form that was sent: its id and everything in it, carried fields included."""

    form: str
    fields: Mapping[str, str]
    keep: str


@dataclass(frozen=True, slots=True)
class ReasonBack:
    """A denial was sent, with its reason or without."""

    card: CardRef
    reason: str
    keep: str


@dataclass(frozen=True, slots=True)
class ConfirmationBack:
    """A confirmation was sent; `typed` is what the person wrote."""

    words: tuple[str, ...]
    typed: str
    keep: str


Back = FormBack | ReasonBack | ConfirmationBack

"""Results of modals: parsed by `modal_parsing`, handled by `modal_submissions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.chat.actions import ApprovalRef

Window = dict[str, Any]
"""A modal view as JSON."""


@dataclass(frozen=True, slots=True)
class FormSubmitted:
    """A form that was sent: its id and everything in it, carried fields included."""

    form: str
    fields: Mapping[str, str]
    keep: str


@dataclass(frozen=True, slots=True)
class DenySubmitted:
    """A denial was sent, with its reason or without."""

    card: ApprovalRef
    reason: str
    keep: str


@dataclass(frozen=True, slots=True)
class ConfirmationSubmitted:
    """A confirmation was submitted; `typed` is the user's text."""

    words: tuple[str, ...]
    typed: str
    keep: str


Back = FormSubmitted | DenySubmitted | ConfirmationSubmitted

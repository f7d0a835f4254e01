"""Outgoing message: one message as it should be in Slack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Block = dict[str, Any]
"""One Block Kit block as JSON."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a turn. `name` is the same in every delivery of the turn; `text` is the escaped text of
    notifications and screen readers. Messages are listed in their order in Slack. If `asks` is True, the message has
    buttons that a user needs: it must not be posted without its layout. `place` is its channel, empty for the
    conversation's.
    """

    name: str
    blocks: tuple[Block, ...]
    text: str
    asks: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class CommandReply:
    """One message outside a turn: a command's answer, a notice."""

    blocks: tuple[Block, ...]
    text: str

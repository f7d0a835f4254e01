"""One message as it should stand in Slack.

Called by drawings, which make them, and by the surface, which sends them. Knows nothing of how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Block = dict[str, Any]
"""One Block Kit block as JSON."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a turn. `name` is the same in every drawing of the turn; `text` is what notifications show and
    screen readers read, already escaped. Slots come in the order in which their messages stand. Where it `asks`,
    somebody must be able to press its buttons: without its layout it must not be out at all. `place` is the channel in
    which it stands, empty for the conversation.
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

"""Outgoing message: one message as it should be in Slack, and its text for notifications and screen readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


_SILENT = ("actions", "context_actions", "divider")
_LINES = (
    "rich_text_section",
    "rich_text_preformatted",
    "rich_text_quote",
    "section",
    "context",
    "header",
    "plain_text",
)


def fallback_text(blocks: Iterable[Block]) -> str:
    """Return the text of blocks in order."""
    return "".join(piece for block in blocks if block.get("type") not in _SILENT for piece in _pieces(block)).strip()


def _pieces(part: Any) -> Iterator[str]:
    match part:
        case {"type": "text" | "link" | "plain_text", "text": str(text)} | {"type": "date", "fallback": str(text)}:
            yield text
        case {"type": "user", "user_id": str(user_id)}:
            yield user_id
        case {"type": "channel", "channel_id": str(channel_id)}:
            yield channel_id
        case dict():
            yield from _pieces(part.get("text"))
            for inner in (*part.get("elements", ()), *part.get("rows", ())):
                yield from _pieces(inner)
        case list():
            for cell in part:
                yield from _pieces(cell)
                yield "  "
            yield "\n"
        case _:
            return
    if isinstance(part, dict) and part.get("type") in _LINES:
        yield "\n"

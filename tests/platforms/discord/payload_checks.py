"""Checks of payloads: Discord accepts them, as far as the fake server knows, and they are safe to show."""

from __future__ import annotations

import re
from typing import Any

from bot.platforms.discord.components import CONTENT, OutgoingMessage
from bot.platforms.discord.markdown import utf16_length
from tests.fakes.discord.components import BUTTON, TEXT, checked_components, walk
from tests.fakes.discord.mentions import CODE

LONGEST = 1_900
_NAMED = re.compile(r"<(?:@[!&]?|#|id:|/[\w -]+:|a?:\w+:)(\w+)>|@(everyone|here)\b", re.IGNORECASE)
_SMALL = re.compile(r"^ {0,3}-# ?", re.MULTILINE)


def check_slot(slot: OutgoingMessage, people: frozenset[str] = frozenset()) -> None:
    """Check that Discord accepts a message, and that it mentions only `people`."""
    checked_components(list(slot.components), v2=slot.laid_out)
    assert slot.laid_out or slot.content.strip()
    assert utf16_length(slot.content) <= min(CONTENT, LONGEST)
    assert not slot.laid_out or slot.components
    for text in texts(slot):
        assert mentioned_users(text) <= people


def texts(slot: OutgoingMessage) -> list[str]:
    """Return the texts of a message."""
    return [slot.content, *(str(node["content"]) for node in walk(slot.components) if node["type"] == TEXT)]


def mentioned_users(text: str) -> set[str]:
    """Return the users and names in a text outside of code, as clients render them."""
    return {id_ or everyone for id_, everyone in _NAMED.findall(CODE.sub("", text))}


def small_lines(text: str) -> list[str]:
    """Return the small lines outside of code."""
    return [line for line in CODE.sub("", text).split("\n") if _SMALL.match(line)]


def labels(components: Any) -> list[str]:
    """Return the labels of the buttons."""
    return [node.get("label") or node["emoji"]["name"] for node in walk(components) if node["type"] == BUTTON]


def button_id(components: Any, label: str) -> str:
    """Return the custom id of the button with this label."""
    (found,) = [
        node["custom_id"]
        for node in walk(components)
        if node["type"] == BUTTON and label in (node.get("label"), node.get("emoji", {}).get("name"))
    ]
    return str(found)

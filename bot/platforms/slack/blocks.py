"""The blocks our messages and windows are made of, as JSON that Slack takes whatever text goes in.

Called by every drawing of this folder. Text from outside is put into `plain_text` and `rich_text` only, where nothing
in it is read as a mention, a link or a style; there is no `mrkdwn` anywhere but in the fallback of a message, which is
escaped here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from bot.chat.actions import Action
from bot.platforms.slack import limits
from bot.platforms.slack.action_codec import encode
from bot.platforms.slack.markup import defuse_mentions
from bot.platforms.slack.outgoing import Block
from bot.rendering.links import safe_url
from bot.rendering.text_safety import ELLIPSIS, single_line, strip_control

PARAGRAPH = 1_000
"""Texts that may be this long are paragraphs, shorter ones labels."""
LINK_PRESSED = "cs.link"
"""Slack tells of these presses as well; nothing comes of them."""
COUNT_ROOM = 40
"""Characters for saying how many were left out."""

Element = dict[str, Any]
"""A part of a block as JSON."""


def fallback(text: str) -> str:
    """`text` of a message: escaped, unable to mention anybody, and short enough to be edited."""
    pieces = [_ENTITIES.get(each, each) for each in defuse_mentions(single_line(text, 2 * limits.UPDATED_TEXT))]
    ends = list(accumulate(len(piece.encode()) for piece in pieces))
    if not ends or ends[-1] <= limits.UPDATED_TEXT:
        return "".join(pieces) or ELLIPSIS
    return "".join(pieces[: bisect_right(ends, limits.UPDATED_TEXT - len(ELLIPSIS.encode()))]) + ELLIPSIS


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def plain_text(text: str, limit: int = limits.PLAIN_TEXT) -> Element:
    """A text object in which nothing but line ends means anything."""
    return {"type": "plain_text", "text": shortened(text, limit), "emoji": False}


def shortened(text: str, limit: int) -> str:
    """Plain text of 1 to `limit` characters: an ellipsis stands for what did not fit, and where there is nothing. What
    is left out of a paragraph is counted, on a label there is no room for that.
    """
    text = strip_control(text).strip()
    if len(text) <= limit:
        return text or ELLIPSIS
    if limit < PARAGRAPH:
        return text[: limit - 1].rstrip() + ELLIPSIS
    kept = limit - COUNT_ROOM
    return f"{text[:kept].rstrip()}{ELLIPSIS} ({len(text) - kept} more characters)"


def small(*lines: str) -> list[Block]:
    """Lines in small grey letters, in as many blocks as they need."""
    blocks: list[Block] = []
    text = ""
    for line in (shortened(each, limits.PLAIN_TEXT) for each in lines):
        if text and len(text) + 1 + len(line) > limits.PLAIN_TEXT:
            blocks.append(_context(text))
            text = ""
        text = f"{text}\n{line}" if text else line
    return [*blocks, _context(text)] if text else blocks


def _context(text: str) -> Block:
    return {"type": "context", "elements": [plain_text(text)]}


def section(text: str, accessory: Element | None = None) -> Block:
    """A paragraph of plain text, with a button beside it if there is one."""
    block: Block = {"type": "section", "text": plain_text(text)}
    return {**block, "accessory": accessory} if accessory else block


def header(text: str) -> Block:
    """A large line."""
    return {"type": "header", "text": plain_text(single_line(text, limits.HEADER), limits.HEADER)}


def divider() -> Block:
    """A line across."""
    return {"type": "divider"}


def rich_text(*elements: Element) -> Block:
    """A block of `rich_text_section` and the like."""
    return {"type": "rich_text", "elements": list(elements)}


def rich_section(*elements: Element) -> Element:
    """Running text in a rich text block."""
    return {"type": "rich_text_section", "elements": list(elements)}


def preformatted(text: str) -> Element:
    """Text in letters of one width."""
    return {"type": "rich_text_preformatted", "elements": [words(text)]}


def quote(text: str) -> Element:
    """Somebody else's words, as they stand."""
    return {"type": "rich_text_quote", "elements": [words(text)]}


def words(text: str, **style: bool) -> Element:
    """A run of literal text; `bold`, `italic`, `strike` and `code` are its styles."""
    element: Element = {"type": "text", "text": strip_control(text) or " "}
    return {**element, "style": style} if style else element


def person(user_id: str, name: str = "") -> Element:
    """A person who took part, by name on everybody's screen. What does not look like an id is text."""
    return {"type": "user", "user_id": user_id} if USER_ID.fullmatch(user_id) else words(name or user_id)


def channel(channel_id: str) -> Element:
    """A channel, by its name on the screens of those who may know it."""
    return {"type": "channel", "channel_id": channel_id}


def link(address: str, text: str) -> Element:
    """A link of ours."""
    return {"type": "link", "url": address, "text": text}


USER_ID = re.compile(r"[UW][A-Z0-9]{1,20}")


def moment(at: float, fmt: str, otherwise: str) -> Element:
    """A point in time on the reader's own clock."""
    return {"type": "date", "timestamp": int(at), "format": fmt, "fallback": otherwise}


def button(label: str, press: Action, style: str = "", confirm: Element | None = None) -> Element | None:
    """A button; None where Slack would not take what it carries. `style` is `primary`, `danger` or empty."""
    names = encode(press)
    if names is None:
        return None
    action_id, value = names
    made: Element = {
        "type": "button",
        "text": plain_text(single_line(label, limits.BUTTON_TEXT), limits.BUTTON_TEXT),
        "action_id": action_id,
        "value": value,
    }
    if style:
        made["style"] = style
    return {**made, "confirm": confirm} if confirm else made


def link_button(label: str, address: str) -> Element | None:
    """A button that leads out of Slack; None where Slack would not take the address."""
    if len(address) > limits.BUTTON_LINK or not safe_url(address):
        return None
    text = plain_text(single_line(label, limits.BUTTON_TEXT), limits.BUTTON_TEXT)
    return {"type": "button", "text": text, "action_id": LINK_PRESSED, "url": address}


def menu(entries: Iterable[tuple[str, Action]]) -> Element | None:
    """An overflow menu ("⋯") of labels and what they are for; None where there is nothing in it."""
    named = [(label, encode(press)) for label, press in entries]
    options = [
        (names[0], {"text": plain_text(single_line(label, limits.OPTION_TEXT), limits.OPTION_TEXT), "value": names[1]})
        for label, names in named
        if names is not None and len(names[1]) <= limits.OPTION_VALUE
    ][: limits.MENU_OPTIONS]
    if not options:
        return None
    return {"type": "overflow", "action_id": options[0][0], "options": [option for _, option in options]}


def confirmation(title: str, text: str, yes: str, no: str = "Cancel") -> Element:
    """The question Slack asks before it takes a press."""
    return {
        "title": plain_text(title, limits.CONFIRM_TITLE),
        "text": plain_text(text, limits.CONFIRM_TEXT),
        "confirm": plain_text(yes, limits.CONFIRM_BUTTON),
        "deny": plain_text(no, limits.CONFIRM_BUTTON),
        "style": "danger",
    }


def buttons(elements: Iterable[Element | None]) -> list[Block]:
    """Buttons side by side, in as many blocks as they need. Each gets an `action_id` of its own."""
    made = [element for element in elements if element is not None]
    return [
        _actions(made[start : start + limits.BUTTONS_A_BLOCK]) for start in range(0, len(made), limits.BUTTONS_A_BLOCK)
    ]


def _actions(elements: Sequence[Element]) -> Block:
    seen: set[str] = set()
    numbered = []
    for number, element in enumerate(elements):
        name = element["action_id"]
        numbered.append({**element, "action_id": f"{name}.{number}"} if name in seen else element)
        seen.add(name)
    return {"type": "actions", "elements": numbered}

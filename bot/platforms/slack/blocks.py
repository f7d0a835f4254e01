"""Block Kit elements as JSON.

Text from outside goes into `plain_text` and `rich_text` only, where Slack reads no mention, link or style in it. Only
the fallback text of a message is `mrkdwn`, escaped here.
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
"""Action id of link buttons. Slack reports these clicks too; the bot ignores them."""
COUNT_ROOM = 40
"""Characters for the count of omitted characters."""

Element = dict[str, Any]
"""A part of a block as JSON."""


def fallback(text: str) -> str:
    """Return the `text` of a message: escaped, without mentions, and within the limit for edits."""
    pieces = [_ENTITIES.get(each, each) for each in defuse_mentions(single_line(text, 2 * limits.UPDATED_TEXT))]
    ends = list(accumulate(len(piece.encode()) for piece in pieces))
    if not ends or ends[-1] <= limits.UPDATED_TEXT:
        return "".join(pieces) or ELLIPSIS
    return "".join(pieces[: bisect_right(ends, limits.UPDATED_TEXT - len(ELLIPSIS.encode()))]) + ELLIPSIS


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def plain_text(text: str, limit: int = limits.PLAIN_TEXT) -> Element:
    """Return a `plain_text` object; only line ends keep their meaning."""
    return {"type": "plain_text", "text": shortened(text, limit), "emoji": False}


def shortened(text: str, limit: int) -> str:
    """Return plain text of 1 to `limit` characters. An ellipsis replaces the rest, or an empty text. The omitted
    characters of a paragraph are counted; a label has no room for the count.
    """
    text = strip_control(text).strip()
    if len(text) <= limit:
        return text or ELLIPSIS
    if limit < PARAGRAPH:
        return text[: limit - 1].rstrip() + ELLIPSIS
    kept = limit - COUNT_ROOM
    return f"{text[:kept].rstrip()}{ELLIPSIS} ({len(text) - kept} more characters)"


def small(*lines: str) -> list[Block]:
    """Return context blocks (small grey text), as many as the lines need."""
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
    """Return a section of plain text, with an optional button beside it."""
    block: Block = {"type": "section", "text": plain_text(text)}
    return {**block, "accessory": accessory} if accessory else block


def header(text: str) -> Block:
    """Return a header."""
    return {"type": "header", "text": plain_text(single_line(text, limits.HEADER), limits.HEADER)}


def divider() -> Block:
    """Return a divider."""
    return {"type": "divider"}


def rich_text(*elements: Element) -> Block:
    """Return a rich text block."""
    return {"type": "rich_text", "elements": list(elements)}


def rich_section(*elements: Element) -> Element:
    """Return running text of a rich text block."""
    return {"type": "rich_text_section", "elements": list(elements)}


def preformatted(text: str) -> Element:
    """Return monospaced text."""
    return {"type": "rich_text_preformatted", "elements": [words(text)]}


def quote(text: str) -> Element:
    """Return a run of quoted text."""
    return {"type": "rich_text_quote", "elements": [words(text)]}


def words(text: str, **style: bool) -> Element:
    """Return a run of literal text; `bold`, `italic`, `strike` and `code` are its styles."""
    element: Element = {"type": "text", "text": strip_control(text) or " "}
    return {**element, "style": style} if style else element


def person(user_id: str, name: str = "") -> Element:
    """Return a mention of a user in rich text. An invalid id is shown as text."""
    return {"type": "user", "user_id": user_id} if USER_ID.fullmatch(user_id) else words(name or user_id)


def channel(channel_id: str) -> Element:
    """Return a channel link, which shows the name only to users with access."""
    return {"type": "channel", "channel_id": channel_id}


def link(address: str, text: str) -> Element:
    """Return a link of the bot's own."""
    return {"type": "link", "url": address, "text": text}


USER_ID = re.compile(r"[UW][A-Z0-9]{1,20}")


def moment(at: float, fmt: str, otherwise: str) -> Element:
    """Return a timestamp in the reader's time zone."""
    return {"type": "date", "timestamp": int(at), "format": fmt, "fallback": otherwise}


def button(label: str, press: Action, style: str = "", confirm: Element | None = None) -> Element | None:
    """Return a button, or None if its action exceeds Slack's limits. `style` is `primary`, `danger` or empty."""
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
    """Return a button that opens a URL, or None if the URL exceeds Slack's limit."""
    if len(address) > limits.BUTTON_LINK or not safe_url(address):
        return None
    text = plain_text(single_line(label, limits.BUTTON_TEXT), limits.BUTTON_TEXT)
    return {"type": "button", "text": text, "action_id": LINK_PRESSED, "url": address}


def menu(entries: Iterable[tuple[str, Action]]) -> Element | None:
    """Return an overflow menu of labels and their actions, or None if it is empty."""
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
    """Return the confirmation dialog of a button."""
    return {
        "title": plain_text(title, limits.CONFIRM_TITLE),
        "text": plain_text(text, limits.CONFIRM_TEXT),
        "confirm": plain_text(yes, limits.CONFIRM_BUTTON),
        "deny": plain_text(no, limits.CONFIRM_BUTTON),
        "style": "danger",
    }


def buttons(elements: Iterable[Element | None]) -> list[Block]:
    """Return buttons in as many blocks as they need, with unique `action_id`s."""
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

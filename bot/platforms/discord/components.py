"""Messages as discord.py's items: buttons below a message, layouts (Components V2), and Discord's limits.

The items have no callbacks: each button carries its action, so that any process can handle it. Text is cut to
Discord's limits. A button carries its `Action` in a `custom_id` of 100 characters; one whose action has
no encoding is omitted. The fields of a `custom_id` are separated by colons and contain none: ids of turns and approvals
are letters and digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import discord

from bot.chat import actions
from bot.chat.actions import Action
from bot.platforms.discord.markdown import shorten_label, utf16_length
from bot.platforms.discord.rest import FileUpload
from bot.rendering.text_safety import single_line

# -------------------- limits
# From docs.discord.com and discord.py 2.7, in characters or items unless noted.

CONTENT = 2_000
DISPLAYED = 4_000
"""All the text of a message that is laid out."""
DISPLAYED_BYTES = 9_600
"""The same in UTF-8. Discord answers with status 500 beyond some 10,170 bytes with twelve more for each text, which is
not documented (discord-api-docs#8554), and would do so however often the message is sent.
"""
COMPONENTS = 40
"""In one message that is laid out, those within others counted too."""
BUTTONS_A_ROW = 5
ROWS = 5
"""Rows of buttons below a plain message."""
BUTTON_LABEL = 80
LINK = 512
"""The address that a button leads to."""
CUSTOM_ID = 100
OPTIONS, OPTION_TEXT, PLACEHOLDER = 25, 100, 150
NONCE = 25
FILE = 10 * 1024 * 1024
"""Bytes of one file in a guild without boosts."""


def display_length(text: str) -> int:
    """Return the share of DISPLAYED that a text takes in a layout at most: its length, or its share of DISPLAYED_BYTES
    scaled to DISPLAYED, the higher one.
    """
    return max(utf16_length(text), -(-len(text.encode("utf-8", "replace")) * DISPLAYED // DISPLAYED_BYTES))


# -------------------- messages

Item = discord.ui.Item[Any]
Button = discord.ui.Button[Any]
View = discord.ui.View | discord.ui.LayoutView
Component = dict[str, Any]
"""One component as JSON."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a turn. `name` is the same in every delivery of the turn. `content` is Discord Markdown, with
    rows of buttons below it; if empty, the items are the message (Components V2). A `file` is attached when the
    message is posted. `unattached` replaces the content if the upload is rejected; without it the message is omitted
    then. Messages are listed in their order in Discord. If `asks` is True, the message has buttons that a user needs:
    it must not be posted without its layout. `place` is its channel, empty for the conversation's. `notifies` are the
    principals of the users and roles that are notified by the post. A `silent` post notifies nobody.
    """

    name: str
    content: str = ""
    items: tuple[Item, ...] = field(default=(), compare=False, repr=False)
    file: FileUpload | None = None
    asks: bool = False
    unattached: str = ""
    place: str = ""
    notifies: frozenset[str] = frozenset()
    silent: bool = False
    components: tuple[Component, ...] = field(default=(), init=False)
    """The items as JSON."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(item.to_component_dict() for item in self.items))

    @property
    def laid_out(self) -> bool:
        """True if the message has components only."""
        return not self.content

    def view(self) -> View | None:
        """Return a new view of the items, or None without items. It is stopped, so that the library keeps none."""
        if not self.items:
            return None
        return layout_view(self.items) if self.laid_out else button_view(self.items)


def layout_view(items: Iterable[Item]) -> discord.ui.LayoutView:
    """Return items as a layout."""
    view = discord.ui.LayoutView(timeout=None)
    for item in items:
        view.add_item(item)
    view.stop()
    return view


def button_view(rows_of_buttons: Iterable[Item]) -> discord.ui.View:
    """Return rows of buttons or menus as the components below a plain message."""
    view = discord.ui.View(timeout=None)
    for number, row in enumerate(rows_of_buttons):
        for item in row.children if isinstance(row, discord.ui.ActionRow) else ():
            item.row = number
            view.add_item(item)
    view.stop()
    return view


# -------------------- actions of buttons

PREFIX = "cs"
MENU = f"{PREFIX}:menu"
"""Prefix of a menu's id; the part after the colon makes it unique."""
ACTION_LENGTH = CUSTOM_ID - len(PREFIX) - 1
"""Limit of the text of an action."""


def decode_choice(custom_id: str, values: Sequence[str]) -> Action | None:
    """Return the action of a button or of a selected menu entry, or None if it is not one of the bot's. Menu entries
    are encoded like buttons.
    """
    return decode(values[0]) if values and custom_id.startswith(f"{MENU}:") else decode(custom_id)


def encode(action: Action) -> str | None:
    """Return a button's `custom_id`, or None if it exceeds Discord's limit."""
    text = to_custom_id(actions.encode(action))
    return text if len(text) <= CUSTOM_ID else None


def to_custom_id(text: str) -> str:
    """Return the `custom_id` of a button, or of the modal that it opens, from the text of its action."""
    return f"{PREFIX}:{text}"


def decode(custom_id: str) -> Action | None:
    """Return the action of a button, or of the modal that it opened, or None if it is not one of the bot's."""
    prefix, _, text = custom_id.partition(":")
    return actions.decode(text) if prefix == PREFIX else None


def button(label: str, action: Action, style: discord.ButtonStyle, emoji: str = "") -> Button | None:
    """Return a button, or None if its action exceeds the limit."""
    custom_id = encode(action)
    if custom_id is None:
        return None
    text = shorten_label(label, BUTTON_LABEL) if label else None
    return discord.ui.Button(label=text, style=style, custom_id=custom_id, emoji=emoji or None)


def menu(name: str, placeholder: str, entries: Iterable[tuple[str, str, Action]]) -> list[Item]:
    """Return a row with a menu of labels, hints and actions; empty without entries. `name` is unique in the message."""
    options = [
        discord.SelectOption(
            label=single_line(label, OPTION_TEXT), description=single_line(hint, OPTION_TEXT), value=value
        )
        for label, hint, action in entries
        if (value := encode(action)) is not None
    ]
    if not options:
        return []
    select: discord.ui.Select[Any] = discord.ui.Select(
        custom_id=f"{MENU}:{name}", placeholder=single_line(placeholder, PLACEHOLDER), options=options[:OPTIONS]
    )
    return [discord.ui.ActionRow(select)]


def rows(buttons: Iterable[Button | None]) -> list[Item]:
    """Return buttons in as many rows as they need."""
    present = [button for button in buttons if button is not None]
    return [
        discord.ui.ActionRow(*present[start : start + BUTTONS_A_ROW]) for start in range(0, len(present), BUTTONS_A_ROW)
    ]


def all_of(components: Iterable[Component]) -> Iterator[Component]:
    """Yield every component, including nested ones."""
    for component in components:
        yield component
        yield from all_of(component.get("components") or ())
        if isinstance(accessory := component.get("accessory"), dict):
            yield accessory


def custom_ids(components: Iterable[Component]) -> frozenset[str]:
    """Return the ids of all buttons and menus."""
    return frozenset(str(node["custom_id"]) for node in all_of(components) if node.get("custom_id"))

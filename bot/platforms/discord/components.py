"""Discord's components as JSON: buttons below a message, and layouts (Components V2).

Text is cut to Discord's limits, and a button whose action has no encoding is omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any

from bot.chat.actions import Action
from bot.platforms.discord.action_codec import MENU, ResumePending, encode
from bot.platforms.discord.escaping import shorten_label
from bot.platforms.discord.limits import BUTTON_LABEL, BUTTONS_A_ROW, OPTION_TEXT, OPTIONS, PLACEHOLDER
from bot.rendering.text_safety import single_line

Component = dict[str, Any]
"""One component as JSON."""

_ROW, _BUTTON, _SELECT, _TEXT, _SEPARATOR, _CONTAINER = 1, 2, 3, 10, 14, 17


class ButtonStyle(IntEnum):
    """Style of a button ("Button Styles")."""

    PRIMARY = 1
    PLAIN = 2
    SUCCESS = 3
    DANGER = 4


def button(
    label: str, press: Action | ResumePending, look: ButtonStyle = ButtonStyle.PLAIN, emoji: str = ""
) -> Component | None:
    """Return a button, or None if its action exceeds the limit."""
    custom_id = encode(press)
    if custom_id is None:
        return None
    made: Component = {"type": _BUTTON, "style": int(look), "custom_id": custom_id}
    if label:
        made["label"] = shorten_label(label, BUTTON_LABEL)
    if emoji:
        made["emoji"] = {"name": emoji}
    return made


def menu(name: str, placeholder: str, entries: Iterable[tuple[str, str, Action]]) -> list[Component]:
    """Return a row with a menu of labels, hints and actions; empty without entries. `name` is unique in the message."""
    options = [
        {"label": single_line(label, OPTION_TEXT), "description": single_line(hint, OPTION_TEXT), "value": value}
        for label, hint, press in entries
        if (value := encode(press)) is not None
    ]
    if not options:
        return []
    made = {
        "type": _SELECT,
        "custom_id": f"{MENU}:{name}",
        "placeholder": single_line(placeholder, PLACEHOLDER),
        "options": options[:OPTIONS],
    }
    return [{"type": _ROW, "components": [made]}]


def rows(buttons: Iterable[Component | None]) -> list[Component]:
    """Return buttons in as many rows as they need."""
    there = [each for each in buttons if each is not None]
    return [
        {"type": _ROW, "components": there[start : start + BUTTONS_A_ROW]}
        for start in range(0, len(there), BUTTONS_A_ROW)
    ]


def text(markdown: str) -> Component:
    """Return Discord Markdown as a component."""
    return {"type": _TEXT, "content": markdown}


def separator() -> Component:
    """Return a separator."""
    return {"type": _SEPARATOR}


def container(inside: Sequence[Component], colour: int) -> Component:
    """Return a container with a colored edge."""
    return {"type": _CONTAINER, "accent_color": colour, "components": list(inside)}


def all_of(components: Iterable[Component]) -> Iterator[Component]:
    """Yield every component, including nested ones."""
    for each in components:
        yield each
        yield from all_of(each.get("components") or ())
        if isinstance(accessory := each.get("accessory"), dict):
            yield accessory


def custom_ids(components: Iterable[Component]) -> frozenset[str]:
    """Return the ids of all buttons and menus."""
    return frozenset(str(each["custom_id"]) for each in all_of(components) if each.get("custom_id"))

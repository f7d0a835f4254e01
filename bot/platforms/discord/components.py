"""Discord's components as JSON: buttons below a message, and messages that are laid out (Components V2).

Called by the drawings. Whatever is too long for Discord is cut here, and a button whose press cannot be written down is
left out.
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
    """How a button looks ("Button Styles")."""

    PRIMARY = 1
    PLAIN = 2
    SUCCESS = 3
    DANGER = 4


def button(
    label: str, press: Action | ResumePending, look: ButtonStyle = ButtonStyle.PLAIN, emoji: str = ""
) -> Component | None:
    """A button; None if its press does not fit into one."""
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
    """A row with a menu of labels, hints and what they are for; none where there is nothing in it. `name` tells it
    apart from others of its message.
    """
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
    """Buttons side by side, in as many rows as they need."""
    there = [each for each in buttons if each is not None]
    return [
        {"type": _ROW, "components": there[start : start + BUTTONS_A_ROW]}
        for start in range(0, len(there), BUTTONS_A_ROW)
    ]


def text(markdown: str) -> Component:
    """Text in Discord's own Markdown, in a message that is laid out."""
    return {"type": _TEXT, "content": markdown}


def separator() -> Component:
    """A line across."""
    return {"type": _SEPARATOR}


def container(inside: Sequence[Component], colour: int) -> Component:
    """A box with a coloured edge."""
    return {"type": _CONTAINER, "accent_color": colour, "components": list(inside)}


def all_of(components: Iterable[Component]) -> Iterator[Component]:
    """Every component with those within it."""
    for each in components:
        yield each
        yield from all_of(each.get("components") or ())
        if isinstance(accessory := each.get("accessory"), dict):
            yield accessory


def custom_ids(components: Iterable[Component]) -> frozenset[str]:
    """What can be pressed."""
    return frozenset(str(each["custom_id"]) for each in all_of(components) if each.get("custom_id"))

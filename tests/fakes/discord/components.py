"""Components of messages: rows and buttons, and with the V2 flag all display components."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

from tests.fakes.discord.checks import choice, number, objects, only, text, unlike
from tests.fakes.discord.refusals import Json, Refused, invalid, required

ROW, BUTTON, SELECT, INPUT = 1, 2, 3, 4
SELECTS = frozenset({3, 5, 6, 7, 8})
SECTION, TEXT, THUMBNAIL, GALLERY, FILE, SEPARATOR, CONTAINER = 9, 10, 11, 12, 13, 14, 17
TOP = frozenset({ROW, SECTION, TEXT, GALLERY, FILE, SEPARATOR, CONTAINER})
IN_A_CONTAINER = TOP - {CONTAINER}
MOST, MOST_CHARACTERS, MOST_ROWS = 40, 4000, 5
MOST_BYTES, BYTES_EACH = 10170, 12
"""Limit on the texts' bytes in UTF-8, with `BYTES_EACH` added for each.

Above it Discord answers with status 500. The limit is measured (discord-api-docs#8554), not documented.
"""


def checked_components(given: Any, *, v2: bool, attached: set[str]) -> list[Json]:
    """Return the components of a message with ids filled in; `attached`: names of the message's files.

    Raises:
        Refused: 50035, or status 500 for too many bytes.
    """
    tops = objects("components", given, MOST if v2 else MOST_ROWS)
    everything = list(walk(tops))
    if len(everything) > MOST:
        message = f"The number of components in the message must be {MOST} or fewer ({len(everything)})."
        raise invalid("components", "COMPONENT_TOTAL_COUNT_EXCEEDED", message)
    for n, component in enumerate(tops):
        _check(f"components.{n}", component, TOP if v2 else frozenset({ROW}), attached)
    texts = [component["content"] for component in everything if component["type"] == TEXT]
    shown = sum(len(each) for each in texts)
    if shown > MOST_CHARACTERS:
        message = f"The total displayable text size must be {MOST_CHARACTERS} or fewer characters ({shown})."
        raise invalid("components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", message)
    if sum(len(each.encode()) + BYTES_EACH for each in texts) > MOST_BYTES:
        raise Refused(0, status=500, message="500: Internal Server Error")
    custom_ids = [component["custom_id"] for component in everything if "custom_id" in component]
    unlike("components", custom_ids, "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    return numbered(tops)


def walk(components: Iterable[Any]) -> Iterator[Json]:
    """Yield every component, nested ones included, in the order they are drawn."""
    for component in components:
        if not isinstance(component, dict):
            continue
        yield component
        children = component.get("components")
        yield from walk(children if isinstance(children, list) else [])
        for single in ("accessory", "component"):
            if isinstance(component.get(single), dict):
                yield from walk([component[single]])


def numbered(tops: list[Json]) -> list[Json]:
    """A copy in which every component has an id.

    Raises:
        Refused: 50035, if two were given the same one.
    """
    copied = deepcopy(tops)
    given = [component["id"] for component in walk(copied) if component.get("id")]
    unlike("components", given, "COMPONENT_ID_DUPLICATED", "Component id cannot be duplicated")
    fresh = (n for n in itertools.count(1) if n not in given)
    for component in walk(copied):
        component["id"] = component.get("id") or next(fresh)
    return copied


def _check(where: str, component: Json, allowed: frozenset[int], attached: set[str]) -> None:
    kind = component.get("type")
    if kind not in allowed:
        raise invalid(f"{where}.type", "BASE_TYPE_CHOICES", f"Value must be one of {tuple(sorted(allowed))}.")
    number(where, component, "id", 0, 2**31 - 1)
    _CHECKS[kind](where, component, attached)


def _row(where: str, row: Json, attached: set[str]) -> None:
    only(where, row, "type", "id", "components")
    children = objects(f"{where}.components", row.get("components"), 5, least=1)
    for n, child in enumerate(children):
        place, kind = f"{where}.components.{n}", child.get("type")
        if kind == BUTTON:
            check_button(place, child)
        elif kind in SELECTS:
            check_select(place, child)
        else:
            known = (BUTTON, *sorted(SELECTS))
            raise invalid(f"{place}.type", "BASE_TYPE_CHOICES", f"Value must be one of {known}.")
    if any(child["type"] in SELECTS for child in children) and len(children) > 1:
        message = "The specified component exceeds the maximum width."
        raise invalid(f"{where}.components", "COMPONENT_LAYOUT_WIDTH_EXCEEDED", message)


def check_button(where: str, button: Json) -> None:
    """Check one button.

    Raises:
        Refused: 50035.
    """
    only(where, button, "type", "id", "style", "label", "emoji", "custom_id", "url", "disabled")
    choice(f"{where}.style", button.get("style"), (1, 2, 3, 4, 5))
    text(where, button, "label", 80)
    if not button.get("label") and not button.get("emoji"):
        raise invalid(where, "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED", "A label or emoji is required.")
    if button["style"] == 5:
        if "custom_id" in button:
            raise invalid(
                where, "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", "A custom id and url exclude each other."
            )
        url = text(where, button, "url", 512, least=1, needed=True)
        if not url.startswith(("http://", "https://", "discord://")):
            raise invalid(
                f"{where}.url", "URL_TYPE_INVALID_SCHEME", "Scheme must be one of ('discord', 'http', 'https')."
            )
    else:
        if "url" in button:
            raise invalid(
                where, "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", "A custom id and url exclude each other."
            )
        text(where, button, "custom_id", 100, least=1, needed=True)


def check_select(where: str, select: Json, *, in_modal: bool = False) -> None:
    """Check one select menu, of texts or of users, roles and channels.

    Raises:
        Refused: 50035.
    """
    names = ("type", "id", "custom_id", "placeholder", "min_values", "max_values", "options", "default_values")
    only(where, select, *names, "channel_types", "required", "disabled")
    if in_modal and select.get("disabled"):
        raise invalid(f"{where}.disabled", "COMPONENT_DISABLED_IN_MODAL", "A select in a modal cannot be disabled.")
    text(where, select, "custom_id", 100, least=1, needed=True)
    text(where, select, "placeholder", 150)
    least = number(where, select, "min_values", 0, 25, otherwise=1)
    most = number(where, select, "max_values", 1, 25, otherwise=1)
    if least > most:
        raise invalid(f"{where}.min_values", "BASE_TYPE_BAD_RANGE", "min_values must not be above max_values.")
    if select["type"] == SELECT:
        options = check_options(where, select.get("options"), 1, 25)
        if most > len(options):
            message = f"max_values must not be above the number of options ({len(options)})."
            raise invalid(f"{where}.max_values", "SELECT_COMPONENT_MAX_VALUES", message)


def check_options(where: str, given: Any, least: int, most: int) -> list[Json]:
    """Return the options of a select, of radio buttons or checkboxes.

    Raises:
        Refused: 50035.
    """
    if given is None:
        raise required(f"{where}.options")
    options = objects(f"{where}.options", given, most, least=least)
    for n, option in enumerate(options):
        place = f"{where}.options.{n}"
        only(place, option, "label", "value", "description", "emoji", "default")
        text(place, option, "label", 100, least=1, needed=True)
        text(place, option, "value", 100, least=1, needed=True)
        text(place, option, "description", 100)
    values = [option["value"] for option in options]
    unlike(
        f"{where}.options",
        values,
        "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED",
        "The specified option value is already used",
    )
    return options


def _section(where: str, section: Json, attached: set[str]) -> None:
    only(where, section, "type", "id", "components", "accessory")
    for n, child in enumerate(objects(f"{where}.components", section.get("components"), 3, least=1)):
        _check(f"{where}.components.{n}", child, frozenset({TEXT}), attached)
    if not isinstance(section.get("accessory"), dict):
        raise required(f"{where}.accessory")
    _check(f"{where}.accessory", section["accessory"], frozenset({BUTTON, THUMBNAIL}), attached)


def _media(where: str, media: Any, attached: set[str], *, here: bool = False) -> None:
    if not isinstance(media, dict) or not isinstance(media.get("url"), str):
        raise required(f"{where}.url")
    url = media["url"]
    if url.startswith("attachment://"):
        if url.removeprefix("attachment://") not in attached:
            raise invalid(
                where, "UNFURLED_MEDIA_ITEM_REFERENCED_ATTACHMENT_NOT_FOUND", "The referenced attachment was not found."
            )
    elif here or not url.startswith(("http://", "https://")):
        raise invalid(f"{where}.url", "UNFURLED_MEDIA_ITEM_INVALID_SCHEME", "Only attachment:// is taken here.")


def _container(where: str, container: Json, attached: set[str]) -> None:
    only(where, container, "type", "id", "components", "accent_color", "spoiler")
    number(where, container, "accent_color", 0, 0xFFFFFF)
    for n, child in enumerate(objects(f"{where}.components", container.get("components"), MOST, least=1)):
        _check(f"{where}.components.{n}", child, IN_A_CONTAINER, attached)


def _text(where: str, shown: Json, attached: set[str]) -> None:
    only(where, shown, "type", "id", "content")
    text(where, shown, "content", MOST_CHARACTERS, least=1, needed=True)


def _thumbnail(where: str, thumbnail: Json, attached: set[str]) -> None:
    only(where, thumbnail, "type", "id", "media", "description", "spoiler")
    _media(f"{where}.media", thumbnail.get("media"), attached)
    text(where, thumbnail, "description", 1024)


def _gallery(where: str, gallery: Json, attached: set[str]) -> None:
    only(where, gallery, "type", "id", "items")
    for n, item in enumerate(objects(f"{where}.items", gallery.get("items"), 10, least=1)):
        only(f"{where}.items.{n}", item, "media", "description", "spoiler")
        _media(f"{where}.items.{n}.media", item.get("media"), attached)


def _file(where: str, shown: Json, attached: set[str]) -> None:
    only(where, shown, "type", "id", "file", "spoiler", "name", "size")
    _media(f"{where}.file", shown.get("file"), attached, here=True)


def _separator(where: str, separator: Json, attached: set[str]) -> None:
    only(where, separator, "type", "id", "divider", "spacing")
    choice(f"{where}.spacing", separator.get("spacing", 1), (1, 2))


def _button(where: str, button: Json, attached: set[str]) -> None:
    check_button(where, button)


_CHECKS: dict[int, Callable[[str, Json, set[str]], None]] = {
    ROW: _row,
    BUTTON: _button,
    SECTION: _section,
    TEXT: _text,
    THUMBNAIL: _thumbnail,
    GALLERY: _gallery,
    FILE: _file,
    SEPARATOR: _separator,
    CONTAINER: _container,
}

"""Components of messages that the bot uses: rows, and with the V2 flag texts, separators and containers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

from tests.fakes.discord.checks import choice, number, objects, only, text, unlike
from tests.fakes.discord.refusals import Json, Refused, invalid, missing_field

ROW, BUTTON, SELECT, INPUT = 1, 2, 3, 4
TEXT, SEPARATOR, CONTAINER = 10, 14, 17
TOP = frozenset({ROW, TEXT, SEPARATOR, CONTAINER})
IN_A_CONTAINER = TOP - {CONTAINER}
MOST, MOST_CHARACTERS, MOST_ROWS = 40, 4000, 5
MOST_BYTES, BYTES_EACH = 10170, 12
"""Limit on the texts' bytes in UTF-8, with `BYTES_EACH` added for each.

Above it Discord answers with status 500. The limit is measured (discord-api-docs#8554), not documented.
"""


def checked_components(given: Any, *, v2: bool) -> list[Json]:
    """Return the components of a message with ids filled in.

    Raises:
        Refused: 50035, or status 500 for too many bytes.
    """
    tops = objects("components", given, MOST if v2 else MOST_ROWS)
    everything = list(walk(tops))
    if len(everything) > MOST:
        message = f"The number of components in the message must be {MOST} or fewer ({len(everything)})."
        raise invalid("components", "COMPONENT_TOTAL_COUNT_EXCEEDED", message)
    for n, component in enumerate(tops):
        _check(f"components.{n}", component, TOP if v2 else frozenset({ROW}))
    texts = [component["content"] for component in everything if component["type"] == TEXT]
    shown = sum(len(each) for each in texts)
    if shown > MOST_CHARACTERS:
        message = f"The total displayable text size must be {MOST_CHARACTERS} or fewer characters ({shown})."
        raise invalid("components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", message)
    if sum(len(each.encode()) + BYTES_EACH for each in texts) > MOST_BYTES:
        raise Refused(0, status=500, message="500: Internal Server Error")
    custom_ids = [component["custom_id"] for component in everything if "custom_id" in component]
    unlike("components", custom_ids, "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    return numbered_components(tops)


def walk(components: Iterable[Any]) -> Iterator[Json]:
    """Yield every component, nested ones included, in the order they are drawn."""
    for component in components:
        if not isinstance(component, dict):
            continue
        yield component
        children = component.get("components")
        yield from walk(children if isinstance(children, list) else [])
        if isinstance(component.get("component"), dict):
            yield from walk([component["component"]])


def numbered_components(tops: list[Json]) -> list[Json]:
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


def _check(where: str, component: Json, allowed: frozenset[int]) -> None:
    kind = component.get("type")
    if kind not in allowed:
        raise invalid(f"{where}.type", "BASE_TYPE_CHOICES", f"Value must be one of {tuple(sorted(allowed))}.")
    number(where, component, "id", 0, 2**31 - 1)
    _CHECKS[kind](where, component)


def _row(where: str, row: Json) -> None:
    only(where, row, "type", "id", "components")
    children = objects(f"{where}.components", row.get("components"), 5, least=1)
    for n, child in enumerate(children):
        place, kind = f"{where}.components.{n}", child.get("type")
        if kind == BUTTON:
            check_button(place, child)
        elif kind == SELECT:
            check_select(place, child)
        else:
            raise invalid(f"{place}.type", "BASE_TYPE_CHOICES", f"Value must be one of {(BUTTON, SELECT)}.")
    if any(child["type"] == SELECT for child in children) and len(children) > 1:
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
    """Check one select menu.

    Raises:
        Refused: 50035.
    """
    names = ("type", "id", "custom_id", "placeholder", "min_values", "max_values", "options")
    only(where, select, *names, "required", "disabled")
    if in_modal and select.get("disabled"):
        raise invalid(f"{where}.disabled", "COMPONENT_DISABLED_IN_MODAL", "A select in a modal cannot be disabled.")
    text(where, select, "custom_id", 100, least=1, needed=True)
    text(where, select, "placeholder", 150)
    least = number(where, select, "min_values", 0, 25, otherwise=1)
    most = number(where, select, "max_values", 1, 25, otherwise=1)
    if least > most:
        raise invalid(f"{where}.min_values", "BASE_TYPE_BAD_RANGE", "min_values must not be above max_values.")
    options = check_options(where, select.get("options"), 1, 25)
    if most > len(options):
        message = f"max_values must not be above the number of options ({len(options)})."
        raise invalid(f"{where}.max_values", "SELECT_COMPONENT_MAX_VALUES", message)


def check_options(where: str, given: Any, least: int, most: int) -> list[Json]:
    """Return the options of a select or of radio buttons.

    Raises:
        Refused: 50035.
    """
    if given is None:
        raise missing_field(f"{where}.options")
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


def _container(where: str, container: Json) -> None:
    only(where, container, "type", "id", "components", "accent_color", "spoiler")
    number(where, container, "accent_color", 0, 0xFFFFFF)
    for n, child in enumerate(objects(f"{where}.components", container.get("components"), MOST, least=1)):
        _check(f"{where}.components.{n}", child, IN_A_CONTAINER)


def _text(where: str, shown: Json) -> None:
    only(where, shown, "type", "id", "content")
    text(where, shown, "content", MOST_CHARACTERS, least=1, needed=True)


def _separator(where: str, separator: Json) -> None:
    only(where, separator, "type", "id", "divider", "spacing")
    choice(f"{where}.spacing", separator.get("spacing", 1), (1, 2))


_CHECKS: dict[int, Callable[[str, Json], None]] = {
    ROW: _row,
    TEXT: _text,
    SEPARATOR: _separator,
    CONTAINER: _container,
}

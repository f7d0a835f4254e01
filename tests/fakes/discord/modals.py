"""Modals: the app's form, and the submitted values of a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.discord.checks import choice, number, objects, only, text, unlike
from tests.fakes.discord.components import (
    INPUT,
    SELECT,
    TEXT,
    check_options,
    check_select,
    numbered_components,
    walk,
)
from tests.fakes.discord.refusals import Json, invalid, missing_field

LABEL, RADIO, CHECKBOX = 18, 21, 23
IN_A_LABEL = frozenset({INPUT, SELECT, RADIO, CHECKBOX})

Values = Mapping[str, Any]
"""A user's input, by label or custom id: a text, a list of values (or labels of options), a boolean."""


def checked_modal(given: Json) -> Json:
    """Return a modal with ids filled in.

    Raises:
        Refused: 50035.
    """
    only("data", given, "custom_id", "title", "components")
    text("data", given, "custom_id", 100, least=1, needed=True)
    text("data", given, "title", 45, least=1, needed=True)
    tops = objects("data.components", given.get("components"), 5, least=1)
    for n, component in enumerate(tops):
        _check_top(f"data.components.{n}", component)
    custom_ids = [component["custom_id"] for component in walk(tops) if "custom_id" in component]
    unlike("data.components", custom_ids, "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    return given | {"components": numbered_components(tops)}


def _check_top(where: str, component: Json) -> None:
    match component.get("type"):
        case 18:
            only(where, component, "type", "id", "label", "description", "component")
            text(where, component, "label", 45, least=1, needed=True)
            text(where, component, "description", 100)
            inner = component.get("component")
            if not isinstance(inner, dict):
                raise missing_field(f"{where}.component")
            if "label" in inner and inner["label"] is not None:
                what = "A text input in a label has no label of its own."
                raise invalid(f"{where}.component.label", "COMPONENT_LABEL_TWICE", what)
            _check_input(f"{where}.component", inner)
        case 10:
            only(where, component, "type", "id", "content")
            text(where, component, "content", 4000, least=1, needed=True)
        case _:
            raise invalid(f"{where}.type", "BASE_TYPE_CHOICES", f"Value must be one of ({TEXT}, {LABEL}).")


def _check_input(where: str, given: Json) -> None:
    kind = given.get("type")
    choice(f"{where}.type", kind, sorted(IN_A_LABEL))
    text(where, given, "custom_id", 100, least=1, needed=True)
    if kind == SELECT:
        return check_select(where, given, in_modal=True)
    if kind == INPUT:
        names = ("type", "id", "custom_id", "style", "label", "value", "placeholder", "required", "min_length")
        only(where, given, *names, "max_length")
        choice(f"{where}.style", given.get("style"), (1, 2))
        text(where, given, "value", 4000)
        text(where, given, "placeholder", 100)
        least = number(where, given, "min_length", 0, 4000)
        if least > number(where, given, "max_length", 1, 4000, otherwise=4000):
            raise invalid(f"{where}.min_length", "BASE_TYPE_BAD_RANGE", "min_length must not be above max_length.")
        return None
    if kind == CHECKBOX:
        only(where, given, "type", "id", "custom_id", "default")
    else:
        only(where, given, "type", "id", "custom_id", "options", "required")
        check_options(where, given.get("options"), 2, 10)
    return None


def filled_in(drawn: Json, values: Values) -> list[Json]:
    """Return the components of a submission: defaults of fields that the user did not change.

    Args:
        drawn: the modal.
        values: by label or custom id.

    Raises:
        LookupError: the field or its option is not found.
        AssertionError: Discord's client would not let this be submitted.
    """
    known = {node.get(name) for node in walk(drawn["components"]) for name in ("label", "custom_id")}
    if unknown := values.keys() - known:
        raise LookupError(f"the modal {drawn['title']!r} has no field {sorted(unknown)}")
    return [_filled_top(component, values) for component in drawn["components"]]


def _filled_top(component: Json, values: Values) -> Json:
    named: Json = {"type": component["type"], "id": component["id"]}
    if component["type"] != LABEL:
        return named
    return named | {"component": _filled_field(component["component"], component["label"], values)}


def _filled_field(field: Json, label: str, values: Values) -> Json:
    kind, custom_id = field["type"], field["custom_id"]
    given = values.get(label, values.get(custom_id))
    filled: Json = {"type": kind, "id": field["id"], "custom_id": custom_id}
    needed = field.get("required", True)
    if kind == INPUT:
        value = str(field.get("value") or "" if given is None else given)
        assert value or not needed, f"{label!r} must be filled in"
        assert len(value) <= field.get("max_length", 4000), f"{label!r} does not take so much"
        assert not value or len(value) >= field.get("min_length", 0), f"{label!r} needs more"
        return filled | {"value": value}
    if kind == CHECKBOX:
        return filled | {"value": bool(field.get("default", False) if given is None else given)}
    chosen = _chosen_values(field, given)
    if kind == RADIO:
        assert chosen or not needed, f"{label!r} must be chosen"
        return filled | {"value": chosen[0] if chosen else None}
    least = field.get("min_values", 1 if needed else 0)
    most = field.get("max_values", 1)
    assert (not chosen and not needed) or least <= len(chosen) <= most, f"{label!r} takes {least} to {most}"
    return filled | {"values": chosen}


def _chosen_values(field: Json, given: Any) -> list[str]:
    """Values by value or label; those drawn as default if nothing is given."""
    options = field["options"]
    if given is None:
        return [option["value"] for option in options if option.get("default")]
    by_name = {option["label"]: option["value"] for option in options} | {o["value"]: o["value"] for o in options}
    return [by_name[name] for name in ([given] if isinstance(given, str) else given)]

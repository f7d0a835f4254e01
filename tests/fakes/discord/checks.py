"""Checking the fields of a JSON object, as Discord's forms do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fakes.discord.refusals import Json, invalid, missing_field, too_long


def only(where: str, given: Json, *names: str) -> None:
    """Refuse fields that the fake does not know; the real one ignores them."""
    for name in sorted(given.keys() - set(names)):
        raise invalid(f"{where}.{name}", "FAKE_UNKNOWN_FIELD", "The fake does not know this field.")


def text(where: str, given: Json, name: str, most: int, *, least: int = 0, needed: bool = False) -> str:
    """Return a text field, '' if it is missing and optional."""
    value = given.get(name)
    place = f"{where}.{name}".strip(".")
    if value is None:
        if needed:
            raise missing_field(place)
        return ""
    if not isinstance(value, str):
        raise invalid(place, "BASE_TYPE_STRING", "Could not interpret as string.")
    if needed and least and not value.strip():
        raise missing_field(place)
    if not least <= len(value) <= most:
        raise too_long(place, most, least)
    return value


def number(where: str, given: Json, name: str, least: int, most: int, *, otherwise: int = 0) -> int:
    """Return a whole number within bounds."""
    value = given.get(name)
    place = f"{where}.{name}".strip(".")
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(place, "NUMBER_TYPE_COERCE", f'Value "{value}" is not int.')
    if value < least:
        raise invalid(place, "NUMBER_TYPE_MIN", f"int value should be greater than or equal to {least}.")
    if value > most:
        raise invalid(place, "NUMBER_TYPE_MAX", f"int value should be less than or equal to {most}.")
    return value


def objects(where: str, value: Any, most: int, *, least: int = 0) -> list[Json]:
    """Return a list of objects whose length is within bounds."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise invalid(where, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    if not least <= len(value) <= most:
        raise too_long(where, most, least)
    return value


def choice(where: str, value: Any, choices: Iterable[Any]) -> None:
    """Check that a value is one of these."""
    known = list(choices)
    if value not in known:
        raise invalid(where, "BASE_TYPE_CHOICES", f"Value must be one of {known}.")


def unlike(where: str, values: Iterable[Any], code: str, message: str) -> None:
    """Check that no value repeats."""
    seen = set()
    for value in values:
        if value in seen:
            raise invalid(where, code, message)
        seen.add(value)

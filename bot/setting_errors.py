"""Messages about invalid settings, each with the name, the value, the expected form and an example.

A value that may be a secret is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bot.domain.secrets import MASK, redact

_LONGEST_SHOWN = 60
_SECRET_ENDINGS = ("_key", "_url", "_password", "_token", "_secret")
_RUN = re.compile(r"[A-Za-z0-9_+/=-]{20,}")
_KEY = re.compile(r"[0-9a-fA-F]{32,}|(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z]).*")
"""Run of letters that looks like a key."""
_BY_VALIDATOR = "value_error"
"""Error type of pydantic for an exception of a validator, replaced by a sentence."""
_PREFIX = "Value error, "


def format_error(error: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    """Return an error of pydantic about a setting as a sentence."""
    name = str(error["loc"][0])
    wrong = (
        redact(error["msg"].removeprefix(_PREFIX))
        if error["type"] == _BY_VALIDATOR
        else _expected_form(fields.get(name))
    )
    if name.endswith(_SECRET_ENDINGS):
        return f"{name.upper()}: {wrong}"
    return f"{name.upper()} is {format_value(error['input'])}: {wrong}"


def format_value(value: Any) -> str:
    """Return a value in quotes, truncated to _LONGEST_SHOWN characters, with dots in place of possible keys."""
    written = repr(_RUN.sub(_unless_key, redact(value)) if isinstance(value, str) else value)
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"


def _unless_key(run: re.Match[str]) -> str:
    return MASK if _KEY.fullmatch(run[0]) else run[0]


def _expected_form(field: FieldInfo | None) -> str:
    """Return the expected form: `write a whole number from 1 to 65535, such as 5432`."""
    if field is None:
        return "it cannot be used"
    example = f", such as {field.default:.15g}" if isinstance(field.default, int | float) else ""
    match field.annotation:
        case type() as kind if kind is bool:
            return "write true or false"
        case type() as kind if kind is int:
            return f"write a whole number{_bounds(field)}{example}"
        case type() as kind if kind is float:
            return f"write a number{_bounds(field)}{example}"
        case annotation:
            choices = list(_choices(annotation))
            return f"write {' or '.join([', '.join(choices[:-1]), choices[-1]])}" if choices else "it cannot be used"


def _bounds(field: FieldInfo) -> str:
    bounds = {
        name: getattr(constraint, name)
        for constraint in field.metadata
        for name in ("gt", "ge", "le")
        if hasattr(constraint, name)
    }
    match bounds:
        case {"ge": least, "le": most}:
            return f" from {least} to {most}"
        case {"gt": below, "le": most}:
            return f", more than {below} and at most {most}"
        case {"gt": below}:
            return f", more than {below}"
        case {"ge": least}:
            return f", at least {least}"
        case _:
            return ""


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the values of a Literal or an Enum, also inside a union."""
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    else:
        for member in get_args(annotation):
            yield from _choices(member)

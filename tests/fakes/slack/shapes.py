"""A small schema language for JSON, with the wording and pointers of Slack's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = Callable[[Any, str, "Problems"], None]
"""Checks a value at a JSON pointer and collects errors."""


@dataclass
class Problems:
    """Errors, in order; `surface` is the blocks' place: 'message', 'modal' or 'home'."""

    surface: str
    found: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    markdown: int = 0

    def note(self, what: str, at: str) -> None:
        """Add one problem."""
        self.found.append(f"{what} [json-pointer:{at}]")


@dataclass(frozen=True)
class Field:
    """A field of an object: its shape, and whether it must be there."""

    shape: Shape
    needed: bool = True


def maybe(shape: Shape) -> Field:
    """Return the shape of an optional field."""
    return Field(shape, needed=False)


def string(most: int, least: int = 1) -> Shape:
    """Return the shape of a string with limits on its characters."""

    def check(value: Any, at: str, problems: Problems) -> None:
        if not isinstance(value, str):
            problems.note("must provide a string", at)
        elif len(value) > most:
            problems.note(f"must be less than {most + 1} characters", at)
        elif len(value) < least:
            problems.note(f"must be more than {least - 1} characters", at)

    return check


def flag(value: Any, at: str, problems: Problems) -> None:
    """Check a boolean."""
    if not isinstance(value, bool):
        problems.note("must provide a boolean", at)


def whole(value: Any, at: str, problems: Problems) -> None:
    """Check a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        problems.note("must provide an integer", at)


def anything(value: Any, at: str, problems: Problems) -> None:
    """Any value."""


def one_of(*values: str) -> Shape:
    """Return the shape of one of these strings."""

    def check(value: Any, at: str, problems: Problems) -> None:
        if value not in values:
            problems.note(f"must be one of {', '.join(values)}", at)

    return check


def url(most: int = 3000) -> Shape:
    """Return the shape of an http address."""

    def check(value: Any, at: str, problems: Problems) -> None:
        string(most)(value, at, problems)
        if isinstance(value, str) and not value.startswith(("http://", "https://", "mailto:", "slack://")):
            problems.note("must be a valid URL", at)

    return check


def rows(shape: Shape, most: int, least: int = 1) -> Shape:
    """Return the shape of a list with limits on its length."""

    def check(value: Any, at: str, problems: Problems) -> None:
        if not isinstance(value, list):
            problems.note("must provide an array", at)
            return
        if len(value) > most:
            problems.note(f"no more than {most} items allowed", at)
        if len(value) < least:
            problems.note(f"must contain at least {least} item{'s' if least > 1 else ''}", at)
        for index, item in enumerate(value):
            shape(item, f"{at}/{index}", problems)

    return check


def record(fields: Mapping[str, Field | Shape], *, one_needed: Iterable[str] = ()) -> Shape:
    """Return the shape of an object with only these fields and `type`. At least one of `one_needed` is required."""
    known = {name: shape if isinstance(shape, Field) else Field(shape) for name, shape in fields.items()}
    alternatives = tuple(one_needed)

    def check(value: Any, at: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.note("must provide an object", at)
            return
        for name in value.keys() - known.keys() - {"type"}:
            problems.note(f"invalid additional property: {name}", at)
        for name, wanted in known.items():
            if value.get(name) is not None:
                wanted.shape(value[name], f"{at}/{name}", problems)
            elif wanted.needed:
                problems.note(f"missing required field: {name}", at)
        if alternatives and not any(value.get(name) for name in alternatives):
            problems.note(f"missing required field: {alternatives[0]}", at)

    return check


def by_type(shapes: Mapping[str, Shape], what: str) -> Shape:
    """Return the shape of an object that depends on its `type`."""

    def check(value: Any, at: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.note("must provide an object", at)
            return
        kind = value.get("type")
        if kind is None:
            problems.note("missing required field: type", at)
        elif kind not in shapes:
            problems.note(f"unsupported {what} type: {kind}", f"{at}/type")
        else:
            shapes[kind](value, at, problems)

    return check

"""Fields of a resource, one row each: the options of its verb, the steps of its form, HTTP, and the facts of `show`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bot.admin.command import Arguments, filled_field
from bot.domain.commands import Field, FieldKind, Parameter
from bot.i18n import LazyFields

_Record = TypeVar("_Record")


def join_lines(text: str) -> str:
    """Return a value of several lines as one line."""
    return ", ".join(text.splitlines())


def _format_value(value: object, _scope: object) -> str:
    match value:
        case frozenset():
            return "\n".join(sorted(value))
        case tuple():
            return "\n".join(value)
        case _:
            return str(value or "")


@dataclass(frozen=True, slots=True)
class ResourceField(LazyFields):
    """A field of a resource. `key` is its name in the form, and that of the record's attribute without `attribute`.

    `parse` reads its text and raises ValueError with a sentence; `format` returns it again. Both get the scope, which
    knows the names that the text may have. `shown` returns the fact of `show` from that text. One with `lines` has a
    value a line. `about` describes it over HTTP, where its name is `api`.
    """

    TEXTS = ("label", "hint", "fact")
    key: str
    parse: Callable[[str, Any], object]
    option: Parameter
    step: int
    label: str
    hint: str
    fact: str = ""
    about: str | None = None
    json: Any = str
    longest: int = 2000
    lines: bool = False
    kind: FieldKind = FieldKind.TEXT
    choices: tuple[str, ...] = ()
    required: bool = False
    api: str = ""
    attribute: str = ""
    format: Callable[[Any, Any], str] = _format_value
    shown: Callable[[str], str] = join_lines

    @property
    def name(self) -> str:
        """Name of the field over HTTP, in snake case."""
        return self.api or self.key

    @property
    def form_field(self) -> Field:
        """The field of the form."""
        kind = FieldKind.LINES if self.lines else self.kind
        return Field(self.key, self.label, kind, self.hint, self.required, self.choices, longest=self.longest)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource with its fields."""

    fields: tuple[ResourceField, ...]

    @property
    def steps(self) -> tuple[tuple[Field, ...], ...]:
        """The fields of each step of the form."""
        last = max(row.step for row in self.fields)
        return tuple(tuple(row.form_field for row in self.fields if row.step == step) for step in range(1, last + 1))

    def filled_step(self, number: int, values: Mapping[str, str], errors: Mapping[str, str]) -> tuple[Field, ...]:
        """Return the fields of a step, from 1, with their values and errors."""
        return tuple(
            filled_field(field, values.get(field.name, ""), errors.get(field.name, ""))
            for field in self.steps[number - 1]
        )

    def values(self, record: object, scope: Any) -> dict[str, str]:
        """Return the current values as the texts of the form."""
        return {row.key: row.format(getattr(record, row.attribute or row.key), scope) for row in self.fields}

    def parse(self, record: _Record, given: Mapping[str, str], scope: Any) -> tuple[_Record, dict[str, str]]:
        """Return the record with the given fields, and errors by field. An absent field is unchanged, an empty one is
        cleared.
        """
        changes: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for row in self.fields:
            if row.key in given:
                try:
                    changes[row.attribute or row.key] = row.parse(given[row.key].strip(), scope)
                except ValueError as error:
                    errors[row.key] = str(error)
        return replace(record, **changes), errors  # type: ignore[type-var]

    def given(self, arguments: Arguments) -> dict[str, str]:
        """Return the texts of the given options by field."""
        return {
            row.key: "\n".join(arguments.get_all(row.option.name))
            for row in self.fields
            if arguments.has(row.option.name)
        }

    def option_errors(self, errors: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return errors of options as the details of a reply."""
        names = {row.key: f"--{row.option.name}" for row in self.fields if not row.required}
        return tuple((names.get(key, key), error) for key, error in errors.items())

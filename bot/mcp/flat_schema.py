"""Schemas of the simplest kind, as most tools have them, checked at a tenth of the cost.

Asked by `arguments` before the library. It only ever says that values fit: whatever else a schema may want is the
library's to judge, and so is what is wrong with values that do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_TYPES: Mapping[Any, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
"""What surely is of a type. There is more, as 1.0 is an integer to some drafts."""
_WORDS = frozenset(("title", "description", "default", "examples"))
"""Keywords that ask for nothing."""
_OBJECT = _WORDS | {"$schema", "type", "properties", "required", "additionalProperties"}
_PROPERTY = _WORDS | {"type"}


@dataclass(frozen=True, slots=True)
class FlatSchema:
    """A schema that asks of an object that its properties have simple types, that some are there and, at most, that
    there are no others.
    """

    types: Mapping[str, tuple[type, ...]]
    required: tuple[str, ...]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Self | None:
        """A valid schema as one of this kind, None if it is of another."""
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("type") != "object" or not schema.keys() <= _OBJECT or not isinstance(required, list):
            return None
        if not all(map(_is_simple, properties.values())):
            return None
        return cls({name: _TYPES[each["type"]] for name, each in properties.items()}, tuple(required))

    def is_surely_valid(self, values: Mapping[str, Any]) -> bool:
        """Whether the values fit for sure. They may fit even if not."""
        there = all(name in values for name in self.required)
        return there and all(type(value) in self.types.get(name, ()) for name, value in values.items())


def _is_simple(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind in _TYPES and schema.keys() <= _PROPERTY

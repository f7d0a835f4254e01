"""The values that a call has at the path of an argument, those included that its tool's schema fills in.

An argument that is left out counts as its schema's `default`. Servers write their schemas, so each look at one is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

_MOST_SCHEMAS = 64
"""Parts of a schema that are looked at for one name."""
_COMBINED = ("allOf", "anyOf", "oneOf")


class Unknown(Enum):
    """A value that may be anything."""

    UNKNOWN = auto()


def values_at(arguments: Mapping[str, Any], path: str, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all values at a path. Lists stand for each of their entries, and a name may have dots in it. An entry
    without a value there yields the empty text, which fits no pattern but `*`. A default that the server may or may not
    fill in yields the empty text beside it. UNKNOWN stands for what cannot be found out.
    """
    yield from _Values(schema).at(arguments, path.split("."), [schema])


class _Values:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def at(self, value: Any, path: Sequence[str], schemas: Sequence[Any]) -> Iterator[Any]:
        if isinstance(value, list | tuple):
            items = [entry for each in self._parts(schemas) for entry in _items(each)]
            for each in value:
                found = list(self.at(each, path, items))
                yield from found
                if path and not found:
                    yield ""
        elif not path:
            yield value
        elif isinstance(value, Mapping):
            yield from self._within(value, path, self._parts(schemas))

    def _within(
        self, value: Mapping[str, Any], path: Sequence[str], parts: Sequence[Mapping[str, Any]]
    ) -> Iterator[Any]:
        if len(parts) >= _MOST_SCHEMAS and path[0] not in value:
            yield Unknown.UNKNOWN
        for length in range(1, len(path) + 1):
            name, rest = ".".join(path[:length]), path[length:]
            inner = [_properties(each)[name] for each in parts if name in _properties(each)]
            if name in value:
                yield from self.at(value[name], rest, inner)
                continue
            defaults = [each["default"] for each in self._parts(inner) if "default" in each]
            for default in defaults:
                yield from self.at(default, rest, inner)
            if not defaults and rest:
                # The server may make the object that is missing, and fill it in.
                filled = list(self.at({}, rest, inner))
                yield from filled
                yield from [""] if filled else []

    def _parts(self, schemas: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """The schemas and all that they refer to or are combined of, at most `_MOST_SCHEMAS`."""
        found: list[Mapping[str, Any]] = []
        left = list(schemas)
        while left and len(found) < _MOST_SCHEMAS:
            schema = left.pop()
            if not isinstance(schema, Mapping) or any(each is schema for each in found):
                continue
            found.append(schema)
            for key in _COMBINED:
                combined = schema.get(key)
                left += combined if isinstance(combined, list) else []
            left += [schema[key] for key in ("if", "then", "else") if key in schema]
            if isinstance(reference := schema.get("$ref"), str):
                left.append(self._referred(reference))
        return found

    def _referred(self, reference: str) -> Any:
        """The part of the schema that a JSON Pointer within it names, None if there is none."""
        place: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, Mapping) else None
        return place if reference.startswith("#") else None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _items(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield schema.get("items")
    prefix = schema.get("prefixItems")
    yield from prefix if isinstance(prefix, list) else []

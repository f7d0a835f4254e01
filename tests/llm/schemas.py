"""Schemas as servers list them: valid ones, and any other JSON.

They are generated from a seed, because drawing each keyword would take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
Made = Callable[[], Any]

NAMES = ("a", "b", "c", "$filter", "filter[state]", "", "x" * 70, "ü")
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
VALUES: tuple[Any, ...] = (None, True, 0, 1, 1.5, "", "a", [], ["a"], {}, {"a": 1})
JUNK: tuple[Any, ...] = (
    *VALUES,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "int",
    "é" * 2000,
    "\ud800",
    [[]],
    "object",
    ["array", 1],
)
NEAR = ("#/$defs/a", "#/$defs/b")
TRIES = 10
FAR = ("#", "#/properties/a", "#/definitions/a", "#there", "https://example.com/s.json", "#/x/9", "#/$defs/a/anyOf/0")


class Maker:
    """Generator of random schemas. With `lies` their keywords have any values. Their size is bounded."""

    def __init__(self, seed: int, *, lies: bool) -> None:
        self._random = Random(seed)
        self._lies = lies

    def arguments(self) -> Json:
        """Return a schema of a call's arguments, with definitions. Without `lies` it has no union at its root."""
        root = self._keywords(4, () if self._lies else ("anyOf", "oneOf", "allOf", "$ref"))
        named = {} if self._lies and self._chance(0.3) else {"type": "object"}
        return {**root, **named, "$defs": {"a": self.schema(2), "b": self.schema(2)}}

    def calls(self, schema: Json) -> list[Json]:
        """Return arguments of calls, some of which are valid under the schema."""
        names = (*schema.get("properties", {}), *NAMES[:4])
        return [{self._one(names): self._one(VALUES) for _ in range(self._random.randrange(4))} for _ in range(TRIES)]

    def schema(self, depth: int) -> Any:
        """Return a random schema."""
        if self._lies and self._chance(0.1):
            return self._one(JUNK)
        if depth <= 0 or self._chance(0.3):
            return self._one((True, False, {}, *({"type": name} for name in TYPES)))
        return self._keywords(depth)

    def _keywords(self, depth: int, without: tuple[str, ...] = ()) -> Json:
        made = self._makers(depth - 1)
        if self._lies:
            made |= self._lying(depth - 1)
        names = [name for name in made if name not in without]
        # Valid schemas get few keywords, because few arguments fit many random keywords.
        most, share = (6, 0.5) if self._lies else (3, 0.8)
        chosen = self._random.sample(names, self._random.randrange(most)) + ["properties"] * self._chance(share)
        return {name: self._one(JUNK) if self._lies and self._chance(0.2) else made[name]() for name in chosen}

    def _makers(self, depth: int) -> dict[str, Made]:
        return {
            "type": lambda: self._one((self._one(TYPES), self._some(lambda: self._one(TYPES)))),
            "properties": lambda: self._named_schemas(depth),
            "required": lambda: self._some(lambda: self._one(NAMES[:5])),
            "additionalProperties": lambda: self.schema(depth),
            "items": lambda: self.schema(depth),
            "prefixItems": lambda: self._schema_list(depth),
            "enum": lambda: [self._one(VALUES) for _ in range(3)],
            "const": lambda: self._one(VALUES),
            "allOf": lambda: self._schema_list(depth),
            "anyOf": lambda: self._schema_list(depth),
            "oneOf": lambda: self._schema_list(depth),
            "not": lambda: self.schema(depth),
            "$ref": lambda: self._one((*NEAR, *FAR) if self._lies else NEAR),
            "minimum": lambda: self._one((-1, 0, 1.5)),
            "maximum": lambda: self._one((0, 1, 2.5)),
            "multipleOf": lambda: self._one((1, 2, 0.5)),
            "minLength": lambda: self._random.randrange(3),
            "maxItems": lambda: self._random.randrange(3),
            "minProperties": lambda: self._random.randrange(2),
            "uniqueItems": lambda: self._chance(0.5),
            "description": lambda: self._one(("", "What it is.", " x ", "y" * 1500)),
            "title": lambda: self._one(("", "A")),
            "default": lambda: self._one(VALUES),
            "dependentRequired": lambda: {"a": ["b"]},
            "patternProperties": lambda: {"^a": self.schema(depth)},
        }

    def _lying(self, depth: int) -> dict[str, Made]:
        return {
            "nullable": lambda: self._chance(0.7),
            "format": lambda: self._one(("uuid", "uri", "int32", "no such")),
            "pattern": lambda: self._one(("^a$", "(?<=a)b", "[", "\\p{L}")),
            "$schema": lambda: "http://json-schema.org/draft-07/schema#",
            "$id": lambda: self._one(("https://example.com/s.json", "a")),
            "definitions": lambda: self._named_schemas(depth),
            "exclusiveMinimum": lambda: self._one((True, 1)),
            "additionalItems": lambda: self.schema(depth),
            "items": lambda: self._schema_list(depth),
            "no such": lambda: self._one(JUNK),
        }

    def _named_schemas(self, depth: int) -> Json:
        return {self._one(NAMES): self.schema(depth) for _ in range(self._random.randrange(4))}

    def _schema_list(self, depth: int) -> list[Any]:
        return [self.schema(depth) for _ in range(1 + self._random.randrange(2))]

    def _some(self, made: Made) -> list[Any]:
        return list(dict.fromkeys(made() for _ in range(1 + self._random.randrange(3))))

    def _one(self, among: tuple[Any, ...]) -> Any:
        return self._random.choice(among)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


SEEDS = st.integers(0, 2**32)
LISTED = SEEDS.map(lambda seed: Maker(seed, lies=True).arguments())
"""Random schemas, valid or not."""


@st.composite
def proper_and_calls(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """Draw a valid schema of JSON Schema 2020-12, and arguments for it."""
    maker = Maker(draw(SEEDS), lies=False)
    schema = maker.arguments()
    return schema, maker.calls(schema)

"""Do a call's arguments fit the tool's schema? The one home of `jsonschema`.

Asked before a call is sent, so that the model can correct itself without the server having seen anything. A schema
that is broken itself proves nothing against the arguments, and neither does one that would take too long: then the
server judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, time
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Self

# The library comes without type information.
from jsonschema import FormatChecker, SchemaError  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator, extend, validator_for  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable

from bot.domain.tools import ArgumentError, canonical_json

# -------------------- flat schema
# Schemas of the simplest kind, as most tools have them, checked at a tenth of the cost.
#
# Asked by `arguments` before the library. It only ever says that values fit: whatever else a schema may want is the
# library's to judge, and so is what is wrong with values that do not fit.

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


# -------------------- formats
# What texts look like that a form asks for: the formats that servers may name (MCP specification 2026-07-28,
# client/elicitation). Used by `arguments`.
#
# Only what is surely wrong is refused: the server itself is the judge.

_LONGEST_EMAIL = 320
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s.]+(?:\.[^@\s.]+)*")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)")


def _email(text: str) -> bool:
    return len(text) <= _LONGEST_EMAIL and _EMAIL.fullmatch(text) is not None


def _uri(text: str) -> bool:
    return _URI.fullmatch(text) is not None


def _date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    """As RFC 3339 has it, which wants the zone."""
    parts = _DATE_TIME.fullmatch(text)
    try:
        return parts is not None and _date(parts[1]) and time.fromisoformat(parts[2]) is not None
    except ValueError:
        return False


FORMATS: Mapping[str, Callable[[str], bool]] = {"email": _email, "uri": _uri, "date": _date, "date-time": _date_time}
"""Whether a text may be one, by the name of the format."""


_MOST = 5
_LONGEST_SENTENCE = 300
_LARGEST_SCHEMA = 100_000
_MOST_STEPS = 10_000


@dataclass(slots=True)
class _Steps:
    """How many one check has taken."""

    taken: int = 0


_steps: ContextVar[_Steps] = ContextVar("schema_steps")


class _Unjudged(Exception):
    """This schema is not for us to check."""


def validate(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """One phrase for each argument that does not fit, at most five; empty if all fit or nobody can tell."""
    return tuple(_phrase(error) for error in _errors(schema, arguments, None))


def group_by_argument(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[ArgumentError, ...]:
    """The same, each with the name of the argument it is about, for people who fill in a form: to them the formats of
    texts (an address, a date) are rules as well.
    """
    return tuple(
        ArgumentError(str(error.absolute_path[0]) if error.absolute_path else "", _phrase(error))
        for error in _errors(schema, arguments, _format_checker())
    )


def _errors(schema: Mapping[str, Any], arguments: Mapping[str, Any], formats: FormatChecker | None) -> list[Any]:
    """What the library finds, as long as it can be trusted to come to an end.

    References outside the schema are never fetched (MCP specification 2026-07-28: MUST NOT). Regular expressions are
    never run, because some take years, and no check takes more than ten thousand steps: a server must not be able to
    hold up everybody else.
    """
    token = _steps.set(_Steps())
    try:
        rules = _rules(_Schema(schema))
        if rules.flat is not None and rules.flat.is_surely_valid(arguments):
            return []
        validator = rules.validator if formats is None else rules.validator.evolve(format_checker=formats)
        return list(islice(validator.iter_errors(dict(arguments)), _MOST))
    except (_Unjudged, SchemaError, Unresolvable, RecursionError, ValueError, ArithmeticError):
        return []
    finally:
        _steps.reset(token)


@cache
def _format_checker() -> FormatChecker:
    """Knows the formats that forms may have, and lets every other pass."""

    def check(fits: Callable[[str], bool]) -> Callable[[Any], bool]:
        return lambda value: not isinstance(value, str) or fits(value)

    checker = FormatChecker(formats=())
    for name, fits in FORMATS.items():
        checker.checks(name)(check(fits))
    return checker


@dataclass(frozen=True, slots=True, eq=False)
class _Schema:
    """A schema that is the same as another only if it is the same object: nobody changes one, and to compare what is in
    it costs more than the check. As long as it is remembered, no other object can be taken for it.
    """

    given: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Schema) and other.given is self.given

    def __hash__(self) -> int:
        return id(self.given)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a schema asks for: for the library, and without it if it is simple enough."""

    validator: Any
    flat: FlatSchema | None


@lru_cache(maxsize=512)
def _rules(schema: _Schema) -> _Rules:
    text = canonical_json(schema.given)
    if len(text) > _LARGEST_SCHEMA:
        raise _Unjudged
    return _compiled(text)


@lru_cache(maxsize=512)
def _compiled(text: str) -> _Rules:
    schema = json.loads(text)
    # In both the library would go on with checks of its own: by other rules, and by regular expressions.
    if text.count('"$schema":"') > ("$schema" in schema) or '"patternProperties":' in text:
        raise _Unjudged
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    return _Rules(_bounded(kind)(schema, registry=Registry()), FlatSchema.of(schema))


@cache
def _bounded(kind: Any) -> Any:
    """A draft's rules without regular expressions, each rule counted."""
    rules = {name: _counted(rule) for name, rule in kind.VALIDATORS.items()}
    return extend(kind, {**rules, "pattern": lambda *_: None})


def _counted(rule: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, expected: Any, value: Any, schema: Any) -> Any:
        steps = _steps.get()
        steps.taken += 1
        if steps.taken > _MOST_STEPS:
            raise _Unjudged
        return rule(validator, expected, value, schema)

    return counted


def _phrase(error: Any) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    message = error.message if len(error.message) <= _LONGEST_SENTENCE else error.message[:_LONGEST_SENTENCE] + "..."
    return f"{where}: {message}" if where else message

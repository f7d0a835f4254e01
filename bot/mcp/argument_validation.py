"""Validation of a call's arguments against the tool's JSON Schema.

Arguments are validated before a call is sent, so that the model can correct them. An invalid schema and one that takes
too long accept all arguments: then the server decides.

The library is loaded by the first validation, because a chat that calls nothing must not wait for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, time
from functools import cache, lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from bot.domain.tools import ArgumentError, canonical_json

if TYPE_CHECKING:
    from jsonschema import FormatChecker  # type: ignore[import-untyped]

# -------------------- flat schemas: a check of the most common kind, at a tenth of the library's cost

_TYPES: Mapping[Any, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
"""Python types that certainly match a JSON type. Some drafts also accept 1.0 as an integer."""
_WORDS = frozenset(("title", "description", "default", "examples"))
"""Keywords without a constraint."""
_OBJECT = _WORDS | {"$schema", "type", "properties", "required", "additionalProperties"}
_PROPERTY = _WORDS | {"type"}


_FlatCheck = Callable[[Mapping[str, Any]], bool]


def flat_check(schema: Mapping[str, Any]) -> _FlatCheck | None:
    """Return a check of the values of a valid, flat schema: an object with properties of simple types, which may name
    required ones and forbid others. True says that the values are valid; False says nothing, so that the library has
    to check them. Return None for a schema of another kind.
    """
    required, types = schema.get("required", []), {}
    if schema.get("type") != "object" or not schema.keys() <= _OBJECT or not isinstance(required, list):
        return None
    for name, parameter in schema.get("properties", {}).items():
        kind = parameter.get("type") if isinstance(parameter, dict) else None
        if not isinstance(kind, str) or kind not in _TYPES or not parameter.keys() <= _PROPERTY:
            return None
        types[name] = _TYPES[kind]
    return lambda values: (
        all(name in values for name in required)
        and all(type(value) in types.get(name, ()) for name, value in values.items())
    )


# -------------------- formats of form fields (MCP specification 2026-07-28, client/elicitation)

_LONGEST_EMAIL = 320
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s.]+(?:\.[^@\s.]+)*")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)")


def _date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    """Return True for an RFC 3339 date and time, which needs a time zone."""
    parts = _DATE_TIME.fullmatch(text)
    try:
        return parts is not None and _date(parts[1]) and time.fromisoformat(parts[2]) is not None
    except ValueError:
        return False


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": lambda text: len(text) <= _LONGEST_EMAIL and _EMAIL.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "date": _date,
    "date-time": _date_time,
}
"""Checks by format name. A check rejects only a text that is certainly wrong, because the server decides."""


_MOST = 5
_LONGEST_SENTENCE = 300
_LARGEST_SCHEMA = 100_000
_MOST_STEPS = 10_000


_steps: ContextVar[Iterator[int]] = ContextVar("schema_steps")
"""Count of the steps of one check."""


class _NotCheckable(Exception):
    """The schema cannot be checked here."""


def validate(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one phrase for each invalid argument, at most five. Empty if all are valid or the schema cannot be
    checked.
    """
    return tuple(_phrase(error) for error in _errors(schema, arguments, None))


def group_by_argument(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[ArgumentError, ...]:
    """Return the invalid arguments with their names, for the fields of a form. Formats (an email, a date) are checked
    too.
    """
    return tuple(
        ArgumentError(str(error.absolute_path[0]) if error.absolute_path else "", _phrase(error))
        for error in _errors(schema, arguments, _format_checker())
    )


def _errors(schema: Mapping[str, Any], arguments: Mapping[str, Any], formats: FormatChecker | None) -> list[Any]:
    """Return the library's errors.

    References outside the schema are never fetched (MCP specification 2026-07-28: MUST NOT). Regular expressions are
    never run and a check has at most ten thousand steps, because a server must not block the process.
    """
    from jsonschema import SchemaError  # noqa: PLC0415 - see the module
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see the module

    token = _steps.set(count(1))
    try:
        validator, is_surely_valid = _rules(_Schema(schema))
        if is_surely_valid is not None and is_surely_valid(arguments):
            return []
        if formats is not None:
            validator = validator.evolve(format_checker=formats)
        return list(islice(validator.iter_errors(dict(arguments)), _MOST))
    except (_NotCheckable, SchemaError, Unresolvable, RecursionError, ValueError, ArithmeticError):
        return []
    finally:
        _steps.reset(token)


@cache
def _format_checker() -> FormatChecker:
    """Return a checker of the formats in `FORMATS`, which accepts all others."""
    from jsonschema import FormatChecker  # noqa: PLC0415 - see the module

    def check(fits: Callable[[str], bool]) -> Callable[[Any], bool]:
        return lambda value: not isinstance(value, str) or fits(value)

    checker = FormatChecker(formats=())
    for name, fits in FORMATS.items():
        checker.checks(name)(check(fits))
    return checker


@dataclass(frozen=True, slots=True, eq=False)
class _Schema:
    """Cache key that compares schemas by identity, because comparing their contents costs more than the check. It keeps
    the schema alive, so its id is not reused.
    """

    given: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Schema) and other.given is self.given

    def __hash__(self) -> int:
        return id(self.given)


@lru_cache(maxsize=512)
def _rules(schema: _Schema) -> tuple[Any, _FlatCheck | None]:
    """Return the validator of a schema, and its flat check if it has one."""
    text = canonical_json(schema.given)
    if len(text) > _LARGEST_SCHEMA:
        raise _NotCheckable
    return _compile(text)


@lru_cache(maxsize=512)
def _compile(text: str) -> tuple[Any, _FlatCheck | None]:
    from jsonschema.validators import Draft202012Validator, validator_for  # type: ignore[import-untyped]  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415 - see the module

    schema = json.loads(text)
    # In both the library would go on with checks of its own: by other rules, and by regular expressions.
    if text.count('"$schema":"') > ("$schema" in schema) or '"patternProperties":' in text:
        raise _NotCheckable
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    return _bound_validator(kind)(schema, registry=Registry()), flat_check(schema)


@cache
def _bound_validator(kind: Any) -> Any:
    """Return a draft's validator class without regular expressions, each rule counted."""
    from jsonschema.validators import extend  # noqa: PLC0415 - see the module

    rules = {name: _count_steps(rule) for name, rule in kind.VALIDATORS.items()}
    return extend(kind, {**rules, "pattern": lambda *_: None})


def _count_steps(rule: Callable[..., Any]) -> Callable[..., Any]:
    def count_and_check(validator: Any, expected: Any, value: Any, schema: Any) -> Any:
        if next(_steps.get()) > _MOST_STEPS:
            raise _NotCheckable
        return rule(validator, expected, value, schema)

    return count_and_check


def _phrase(error: Any) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    message = error.message
    for value in (error.instance, error.validator_value):  # quoted by the library as Python writes them
        message = message.replace(repr(value), json.dumps(value, ensure_ascii=False, default=str), 1)
    message = message if len(message) <= _LONGEST_SENTENCE else message[:_LONGEST_SENTENCE] + "..."
    return f"{where}: {message}" if where else message

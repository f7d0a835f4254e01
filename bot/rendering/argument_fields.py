"""Arguments of a call as fields of a form, and answers as arguments.

An unchanged form returns exactly its initial arguments. Values without a suitable field are JSON in a text field. A
value that is withheld from the user is not prefilled, and stays unchanged unless the user types another. The engine
validates the arguments against the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bot.domain.commands import Field, FieldKind
from bot.domain.lenient_json import DuplicateName, parse_json
from bot.i18n import LazyText, _, gettext_lazy
from bot.rendering.deceptive_text import name_spelled_out
from bot.rendering.text_safety import show_invisible, single_line

MOST_FIELDS = 15
"""Maximum number of fields, three steps of a form."""
LONGEST = 3_000
"""Characters in one field on every platform (Slack, "Plain-text input": 3,000 characters)."""
YES, NO = gettext_lazy("yes"), gettext_lazy("no")
LEAVE_OUT = gettext_lazy("leave out")
"""The choice that sends no value at all."""
_CHOICES, _CHOICE_LENGTH = 25, 75
_HINT = 100
_LABEL = 60
_NEEDED = gettext_lazy("Something is needed here.")
_NEEDED_TEXT = gettext_lazy('Something is needed here; "" is an empty text.')
_AS_IT_IS = gettext_lazy("Stays as it is unless you type another.")
_ABSENT: Any = object()


class _Kind(Enum):
    TEXT = auto()
    WHOLE = auto()
    NUMBER = auto()
    SWITCH = auto()
    CHOICE = auto()
    LINES = auto()
    JSON = auto()


_KINDS = {"string": _Kind.TEXT, "integer": _Kind.WHOLE, "number": _Kind.NUMBER, "boolean": _Kind.SWITCH}
"""Kinds by the type of the schema; all others are JSON."""
_FIELD_KINDS = {_Kind.SWITCH: FieldKind.CHOICE, _Kind.CHOICE: FieldKind.CHOICE, _Kind.LINES: FieldKind.LINES}


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One argument and its field. `withheld` ones are not prefilled."""

    argument: str
    field: Field
    kind: _Kind
    present: Any
    required: bool
    withheld: bool


@dataclass(frozen=True, slots=True)
class ArgumentForm:
    """Fields of a form in order, and the names of arguments without a field, which stay as they are."""

    fields: tuple[ArgumentField, ...]
    left: tuple[str, ...]


def argument_form(
    schema: Mapping[str, Any],
    arguments: Mapping[str, Any],
    most: int = MOST_FIELDS,
    withheld: Collection[str] = frozenset(),
) -> ArgumentForm:
    """Return the form fields for a call's arguments: the present ones, then optional ones of the tool, at most `most`.
    Values of `withheld` arguments are not shown.
    """
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    needed = frozenset(map(str, required)) if isinstance(required, list | tuple) else frozenset[str]()
    names = list(dict.fromkeys((*map(str, properties), *arguments)))
    fields = [
        _field(
            f"a{number}",
            name,
            properties.get(name),
            arguments.get(name, _ABSENT),
            required=name in needed,
            withheld=name in withheld,
        )
        for number, name in enumerate(names)
    ]
    possible = [form_field for form_field in fields if len(form_field.field.value) <= LONGEST]
    first = sorted(possible, key=lambda form_field: (form_field.argument not in arguments, not form_field.required))[
        :most
    ]
    offered = {form_field.argument for form_field in first}
    return ArgumentForm(
        tuple(form_field for form_field in possible if form_field.argument in offered),
        tuple(name for name in arguments if name not in offered),
    )


def read_arguments(
    form: ArgumentForm, arguments: Mapping[str, Any], answers: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return `arguments` changed by `answers`, and the errors by field. A field without an answer stays unchanged."""
    changed, errors = dict(arguments), {}
    for form_field in form.fields:
        if form_field.field.name not in answers:
            continue
        try:
            value = _parse_answer(form_field, answers[form_field.field.name])
        except ValueError as error:
            errors[form_field.field.name] = str(error)
            continue
        if value is _ABSENT:
            changed.pop(form_field.argument, None)
        else:
            changed[form_field.argument] = value
    return changed, errors


# ------------------------------------------------------------------ an argument as a field


def _field(name: str, argument: str, schema: Any, present: Any, *, required: bool, withheld: bool) -> ArgumentField:
    schema = _plain_schema(schema)
    kind = _wanted_kind(schema)
    if present is not _ABSENT and not _fits(kind, schema, present):
        kind = _Kind.JSON
    choices = _choices(schema, required=required) if kind in (_Kind.CHOICE, _Kind.SWITCH) else ()
    label = name_spelled_out(argument)
    field = Field(
        name,
        label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…",
        kind=_FIELD_KINDS.get(kind, FieldKind.TEXT),
        hint=_hint(schema, kind, required=required, withheld=withheld),
        required=required and not withheld and kind is not _Kind.LINES,
        choices=() if withheld else choices,
        value="" if withheld else _format_value(kind, present),
        longest=LONGEST,
    )
    return ArgumentField(argument, field, kind, present, required, withheld)


def _plain_schema(schema: Any) -> Mapping[str, Any]:
    """Return the schema of a property without "or null": an empty field already means null."""
    if not isinstance(schema, Mapping):
        return {}
    for word in ("anyOf", "oneOf"):
        branches = schema.get(word)
        if isinstance(branches, list) and "type" not in schema:
            real = [branch for branch in branches if isinstance(branch, Mapping) and branch.get("type") != "null"]
            return {**schema, **real[0]} if len(real) == 1 and len(branches) == 2 else schema
    kinds = schema.get("type")
    if isinstance(kinds, list):
        real_kinds = [kind for kind in kinds if kind != "null"]
        return {**schema, "type": real_kinds[0]} if len(real_kinds) == 1 else schema
    return schema


def _wanted_kind(schema: Mapping[str, Any]) -> _Kind:
    items = schema.get("items")
    match schema.get("type"):
        case "string" if "enum" in schema and _offerable(schema["enum"]):
            return _Kind.CHOICE
        case "array" if isinstance(items, Mapping) and items.get("type") == "string":
            return _Kind.LINES
        case str(name):
            return _KINDS.get(name, _Kind.JSON)
        case _:
            return _Kind.JSON


def _fits(kind: _Kind, schema: Mapping[str, Any], present: Any) -> bool:  # noqa: PLR0911 - one case for each kind
    match kind:
        case _Kind.TEXT:
            return isinstance(present, str)
        case _Kind.WHOLE:
            return isinstance(present, int) and not isinstance(present, bool)
        case _Kind.NUMBER:
            return isinstance(present, int | float) and not isinstance(present, bool) and math.isfinite(present)
        case _Kind.SWITCH:
            return isinstance(present, bool)
        case _Kind.CHOICE:
            return isinstance(present, str) and present in schema["enum"]
        case _Kind.LINES:
            return isinstance(present, list | tuple) and all(
                isinstance(item, str) and item and item == item.strip() and item.isprintable() for item in present
            )
        case _Kind.JSON:
            return True


def _offerable(choices: Any) -> bool:
    """Return True if every platform accepts these as choices."""
    return (
        isinstance(choices, list)
        and 0 < len(choices) < _CHOICES
        and all(isinstance(choice, str) for choice in choices)
        and not {choice.lower() for choice in choices} & _spellings(LEAVE_OUT)
        and len({choice.lower() for choice in choices}) == len(choices)
        and all(0 < len(choice.strip()) == len(choice) <= _CHOICE_LENGTH and choice.isprintable() for choice in choices)
    )


def _choices(schema: Mapping[str, Any], *, required: bool) -> tuple[str, ...]:
    named = (str(YES), str(NO)) if schema.get("type") == "boolean" else tuple(schema["enum"])
    return named if required else (*named, str(LEAVE_OUT))


def _spellings(choice: LazyText) -> frozenset[str]:
    """Return a choice in the current language and in English, because a form may be read in another language than it
    was shown in.
    """
    return frozenset({str(choice), choice.message})


def _hint(schema: Mapping[str, Any], kind: _Kind, *, required: bool, withheld: bool) -> str:
    if withheld:
        return str(_AS_IT_IS)
    how = {
        _Kind.WHOLE: _("a whole number"),
        _Kind.NUMBER: _("a number"),
        _Kind.LINES: _("one on each line"),
        _Kind.JSON: _("as JSON"),
    }.get(kind, "")
    optional = "" if required or kind in (_Kind.CHOICE, _Kind.SWITCH) else _("empty leaves it out")
    about = single_line(show_invisible(str(schema.get("description") or "")), _HINT)
    return " · ".join(filter(None, (how, optional, about)))


# ------------------------------------------------------------------ values as text, and back


def _format_value(kind: _Kind, present: Any) -> str:
    if present is _ABSENT:
        return ""
    match kind:
        case _Kind.TEXT:
            harmless = all(character.isprintable() or character == "\n" for character in present)
            is_plain = present and harmless and present == present.strip() and not _looks_quoted(present)
            return present if is_plain else json.dumps(present, ensure_ascii=not harmless)
        case _Kind.CHOICE:
            return str(present)
        case _Kind.SWITCH:
            return str(YES) if present else str(NO)
        case _Kind.LINES:
            return "\n".join(present)
        case _Kind.WHOLE | _Kind.NUMBER | _Kind.JSON:
            text = json.dumps(present, ensure_ascii=False, default=_plain_value)
            return text if text.isprintable() else json.dumps(present, default=_plain_value)


def _looks_quoted(text: str) -> bool:
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def _plain_value(value: Any) -> Any:
    """Return a JSON value with plain dicts and lists."""
    match value:
        case Mapping():
            return {str(key): _plain_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain_value(inner) for inner in value]
        case _:
            return value


def _parse_answer(form_field: ArgumentField, answer: str) -> Any:  # noqa: C901, PLR0911 - one case for each kind of field
    """Return the value of an answer. Raises ValueError with the reason."""
    text = answer.replace("\r\n", "\n").strip()
    if not text:
        return _empty_value(form_field)
    if text == form_field.field.value:
        return form_field.present
    match form_field.kind:
        case _Kind.TEXT:
            return _unquote(text)
        case _Kind.WHOLE:
            return _number(text, int)
        case _Kind.NUMBER:
            return _number(text, int, float)
        case _Kind.SWITCH | _Kind.CHOICE if text in _spellings(LEAVE_OUT) and not form_field.required:
            return _ABSENT
        case _Kind.SWITCH:
            spellings = {**dict.fromkeys(_spellings(YES), True), **dict.fromkeys(_spellings(NO), False)}
            return _one_of(text, {**spellings, "true": True, "false": False})
        case _Kind.CHOICE:
            choices = form_field.field.choices or (text,)
            return _one_of(text, {choice: choice for choice in choices if choice not in _spellings(LEAVE_OUT)})
        case _Kind.LINES:
            return [line for line in map(str.strip, text.split("\n")) if line]
        case _Kind.JSON:
            return _parse_json(text)


def _empty_value(form_field: ArgumentField) -> Any:
    if form_field.withheld:
        return form_field.present
    if form_field.kind is _Kind.LINES:
        if not form_field.field.value and form_field.present is not _ABSENT:
            return form_field.present
        return [] if form_field.required else _ABSENT
    if form_field.required:
        raise ValueError(str(_NEEDED_TEXT if form_field.kind is _Kind.TEXT else _NEEDED))
    return _ABSENT


def _unquote(text: str) -> str:
    try:
        value = json.loads(text, strict=False) if _looks_quoted(text) else text
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _number(text: str, *kinds: type) -> Any:
    try:
        value = _parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, bool) and isinstance(value, kinds):
        return value
    raise ValueError(_("A whole number, such as 3.") if kinds == (int,) else _("A number, such as 2.5."))


def _one_of(text: str, values: Mapping[str, Any]) -> Any:
    if text not in values:
        raise ValueError(_("One of: {choices}.", choices=", ".join(values)))
    return values[text]


def _parse_json(text: str) -> Any:
    try:
        return parse_json(text)
    except DuplicateName as error:
        raise ValueError(_("This cannot be used: {error}.", error=error)) from None
    except ValueError:
        raise ValueError(_('That is no JSON. Texts stand in double quotes: ["a", "b"], {"key": 1}.')) from None

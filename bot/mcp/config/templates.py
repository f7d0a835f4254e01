"""Parser of the operator's launch templates, `config/launch_templates.toml`.

An invalid template is left out and reported. An unreadable file raises SettingsError. No program is started.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.domain.catalog import unpinned_package
from bot.domain.launch_templates import (
    ChoiceRule,
    IntegerRule,
    LaunchTemplate,
    PathRule,
    SecretRule,
    SlotRule,
    TemplateSlot,
    TextRule,
    placeholders_in,
)
from bot.domain.launch_variables import variable_effect
from bot.domain.secrets import VARIABLE_NAME
from bot.domain.toml_errors import toml_problem
from bot.errors import SettingsError
from bot.i18n import gettext_lazy, make_lazy

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_SLOT_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_TEMPLATE_KEYS = frozenset(("title", "description", "command", "args", "env", "cwd", "slots"))
_SLOT_KEYS = frozenset(("type", "title", "help", "default", "may_begin_with_dash"))
_OF_TYPE = {
    "text": frozenset(("pattern",)),
    "choice": frozenset(("choices",)),
    "integer": frozenset(("min", "max")),
    "path": frozenset(("below",)),
    "secret": frozenset(("variable",)),
}
_MOST_SLOTS = 20
_LARGEST_INTEGER = 10**18 - 1


@dataclass(frozen=True, slots=True)
class TemplatesFile:
    """Contents of the file. `problems` are sentences about unusable templates, `warnings` about usable ones."""

    templates: Mapping[str, LaunchTemplate] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class _InvalidTemplate(Exception):
    """Invalid value in the file. `reason` is a literal with these `values`, or another text."""

    def __init__(self, reason: str, /, **values: object) -> None:
        self.reason = make_lazy(reason, **values)
        super().__init__(self.reason)


def load_templates(path: Path) -> TemplatesFile:
    """Read the file; a missing one has no templates. Raises SettingsError if it cannot be read or is not TOML."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except FileNotFoundError:
        return TemplatesFile()
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            gettext_lazy("{path} cannot be read: {error}.", path=path, error=toml_problem(text, error)),
            gettext_lazy("correct the file or MCP_LAUNCH_TEMPLATES_FILE"),
        ) from error
    unknown = sorted(document.keys() - {"templates"})
    section = document.get("templates", {})
    if unknown or not isinstance(section, dict):
        raise SettingsError(
            gettext_lazy("{path} holds something other than templates: {key}.", path=path, key=unknown[0])
            if unknown
            else gettext_lazy("{path} holds something other than templates.", path=path),
            gettext_lazy("write each of them as [templates.NAME]"),
        )
    templates: dict[str, LaunchTemplate] = {}
    problems: list[str] = []
    for name, table in section.items():
        try:
            templates[name] = _template(name, table)
        except _InvalidTemplate as wrong:
            problems.append(
                gettext_lazy(
                    "{path}: the launch template {name} cannot be used: {reason}",
                    path=_place(path, text, name),
                    name=f"{name!r}",
                    reason=wrong.reason,
                )
            )
    warnings = (
        gettext_lazy(
            "{path}: the launch template {template} starts {package}, whose version is not fixed. It runs "
            "whatever is published under that name at the moment.",
            path=path,
            template=f"{template.name!r}",
            package=package,
        )
        for template in templates.values()
        if (package := unpinned_package(template.command, template.args))
    )
    return TemplatesFile(templates, tuple(problems), tuple(warnings))


def _place(path: Path, text: str, name: str) -> str:
    """Return the file with the line of a template, without it if the template is written in an unusual way."""
    header = re.compile(rf"\s*\[\s*templates\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*[\].]")
    lines = (number for number, line in enumerate(text.splitlines(), 1) if header.match(line))
    return next((gettext_lazy("{path}, line {line}", path=path, line=number) for number in lines), str(path))


def _template(name: str, table: Any) -> LaunchTemplate:
    if not _NAME.fullmatch(name):
        raise _InvalidTemplate("its name has to be of lower-case letters, digits and dashes, at most 40 of them.")
    _check_keys(table, _TEMPLATE_KEYS, "it")
    slots = _table(table, "slots")
    if len(slots) > _MOST_SLOTS:
        raise _InvalidTemplate("it has more than {most} slots.", most=_MOST_SLOTS)
    template = LaunchTemplate(
        name=name,
        command=_text(table, "command"),
        args=tuple(_texts(table, "args")),
        slots=tuple(_slot(slot, slots[slot]) for slot in slots),
        title=_text(table, "title"),
        description=_text(table, "description"),
        env={item: _value(f"env.{item}", value) for item, value in _table(table, "env").items()},
        cwd=_text(table, "cwd") or None,
    )
    _check_whole(template)
    return template


def _check_whole(template: LaunchTemplate) -> None:
    if not template.command:
        raise _InvalidTemplate("it has no command.")
    if any(placeholders_in(template.command)):
        raise _InvalidTemplate("its command must not have a slot in it.")
    if template.cwd is not None and not template.cwd.startswith("/"):
        raise _InvalidTemplate("its cwd must be an absolute path.")
    used = {place for item in template.args for place in placeholders_in(item)}
    typed = {item.name for item in template.typed}
    if used - typed:
        raise _InvalidTemplate("its args have a place {{{slot}}}, which is not a defined slot.", slot=min(used - typed))
    if typed - used:
        raise _InvalidTemplate("the slot {slot} has no place {{{slot}}} in its args.", slot=min(typed - used))
    variables = list(template.secrets.values())
    if twice := {variable for variable in variables if variables.count(variable) > 1 or variable in template.env}:
        raise _InvalidTemplate("the variable {variable} is set twice.", variable=min(twice))


def _slot(name: str, table: Any) -> TemplateSlot:
    about = gettext_lazy("the slot {name}", name=name)
    if not _SLOT_NAME.fullmatch(name):
        raise _InvalidTemplate("{about} needs a name of lower-case letters, digits and underscores.", about=about)
    kind = table.get("type") if isinstance(table, dict) else None
    if kind not in _OF_TYPE:
        raise _InvalidTemplate("{about} needs a type: {types}.", about=about, types=", ".join(_OF_TYPE))
    _check_keys(table, _SLOT_KEYS | _OF_TYPE[kind], about)
    try:
        rule = _rule(kind, table)
    except _InvalidTemplate as wrong:
        raise _InvalidTemplate(f"{about}: {wrong}") from None
    default = table.get("default")
    slot = TemplateSlot(
        name,
        rule,
        title=_text(table, "title"),
        help=_text(table, "help"),
        default=None if default is None else str(default),
        dashed=table.get("may_begin_with_dash") is True,
    )
    _check_defaults(about, slot)
    return slot


def _check_defaults(about: str, slot: TemplateSlot) -> None:
    """Check that the operator's own values fit the slot."""
    if isinstance(slot.rule, SecretRule):
        if slot.default is not None:
            raise _InvalidTemplate("{about} is a secret, which has no default.", about=about)
        return
    choices = list(slot.rule.choices) if isinstance(slot.rule, ChoiceRule) else []
    choices += [] if slot.default is None else [slot.default]
    for word in choices:
        try:
            slot.parse_value(word)
        except ValueError as error:
            raise _InvalidTemplate(
                "{about} does not take {word} itself: {reason}", about=about, word=f"{word!r}", reason=error.args[0]
            ) from None


def _rule(kind: str, table: Mapping[str, Any]) -> SlotRule:
    match kind:
        case "text":
            pattern = _text(table, "pattern")
            if not pattern:
                raise _InvalidTemplate("pattern is missing.")
            try:
                return TextRule(re.compile(pattern))
            except re.error as error:
                raise _InvalidTemplate("pattern is not a regular expression: {error}.", error=str(error)) from None
        case "choice":
            choices = tuple(_texts(table, "choices"))
            if not choices:
                raise _InvalidTemplate("choices is missing.")
            return ChoiceRule(choices)
        case "integer":
            return IntegerRule(_integer(table, "min"), _integer(table, "max"))
        case "path":
            below = _text(table, "below")
            if not below.startswith("/") or ".." in Path(below).parts:
                raise _InvalidTemplate("below must be the absolute path of a folder.")
            return PathRule(str(Path(below)))
        case _:
            variable = _text(table, "variable")
            if not VARIABLE_NAME.fullmatch(variable) or variable_effect(variable, network=False):
                raise _InvalidTemplate("variable must be the name of a variable that decides over no program.")
            return SecretRule(variable)


def _check_keys(table: Any, known: frozenset[str], about: str) -> None:
    if not isinstance(table, dict):
        raise _InvalidTemplate("{about} is no table.", about=about)
    if unknown := sorted(table.keys() - known):
        raise _InvalidTemplate("{about} has a key {key}, which is unknown.", about=about, key=f"{unknown[0]!r}")


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise _InvalidTemplate("{key} is no table.", key=key)
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    return _value(key, table.get(key, ""))


def _texts(table: Mapping[str, Any], key: str) -> Iterator[str]:
    values = table.get(key, [])
    if not isinstance(values, list):
        raise _InvalidTemplate("{key} is not a list of texts.", key=key)
    for value in values:
        yield _value(key, value)


def _value(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _InvalidTemplate("{key} must be text on one line, all of which can be seen.", key=key)
    return value


def _integer(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_INTEGER:
        raise _InvalidTemplate("{key} must be a whole number.", key=key)
    return value

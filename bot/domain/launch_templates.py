"""Launch templates: programs of the operator that admins may start, with slots to fill in.

An admin never writes a command line: the template has it, and each slot accepts the values that its rule allows. One
word stays one word, there is no shell, and a value becomes an option only if its slot says so. The templates are read
from the operator's file. Values are checked when they are entered and before every start of a
process.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from bot.domain.servers import ServerConfig, StdioTransport, TemplateLaunch
from bot.i18n import gettext_lazy

LONGEST_VALUE = 500
LONGEST_COMMAND = 1800
"""Maximum characters of a command line, so that the request to start it shows all of it on every platform."""
_PLACE = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]*)\}")
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that are invisible, although Unicode counts them as letters and signs."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class TextRule:
    """A text that matches a regular expression as a whole."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ChoiceRule:
    """One of the choices."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IntegerRule:
    """A whole number from `least` to `most`, inclusive."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class PathRule:
    """Path of a folder or of an existing entry below it. The value becomes an absolute path."""

    below: str


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A secret, passed to the program as this environment variable and never as an argument."""

    variable: str


SlotRule = TextRule | ChoiceRule | IntegerRule | PathRule | SecretRule


@dataclass(frozen=True, slots=True)
class TemplateSlot:
    """Placeholder `{name}` in the arguments. `dashed` allows values that begin with a dash."""

    name: str
    rule: SlotRule
    title: str = ""
    help: str = ""
    default: str | None = None
    dashed: bool = False

    def parse_value(self, text: str) -> str:
        """Return the argument for a typed value. Raises ValueError with a sentence for the user."""
        if len(text) > LONGEST_VALUE or not text.isprintable() or not _BLANK.isdisjoint(text):
            raise ValueError(
                gettext_lazy("At most {most} characters on one line, all of which can be seen.", most=LONGEST_VALUE)
            )
        if not text:
            raise ValueError(gettext_lazy("It is missing."))
        fitted = _fit_values(self.rule, text)
        if fitted.startswith("-") and not self.dashed:
            raise ValueError(gettext_lazy("It must not begin with a dash."))
        return fitted


class InvalidSlotValue(Exception):
    """Errors by slot. An empty name is an error of no single slot."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{slot}: {error}" if slot else error for slot, error in errors.items()))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A program and its arguments with placeholders for slots. `env` and `cwd` are fixed."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    slots: tuple[TemplateSlot, ...] = ()
    title: str = ""
    description: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    @property
    def typed(self) -> tuple[TemplateSlot, ...]:
        """The slots with values in the command line."""
        return tuple(slot for slot in self.slots if not isinstance(slot.rule, SecretRule))

    @property
    def secrets(self) -> Mapping[str, str]:
        """Slots for secrets: the environment variable of each, by slot name."""
        return {slot.name: slot.rule.variable for slot in self.slots if isinstance(slot.rule, SecretRule)}

    @property
    def folders(self) -> Mapping[str, str]:
        """Slots for paths: the allowed folder of each, by slot name."""
        return {slot.name: slot.rule.below for slot in self.slots if isinstance(slot.rule, PathRule)}

    def fill_slots(self, values: Mapping[str, str]) -> StdioTransport:
        """Return the program with these values in its slots, by name. An empty slot has its default. Checks texts only,
        not the file system. Raises InvalidSlotValue.
        """
        fitted, errors = self._fit_values(values)
        known = {item.name for item in self.typed}
        errors |= dict.fromkeys(
            values.keys() - known, gettext_lazy("The template {template} has no such slot.", template=self.name)
        )
        if errors:
            raise InvalidSlotValue(errors)
        args = tuple(
            _PLACE.sub(lambda place: fitted[place[1]] if place[1] else place[0][0], item) for item in self.args
        )
        if len(shlex.join((self.command, *args))) > LONGEST_COMMAND:
            raise InvalidSlotValue(
                {"": gettext_lazy("The command line would have more than {most} characters.", most=LONGEST_COMMAND)}
            )
        given = {item.name: values[item.name] for item in self.typed if values.get(item.name)}
        return StdioTransport(self.command, args, dict(self.env), self.cwd, TemplateLaunch(self.name, given))

    def paths(self, values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the folder and the resulting path of each slot for a path. Raises InvalidSlotValue."""
        fitted, errors = self._fit_values(values)
        if errors:
            raise InvalidSlotValue(errors)
        for name, folder in self.folders.items():
            yield name, folder, fitted[name]

    def _fit_values(self, values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        fitted: dict[str, str] = {}
        errors: dict[str, str] = {}
        for slot in self.typed:
            try:
                fitted[slot.name] = slot.parse_value(values.get(slot.name) or slot.default or "")
            except ValueError as error:
                errors[slot.name] = str(error)
        return fitted, errors


Templates = Mapping[str, LaunchTemplate]


def placeholders_in(text: str) -> Iterator[str]:
    """Return the slot names in an argument's placeholders."""
    return (place[1] for place in _PLACE.finditer(text) if place[1])


def expand_template(config: ServerConfig, templates: Templates) -> ServerConfig:
    """Return a server as its template would start it now, for display. The command line is empty if it cannot be
    started.
    """
    match config.transport:
        case StdioTransport(env=env, launch=TemplateLaunch(name, values) as launch):
            try:
                filled = templates[name].fill_slots(values)
            except (KeyError, InvalidSlotValue):
                return replace(config, transport=StdioTransport("", launch=launch))
            return replace(config, transport=replace(filled, env={**filled.env, **env}))
        case _:
            return config


def _fit_values(rule: SlotRule, text: str) -> str:
    match rule:
        case TextRule(pattern):
            if not pattern.fullmatch(text):
                raise ValueError(
                    gettext_lazy(
                        "It does not have the form that the operator wants: {pattern}", pattern=pattern.pattern
                    )
                )
            return text
        case ChoiceRule(choices):
            if text not in choices:
                raise ValueError(gettext_lazy("One of: {choices}.", choices=", ".join(choices)))
            return text
        case IntegerRule(least, most):
            if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
                raise ValueError(gettext_lazy("A whole number from {least} to {most}.", least=least, most=most))
            return str(int(text))
        case PathRule(below):
            path = PurePosixPath(below, text)
            if ".." in path.parts or not path.is_relative_to(below):
                raise ValueError(gettext_lazy("A path below {below}, without `..` in it.", below=below))
            return str(path)
        case SecretRule():
            raise ValueError(gettext_lazy("A secret is no part of a command line."))

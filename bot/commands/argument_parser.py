"""Parser of a verb's arguments: positional ones, `--name value`, `--name=value`, flags.

A CommandRejected names parameters of the verb, never the typed text, which may be a secret.

Rejections of commands.

Parameters of several verbs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.commands.text_format import POLICY_CHOICES, did_you_mean, sentences
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Verb
from bot.i18n import _, gettext_lazy


class CommandRejected(Exception):
    """A rejected command. The text is Markdown of this project with cause and fix, and repeats no input."""


class NotFoundRejection(CommandRejected):
    """The named record is missing, or not visible to the user."""


class ForbiddenRejection(CommandRejected):
    """The record is visible, but only others may change it."""


SERVER = Parameter(
    "server",
    gettext_lazy("the server's name, id or title"),
    required=True,
    completes=CompletionSource.SERVERS,
    metavar="NAME",
)
A_SERVER = Parameter("server", gettext_lazy("one server alone"), completes=CompletionSource.SERVERS, metavar="NAME")
TOOL = Parameter(
    "tool", gettext_lazy("the server's own name for the tool"), required=True, completes=CompletionSource.TOOLS
)
A_TOOL = Parameter(
    "tool",
    gettext_lazy("one tool alone; without it, all that have no word of their own"),
    completes=CompletionSource.TOOLS,
)
CONFIRM = Parameter(
    "confirm",
    gettext_lazy("the name once more, so that nothing goes by accident"),
    ParameterKind.OPTION,
    metavar="NAME",
)
VERSION = Parameter(
    "version", gettext_lazy("only if it is unchanged since this version"), ParameterKind.OPTION, metavar="N"
)
PROFILE = Parameter(
    "profile", gettext_lazy("the profile's name"), required=True, completes=CompletionSource.PROFILES, metavar="NAME"
)
POLICY = Parameter(
    "policy",
    gettext_lazy("policy when the model requests it"),
    required=True,
    choices=(*POLICY_CHOICES, *(policy.value for policy in ApprovalPolicy)),
    metavar="|".join(POLICY_CHOICES),
)
PAGE = Parameter("page", gettext_lazy("which page"), ParameterKind.OPTION, metavar="N")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Parsed arguments by parameter."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def has(self, name: str) -> bool:
        """Return True if the argument was given, even if it is empty."""
        return name in self.values

    def get(self, name: str, default: str = "") -> str:
        """Return the last given value."""
        return self.values[name][-1] if self.values.get(name) else default

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return all values, in order."""
        return self.values.get(name, ())

    @property
    def page(self) -> int:
        """Page number, from 1."""
        text = self.get("page", "1")
        return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def parse_arguments(verb: Verb, words: Sequence[str], command: str) -> Arguments:
    """Parse the arguments of a verb. Raises CommandRejected."""
    reader = _Parser(verb, command)
    return reader.parse(words)


class _Parser:
    def __init__(self, verb: Verb, command: str) -> None:
        self._verb = verb
        self._command = command
        self._options = {
            parameter.name: parameter for parameter in verb.parameters if parameter.shape is not ParameterKind.PLACE
        }
        self._options.setdefault(PAGE.name, PAGE)
        self._values: dict[str, list[str]] = {}
        self._positional: list[str] = []

    def parse(self, words: Sequence[str]) -> Arguments:
        remaining = list(words)
        while remaining:
            word = remaining.pop(0)
            if word == "--" and self._verb.command_line is not None:
                self._command_line(*self._verb.command_line, remaining)
                break
            if word.startswith("--") and len(word) > 2 and not (self._takes_rest() and not self._is_own(word)):
                self._option(word[2:], remaining)
            else:
                self._positional.append(word)
        self._assign_positional()
        self._check_required()
        return Arguments({name: tuple(values) for name, values in self._values.items()})

    def _takes_rest(self) -> bool:
        """Return True if a trailing `KEY=VALUE…` has begun: it also takes options that are not the verb's."""
        places = self._verb.places
        return bool(places) and places[-1].repeated and len(self._positional) >= len(places)

    def _is_own(self, word: str) -> bool:
        """Return True for an option of the verb."""
        name = word[2:].partition("=")[0].lower().replace("_", "-")
        return any(parameter.name == name for parameter in self._verb.parameters)

    def _command_line(self, program: str, argument: str, words: Sequence[str]) -> None:
        if program in self._values or argument in self._values:
            raise self._misuse(_("`--` and `--{option}` are the same: give one of them.", option=program))
        if not words:
            raise self._misuse(_("After `--` follow a program and its arguments."))
        self._values[program], self._values[argument] = [words[0]], [*words[1:]]

    def _assign_positional(self) -> None:
        """Assign positional arguments: first to required parameters, then to optional ones in order."""
        spare = len(self._positional) - sum(place.required for place in self._verb.places)
        for place in self._verb.places:
            if place.repeated:
                for word in self._positional:
                    self._add_value(place, word)
                self._positional.clear()
            elif self._positional and (place.required or spare > 0):
                spare -= not place.required
                self._add_value(place, self._positional.pop(0))
        if self._positional:
            raise self._misuse(_("That is more than this takes."))

    def _option(self, text: str, remaining: list[str]) -> None:
        name, assigned, value = text.partition("=")
        parameter = self._options.get(name.lower().replace("_", "-"))
        if parameter is None:
            raise self._misuse(_("There is no such option."), did_you_mean(name, self._options, "--"))
        if parameter.shape is ParameterKind.FLAG:
            if assigned:
                raise self._misuse(_("`--{option}` takes no value.", option=parameter.name))
            self._values[parameter.name] = ["yes"]
            return
        if not assigned:
            if not remaining:
                raise self._misuse(_("`--{option}` needs a value: {hint}.", option=parameter.name, hint=parameter.hint))
            value = remaining.pop(0)
        if parameter.name in self._values and not parameter.repeated:
            raise self._misuse(_("`--{option}` is given twice.", option=parameter.name))
        self._add_value(parameter, value)

    def _add_value(self, parameter: Parameter, value: str) -> None:
        if parameter.choices and value:
            matches = [choice for choice in parameter.choices if choice.lower() == value.lower().replace("-", "_")]
            matches += [choice for choice in parameter.choices if choice.lower() == value.lower()]
            if not matches:
                choices = ", ".join(f"`{choice}`" for choice in parameter.choices)
                raise self._misuse(
                    _("{parameter} is one of {choices}.", parameter=_display_name(parameter), choices=choices),
                    did_you_mean(value, parameter.choices),
                )
            value = matches[0]
        self._values.setdefault(parameter.name, []).append(value)

    def _check_required(self) -> None:
        for parameter in self._verb.parameters:
            if parameter.required and not any(self._values.get(parameter.name, ())):
                raise self._misuse(
                    _("{parameter} is missing: {hint}.", parameter=_display_name(parameter), hint=parameter.hint)
                )

    def _misuse(self, *parts: str) -> CommandRejected:
        usage = _("Usage: `{line}`", line=f"/{self._command} {self._verb.usage}")
        return CommandRejected(sentences(*parts, usage))


def _display_name(parameter: Parameter) -> str:
    if parameter.shape is ParameterKind.PLACE:
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return f"`--{parameter.name}`"

"""Verbs of commands as Discord's subcommands, their options, and the completion of options.

Verbs are Discord's subcommands and subcommand groups. If a level exceeds Discord's limit, the last verbs of the help
move into an extra group (`/mcp more audit`), so that every verb stays available under a stable name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.chat.message_handler import split_args
from bot.domain.commands import Parameter, ParameterKind, RequiredRole, Verb
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.markup import utf16_length
from bot.ports import Commands
from bot.rendering.text_safety import single_line

ENTRIES = 25
"""Of a level, options of a subcommand, choices of an option (Discord, "Application Commands")."""
LONGEST = 100
"""Characters of a description, and of a choice."""
MORE = "more"
HELP = "help"
SEVERAL = "several with blanks between"


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command or a group: its own verbs by the word they are picked by, and the groups below it."""

    name: str
    verbs: dict[str, Verb]
    groups: tuple[CommandGroup, ...] = ()

    @property
    def description(self) -> str:
        """Names of the verbs, at most 100 characters."""
        return single_line(", ".join([*self.verbs, *(group.name for group in self.groups)]), LONGEST)

    @property
    def for_admins(self) -> bool:
        """True if only admins can use a verb other than `help`."""
        verbs = [verb for level in (self, *self.groups) for verb in level.verbs.values()]
        return all(verb.who is not RequiredRole.EVERYONE or verb.path == HELP for verb in verbs)


def levels(name: str, verbs: Sequence[Verb]) -> CommandGroup:
    """Return a command's verbs by group. Raises ValueError if they exceed Discord's limits."""
    alone = {verb.path: verb for verb in verbs if " " not in verb.path}
    groups: dict[str, dict[str, Verb]] = {}
    for verb in verbs:
        group, _, word = verb.path.partition(" ")
        if word:
            _group_with_room(groups, group)[word] = verb
    if len(alone) + len(groups) > ENTRIES and MORE not in {*alone, *groups}:
        _move_the_last(alone, groups)
    if len(alone) + len(groups) > ENTRIES or any(len(each) > ENTRIES for each in groups.values()):
        raise ValueError(f"/{name} has more verbs than Discord takes")
    return CommandGroup(name, alone, tuple(CommandGroup(group, each) for group, each in groups.items()))


def options(verb: Verb) -> tuple[Parameter, ...]:
    """Return the options of a verb, required ones first, within Discord's limit. Omitted ones can be used in a text
    command.
    """
    return tuple(sorted(verb.parameters, key=lambda each: not each.required)[:ENTRIES])


def hint(parameter: Parameter) -> str:
    """Return the description of an option."""
    several = parameter.repeated and parameter.shape is ParameterKind.OPTION
    return single_line(f"{parameter.hint}; {SEVERAL}" if several else parameter.hint, LONGEST)


def choices(parameter: Parameter) -> tuple[str, ...]:
    """Return the choices of an option, from its usage line; empty if there are none or too many."""
    shown = tuple(each for each in parameter.metavar.split("|") if each in parameter.choices)
    found = shown or parameter.choices
    return found if len(found) <= ENTRIES and all(0 < len(each) <= LONGEST for each in found) else ()


def words(command: str, verb: Verb, given: Mapping[str, str | bool]) -> tuple[str, ...]:
    """Return the words of a command with these options, its name first; missing options are empty or False.

    Options precede positional arguments, because the parser reads no option after the first `KEY=VALUE`.
    """
    said = [command, *verb.path.split()]
    for parameter in verb.parameters:
        value = given.get(parameter.name)
        if not value or parameter.shape is ParameterKind.PLACE:
            continue
        if parameter.shape is ParameterKind.FLAG:
            said.append(f"--{parameter.name}")
        else:
            said += [f"--{parameter.name}={one}" for one in _ones(parameter, str(value))]
    for place in verb.places:
        if value := given.get(place.name):
            said += _ones(place, str(value))
    return tuple(said)


def _ones(parameter: Parameter, value: str) -> tuple[str, ...]:
    """Return one value, or several that are separated by spaces. A JSON object is one value and keeps its quotes."""
    return split_args(value) if parameter.repeated and not value.lstrip().startswith("{") else (value,)


def _group_with_room(groups: dict[str, dict[str, Verb]], name: str) -> dict[str, Verb]:
    """Return the group of that name, or the first numbered one with room."""
    number = 1
    while len(group := groups.setdefault(name if number == 1 else f"{name}-{number}", {})) >= ENTRIES:
        number += 1
    return group


def _move_the_last(alone: dict[str, Verb], groups: dict[str, dict[str, Verb]]) -> None:
    """Move verbs from the end of the help into an extra group until the level fits; `help` stays."""
    moving = [path for path in alone if path != HELP][ENTRIES - len(groups) - 1 - (HELP in alone) :]
    groups[MORE] = {path: alone.pop(path) for path in moving}


# -------------------- autocomplete


def suggestions(
    commands: Commands,
    where: ConversationKey,
    words: tuple[str, Verb],
    parameter: Parameter,
    given: Mapping[str, str],
) -> list[str]:
    """Return up to 25 completions of a parameter, prefix matches first. `words` are the command and the verb; `given`
    are the options so far, with the typed text of this one.
    """
    command, verb = words
    typed = given.get(parameter.name, "")
    before, _, last = typed.rpartition(" ") if parameter.repeated else ("", "", typed)
    line = _line(command, verb, parameter, given)
    if line is None:
        return []
    elsewhere = {choice for each in verb.parameters for choice in each.choices} - set(parameter.choices)
    found = (_value(each.removeprefix(line)) for each in commands.complete(line, where))
    return _fitting((each for each in found if each not in elsewhere), before, last)


def _line(command: str, verb: Verb, parameter: Parameter, given: Mapping[str, str]) -> str | None:
    """Return the command line before the value, or None if a required option is missing."""
    line = [command, verb.path]
    for place in verb.places:
        if place is parameter:
            break
        if value := given.get(place.name):
            line.append(value)
        elif place.required and parameter.shape is ParameterKind.PLACE:
            return None
    if parameter.shape is ParameterKind.OPTION:
        line.append(f"--{parameter.name}")
    return " ".join(line) + " "


def _value(offer: str) -> str:
    """Return a completion without quotes; empty for the name of an option."""
    try:
        return "" if offer.startswith("--") else " ".join(shlex.split(offer))
    except ValueError:
        return ""


def _fitting(values: Iterable[str], before: str, typed: str) -> list[str]:
    wanted = typed.casefold()
    fitting = [each for each in dict.fromkeys(values) if each and wanted in each.casefold()]
    fitting.sort(key=lambda each: not each.casefold().startswith(wanted))
    whole = (f"{before} {each}" if before else each for each in fitting)
    return [each for each in whole if utf16_length(each) <= LONGEST][:ENTRIES]

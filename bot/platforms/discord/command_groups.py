"""Verbs as Discord takes them: a command with subcommands and, one level below, groups of subcommands.

Called by `app_commands`, which registers them. Where a level has more than Discord takes, what stands last in the help
moves into a group of its own (`/mcp more audit`); nothing becomes unreachable, and the same verbs always lie in the
same places. Knows nothing of discord.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.chat.text_commands import split_args
from bot.domain.commands import Parameter, ParameterKind, RequiredRole, Verb
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
        """What it has, in a hundred characters."""
        return single_line(", ".join([*self.verbs, *(group.name for group in self.groups)]), LONGEST)

    @property
    def for_admins(self) -> bool:
        """Nobody but admins has any use of it: the help alone is no use."""
        verbs = [verb for level in (self, *self.groups) for verb in level.verbs.values()]
        return all(verb.who is not RequiredRole.EVERYONE or verb.path == HELP for verb in verbs)


def levels(name: str, verbs: Sequence[Verb]) -> CommandGroup:
    """A command's verbs in their places. Raises ValueError if there are more than Discord takes."""
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
    """What Discord asks for: those a verb needs first, and no more than it takes. What is left out can still be said
    to the bot in a message.
    """
    return tuple(sorted(verb.parameters, key=lambda each: not each.required)[:ENTRIES])


def hint(parameter: Parameter) -> str:
    """What stands below an option while it is filled in."""
    several = parameter.repeated and parameter.shape is ParameterKind.OPTION
    return single_line(f"{parameter.hint}; {SEVERAL}" if several else parameter.hint, LONGEST)


def choices(parameter: Parameter) -> tuple[str, ...]:
    """What can be picked: the spellings that a usage line shows, if it shows some; nothing if there are too many."""
    shown = tuple(each for each in parameter.metavar.split("|") if each in parameter.choices)
    found = shown or parameter.choices
    return found if len(found) <= ENTRIES and all(0 < len(each) <= LONGEST for each in found) else ()


def words(command: str, verb: Verb, given: Mapping[str, str | bool]) -> tuple[str, ...]:
    """The words of a command whose options were filled in, its name first; what was left out is empty or False.

    Options come before what has a place: behind the first `KEY=VALUE` nothing is an option any more.
    """
    said = [command, *verb.path.split()]
    for each in verb.parameters:
        value = given.get(each.name)
        if not value or each.shape is ParameterKind.PLACE:
            continue
        if each.shape is ParameterKind.FLAG:
            said.append(f"--{each.name}")
        else:
            said += [f"--{each.name}={one}" for one in _ones(each, str(value))]
    for each in verb.places:
        if value := given.get(each.name):
            said += _ones(each, str(value))
    return tuple(said)


def _ones(parameter: Parameter, value: str) -> tuple[str, ...]:
    """One value, or several with blanks between; a JSON object is one, and its quotes are its own."""
    return split_args(value) if parameter.repeated and not value.lstrip().startswith("{") else (value,)


def _group_with_room(groups: dict[str, dict[str, Verb]], name: str) -> dict[str, Verb]:
    """The group of that name, or the first with a number behind it that is not full."""
    number = 1
    while len(group := groups.setdefault(name if number == 1 else f"{name}-{number}", {})) >= ENTRIES:
        number += 1
    return group


def _move_the_last(alone: dict[str, Verb], groups: dict[str, dict[str, Verb]]) -> None:
    """Move verbs from the end of the help into a group of their own until the level fits; the help itself stays."""
    moving = [path for path in alone if path != HELP][ENTRIES - len(groups) - 1 - (HELP in alone) :]
    groups[MORE] = {path: alone.pop(path) for path in moving}

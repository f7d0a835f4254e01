"""What Discord offers while an option is filled in: from memory, at once.

Called by the tree's autocompletion. Asks what the command line would be completed with that stands for the options so
far; there is no second place that knows values.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from bot.domain.commands import Parameter, ParameterKind, Verb
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.command_groups import ENTRIES, LONGEST
from bot.platforms.discord.limits import utf16_length
from bot.ports import Commands


def suggestions(
    commands: Commands,
    where: ConversationKey,
    words: tuple[str, Verb],
    parameter: Parameter,
    given: Mapping[str, str],
) -> list[str]:
    """Up to 25 values for a parameter. `words` are the command and the verb; `given` are the options so far, with what
    has been typed of this one. What begins with that comes first.
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
    """The line behind which the value would stand; None if something must come first that is not there yet."""
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
    """A value as it is, where a line has it in quotes; nothing for an option's name."""
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

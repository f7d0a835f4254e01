"""What may come next on a command line, from memory and at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bot.commands.command import Command
from bot.commands.server_directory import ServerDirectory
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Verb
from bot.domain.conversations import ConversationKey


class Completion:
    """Completes the last word of a line by the description of the verb it belongs to."""

    def __init__(
        self,
        commands: Mapping[str, Command],
        directory: ServerDirectory,
        profiles: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._profiles = {} if profiles is None else profiles

    def complete(self, text: str, conversation: ConversationKey) -> list[str]:
        """Whole lines that begin with `text`."""
        head, _, word = text.rpartition(" ")
        if not head:
            return [name for name in self._commands if name.startswith(word)]
        name, *words = head.split()
        command = self._commands.get(name)
        if command is None:
            return []
        offers = dict.fromkeys(self._offers(command, words, word, conversation))
        return [f"{head} {offer}" for offer in offers if offer.startswith(word)]

    def _offers(self, command: Command, words: list[str], word: str, conversation: ConversationKey) -> Iterator[str]:
        """What may stand where the last word stands."""
        if not words:
            yield from dict.fromkeys(verb.path.split()[0] for verb in command.verbs)
            return
        meant = command.resolve_verb(words)
        yield from self._second_words(command, words)
        if meant is None:
            return
        verb, rest = meant
        places, option, given = _where(verb, rest)
        if option is not None:
            yield from self._values(option, given, conversation)
            return
        if word.startswith("-") or not places:
            yield from (f"--{each.name}" for each in verb.parameters if each.shape is not ParameterKind.PLACE)
        for place in places:
            yield from self._values(place, given, conversation)

    def _second_words(self, command: Command, words: list[str]) -> Iterator[str]:
        """`set` behind `policy`."""
        if len(words) == 1:
            for verb in command.verbs:
                group, _, name = verb.path.partition(" ")
                if name and group == words[0].lower():
                    yield name

    def _values(self, parameter: Parameter, given: str, conversation: ConversationKey) -> Iterable[str]:
        """A parameter's values; those of a server's tools, resources and prompts by the server given before."""
        match parameter.completes:
            case CompletionSource.SERVERS:
                names: Iterable[str] = self._directory.names(conversation)
            case CompletionSource.TOOLS:
                names = (tool.original_name for tool in self._directory.known(given, conversation).tools)
            case CompletionSource.RESOURCES:
                names = (each.uri for each in self._directory.known(given, conversation).resources)
            case CompletionSource.PROMPTS:
                names = (each.name for each in self._directory.known(given, conversation).prompts)
            case CompletionSource.PROFILES:
                names = self._profiles.get(conversation.workspace_key, ())
            case CompletionSource.NOTHING:
                names = ()
        return (*parameter.choices, *(shlex.quote(name) for name in names))


def _where(verb: Verb, words: Sequence[str]) -> tuple[list[Parameter], Parameter | None, str]:
    """The parameters that may come next in their places, the option that waits for its value, and the server named so
    far.
    """
    options = {f"--{each.name}": each for each in verb.parameters if each.shape is ParameterKind.OPTION}
    places, given, waiting = list(verb.places), "", None
    for word in words:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word]
        elif not word.startswith("--") and places:
            given = word if places[0].completes is CompletionSource.SERVERS else given
            if not places[0].repeated:
                places.pop(0)
    needed = next((index for index, place in enumerate(places) if place.required), len(places) - 1)
    return places[: needed + 1], waiting, given

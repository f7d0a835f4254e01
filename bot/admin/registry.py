"""All commands by name (`bot.ports.Commands`), with completion."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from bot.admin.browser_sessions import ConsoleVerbs
from bot.admin.command import Command
from bot.admin.conversations import Conversations
from bot.admin.delegations import DelegationVerbs
from bot.admin.dependencies import Administration, CommandDependencies
from bot.admin.installations import InstallationVerbs
from bot.admin.mcp import mcp_command
from bot.admin.preferences import PreferenceVerbs
from bot.admin.profiles.agents import AgentList, AskAgent
from bot.admin.profiles.verbs import Profiles
from bot.admin.servers.directory import ServerDirectory
from bot.admin.text_format import did_you_mean, error_reply, sentences
from bot.admin.tokens import TokenVerbs
from bot.admin.usage import UsageVerbs
from bot.domain.commands import (
    CompletionSource,
    Form,
    FormSubmission,
    Invocation,
    Parameter,
    ParameterKind,
    Reply,
    Verb,
)
from bot.domain.conversations import ConversationKey
from bot.domain.locales import time_zone_names
from bot.domain.tools import ToolKind
from bot.i18n import _


class Completion:
    """Completion of the last word of a line by the description of its verb."""

    def __init__(
        self,
        commands: Mapping[str, Command],
        directory: ServerDirectory,
        administration: Administration,
        profiles: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._commands = commands
        self._administration = administration
        self._directory = directory
        self._profiles = {} if profiles is None else profiles

    def complete(self, text: str, conversation: ConversationKey) -> list[str]:
        """Return whole lines that begin with `text`."""
        head, _, word = text.rpartition(" ")
        if not head:
            return [name for name in self._commands if name.startswith(word)]
        name, *words = head.split()
        command = self._commands.get(name)
        if command is None:
            return []
        candidates = dict.fromkeys(self._candidates(command, words, word, conversation))
        matches = [candidate for candidate in candidates if candidate.startswith(word)]
        typed = word.casefold()
        matches = matches or [candidate for candidate in candidates if candidate.casefold().startswith(typed)]
        return [f"{head} {candidate}" for candidate in matches]

    def _candidates(
        self, command: Command, words: list[str], word: str, conversation: ConversationKey
    ) -> Iterator[str]:
        if not words and all(verb.path for verb in command.verbs):
            yield from dict.fromkeys(verb.path.split()[0] for verb in command.verbs)
            return
        resolved = command.resolve_verb(words)
        yield from self._second_words(command, words)
        if resolved is None:
            return
        verb, remaining = resolved
        places, option, server_name = _completion_state(verb, remaining)
        if option is not None:
            yield from self._values(option, server_name, conversation)
            return
        if word.startswith("-") or not places:
            yield from (
                f"--{parameter.name}" for parameter in verb.parameters if parameter.shape is not ParameterKind.PLACE
            )
        for place in places:
            yield from self._values(place, server_name, conversation)

    def _second_words(self, command: Command, words: list[str]) -> Iterator[str]:
        """Yield second words of two-word verbs, such as `set` after `policy`."""
        if len(words) == 1:
            for verb in command.verbs:
                group, _, name = verb.path.partition(" ")
                if name and group == words[0].lower():
                    yield name

    def _values(self, parameter: Parameter, server_name: str, conversation: ConversationKey) -> Iterable[str]:
        """Return a parameter's values; those of a server's tools, resources and prompts depend on the server given
        before.
        """
        match parameter.completes:
            case CompletionSource.SERVERS:
                names: Iterable[str] = self._directory.names(conversation)
            case CompletionSource.TOOLS:
                names = (
                    tool.original_name for tool in self._directory.known_capabilities(server_name, conversation).tools
                )
            case CompletionSource.RESOURCES:
                capabilities = self._directory.known_capabilities(server_name, conversation, ToolKind.READ_RESOURCE)
                uris = (resource.uri for resource in capabilities.resources)
                names = (*uris, *(template.pattern for template in capabilities.templates))
            case CompletionSource.PROMPTS:
                capabilities = self._directory.known_capabilities(server_name, conversation, ToolKind.GET_PROMPT)
                names = (prompt.name for prompt in capabilities.prompts)
            case CompletionSource.PROFILES:
                names = self._profiles.get(conversation.workspace_key, ())
            case CompletionSource.AGENTS:
                names = self._administration.rule_book.agents(conversation).names
            case CompletionSource.TIME_ZONES:
                names = time_zone_names()
            case CompletionSource.NOTHING:
                names = ()
        return (*parameter.choices, *map(_quoted, names))


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else shlex.quote(name)


def _completion_state(verb: Verb, words: Sequence[str]) -> tuple[list[Parameter], Parameter | None, str]:
    """Return the next positional parameters, the option that expects its value, and the server named before."""
    options = {
        f"--{parameter.name}": parameter for parameter in verb.parameters if parameter.shape is ParameterKind.OPTION
    }
    places, server_name, waiting = list(verb.places), "", None
    for word in words:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word]
        elif not word.startswith("--") and places:
            server_name = word if places[0].completes is CompletionSource.SERVERS else server_name
            if not places[0].repeated:
                places.pop(0)
    needed = next((index for index, place in enumerate(places) if place.required), len(places) - 1)
    return places[: needed + 1], waiting, server_name


class CommandRegistry:
    """Looks up commands and runs them."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        directory = ServerDirectory(dependencies)
        profiles = Profiles(dependencies, directory)
        rights = dependencies.rights
        ask, agents = AskAgent(dependencies).handlers, AgentList(dependencies, directory).handlers
        conversations, preferences = Conversations(dependencies), PreferenceVerbs(dependencies)
        console = (ConsoleVerbs(dependencies), TokenVerbs(dependencies), InstallationVerbs(dependencies))
        commands = (
            mcp_command(dependencies, directory),
            Command("profile", "Profiles", profiles.handlers, rights, default="list"),
            Command("ask", "Ask an agent by name", ask, rights, default=""),
            Command("agents", "Agents that can be asked by name", agents, rights, default=""),
            Command("conversations", "Conversations", conversations.handlers, rights, default="list"),
            Command("approvals", "Approvals", DelegationVerbs(dependencies).handlers, rights, default="delegations"),
            Command("usage", "Tokens and money", UsageVerbs(dependencies).handlers, rights, default="me"),
            Command("preferences", "Your language and time zone", preferences.handlers, rights, default="show"),
            Command(
                "console",
                "The console in a browser",
                [each for verbs in console for each in verbs.handlers],
                rights,
                default="open",
            ),
        )
        self._commands: Mapping[str, Command] = {command.name: command for command in commands}
        self._completion = Completion(self._commands, directory, dependencies.administration, profiles.known_names)

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Verbs by command, for platforms that register them."""
        return {name: command.verbs for name, command in self._commands.items()}

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Run a command. An unknown one is answered with the closest match."""
        match request:
            case Invocation(command=name):
                command = self._commands.get(name.lower())
                answers = command.invoke(request) if command is not None else _unknown_command(name, self._commands)
            case FormSubmission(form=form):
                command = self._commands.get(form.partition(" ")[0])
                answers = command.submit(request) if command is not None else _closed_form()
        async for answer in answers:
            yield answer

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return whole command lines, without the slash, that begin with `text`."""
        return self._completion.complete(text, conversation)


async def _unknown_command(name: str, commands: Mapping[str, Command]) -> AsyncIterator[Reply | Form]:
    known = ", ".join(f"`/{command}`" for command in commands)
    hint = did_you_mean(name, commands, "/")
    yield error_reply(sentences(_("There is no such command."), hint, _("What there is: {commands}.", commands=known)))


async def _closed_form() -> AsyncIterator[Reply | Form]:
    yield error_reply(_("This form is no longer open. Start again with the command."))

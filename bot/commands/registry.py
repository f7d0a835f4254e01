"""All commands under their names: what `bot.ports.Commands` promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from bot.commands.command import Command
from bot.commands.completion import Completion
from bot.commands.conversations import conversations_command
from bot.commands.dependencies import CommandDependencies
from bot.commands.mcp import mcp_command
from bot.commands.profiles import profile_command
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import did_you_mean, error_reply
from bot.commands.usage import usage_command
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey


class CommandRegistry:
    """Finds the command a person means and hands it their words or their form."""

    def __init__(self, parts: CommandDependencies) -> None:
        directory = ServerDirectory(parts)
        profile, names = profile_command(parts, directory)
        commands = (mcp_command(parts, directory), profile, conversations_command(parts), usage_command(parts))
        self._commands: Mapping[str, Command] = {command.name: command for command in commands}
        self._completion = Completion(self._commands, directory, names)

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Every verb by its command, for a platform that registers them."""
        return {name: command.verbs for name, command in self._commands.items()}

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a command; an unknown one is answered with the nearest that exists."""
        match request:
            case Invocation(command=name):
                command = self._commands.get(name.lower())
                answers = command.invoked(request) if command is not None else _unknown(name, self._commands)
            case FormSubmission(form=form):
                command = self._commands.get(form.partition(" ")[0])
                answers = command.submitted(request) if command is not None else _closed()
        async for answer in answers:
            yield answer

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Whole command lines, without the slash, that begin with `text`."""
        return self._completion.complete(text, conversation)


async def _unknown(name: str, commands: Mapping[str, Command]) -> AsyncIterator[Reply | Form]:
    known = ", ".join(f"`/{each}`" for each in commands)
    yield error_reply(f"There is no such command.{did_you_mean(name, commands, '/')} What there is: {known}.")


async def _closed() -> AsyncIterator[Reply | Form]:
    yield error_reply("This form is no longer open. Start again with the command.")

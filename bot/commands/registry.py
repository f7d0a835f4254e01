"""All commands under their names: what `bot.ports.Commands` promises."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Mapping, Sequence

from bot.commands.mcp import McpCommands
from bot.domain.commands import Form, Invocation, Reply, Submission


class CommandRegistry:
    """Finds the command a person means and hands it their words."""

    def __init__(self, mcp: McpCommands) -> None:
        self._commands: Mapping[str, McpCommands] = {"mcp": mcp}

    async def handle(self, request: Invocation | Submission) -> AsyncIterator[Reply | Form]:
        """Answer a command; an unknown one is answered with the nearest that exists."""
        match request:
            case Invocation(command=name) if name in self._commands:
                async for reply in self._commands[name].answers(request):
                    yield reply
            case Invocation(command=name):
                close = difflib.get_close_matches(name, self._commands, n=1)
                hint = f" Did you mean `/{close[0]}`?" if close else ""
                known = ", ".join(f"`/{each}`" for each in self._commands)
                yield Reply(f"There is no such command.{hint} What there is: {known}.", failed=True)
            case Submission():
                yield Reply("This form is no longer open. Start again with the command.", failed=True)

    def complete(self, text: str) -> Sequence[str]:
        """Whole command lines, without the slash, that begin with `text`."""
        lines = [f"{name} {rest}".strip() for name, command in self._commands.items() for rest in command.completions()]
        return [line for line in lines if line.startswith(text)]

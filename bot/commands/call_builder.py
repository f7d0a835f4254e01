"""Manual calls: lookup of servers, tools and prompts, and the message for the engine.

`/mcp run` and the HTTP API share it. A manual call is a turn of its own, under the same policy and approval as the
model's calls.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from bot.commands.argument_parser import CommandRejected, NotFoundRejection
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.text_format import code, did_you_mean, server_label
from bot.domain.capabilities import Piece, Prompt
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.messages import ToolCall
from bot.domain.tools import Tool


class CallBuilder:
    """Builder of manual calls."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._servers = parts.servers
        self._directory = directory

    async def found(self, name: str, conversation: ConversationKey) -> VisibleServer:
        """Return the server, with its capabilities synced if there are none yet. Raises NotFoundRejection."""
        seen = await self._directory.find(name, conversation)
        await self._directory.connect([seen])
        return seen

    def tool(self, server: VisibleServer, name: str) -> Tool:
        """Return a tool by its original or its offered name. Raises NotFoundRejection."""
        tools = self._directory.capabilities(server).tools
        found = next((tool for tool in tools if name in (tool.original_name, tool.name)), None)
        if found is None:
            hint = did_you_mean(name, (tool.original_name for tool in tools))
            raise NotFoundRejection(
                f"{server_label(server.config)} has no tool of that name.{hint} `/mcp tools` lists them."
            )
        return found

    def call(
        self, tool: Tool, arguments: Mapping[str, Any], conversation: ConversationKey, by: Author
    ) -> InboundMessage:
        """Return the call as a message to the engine."""
        mark = secrets.token_hex(16)
        text = f"Run {tool.server}.{tool.original_name}"
        return InboundMessage(
            (f"run:{mark}",), conversation, by, text, call=ToolCall(f"run-{mark}", tool.name, arguments)
        )

    async def written(self, server: VisibleServer, name: str, given: Mapping[str, str]) -> Sequence[Piece]:
        """Render a prompt. Raises CommandRejected, ServerTrouble."""
        prompts = self._directory.capabilities(server).prompts
        prompt = next((each for each in prompts if each.name == name), None)
        if prompt is None:
            hint = did_you_mean(name, (each.name for each in prompts))
            raise NotFoundRejection(
                f"{server_label(server.config)} has no prompt of that name.{hint} `/mcp prompts` lists them."
            )
        _check(prompt, given)
        return await self._servers.get_prompt(server.id, name, given)


def _check(prompt: Prompt, given: Mapping[str, str]) -> None:
    missing = [
        code(argument.name, "one") for argument in prompt.arguments if argument.required and argument.name not in given
    ]
    if missing:
        raise CommandRejected(f"The prompt needs more: {', '.join(missing)}, each as `KEY=VALUE`.")
    known = {each.name for each in prompt.arguments}
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise CommandRejected(f"The prompt takes no such argument.{did_you_mean(unknown, known)}")

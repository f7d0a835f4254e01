"""The bot's own tools: which of them a model request holds, their steps and their calls.

A built-in call needs no approval and no server: it is ready at once and may be repeated. A page of a large result keeps
the source of that result (`policy.taint`). `call_tool`, `list_resources` and `read_resource` are not executed here:
their calls become calls of a server's tool.

To add a tool, write a `BuiltinTool`, name it in `select_builtin_tools` and pass it to the turn's `TurnToolbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from bot.domain.messages import ToolCall, ToolResult
from bot.domain.tools import CallReturned, Tool, ToolOutcome, ToolSet
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.engine.builtin_tools.read_result import TOOL as READ_RESULT_TOOL
from bot.engine.builtin_tools.resources import resolve_resource_call
from bot.engine.builtin_tools.search_tools import TOOL_NAMES_TOKENS, InvalidCall, resolve_call, search_definitions
from bot.ports import CallContext, Toolbox, ToolCaller


def select_builtin_tools(
    server_tools: tuple[Tool, ...],
    *,
    searches: bool = False,
    has_excerpts: bool = False,
    names_tokens: float = TOOL_NAMES_TOKENS,
) -> tuple[Tool, ...]:
    """Return the built-in tools of a model request. `searches` is True if they replace `server_tools`, `has_excerpts`
    if the request holds truncated results, `names_tokens` is the budget for the names of `server_tools`.

    A model that searches has the same tools in each round, because services cache prefixes: so recently used tools are
    not included, and `read_result` is from the first round.
    """
    search = search_definitions(server_tools, names_tokens) if searches else ()
    return (*search, READ_RESULT_TOOL) if searches or has_excerpts else ()


class BuiltinTool(Protocol):
    """A tool of the bot itself. `name` is the one that the model calls."""

    name: str
    reference: ToolRef

    async def call(self, call: ToolCall) -> ToolResult:
        """Run the tool. Invalid arguments are a result with `is_error`."""
        ...


class TurnToolbox(ToolCaller):
    """All tools of one turn: those of `servers` and the built-in ones."""

    def __init__(self, servers: Toolbox, builtin_tools: Iterable[BuiltinTool]) -> None:
        self.servers = servers
        self._builtin_tools = {tool.name: tool for tool in builtin_tools}

    def create_step(
        self, n: int, call: ToolCall, enabled: ToolSet, authorize: Callable[[ToolCall], ToolStep]
    ) -> ToolStep:
        """Return the step of a model's call. `authorize` returns that of a server's tool. `enabled` are the tools of
        the conversation.
        """
        if tool := self._builtin_tools.get(call.name):
            return ToolStep(n, call, tool.reference, StepStatus.READY, repeatable=True)
        match resolve_call(call):
            case ToolCall() as resolved:
                target = resolve_resource_call(resolved, enabled)
                if isinstance(target, ToolCall):
                    return authorize(target)
                return ToolStep(n, call, None, StepStatus.FAILED, result=target)
            case InvalidCall(result):
                return ToolStep(n, call, None, StepStatus.FAILED, result=result)

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool of a server or a built-in one."""
        if tool.is_builtin:
            return CallReturned(await self._builtin_tools[tool.name].call(call))
        return await self.servers.call(tool, call, context)

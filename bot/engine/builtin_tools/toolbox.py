"""Toolbox of the bot's own tools in one turn.

A built-in call needs no approval and no server: it is ready at once and may be repeated. A page of a large result keeps
the source of that result (`policy.taint`). `call_tool` is not executed here: its call becomes one of the named tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from bot.domain.messages import ToolCall, ToolResult
from bot.domain.turns import Claim, StepStatus, ToolRef, ToolStep, TurnRecord
from bot.engine.builtin_tools.search_tools import InvalidCall, resolve_call
from bot.engine.monotonic_clock import monotonic
from bot.ports import TurnExecution


class BuiltinTool(Protocol):
    """A tool of the bot itself. `name` is the one that the model calls."""

    name: str
    reference: ToolRef

    async def call(self, call: ToolCall) -> ToolResult:
        """Run the tool. Invalid arguments are a result with `is_error`."""
        ...


class BuiltinToolbox:
    """Makes the steps of built-in calls, and runs them."""

    def __init__(self, tools: Iterable[BuiltinTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def step_of(self, n: int, call: ToolCall, authorize: Callable[[ToolCall], ToolStep]) -> ToolStep:
        """Return the step of a model's call. `authorize` returns that of a server's tool."""
        if tool := self._tools.get(call.name):
            return ToolStep(n, call, tool.reference, StepStatus.READY, repeatable=True)
        match resolve_call(call):
            case ToolCall() as resolved:
                return authorize(resolved)
            case InvalidCall(result):
                return ToolStep(n, call, None, StepStatus.FAILED, result=result)

    async def execute(self, step: ToolStep, claim: Claim, log: TurnExecution) -> TurnRecord:
        """Run the built-in call of a step and store its result. Raises LostLease and Stopped."""
        started_at = monotonic()
        result = await self._tools[step.call.name].call(step.call)
        status = StepStatus.FAILED if result.is_error else StepStatus.DONE
        return await log.finish_call(claim, step.n, status, result, monotonic() - started_at)

"""Calls that run elsewhere: an agent asks for one, and runs it itself once it is approved.

The turn of such a call offers its tool alone. To run it here has no effect: the approved arguments are the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.gateway import GatewayRequest
from bot.domain.messages import ToolCall, ToolResult
from bot.domain.secrets import SecretSpan
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ArgumentError, CallReturned, Tool, ToolOutcome, ToolSet
from bot.domain.turns import Turn
from bot.ports.toolbox import CallContext, Toolbox


def external_tool(request: GatewayRequest) -> Tool:
    """Return the tool of a call that runs elsewhere. It has no hints, because the agent itself would give them."""
    return Tool(
        f"{request.server}__{request.tool}",
        request.server,
        request.tool,
        input_schema={"type": "object"},
        server_id=f"external:{request.server}",
        runs_elsewhere=True,
    )


def toolbox_of_turn(turn: Turn, toolbox: Toolbox) -> Toolbox:
    """Return the tools of a turn: that of its call if it runs elsewhere, or else those of `toolbox`."""
    request = turn.question.gateway
    return toolbox if request is None or not request.server else _ExternalToolbox(external_tool(request))


class _ExternalToolbox(Toolbox):
    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def offer(self, _workspace: str = EVERYWHERE) -> ToolSet:
        return ToolSet((self._tool,))

    async def call(self, _tool: Tool, call: ToolCall, _context: CallContext) -> ToolOutcome:
        return CallReturned(ToolResult(call.id, (), own=True))

    async def confirm(self, _server_id: str, _context: CallContext) -> str:
        return ""

    def argument_error(self, _tool: Tool, _call: ToolCall) -> str:
        return ""

    def validate(self, _schema: Mapping[str, Any], _values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        return ()

    def secret_spans(self, _server_id: str, _text: str) -> Sequence[SecretSpan]:
        return ()

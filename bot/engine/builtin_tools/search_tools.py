"""The bot's own two tools, which a model is given where there are too many others: one finds tools, the other calls
what was found.

Called by `tool_selection`, which decides when. What becomes of their calls is in `search_steps`.
"""

from __future__ import annotations

from collections.abc import Iterable

from bot.domain.messages import ToolCall
from bot.domain.tools import OWN_SERVER, Annotations, Tool
from bot.engine.builtin_tools.read_result import TOOL as READING
from bot.engine.tool_index import MOST_HITS

SEARCH_TOOLS = "countersign__search_tools"
CALL_TOOL = "countersign__call_tool"
_LONGEST_LIST = 600
"""Characters for the names of servers: services take 1,024 for a whole description."""
_CALLING = Tool(
    name=CALL_TOOL,
    server=OWN_SERVER,
    original_name="call_tool",
    description=(
        f"Call a tool that {SEARCH_TOOLS} has found, by the name and with arguments that fit the schema it has there."
        " It may be that a person has to sign the call before it runs."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name, as it was found."},
            "arguments": {"type": "object", "description": "Its arguments.", "additionalProperties": True},
        },
        "required": ["name", "arguments"],
    },
)


def search_tool_set(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """What a model is given instead of these tools. It is the same from round to round: services keep the beginnings of
    requests. So none of the tools that were used lately is among them, and reading on in results is there from the
    first round.
    """
    return _searching(tools), _CALLING, READING


def resolve_called_tool(call: ToolCall) -> str:
    """The tool that a call as it was written is for, by the name that it says."""
    name = call.arguments.get("name") if call.name == CALL_TOOL else None
    return name if isinstance(name, str) else call.name


def _searching(tools: tuple[Tool, ...]) -> Tool:
    return Tool(
        name=SEARCH_TOOLS,
        server=OWN_SERVER,
        original_name="search_tools",
        description=(
            "Find tools by what they do. There are many more than those you see here, so search before you say that"
            " something cannot be done, and again in other words if nothing fits. Gives the"
            f" {MOST_HITS} that fit best, with their arguments; {CALL_TOOL} calls one."
            f" There are {len(tools)} tools, of these servers: {_servers(tools)}."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool should do, in a few English words, such as: send email attachment.",
                }
            },
            "required": ["query"],
        },
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        trusted=True,
    )


def _servers(tools: Iterable[Tool]) -> str:
    counts: dict[str, int] = {}
    for tool in tools:
        counts[tool.server] = counts.get(tool.server, 0) + 1
    named: list[str] = []
    room = _LONGEST_LIST
    for server in sorted(counts):
        each = f"{server} ({counts[server]})"
        room -= len(each) + 2
        if room < 0:
            return f"{', '.join(named)} and {len(counts) - len(named)} more"
        named.append(each)
    return ", ".join(named)

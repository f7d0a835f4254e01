"""Built-in tools `search_tools` and `call_tool`, for models with too many tools.

`tool_selection` decides when they are used, `search_steps` runs their calls.
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
"""Characters for the names of servers: services accept 1,024 for a whole description."""
_CALL = Tool(
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
    """Return the built-in tools in place of these. They are the same in each round, because services cache prefixes: so
    recently used tools are not included, and `read_result` is from the first round.
    """
    return _search_tool(tools), _CALL, READING


def resolve_called_tool(call: ToolCall) -> str:
    """Return the name of the tool that a call is for, also through `call_tool`."""
    name = call.arguments.get("name") if call.name == CALL_TOOL else None
    return name if isinstance(name, str) else call.name


def _search_tool(tools: tuple[Tool, ...]) -> Tool:
    return Tool(
        name=SEARCH_TOOLS,
        server=OWN_SERVER,
        original_name="search_tools",
        description=(
            "Find tools by what they do. There are many more than those you see here, so search before you say that"
            " something cannot be done, and again in other words if nothing fits. Gives the"
            f" {MOST_HITS} that fit best, with their arguments; {CALL_TOOL} calls one."
            f" There are {len(tools)} tools, of these servers: {_server_list(tools)}."
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


def _server_list(tools: Iterable[Tool]) -> str:
    counts: dict[str, int] = {}
    for tool in tools:
        counts[tool.server] = counts.get(tool.server, 0) + 1
    named: list[str] = []
    remaining = _LONGEST_LIST
    for server in sorted(counts):
        entry = f"{server} ({counts[server]})"
        remaining -= len(entry) + 2
        if remaining < 0:
            return f"{', '.join(named)} and {len(counts) - len(named)} more"
        named.append(entry)
    return ", ".join(named)

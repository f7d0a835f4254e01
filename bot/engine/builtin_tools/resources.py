"""Built-in tools `list_resources` and `read_resource`: resources of all servers through two definitions.

Their calls are stored as calls of a server's tool (`ToolKind`): rules, approval, card, taint, audit and grants see only
that. The model's message keeps the original call, and the result has its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool, ToolKind, ToolSet
from bot.engine.builtin_tools import define_tool
from bot.engine.policy.authorization import away_text
from bot.i18n import english

LIST_RESOURCES = "countersign__list_resources"
READ_RESOURCE = "countersign__read_resource"
_KINDS = {LIST_RESOURCES: ToolKind.LIST_RESOURCES, READ_RESOURCE: ToolKind.READ_RESOURCE}
_LONGEST_LIST = 400
"""Characters for the names of servers: services accept 1,024 for a whole description."""
_MAX_SHOWN = 100


def resource_definitions(enabled: ToolSet) -> tuple[Tool, ...]:
    """Return the definitions of the two tools; empty without a server that has resources."""
    servers = [tool.server for tool in enabled.requests if tool.kind is ToolKind.READ_RESOURCE]
    if not servers:
        return ()
    names = _server_names(servers)
    return (
        define_tool(
            LIST_RESOURCES,
            "List the resources of a server: files, records and pages that it has to read. Give words to find some"
            f" among many. An entry with a uri_template stands for any address that fits it. Servers: {names}.",
            {
                "server": {"type": "string", "description": "The server's name."},
                "query": {"type": "string", "description": "Words in the address, name or description; all without."},
                "offset": {"type": "integer", "minimum": 0, "description": "The entry to begin at."},
            },
            ("server",),
        ),
        define_tool(
            READ_RESOURCE,
            "Read a resource of a server by its address: one from the list, a uri_template from there with its values,"
            f" or one that a tool's result links to. Servers: {names}.",
            {
                "server": {"type": "string", "description": "The server's name."},
                "uri": {"type": "string", "description": "The address, such as file:///notes.md."},
                "values": {
                    "type": "object",
                    "description": "The value of each {name} of a uri_template.",
                    "additionalProperties": {"type": "string"},
                },
            },
            ("server", "uri"),
        ),
    )


def resolve_resource_call(call: ToolCall, enabled: ToolSet) -> ToolCall | ToolResult:
    """Return the call of the server's tool for a call of one of the two tools, and any other call unchanged. A result
    is the error of a call without a usable server.
    """
    kind = _KINDS.get(call.name)
    if kind is None or call.unreadable:
        return call
    tools = {tool.server: tool for tool in enabled.requests if tool.kind is kind}
    value = call.arguments.get("server")
    # The only server need not be named.
    name = value.strip() if isinstance(value, str) else ""
    if not name and len(tools) == 1:
        name = next(iter(tools))
    if name in tools:
        arguments = {key: value for key, value in call.arguments.items() if key != "server" and value is not None}
        return ToolCall(call.id, tools[name].name, arguments)
    return ToolResult(call.id, (TextPart(_problem(name, tools, enabled)),), is_error=True, own=True)


def _problem(name: str, tools: Mapping[str, Tool], enabled: ToolSet) -> str:
    if name in enabled.unavailable:
        return english(away_text(name))
    others = f" Servers with resources: {_server_names(list(tools))}." if tools else ""
    if not name:
        return f'Not run: say in "server" which one.{others}'
    if any(tool.server == name for tool in enabled.tools):
        return f"Not run: server {name} has no resources.{others}"
    return f"Not run: there is no server called {name[:_MAX_SHOWN]!r} here.{others}"


def _server_names(servers: Sequence[str]) -> str:
    named: list[str] = []
    for server in sorted(servers):
        if sum(map(len, named)) + len(server) > _LONGEST_LIST:
            return f"{', '.join(named)} and {len(servers) - len(named)} more"
        named.append(server)
    return ", ".join(named)

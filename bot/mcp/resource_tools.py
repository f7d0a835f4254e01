"""Resources and prompts of a server as tools (`ToolKind`): definitions, requests and results.

Their calls are sent like calls of tools, with the same limits, retries and errors. A list of resources is answered from
the cached capabilities, which change notifications keep current.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.domain.flows import Sends
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.servers import (
    MOST_RESOURCES,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    ServerConfig,
    find_resources,
)
from bot.domain.tools import Annotations, Tool, ToolKind
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.redaction import Redaction
from bot.mcp.results import TEXT_LIMIT, failed_result, limit_files, to_parts, truncate_parts
from bot.mcp.review import offered_name

if TYPE_CHECKING:
    from mcp import types

PAGE = 50
"""Resources of one page of a list."""
_LONGEST_DESCRIPTION = 200
_LONGEST_URI = 2_000
_STRING = {"type": "string"}
_DEFINITIONS: Mapping[ToolKind, tuple[str, str, Mapping[str, Any]]] = {
    ToolKind.LIST_RESOURCES: (
        "List resources",
        "List the resources that the server has to read, and the templates of further ones.",
        {
            "type": "object",
            "properties": {"query": _STRING, "offset": {"type": "integer", "minimum": 0}},
            "additionalProperties": False,
        },
    ),
    ToolKind.READ_RESOURCE: (
        "Read a resource",
        "Read a resource of the server by its URI.",
        {
            "type": "object",
            "properties": {"uri": _STRING, "values": {"type": "object", "additionalProperties": _STRING}},
            "required": ["uri"],
            "additionalProperties": False,
        },
    ),
    ToolKind.GET_PROMPT: (
        "Use a prompt",
        "Have the server write out one of its prompts.",
        {
            "type": "object",
            "properties": {"name": _STRING, "arguments": {"type": "object", "additionalProperties": _STRING}},
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
}


def request_tools(config: ServerConfig, capabilities: ServerCapabilities) -> tuple[Tool, ...]:
    """Return the resources and prompts of a server as tools; nothing for a kind that the server does not have, or that
    has the name of one of its own tools.
    """
    kinds: list[ToolKind] = []
    if capabilities.resources or capabilities.templates:
        kinds += [ToolKind.LIST_RESOURCES, ToolKind.READ_RESOURCE]
    if capabilities.prompts:
        kinds.append(ToolKind.GET_PROMPT)
    if not kinds:
        return ()
    names = {tool.original_name for tool in capabilities.tools}
    return tuple(_request_tool(config, kind) for kind in kinds if kind not in names)


def _request_tool(config: ServerConfig, kind: ToolKind) -> Tool:
    title, description, schema = _DEFINITIONS[kind]
    flow = config.flows.flow_of(kind)
    if flow.sends is None and not config.trusted:
        # An untrusted server learns the URI or the arguments.
        flow = replace(flow, sends=Sends.WORLD)
    return Tool(
        offered_name(config.name, kind),
        config.name,
        kind.value,
        title,
        description,
        schema,
        annotations=Annotations(read_only=True, destructive=False, idempotent=True),
        trusted=True,
        server_id=config.id,
        place=endpoint_fingerprint(config),
        flow=flow,
        kind=kind,
    )


def request_of(tool: Tool, call: ToolCall) -> types.ReadResourceRequest | types.GetPromptRequest:
    """Return the request of a call of `READ_RESOURCE` or `GET_PROMPT`."""
    from mcp import types  # noqa: PLC0415 - loaded with the first connection

    if tool.kind is ToolKind.GET_PROMPT:
        arguments = {name: str(value) for name, value in call.arguments.get("arguments", {}).items()}
        params = types.GetPromptRequestParams(name=call.arguments["name"], arguments=arguments)
        return types.GetPromptRequest(params=params)
    return types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri_of(call)))


def template_error(tool: Tool, call: ToolCall) -> str:
    """Return the error of an address with values that do not fit it, as text for the model; empty if there is none."""
    if tool.kind is not ToolKind.READ_RESOURCE:
        return ""
    try:
        uri_of(call)
    except ValueError as error:
        return f"The address cannot be filled in: {error}"
    return ""


def fill_address(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments with the values of an address filled in, as rules have to see it; unchanged if they do not
    fit, because such a call is not sent.
    """
    if tool.kind is not ToolKind.READ_RESOURCE or not arguments.get("values"):
        return arguments
    try:
        return {**arguments, "uri": uri_of(ToolCall("", tool.name, arguments))}
    except (ValueError, TypeError, KeyError, AttributeError):
        return arguments


def uri_of(call: ToolCall) -> str:
    """Return the address, with the values filled in if it is a template. Raises ValueError."""
    uri, values = call.arguments["uri"], call.arguments.get("values") or {}
    if not values:
        return str(uri)
    from mcp.shared.uri_template import UriTemplate  # noqa: PLC0415 - only templates need the library

    template = UriTemplate.parse(uri)
    if unknown := sorted(values.keys() - set(template.variable_names)):
        raise ValueError(f"it has no {', '.join(unknown)[:_LONGEST_DESCRIPTION]}.")
    return template.expand({name: str(value) for name, value in values.items()})


def result_of(
    call: ToolCall,
    tool: Tool,
    answer: types.ReadResourceResult | types.GetPromptResult,
    redact: Redaction,
    limit: int = TEXT_LIMIT,
) -> ToolResult:
    """Return the contents of a resource, or the messages of a prompt, bounded like the result of a tool to `limit`
    characters. That of a prompt has the role of each part as structured content.
    """
    from mcp import types  # noqa: PLC0415 - loaded with the first connection

    if isinstance(answer, types.GetPromptResult):
        return _prompt_result(call, tool, answer, redact, limit)
    if not answer.contents:
        return failed_result(call.id, f"Server {tool.server} has nothing at that address.")
    blocks = (types.EmbeddedResource(type="resource", resource=contents) for contents in answer.contents)
    parts = limit_files(part for block in blocks for part in to_parts(block, redact))
    return ToolResult(call.id, tuple(truncate_parts(tuple(parts), limit)))


def _prompt_result(
    call: ToolCall, tool: Tool, answer: types.GetPromptResult, redact: Redaction, limit: int
) -> ToolResult:
    pairs = [(str(message.role), part) for message in answer.messages for part in to_parts(message.content, redact)]
    if not pairs:
        return failed_result(call.id, f"Server {tool.server} wrote nothing for this prompt.")
    parts = tuple(truncate_parts(tuple(limit_files(part for _, part in pairs)), limit))
    is_whole = len(parts) == len(pairs)
    return ToolResult(call.id, parts, structured={"roles": [role for role, _ in pairs]} if is_whole else None)


def list_resources(call: ToolCall, tool: Tool, capabilities: ServerCapabilities, redact: Redaction) -> ToolResult:
    """Return a page of the resources, or of those that fit the words of a query, best first."""
    query, offset = str(call.arguments.get("query") or ""), int(call.arguments.get("offset") or 0)
    entries: list[Resource | ResourceTemplate] = [*capabilities.templates, *capabilities.resources]
    matches = find_resources(entries, query)
    if not matches:
        many = f"{len(entries)} resources" if len(entries) != 1 else "one resource"
        return ToolResult(call.id, (TextPart(f"None of the {many} of {tool.server} fits. Use other words, or none."),))
    page = matches[offset : offset + PAGE]
    if not page:
        return failed_result(call.id, f"The list ends before that: it has {len(matches)} entries.")
    lines = [f"{len(matches)} of {tool.server}, from {offset + 1}:", *(_line(entry) for entry in page)]
    if (rest := len(matches) - offset - len(page)) > 0:
        lines.append(f"[{rest} more: offset {offset + len(page)} lists on; words in query find one.]")
    if len(capabilities.resources) >= MOST_RESOURCES:
        lines.append(f"[The server may have more than these {MOST_RESOURCES}, which can be read, too.]")
    return ToolResult(call.id, (TextPart(redact("\n".join(lines))),))


def _line(entry: Resource | ResourceTemplate) -> str:
    """Return an entry in one line of JSON, so that no description imitates another entry."""
    key = "uri" if isinstance(entry, Resource) else "uri_template"
    size = entry.size if isinstance(entry, Resource) else None
    facts = {
        key: entry.uri[:_LONGEST_URI],
        "name": entry.title or entry.name,
        "description": entry.description[:_LONGEST_DESCRIPTION],
        "type": entry.mime_type,
        "bytes": size,
    }
    return json.dumps({name: value for name, value in facts.items() if value}, ensure_ascii=False)

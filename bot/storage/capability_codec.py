"""JSON codec of a server's capabilities, with MCP's field names where they exist.

An unreadable body counts as missing; the next sync replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bot.domain.capabilities import Handshake, Prompt, PromptArgument, Resource, ResourceTemplate, ServerCapabilities
from bot.domain.tools import Annotations, Tool, canonical_json
from bot.storage.codec import VERSION, Body
from bot.storage.database import json_text

OFFERED = ("tools", "resources", "templates", "prompts")


def encode_capabilities(capabilities: ServerCapabilities) -> str:
    """Encode capabilities as JSON text."""
    return json_text(
        {
            "v": VERSION,
            "protocol": capabilities.protocol,
            "serverVersion": capabilities.server_version,
            **_handshake_body(capabilities.handshake),
            "tools": [tool_body(tool) for tool in capabilities.tools],
            "resources": [
                {
                    "uri": resource.uri,
                    "name": resource.name,
                    "title": resource.title,
                    "description": resource.description,
                    "mimeType": resource.mime_type,
                    "size": resource.size,
                }
                for resource in capabilities.resources
            ],
            "templates": [
                {
                    "uriTemplate": template.pattern,
                    "name": template.name,
                    "title": template.title,
                    "description": template.description,
                    "mimeType": template.mime_type,
                }
                for template in capabilities.templates
            ],
            "prompts": [
                {
                    "name": prompt.name,
                    "title": prompt.title,
                    "description": prompt.description,
                    "arguments": [
                        {"name": argument.name, "description": argument.description, "required": argument.required}
                        for argument in prompt.arguments
                    ],
                }
                for prompt in capabilities.prompts
            ],
        }
    )


def decode_capabilities(text: str | None) -> ServerCapabilities:
    """Decode capabilities. Raises `turn_reader.UNREADABLE`."""
    if text is None:
        return ServerCapabilities()
    body = json.loads(text)
    return ServerCapabilities(
        tools=tuple(read_tool(tool) for tool in body["tools"]),
        resources=tuple(
            Resource(
                resource["uri"],
                resource["name"],
                resource["title"],
                resource["description"],
                resource["mimeType"],
                resource["size"],
            )
            for resource in body["resources"]
        ),
        templates=tuple(
            ResourceTemplate(
                template["uriTemplate"],
                template["name"],
                template["title"],
                template["description"],
                template["mimeType"],
            )
            for template in body["templates"]
        ),
        prompts=tuple(
            Prompt(
                prompt["name"],
                prompt["title"],
                prompt["description"],
                tuple(
                    PromptArgument(argument["name"], argument["description"], argument["required"])
                    for argument in prompt["arguments"]
                ),
            )
            for prompt in body["prompts"]
        ),
        server_version=body["serverVersion"],
        protocol=body["protocol"],
        handshake=_read_handshake(body.get("handshake")),
    )


def _handshake_body(handshake: Handshake | None) -> Body:
    if handshake is None:
        return {}
    fields = {"transport": handshake.transport, "place": handshake.place, "foundAt": handshake.found_at}
    return {"handshake": fields}


def _read_handshake(body: Body | None) -> Handshake | None:
    return None if body is None else Handshake(body["transport"], body["place"], body["foundAt"])


def definitions_text(capabilities: ServerCapabilities) -> str:
    """Return the fingerprints of all tool definitions as JSON text, by original name."""
    return json_text({tool.original_name: tool.definition for tool in capabilities.tools})


def same_offer(one: str | None, other: str) -> bool:
    """Return True if two texts hold the same tools, resources and prompts in any order."""
    try:
        return _offer(one) == _offer(other)
    except (ValueError, TypeError, LookupError, AttributeError):
        return False


def _offer(text: str | None) -> Mapping[str, list[str]]:
    body = {} if text is None else json.loads(text)
    return {kind: sorted(canonical_json(item) for item in body.get(kind, ())) for kind in OFFERED}


def tool_body(tool: Tool) -> Body:
    """Encode a tool."""
    hints = tool.annotations
    return {
        "name": tool.original_name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": _plain(tool.input_schema),
        "outputSchema": _plain(tool.output_schema),
        "annotations": {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
        "offeredAs": tool.name,
        "server": tool.server,
        "serverId": tool.server_id,
        "trusted": tool.trusted,
        "flags": list(tool.flags),
    }


def read_tool(body: Body) -> Tool:
    """Decode a tool. Raises `turn_reader.UNREADABLE`."""
    hints = body["annotations"]
    return Tool(
        name=body["offeredAs"],
        server=body["server"],
        original_name=body["name"],
        title=body["title"],
        description=body["description"],
        input_schema=body["inputSchema"],
        output_schema=body["outputSchema"],
        annotations=Annotations(
            read_only=hints["readOnlyHint"],
            destructive=hints["destructiveHint"],
            idempotent=hints["idempotentHint"],
            open_world=hints["openWorldHint"],
        ),
        trusted=body["trusted"],
        server_id=body["serverId"],
        flags=tuple(body["flags"]),
    )


def _plain(value: Any) -> Any:
    """Return the value with every mapping as a dict, because `json` encodes no other mappings."""
    match value:
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value

"""What a server offers as JSON, in MCP's own words and a few of ours, and back.

A body that cannot be read is not there, and the next sync writes it again.
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
    """What a server offers, as it is kept."""
    return json_text(
        {
            "v": VERSION,
            "protocol": capabilities.protocol,
            "serverVersion": capabilities.server_version,
            **_handshake_body(capabilities.handshake),
            "tools": [tool_body(each) for each in capabilities.tools],
            "resources": [
                {
                    "uri": each.uri,
                    "name": each.name,
                    "title": each.title,
                    "description": each.description,
                    "mimeType": each.mime_type,
                    "size": each.size,
                }
                for each in capabilities.resources
            ],
            "templates": [
                {
                    "uriTemplate": each.pattern,
                    "name": each.name,
                    "title": each.title,
                    "description": each.description,
                    "mimeType": each.mime_type,
                }
                for each in capabilities.templates
            ],
            "prompts": [
                {
                    "name": each.name,
                    "title": each.title,
                    "description": each.description,
                    "arguments": [
                        {"name": one.name, "description": one.description, "required": one.required}
                        for one in each.arguments
                    ],
                }
                for each in capabilities.prompts
            ],
        }
    )


def decode_capabilities(text: str | None) -> ServerCapabilities:
    """What a server offered. Raises what reading an unreadable body raises (`records.UNREADABLE`)."""
    if text is None:
        return ServerCapabilities()
    body = json.loads(text)
    return ServerCapabilities(
        tools=tuple(read_tool(each) for each in body["tools"]),
        resources=tuple(
            Resource(each["uri"], each["name"], each["title"], each["description"], each["mimeType"], each["size"])
            for each in body["resources"]
        ),
        templates=tuple(
            ResourceTemplate(each["uriTemplate"], each["name"], each["title"], each["description"], each["mimeType"])
            for each in body["templates"]
        ),
        prompts=tuple(
            Prompt(
                each["name"],
                each["title"],
                each["description"],
                tuple(PromptArgument(one["name"], one["description"], one["required"]) for one in each["arguments"]),
            )
            for each in body["prompts"]
        ),
        server_version=body["serverVersion"],
        protocol=body["protocol"],
        handshake=_read_handshake(body.get("handshake")),
    )


def _handshake_body(handshake: Handshake | None) -> Body:
    if handshake is None:
        return {}
    known = {"transport": handshake.transport, "place": handshake.place, "foundAt": handshake.found_at}
    return {"handshake": known}


def _read_handshake(body: Body | None) -> Handshake | None:
    return None if body is None else Handshake(body["transport"], body["place"], body["foundAt"])


def definitions_text(capabilities: ServerCapabilities) -> str:
    """The fingerprint of every tool's definition, by the server's own name for it."""
    return json_text({each.original_name: each.definition for each in capabilities.tools})


def same_offer(one: str | None, other: str) -> bool:
    """Whether two texts offer the same tools, resources and prompts, in whatever order."""
    try:
        return _offer(one) == _offer(other)
    except (ValueError, TypeError, LookupError, AttributeError):
        return False


def _offer(text: str | None) -> Mapping[str, list[str]]:
    body = {} if text is None else json.loads(text)
    return {kind: sorted(canonical_json(each) for each in body.get(kind, ())) for kind in OFFERED}


def tool_body(tool: Tool) -> Body:
    """A tool as it is kept."""
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
    """A tool as it was. Raises what reading an unreadable body raises."""
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
    """Any mapping as the one kind that JSON knows."""
    match value:
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value

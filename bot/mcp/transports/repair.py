"""Repair of results that the MCP library would reject as a whole because of one wrong item."""

from __future__ import annotations

import logging
from itertools import chain
from typing import Any

from mcp import types
from pydantic import TypeAdapter, ValidationError

from bot.mcp.errors import TOO_DEEP_SCHEMA

log = logging.getLogger(__name__)

_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_UNUSED = frozenset({"_meta", "icons"})
_ROLES = ("user", "assistant")
LEFT_OUT = "countersign/leftOut"
"""Key in a repaired listing: the removed tools, with the reason."""
_DEEPEST_SCHEMA = 100
"""Levels of nesting of a tool's arguments, objects and lists alike. Deeper ones are more than models and validators
read.
"""
_MOST_BLOCKS = 10_000
"""Maximum number of content blocks of a result: each is validated in the event loop."""
_LONGEST_NAME = 128
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_TEXTS = ("title", "description", "mimeType")
LISTINGS = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))
"""Methods whose results are repaired item by item."""


def repair_response(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a listing or of `tools/call` in a form that the library accepts; others unchanged."""
    match method:
        case "tools/list":
            return _listing(result)
        case "tools/call":
            return _outcome(result)
        case "resources/list":
            return _plain_list(result, "resources", "uri", "size")
        case "resources/templates/list":
            return _plain_list(result, "resourceTemplates", "uriTemplate")
        case "prompts/list":
            return _plain_list(result, "prompts", "name", "arguments")
        case _:
            return result


def _listing(result: dict[str, Any]) -> dict[str, Any]:
    listed = result.get("tools")
    listed = [entry for entry in listed if not _is_ui_only(entry)] if isinstance(listed, list) else []
    named = [entry for entry in listed if _has_name(entry)]
    tools = [entry for entry in named if not _is_deep(entry.get("inputSchema"))]
    deep = [entry["name"] for entry in named if _is_deep(entry.get("inputSchema"))]
    left_out = [f"{name[:_LONGEST_NAME]}: {TOO_DEEP_SCHEMA}" for name in deep]
    if len(named) < len(listed):
        left_out.append(f"{len(listed) - len(named)} without a name")
    fixed = _complete({**result, "tools": [_tool(entry) for entry in tools]})
    return {**fixed, "_meta": {LEFT_OUT: left_out}} if left_out else fixed


def _has_name(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and bool(entry["name"])


def _is_deep(schema: Any) -> bool:
    level = [schema]
    for _ in range(_DEEPEST_SCHEMA):
        containers = [value.values() if isinstance(value, dict) else value for value in level if _is_container(value)]
        if not containers:
            return False
        level = list(chain.from_iterable(containers))
    return any(map(_is_container, level))


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_ui_only(raw: Any) -> bool:
    """Return True for a tool that is for a server's own UI only and not for models (extension
    io.modelcontextprotocol/ui, `visibility`).
    """
    meta = raw.get("_meta") if isinstance(raw, dict) else None
    page = meta.get("ui") if isinstance(meta, dict) else None
    visibility = page.get("visibility") if isinstance(page, dict) else None
    return isinstance(visibility, list) and bool(visibility) and "model" not in visibility


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    """Return a listing with the fields that the newest protocol requires. Older ones ignore them."""
    result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
    if not isinstance(result.get("nextCursor", ""), str):
        del result["nextCursor"]
    return result


def _plain_list(result: dict[str, Any], key: str, identity: str, *others: str) -> dict[str, Any]:
    """Return the resources, templates or prompts that have their required fields, without unused fields."""
    listed = result.get(key)
    items: list[dict[str, Any]] = []
    for raw in listed if isinstance(listed, list) else []:
        if not isinstance(raw, dict) or not isinstance(raw.get(identity), str) or not raw[identity]:
            log.warning("item of %s without %s left out", key, identity)
            continue
        name = raw.get("name")
        item: dict[str, Any] = {identity: raw[identity], "name": name if isinstance(name, str) else raw[identity]}
        item |= {field: raw[field] for field in _TEXTS if field != identity and isinstance(raw.get(field), str)}
        if "size" in others and isinstance(raw.get("size"), int) and not isinstance(raw["size"], bool):
            item["size"] = raw["size"]
        if "arguments" in others:
            item["arguments"] = _prompt_arguments(raw.get("arguments"))
        items.append(item)
    return _complete({**result, key: items})


def _prompt_arguments(given: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": raw["name"],
            "required": raw.get("required") is True,
            "description": raw["description"] if isinstance(raw.get("description"), str) else "",
        }
        for raw in (given if isinstance(given, list) else [])
        if isinstance(raw, dict) and isinstance(raw.get("name"), str) and raw["name"]
    ]


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the used fields of a tool. Icons and others are dropped, because they could only be invalid. An output
    schema is kept if every protocol version allows it and if it can be validated.
    """
    tool: dict[str, Any] = {"name": raw["name"], "inputSchema": _object_schema(raw.get("inputSchema"))}
    tool |= {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
    output = raw.get("outputSchema")
    if isinstance(output, dict) and output.get("type") == "object" and not _is_deep(output):
        tool["outputSchema"] = _object_schema(output)
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
        tool["annotations"] |= {"title": hints["title"]} if isinstance(hints.get("title"), str) else {}
    return tool


def _object_schema(given: Any) -> dict[str, Any]:
    """Return a schema with a root that is valid in every protocol version. The rest is unchanged."""
    if not isinstance(given, dict):
        return dict(_ANY_OBJECT)
    schema: dict[str, Any] = {**given, "type": "object"}
    properties = given.get("properties")
    schema["properties"] = {
        name: value
        for name, value in (properties if isinstance(properties, dict) else {}).items()
        if isinstance(value, dict | bool)
    }
    required = given.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        del schema["required"]
    if not isinstance(given.get("$schema", ""), str):
        del schema["$schema"]
    return schema


def _outcome(result: dict[str, Any]) -> dict[str, Any]:
    match result.get("resultType"):
        case "complete" | None:
            pass
        case "input_required":
            return result
        case unknown:
            # MCP specification 2026-07-28, basic/index: not to be taken for a result. The content is dropped, because
            # the library would parse it.
            return {"resultType": unknown}
    fixed = {
        **result,
        # Clients MUST take a result without the field as complete (MCP specification 2026-07-28, basic).
        "resultType": "complete",
        "content": [_block(raw) for raw in _content(result.get("content"))],
        "isError": result.get("isError") is True,
    }
    if not isinstance(result.get("_meta", {}), dict):
        del fixed["_meta"]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        # Only the newest protocol version accepts other values; all accept an object.
        fixed["structuredContent"] = {"result": structured}
    elif structured is None:
        fixed.pop("structuredContent", None)
    return fixed


def _content(given: Any) -> list[Any]:
    """Return the content as a list. One block or one text alone is taken for its only item."""
    match given:
        case list() if len(given) > _MOST_BLOCKS:
            note = {"type": "text", "text": f"({len(given) - _MOST_BLOCKS} more pieces of content were left out.)"}
            return [*given[:_MOST_BLOCKS], note]
        case list():
            return given
        case None | "":
            return []
        case _:
            return [given]


def _block(block: Any) -> dict[str, Any]:
    """Return a content block with the used fields, or a text that names its unsupported type."""
    audience: list[str] = []
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        block = {key: value for key, value in block.items() if key not in _UNUSED}
        audience = _audience(block.pop("annotations", None))
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            return _for({"type": "text", "text": block["text"]}, audience)  # most pieces are, and may be large
    try:
        known = _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        kind = block.get("type") if isinstance(block, dict) else type(block).__name__
        return {"type": "text", "text": f"[Unsupported content: {str(kind)[:100]}]"}
    return _for(known.model_dump(mode="json", by_alias=True, exclude_none=True), audience)


def _for(block: dict[str, Any], audience: list[str]) -> dict[str, Any]:
    return block | ({"annotations": {"audience": audience}} if audience else {})


def _audience(annotations: Any) -> list[str]:
    """Return the known values of a block's audience."""
    named = annotations.get("audience") if isinstance(annotations, dict) else None
    return [raw for raw in named if raw in _ROLES] if isinstance(named, list) else []

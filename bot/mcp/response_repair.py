"""Repair of server responses before the MCP library parses them.

The library rejects a whole response for one malformed part: one tool would hide all others, one unknown content
type would lose a result. Works on plain JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from mcp import types
from pydantic import TypeAdapter, ValidationError

log = logging.getLogger(__name__)

_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_UNUSED = frozenset({"_meta", "icons"})
_ROLES = ("user", "assistant")
LEFT_OUT = "countersign/leftOut"
"""Key in a repaired listing: the number of removed tools without a name."""
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


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
    tools = list(_tools(listed))
    fixed = _with_cursor({**result, "tools": tools})
    if len(tools) < len(listed):
        fixed["_meta"] = {LEFT_OUT: len(listed) - len(tools)}
    return fixed


def _is_ui_only(raw: Any) -> bool:
    """Return True for a tool that is for a server's own UI only and not for models (extension
    io.modelcontextprotocol/ui, `visibility`).
    """
    meta = raw.get("_meta") if isinstance(raw, dict) else None
    page = meta.get("ui") if isinstance(meta, dict) else None
    visibility = page.get("visibility") if isinstance(page, dict) else None
    return isinstance(visibility, list) and bool(visibility) and "model" not in visibility


def _with_cursor(result: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(result.get("nextCursor", ""), str):
        del result["nextCursor"]
    return result


_TEXTS = ("title", "description", "mimeType")


def _plain_list(result: dict[str, Any], key: str, identity: str, *others: str) -> dict[str, Any]:
    """Return the resources, templates or prompts that have their required fields, without unused fields."""
    listed = result.get(key)
    kept: list[dict[str, Any]] = []
    for each in listed if isinstance(listed, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get(identity), str) or not each[identity]:
            log.warning("item of %s without %s left out", key, identity)
            continue
        name = each.get("name")
        item: dict[str, Any] = {identity: each[identity], "name": name if isinstance(name, str) else each[identity]}
        item |= {field: each[field] for field in _TEXTS if field != identity and isinstance(each.get(field), str)}
        if "size" in others and isinstance(each.get("size"), int) and not isinstance(each["size"], bool):
            item["size"] = each["size"]
        if "arguments" in others:
            item["arguments"] = _prompt_arguments(each.get("arguments"))
        kept.append(item)
    return _with_cursor({**result, key: kept})


def _prompt_arguments(given: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "required": each.get("required") is True,
            "description": each["description"] if isinstance(each.get("description"), str) else "",
        }
        for each in (given if isinstance(given, list) else [])
        if isinstance(each, dict) and isinstance(each.get("name"), str) and each["name"]
    ]


def _tools(listed: list[Any]) -> Iterator[dict[str, Any]]:
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]:
            yield _tool(entry)
        else:
            log.warning("tool without a name left out")


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the used fields of a tool. Icons and others are dropped, because they could only be invalid. An output
    schema is kept if every protocol version allows it.
    """
    tool: dict[str, Any] = {"name": raw["name"], "inputSchema": _object_schema(raw.get("inputSchema"))}
    tool |= {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
    output = raw.get("outputSchema")
    if isinstance(output, dict) and output.get("type") == "object":
        tool["outputSchema"] = _object_schema(output)
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
        tool["annotations"] |= {"title": hints["title"]} if isinstance(hints.get("title"), str) else {}
    return tool


def _object_schema(given: Any) -> dict[str, Any]:
    """Return a schema whose root is valid in every protocol version. The rest is unchanged."""
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
    match result.get("resultType", "complete"):
        case "complete":
            pass
        case "input_required":
            return result
        case unknown:
            # MCP specification 2026-07-28, basic/index: not to be taken for a result. The content is dropped, because
            # the library would parse it.
            return {"resultType": unknown}
    content = result.get("content")
    fixed = {
        **result,
        # Clients MUST take a result without the field as complete (MCP specification 2026-07-28, basic).
        "resultType": "complete",
        "content": [_block(each) for each in (content if isinstance(content, list) else [])],
        "isError": result.get("isError") is True,
    }
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        # Only the newest protocol version accepts other values; all accept an object.
        fixed["structuredContent"] = {"result": structured}
    elif structured is None:
        fixed.pop("structuredContent", None)
    return fixed


def _block(block: Any) -> dict[str, Any]:
    """Return a content block with the used fields, or a text that names its unsupported type."""
    audience: list[str] = []
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
    return [each for each in named if each in _ROLES] if isinstance(named, list) else []

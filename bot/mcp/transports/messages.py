"""Reading and repair of a server's messages, on every transport.

The MCP library drops a message that it cannot read, and the call that it answers waits for its time limit. Here such a
message is repaired if its meaning is not in doubt: a lone surrogate becomes U+FFFD, an error may have any code, a JSON
array is a batch (MCP specification 2025-03-26, basic). Otherwise the call is answered at once with an error that says
what was wrong with the message.

The library also rejects a whole result because of one wrong item: `repair_response` repairs results item by item.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from mcp import types
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp.types.jsonrpc import RequestId
from pydantic import TypeAdapter, ValidationError

from bot.mcp.errors import (
    NO_RESULT,
    NOT_JSON,
    NOT_RPC,
    RESULT_IS_NO_OBJECT,
    RESULT_IS_NULL,
    TOO_DEEP_SCHEMA,
    WITHOUT_ID,
)
from bot.mcp.server.output import StrayLine

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
Incoming = SessionMessage | Exception
"""Item that a read stream of the MCP library yields."""

DEEPEST = 200
"""Levels of nesting that are read. The library's parser has the same limit."""
CUT = "countersign/cut"
"""Key in the result of an answer that was nested more deeply: deeper values are null."""
_THREAD_BYTES = 64 * 1024
"""Size above which a message is read in a thread."""
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_NUMBER = 4000
"""Digits of an integer that Python reads. A longer one becomes a text."""
_DECODER = json.JSONDecoder(
    strict=False, parse_int=lambda digits: int(digits) if len(digits) <= _LONGEST_NUMBER else digits
)
# With either quote, because a program may print what it should dump.
_VERSION = rb"""["']jsonrpc["']\s*:\s*["']2\.0["']"""
_ID = rb"""["']id["']\s*:\s*(\d{1,18}|"[^"\\]{1,200}")"""
_BODY = rb"""["'](?:result|error)["']\s*:"""
_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY
)
_BODY_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY)
# A quote inside a string is escaped, so an unescaped one belongs to the message itself.
_ID_LAST = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")
_END = 512
_BLANKS = re.compile(r"[\ufeff\0\s]*")
_MOST_MESSAGES = 1000
"""Maximum number of messages in one line. Others are dropped."""
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
_PLAIN_LISTS = {
    "resources/list": ("resources", "uri", "size"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", ""),
    "prompts/list": ("prompts", "name", "arguments"),
}
"""Key of the items in a listing, that of their identity, and another one of them that is used."""
LISTINGS = frozenset(("tools/list", *_PLAIN_LISTS))
"""Methods whose results are repaired item by item."""


def answered_id(head: bytes, tail: bytes) -> RequestId | None:
    """Return the id of the request that a message answers, from the two ends of the message; None if it is unknown or
    the message is no answer.
    """
    match = _ID_FIRST.match(head)
    if match is None and _BODY_FIRST.match(head):
        match = _ID_LAST.search(tail)
    if match is None:
        return None
    known: RequestId = json.loads(match[1])
    return known


def canonical_id(request_id: RequestId | None) -> RequestId | None:
    """Return the number of an id that is a number in a text, other ids unchanged."""
    try:
        return int(request_id) if isinstance(request_id, str) else request_id
    except ValueError:
        return request_id


def unreadable(request_id: RequestId | None, why: str) -> SessionMessage:
    """Return the error that ends a request whose answer cannot be read. `why` is one of `errors.UNREADABLE`."""
    error = ErrorData(code=INVALID_REQUEST, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


async def read_messages(data: bytes | str, request_id: RequestId | None = None) -> list[Incoming]:
    """Return the messages in a line, in an event or in the body of a response.

    `request_id` is the request that a message without an id must answer, because of the way it came; otherwise its
    error has the id None. Anything else becomes a `StrayLine`, or the error of that request.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if (message := await well_formed(text)) is not None:
        return [message]
    return await beside(_repaired, text, request_id, is_long=len(text) > _THREAD_BYTES)


async def beside(work: Callable[..., _Result], *values: Any, is_long: bool) -> _Result:
    """Run `work` with these values, in a thread if it would hold the event loop."""
    return await asyncio.to_thread(work, *values) if is_long else work(*values)


async def well_formed(text: str | bytes) -> SessionMessage | None:
    """Return the one message in a text if it needs no repair, otherwise None."""
    return await beside(_well_formed, text, is_long=len(text) > _THREAD_BYTES)


def _well_formed(text: str | bytes) -> SessionMessage | None:
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return None
    # An answer that also names the method that was asked for is read as a request.
    has_result = isinstance(message, JSONRPCRequest) and '"result"' in (
        text if isinstance(text, str) else text.decode()
    )
    return None if has_result else SessionMessage(message)


def _repaired(text: str, request_id: RequestId | None) -> list[Incoming]:
    may_be_deep = text.count("[") + text.count("{") > DEEPEST
    shallow = "".join(_shallow_pieces(text)) if may_be_deep else text
    is_cut = shallow != text
    messages: list[Incoming] = []
    start = position = _after_blanks(shallow, 0)
    # Two messages without a line end between them are two messages.
    while shallow.startswith(("{", "[", '"'), position) and len(messages) < _MOST_MESSAGES:
        try:
            value, end = _DECODER.raw_decode(shallow, position)
        except (ValueError, RecursionError):
            break
        position = _after_blanks(shallow, end)
        if isinstance(value, str):  # a message that was dumped twice
            messages += _repaired(value, request_id)
            continue
        values = islice(_items(value), _MOST_MESSAGES)
        messages += [_message(item, request_id, is_cut=is_cut) for item in values]
    if position == start:
        head, tail = text[:_END].encode("utf-8", "replace"), text[-_END:].encode("utf-8", "replace")
        answered = answered_id(head, tail) if request_id is None else request_id
        return [(_stray(text) if answered is None else unreadable(answered, NOT_JSON))]
    if position < len(shallow) or not messages:
        messages.append(_stray(shallow[position:]))
    return messages


def _items(value: Any) -> Iterator[Any]:
    """Yield the value, or the items of a batch."""
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _items(item)


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


def _stray(value: Any) -> StrayLine:
    text = value if isinstance(value, str) else repr(value)
    return StrayLine(text[:_END].encode("utf-8", "replace"))


def _shallow_pieces(text: str) -> Iterator[str]:
    depth = start = 0
    for token in _TOKEN.finditer(text):
        match text[token.start()]:
            case "[" | "{":
                depth += 1
                if depth == DEEPEST + 1:
                    yield text[start : token.start()] + "null"
            case "]" | "}":
                if depth == DEEPEST + 1:
                    start = token.end()
                depth -= 1
    if depth <= DEEPEST:
        yield text[start:]


def _message(value: Any, request_id: RequestId | None, *, is_cut: bool) -> Incoming:
    text = json.dumps(value, ensure_ascii=False)
    if _SURROGATE.search(text):
        value = json.loads(_SURROGATE.sub("\ufffd", text))
    if not isinstance(value, dict):
        return _stray(value)
    if "result" in value or "error" in value or ("id" in value and "method" not in value):
        if "jsonrpc" not in value:
            is_like_answer = isinstance(value.get("result"), dict) or isinstance(value.get("error"), dict)
            answered = _id(value.get("id")) if request_id is None and is_like_answer else request_id
            return _stray(value) if answered is None else unreadable(answered, NOT_RPC)
        return _answer(value, request_id, is_cut=is_cut)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except ValueError:
        return _stray(value)


def _answer(value: dict[str, Any], request_id: RequestId | None, *, is_cut: bool) -> SessionMessage:
    answered = _id(value.get("id"))
    answered = request_id if answered is None else answered
    result, error = value.get("result"), value.get("error")
    if error is not None:
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answered, error=_error(error)))
    if answered is None:
        return unreadable(None, WITHOUT_ID)
    if isinstance(result, dict):
        cut = {CUT: True} if is_cut else {}
        return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=answered, result={**result, **cut}))
    if "result" not in value:
        return unreadable(answered, NO_RESULT)
    return unreadable(answered, RESULT_IS_NULL if result is None else RESULT_IS_NO_OBJECT)


def _id(given: Any) -> RequestId | None:
    match given:
        case bool():
            return None
        case int() | str():
            return given
        case float() if given.is_integer():
            return int(given)
        case _:
            return None


def _error(given: Any) -> ErrorData:
    """Return an error of any form, with the server's own words. A code that is no number is one of them."""
    if not isinstance(given, dict):
        return ErrorData(code=INTERNAL_ERROR, message=_words(given))
    code, message = given.get("code"), _words(given.get("message"))
    number = _id(code)
    if isinstance(number, str):
        number = int(number) if re.fullmatch(r"-?\d{1,9}", number, re.ASCII) else None
    if number is None and code is not None:
        message = f"{message} ({_words(code)})" if message else _words(code)
    return ErrorData(
        code=INTERNAL_ERROR if number is None else number, message=message or "no reason given", data=given.get("data")
    )


def _words(given: Any) -> str:
    if isinstance(given, str):
        return given
    return "" if given is None else json.dumps(given, ensure_ascii=False)


def repair_response(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a listing or of `tools/call` in a form that the library accepts; others unchanged."""
    match method:
        case "tools/list":
            return _listing(result)
        case "tools/call":
            return _outcome(result)
        case _ if method in _PLAIN_LISTS:
            return _plain_list(result, *_PLAIN_LISTS[method])
        case _:
            return result


def _listing(result: dict[str, Any]) -> dict[str, Any]:
    listed = result.get("tools")
    listed = [entry for entry in listed if not _is_ui_only(entry)] if isinstance(listed, list) else []
    named = [entry for entry in listed if isinstance(entry, dict) and _has_text(entry, "name")]
    tools = [entry for entry in named if not _is_deep(entry.get("inputSchema"))]
    deep = [entry["name"] for entry in named if _is_deep(entry.get("inputSchema"))]
    left_out = [f"{name[:_LONGEST_NAME]}: {TOO_DEEP_SCHEMA}" for name in deep]
    if len(named) < len(listed):
        left_out.append(f"{len(listed) - len(named)} without a name")
    fixed = _complete({**result, "tools": [_tool(entry) for entry in tools]})
    return {**fixed, "_meta": {LEFT_OUT: left_out}} if left_out else fixed


def _has_text(entry: dict[str, Any], key: str) -> bool:
    return isinstance(entry.get(key), str) and bool(entry[key])


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


def _plain_list(result: dict[str, Any], key: str, identity: str, other: str) -> dict[str, Any]:
    """Return the resources, templates or prompts that have their required fields, without unused fields."""
    listed = result.get(key)
    items: list[dict[str, Any]] = []
    for raw in listed if isinstance(listed, list) else []:
        if not isinstance(raw, dict) or not _has_text(raw, identity):
            log.warning("item of %s without %s left out", key, identity)
            continue
        name = raw.get("name")
        item: dict[str, Any] = {identity: raw[identity], "name": name if isinstance(name, str) else raw[identity]}
        item |= {field: raw[field] for field in _TEXTS if field != identity and isinstance(raw.get(field), str)}
        if other == "size" and isinstance(raw.get("size"), int) and not isinstance(raw["size"], bool):
            item["size"] = raw["size"]
        if other == "arguments":
            given = raw.get("arguments")
            item["arguments"] = [
                {
                    "name": argument["name"],
                    "required": argument.get("required") is True,
                    "description": argument["description"] if isinstance(argument.get("description"), str) else "",
                }
                for argument in (given if isinstance(given, list) else [])
                if isinstance(argument, dict) and _has_text(argument, "name")
            ]
        items.append(item)
    return _complete({**result, key: items})


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
        notes = block.pop("annotations", None)
        named = notes.get("audience") if isinstance(notes, dict) else None
        audience = [raw for raw in named if raw in _ROLES] if isinstance(named, list) else []
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

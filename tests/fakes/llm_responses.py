"""Responses as OpenAI streams it, with its refusals."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.domain.completions import StopReason
from tests.fakes.llm_schemas import MOST_TOOLS, openai_complaint
from tests.fakes.llm_script import Call, ErrorEvent, Frames, Request, Say, Status, pieces

PATH = "/v1/responses"

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_DESCRIPTION = 1024
_FEWEST_TOKENS = 16
_CUT_BY = {StopReason.LENGTH: "max_output_tokens", StopReason.REFUSED: "content_filter"}
_ACCEPTED = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "store", "stream", "include"}
    | {"prompt_cache_key", "stream_options", "reasoning", "metadata", "parallel_tool_calls"}
)
_ROLES = frozenset({"user", "assistant", "developer", "system"})
_CONTENT = frozenset({"input_text", "input_image", "input_file", "output_text"})
_KINDS = frozenset({"message", "reasoning", "function_call", "function_call_output"})


def frames(say: Say, request: Request, number: int) -> Frames:
    """Return the events of a reply."""
    begun = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "model": request.body["model"]}
    begun |= {"output": [], "usage": None, "error": None, "incomplete_details": None}
    begun |= {"tools": request.body.get("tools", []), "instructions": request.body.get("instructions")}
    numbered = _Numbered()
    body = [numbered("response.created", response=begun), numbered("response.in_progress", response=begun)]
    output = []
    for index, (item, events) in enumerate(_items(say, number)):
        begins = {**item, "status": "in_progress"}
        begins |= {each: [] for each in ("content", "summary") if each in item}
        begins |= {"arguments": ""} if "arguments" in item else {}
        body.append(numbered("response.output_item.added", output_index=index, item=begins))
        body += [numbered(kind, output_index=index, item_id=item["id"], **fields) for kind, fields in events]
        body.append(numbered("response.output_item.done", output_index=index, item=item))
        output.append(item)
    tokens = say.tokens
    usage = tokens and {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.input + tokens.output,
    }
    cut_by = _CUT_BY.get(say.stop) if say.stop else None
    status = "incomplete" if cut_by else "completed"
    ended = {**begun, "status": status, "output": output, "usage": usage}
    ended |= {"incomplete_details": {"reason": cut_by}} if cut_by else {}
    return Frames(tuple(body), (numbered(f"response.{status}", response=ended),))


class _Numbered:
    def __init__(self) -> None:
        self._number = -1

    def __call__(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **fields})


Events = list[tuple[str, dict[str, Any]]]


def _items(say: Say, number: int) -> Iterator[tuple[dict[str, Any], Events]]:
    if say.thinking:
        summary = [{"type": "summary_text", "text": say.thinking}]
        encrypted = encrypt_reasoning(say.thinking)
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": encrypted}
        place = {"summary_index": 0}
        yield (
            item,
            [
                ("response.reasoning_summary_part.added", {**place, "part": {"type": "summary_text", "text": ""}}),
                *(
                    ("response.reasoning_summary_text.delta", {**place, "delta": piece})
                    for piece in pieces(say.thinking, say.pieces)
                ),
                ("response.reasoning_summary_text.done", {**place, "text": say.thinking}),
                ("response.reasoning_summary_part.done", {**place, "part": summary[0]}),
            ],
        )
    if say.text:
        yield _message(say, number)
    for index, call in enumerate(say.calls):
        yield _function_call(call, f"{number}_{index}", say.pieces)


def _message(say: Say, number: int) -> tuple[dict[str, Any], Events]:
    part = {"type": "output_text", "text": say.text, "annotations": [], "logprobs": []}
    place = {"content_index": 0}
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return item, [
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(
            ("response.output_text.delta", {**place, "delta": piece, "logprobs": []})
            for piece in pieces(say.text, say.pieces)
        ),
        ("response.output_text.done", {**place, "text": say.text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
    ]


def _function_call(call: Call, number: str, count: int) -> tuple[dict[str, Any], Events]:
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    call_id = call.id or f"call_{number}"
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": call_id}
    item |= {"name": call.name, "arguments": text}
    return item, [
        *(("response.function_call_arguments.delta", {"delta": piece}) for piece in pieces(text, count)),
        ("response.function_call_arguments.done", {"name": call.name, "arguments": text}),
    ]


def encrypt_reasoning(thinking: str) -> str:
    """Encrypt reasoning, so that only the service reads it. It refuses any other text."""
    return "gAAAA" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def event(data: Mapping[str, Any] | str) -> bytes:
    """Return one server-sent event, named by its type."""
    if isinstance(data, str):
        return f"event: response.output_text.delta\ndata: {data}\n\n".encode()
    named = f"event: {data['type']}\n" if isinstance(data.get("type"), str) else ""
    return f"{named}data: {json.dumps(data)}\n\n".encode()


def error_event(error: ErrorEvent) -> bytes:
    """Return an error within the stream."""
    return event({"type": "error", "code": error.code or error.type, "message": error.message, "param": None})


def error_body(status: Status) -> dict[str, Any]:
    """Return the body of an error answer."""
    return {"error": {"message": status.message, "type": status.type, "param": status.param, "code": status.code}}


def complaint(request: Request) -> Status | None:
    """Return the service's complaint about a request."""
    if not request.headers.get("authorization", "").startswith("Bearer "):
        return Status(401, "Missing bearer or basic authentication in header", "invalid_request_error")
    problem = next(_problems(request.body), None)
    if problem:
        return Status(400, problem, "invalid_request_error")
    for n, tool in enumerate(request.body.get("tools", ())):
        if found := openai_complaint(tool["name"], tool["parameters"]):
            param = f"tools[{n}].parameters"
            return Status(400, found, "invalid_request_error", "invalid_function_parameters", param)
    return next(_reasoning_problems(request.body), None)


def _reasoning_problems(body: Mapping[str, Any]) -> Iterator[Status]:
    for item in _input_items(body, "reasoning"):
        if not str(item.get("encrypted_content")).startswith("gAAAA"):
            said = "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted."
            yield Status(400, said, "invalid_request_error", "invalid_encrypted_content")


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    for name in body.keys() - _ACCEPTED:
        yield f"Unknown parameter: '{name}'."
    if not body.get("model"):
        yield "Missing required parameter: 'model'."
    if not body.get("stream"):
        yield "this service only streams"
    if not body.get("input"):
        yield "Missing required parameter: 'input'."
    if body.get("max_output_tokens", _FEWEST_TOKENS) < _FEWEST_TOKENS:
        yield "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    if "tool_choice" in body and not body.get("tools"):
        yield "Tool choice 'none' must be specified with 'tools'."
    if body.get("include") and body.get("store", True):
        yield "this fake takes encrypted reasoning only where nothing is stored"
    yield from _tool_problems(body.get("tools", ()))
    yield from _input_problems(body.get("input", ()))


def _tool_problems(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for n, tool in enumerate(tools):
        if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            yield f"Missing required parameter: 'tools[{n}].name'."
        elif not _NAME.fullmatch(tool["name"]):
            yield f"Invalid 'tools[{n}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
        if len(tool.get("description", "")) > _LONGEST_DESCRIPTION:
            yield f"Invalid 'tools[{n}].description': string too long."
        if tool.get("strict", True):
            yield f"Invalid schema for function: in strict mode 'required' must name every key (tools[{n}])."
    if len(tools) > MOST_TOOLS:
        yield f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS}."
    if len({tool.get("name") for tool in tools}) < len(tools):
        yield "Invalid 'tools': function names must be unique."


def _input_items(body: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [item for item in body.get("input", ()) if item.get("type", "message") == kind]


def _pairing_problems(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    called = [item["call_id"] for item in items if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call_id in sorted({each for each in called if called.count(each) > 1}):
        yield f"Duplicate function call with call_id {call_id}."
    for call_id in sorted({*called} - {*answered}):
        yield f"No tool output found for function call {call_id}."
    for call_id in sorted({*answered} - {*called}):
        yield f"No tool call found for function call output with call_id {call_id}."


def _input_problems(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _pairing_problems(items)
    for n, item in enumerate(items):
        match item.get("type", "message"):
            case "function_call":
                yield from _call_problems(n, item)
            case "function_call_output":
                yield from _content_problems(n, item["output"])
            case "reasoning":
                yield from _following_problems(item, items[n + 1 : n + 2])
            case "message":
                if item.get("role") not in _ROLES:
                    yield f"Invalid value: {item.get('role')!r}."
                yield from _content_problems(n, item.get("content"))
            case other:
                yield f"Invalid value: {other!r}. Supported values are: {', '.join(sorted(_KINDS))}."


def _following_problems(item: Mapping[str, Any], following: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    led_to = [each for each in following if each.get("type") in ("reasoning", "function_call")]
    if not led_to and not any(each.get("role") == "assistant" for each in following):
        yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."


def _call_problems(n: int, call: Mapping[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(call["name"]):
        yield f"Invalid 'input[{n}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
    if not isinstance(call["arguments"], str):
        yield f"Invalid type for 'input[{n}].arguments': expected a string."
    if not 0 < len(call["call_id"]) <= 64:
        yield f"Invalid 'input[{n}].call_id': string too long. Expected a string with maximum length 64."


def _content_problems(n: int, content: Any) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield f"Invalid type for 'input[{n}].content': expected one of a string or array, but got {content!r}."
        return
    for part in content:
        if part["type"] not in _CONTENT:
            yield f"Invalid value: {part['type']!r}. Supported values are: {', '.join(sorted(_CONTENT))}."

"""Messages as Anthropic streams it, with its refusals."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.domain.completions import StopReason
from tests.fakes.llm_schemas import MOST_TOOLS, anthropic_complaint
from tests.fakes.llm_script import Call, ErrorEvent, Frames, Request, Say, Status, Tokens, pieces

PATH = "/v1/messages"

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_STOPS = {
    StopReason.ANSWERED: "end_turn",
    StopReason.TOOLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSED: "refusal",
}
_ACCEPTED = frozenset(
    {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "thinking", "cache_control"}
    | {"metadata", "stop_sequences", "service_tier", "output_config"}
)


def frames(say: Say, request: Request, number: int) -> Frames:
    """Return the events of a reply."""
    tokens = say.tokens or Tokens(0, 0, 0)
    start = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input - tokens.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": 1 if say.tokens else 0,
        },
    }
    body = [event({"type": "message_start", "message": start}), event({"type": "ping"})]
    for index, (block, deltas) in enumerate(_blocks(say, number)):
        body.append(event({"type": "content_block_start", "index": index, "content_block": block}))
        body += [event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        body.append(event({"type": "content_block_stop", "index": index}))
    stop = _STOPS[say.stop or (StopReason.TOOLS if say.calls else StopReason.ANSWERED)]
    delta = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}}
    ending = (event({**delta, "usage": {"output_tokens": tokens.output}}), event({"type": "message_stop"}))
    return Frames(tuple(body), ending)


def _blocks(say: Say, number: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    if say.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(say.thinking, say.pieces)]
        deltas.append({"type": "signature_delta", "signature": signature(say.thinking)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if say.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(say.text, say.pieces)],
        )
    for index, call in enumerate(say.calls):
        yield _tool_use(call, f"toolu_{number}_{index}", say.pieces)


def _tool_use(call: Call, call_id: str, count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    block = {"type": "tool_use", "id": call.id or call_id, "name": call.name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text, count)]]


def signature(thinking: str) -> str:
    """Return the signature that the service adds to thinking, and checks when it comes back."""
    return "sig_" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def event(data: Mapping[str, Any] | str) -> bytes:
    """Return one server-sent event, named by its type."""
    if isinstance(data, str):
        return f"event: content_block_delta\ndata: {data}\n\n".encode()
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def error_event(error: ErrorEvent) -> bytes:
    """Return an error within the stream."""
    return event({"type": "error", "error": {"type": error.type, "message": error.message}})


def error_body(status: Status) -> dict[str, Any]:
    """Return the body of an error answer."""
    return {"type": "error", "error": {"type": status.type, "message": status.message}, "request_id": "req_1"}


def complaint(request: Request) -> Status | None:
    """Return the service's complaint about a request."""
    if not (request.headers.get("authorization") or request.headers.get("x-api-key")):
        return Status(401, "x-api-key header is required", "authentication_error")
    if "anthropic-version" not in request.headers:
        return Status(400, "anthropic-version: header is required", "invalid_request_error")
    problem = next(_problems(request.body), None)
    return Status(400, problem, "invalid_request_error") if problem else None


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    for name in body.keys() - _ACCEPTED:
        yield f"{name}: Extra inputs are not permitted"
    if not body.get("model"):
        yield "model: Field required"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: Field required"
    if not body.get("stream"):
        yield "this service only streams"
    if "tool_choice" in body and not body.get("tools"):
        yield "tool_choice: may only be specified while providing tools"
    yield from _tool_problems(body.get("tools", ()))
    yield from _blank_texts(body.get("system", []))
    yield from _transcript_problems(body.get("messages", ()))


def _tool_problems(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for n, tool in enumerate(tools):
        if not _NAME.fullmatch(tool["name"]):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if problem := anthropic_complaint(tool["input_schema"]):
            yield f"tools.{n}.custom.{problem}"
    if len(tools) > MOST_TOOLS:
        yield f"tools: at most {MOST_TOOLS} tools are taken"
    if len({tool["name"] for tool in tools}) < len(tools):
        yield "tools: Tool names must be unique."


def _transcript_problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    open_calls: list[str] = []
    seen: set[str] = set()
    for n, message in enumerate(messages):
        if message["role"] != ("user", "assistant")[n % 2]:
            yield 'messages: roles must alternate between "user" and "assistant", beginning with "user"'
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from _answer_problems(blocks, open_calls)
        yield from _block_problems(message["role"], blocks, seen)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        seen.update(open_calls)
    if open_calls:
        yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(open_calls)}"


def _answer_problems(blocks: Sequence[Mapping[str, Any]], open_calls: Sequence[str]) -> Iterator[str]:
    kinds = [block["type"] == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        yield "`tool_result` blocks must come first in the content of a message"
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if missing := set(open_calls) - set(answered):
        yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}"
    if unexpected := set(answered) - set(open_calls):
        yield f"unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unexpected)}"


def _block_problems(role: str, blocks: Sequence[Mapping[str, Any]], seen: set[str]) -> Iterator[str]:
    if not blocks:
        yield "messages: content must not be empty"
    yield from _blank_texts(blocks)
    if blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        yield "The final block in an assistant message cannot be `thinking`."
    for block in blocks:
        match block["type"]:
            case "tool_use":
                yield from _tool_use_problems(block, seen)
            case "tool_result":
                if block.get("is_error") and not block.get("content"):
                    yield "tool_result: content cannot be empty if `is_error` is true"
                yield from _blank_texts(block.get("content") or [])
            case "thinking" if block["signature"] != signature(block["thinking"]):
                yield "Invalid `signature` in `thinking` block"
            case "image" if role == "assistant":
                yield "image blocks are not permitted in assistant messages"


def _tool_use_problems(block: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    if not _ID.fullmatch(block["id"]):
        yield "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if block["id"] in seen:
        yield "`tool_use` ids must be unique"
    if not _NAME.fullmatch(block["name"]):
        yield "tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"
    if not isinstance(block["input"], Mapping):
        yield "tool_use.input: Input should be a valid dictionary"


def _blank_texts(content: str | Sequence[Mapping[str, Any]]) -> Iterator[str]:
    blocks = [] if isinstance(content, str) else content
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        yield "text content blocks must contain non-whitespace text"

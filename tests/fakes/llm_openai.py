"""Chat Completions as OpenAI streams it, with its refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.domain.completions import StopReason
from tests.fakes.llm_schemas import MOST_TOOLS, openai_complaint
from tests.fakes.llm_script import Call, ErrorEvent, Frames, Request, Say, Status, pieces

PATH = "/v1/chat/completions"

_NO_PARAMETERS = {"type": "object", "properties": {}}
_LONGEST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STOPS = {
    StopReason.ANSWERED: "stop",
    StopReason.TOOLS: "tool_calls",
    StopReason.LENGTH: "length",
    StopReason.REFUSED: "content_filter",
}


def frames(say: Say, request: Request, number: int) -> Frames:
    """Return the events of a reply."""

    def chunk(choices: list[Any], usage: Any = None) -> bytes:
        head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1_800_000_000}
        return event({**head, "model": request.body["model"], "choices": choices, "usage": usage})

    def choice(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    body = [choice({"role": "assistant", "content": "" if say.text or not say.calls else None})]
    body += [choice({"reasoning_content": piece}) for piece in pieces(say.thinking, say.pieces)]
    body += [choice({"content": piece}) for piece in pieces(say.text, say.pieces)]
    for index, call in enumerate(say.calls):
        body += [choice({"tool_calls": [part]}) for part in _fragments(call, index, number, say.pieces)]
    stop = say.stop or (StopReason.TOOLS if say.calls else StopReason.ANSWERED)
    ending = [choice({}, _STOPS[stop])]
    if say.tokens and request.body.get("stream_options", {}).get("include_usage"):
        tokens = say.tokens
        usage = {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        ending.append(chunk([], usage))
    return Frames(tuple(body), (*ending, event("[DONE]")))


def _fragments(call: Call, index: int, number: int, count: int) -> Iterator[dict[str, Any]]:
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    call_id = call.id or f"call_{number}_{index}"
    yield {"index": index, "id": call_id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    for piece in pieces(text, count):
        yield {"index": index, "function": {"arguments": piece}}


def event(data: Mapping[str, Any] | str) -> bytes:
    """Return one server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def error_event(error: ErrorEvent) -> bytes:
    """Return an error within the stream."""
    return event({"error": {"message": error.message, "type": error.type, "param": None, "code": error.code}})


def error_body(status: Status) -> dict[str, Any]:
    """Return the body of an error answer."""
    return {"error": {"message": status.message, "type": status.type, "param": status.param, "code": status.code}}


def complaint(request: Request) -> Status | None:
    """Return the service's complaint about a request."""
    if not request.headers.get("authorization", "").startswith("Bearer "):
        return Status(401, "You didn't provide an API key.", "invalid_request_error")
    problem = next(_problems(request.body), None)
    if problem:
        return Status(400, problem, "invalid_request_error")
    return next(_schema_problems(request.body.get("tools", ())), None)


def _schema_problems(tools: Sequence[Mapping[str, Any]]) -> Iterator[Status]:
    for n, tool in enumerate(tools):
        function = tool["function"]
        if problem := openai_complaint(function["name"], function.get("parameters", _NO_PARAMETERS)):
            yield refused_parameters(n, problem)


def refused_parameters(n: int, message: str) -> Status:
    """Return the error for a request whose tool number `n` has refused parameters."""
    param = f"tools[{n}].function.parameters"
    return Status(400, message, "invalid_request_error", "invalid_function_parameters", param)


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model"):
        yield "you must provide a model parameter"
    if not body.get("stream"):
        yield "this service only streams"
    if not body.get("messages"):
        yield "[] is too short - 'messages'"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    if "tools" in body and not body["tools"]:
        yield "[] is too short - 'tools'"
    if "tool_choice" in body and "tools" not in body:
        yield "'tool_choice' is only allowed when 'tools' are specified."
    tools = body.get("tools", ())
    if len(tools) > MOST_TOOLS:
        yield (
            f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS},"
            f" but got an array with length {len(tools)} instead."
        )
    for n, tool in enumerate(tools):
        yield from _tool_problems(n, tool["function"])
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield "Invalid 'tools': function names must be unique."
    yield from _transcript_problems(body.get("messages", ()))


def _tool_problems(n: int, function: Mapping[str, Any]) -> Iterator[str]:
    name, description = function["name"], function.get("description", "")
    if not _NAME.fullmatch(name):
        yield f"Invalid 'tools[{n}].function.name': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'."
    if not isinstance(description, str):
        yield f"Invalid type for 'tools[{n}].function.description': expected a string."
    elif len(description) > _LONGEST_DESCRIPTION:
        yield (
            f"Invalid 'tools[{n}].function.description': string too long. Expected a string with maximum length"
            f" {_LONGEST_DESCRIPTION}, but got a string with length {len(description)} instead."
        )


def _transcript_problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    unanswered: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in unanswered:
                yield "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            else:
                unanswered.remove(message["tool_call_id"])
        elif unanswered:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(unanswered)}"
            )
        yield from _message_problems(message)
        unanswered += [call["id"] for call in message.get("tool_calls") or ()]
    if unanswered:
        yield f"The following tool_call_ids did not have response messages: {', '.join(unanswered)}"


def _message_problems(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if message["role"] not in ("system", "user", "assistant", "tool"):
        yield f"Invalid value: {message['role']!r}."
    if content is None and not message.get("tool_calls"):
        yield "Invalid value for 'content': expected a string, got null."
    if isinstance(content, list) and not content:
        yield "Invalid value for 'content': expected an array with minimum length 1."
    if isinstance(content, list) and message["role"] != "user" and any(part["type"] != "text" for part in content):
        yield f"Image URLs are only allowed for messages with role 'user', but this message has {message['role']!r}."
    for call in message.get("tool_calls") or ():
        if not _NAME.fullmatch(call["function"]["name"]):
            yield "Invalid 'messages[].tool_calls[].function.name': string does not match pattern."
        if not isinstance(call["function"]["arguments"], str):
            yield "Invalid type for 'arguments': expected a string."
        if not call["id"] or len(call["id"]) > 40:
            yield "Invalid 'messages[].tool_calls[].id': string too long. Expected a string with maximum length 40."

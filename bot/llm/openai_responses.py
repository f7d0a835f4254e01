"""Adapter for OpenAI's Responses, at the vendor's address and at compatible servers.

Models keep their reasoning from one round of tools to the next, which Chat Completions does not support.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any

from bot.domain.completions import (
    Completion,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolChoice,
    Usage,
    UsageReported,
)
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.llm.hosted_model import OPENAI_HOME, OPENAI_WINDOW, Delta, HostedConfig, openai_client
from bot.llm.model_list import ModelListPaths, listed_model
from bot.llm.provider_service import ErrorKind, ProviderError, ProviderRejected
from bot.llm.tool_schemas import tool_arguments, tool_description
from bot.llm.wire_format import (
    CallIds,
    data_url,
    distinct_ids,
    encode_arguments,
    fields_of_calls,
    fit_to_read,
    get_count,
    get_field,
    get_list,
    in_words,
    is_document,
    is_system,
    json_text,
    parse_call,
    placed,
    single_line,
    storable,
    text,
    tokens_of,
    unknown_fields,
    valid_name,
    with_fields,
)
from bot.ports import LanguageModel

METADATA = "openai"
"""Key in `provider_metadata`. The value is `{"by": writer, "phase": phase of the text, "reasoning": [{"before": part
number, "item": the item as received}]}`."""

_KEYS = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
"""Argument names that OpenAI accepts: nearly every text."""
_LONGEST_NAME = 200
_FEWEST_TOKENS = 16
"""Smallest `max_output_tokens` that the service accepts."""
PASSED_OVER = frozenset(
    {
        b"response.created",
        b"response.queued",
        b"response.in_progress",
        b"response.content_part.added",
        b"response.content_part.done",
        b"response.output_text.done",
        b"response.reasoning_summary_text.done",
        b"response.reasoning_summary_part.done",
        b"response.reasoning_text.done",
    }
)
"""Events that repeat others: the first three hold the whole request with all tools."""

_STOPS = {"max_output_tokens": StopReason.LENGTH, "content_filter": StopReason.REFUSED}

_CALL = ("type", "id", "call_id", "name", "arguments", "status")
Item = dict[str, Any]


# -------------------- request
# A model request as the JSON body of OpenAI's Responses.
#
# The service stores nothing: each request holds the whole transcript with the model's encrypted reasoning.


def request_body(
    model: str,
    request: ModelRequest,
    known: Collection[ErrorKind] = (),
    *,
    own_address: bool,
    by: str = "",
    reasoning: str = "",
) -> dict[str, Any]:
    """Return the request body. `known` are the problems that the server has reported before.

    Reasoning is included only if `by` wrote it.
    """
    request = fit_to_read(request)
    ids = CallIds()
    instructions = "\n\n".join(m.text for m in takewhile(is_system, request.messages) if m.text.strip())
    body: dict[str, Any] = {
        "model": model,
        "input": [item for m in dropwhile(is_system, request.messages) for item in _items(m, by, ids)],
        "max_output_tokens": max(_FEWEST_TOKENS, request.limits.max_tokens),
        "store": False,
        "stream": True,
    }
    if ErrorKind.REASONING not in known:
        body["include"] = ["reasoning.encrypted_content"]
        if reasoning and ErrorKind.EFFORT not in known:
            body["reasoning"] = {"effort": "none" if reasoning == "off" else reasoning}
        elif reasoning == "off" and ErrorKind.NO_EFFORT not in known:
            body["reasoning"] = {"effort": "minimal"}
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is ToolChoice.NONE:  # the tools stay listed: calls in the transcript refer to them
            body["tool_choice"] = "none"
    if own_address and ErrorKind.STREAM_OPTIONS not in known:  # compatible servers may not know these
        beginning = "\n".join((instructions, *(tool.name for tool in request.tools)))
        body["prompt_cache_key"] = hashlib.sha256(beginning.encode("utf-8", "replace")).hexdigest()[:32]
        body["stream_options"] = {"include_obfuscation": False}
    if not body["input"]:
        body["input"] = [{"role": "user", "content": "(empty message)"}]
    return body


def _tool(tool: Tool) -> Item:
    parameters = tool_arguments(tool, _KEYS)
    # Strict is the default here, and takes no argument that is not required.
    described = {"description": tool_description(tool), "parameters": parameters, "strict": False}
    return {"type": "function", "name": tool.name, **described}


def _items(message: Message, by: str, ids: CallIds) -> Iterator[Item]:
    match message.role:
        case MessageRole.SYSTEM:
            if message.text.strip():
                yield {"role": "developer", "content": message.text}
        case MessageRole.USER:
            yield {"role": "user", "content": _content(message.parts)}
        case MessageRole.ASSISTANT:
            yield from _assistant(message, by, ids)
        case MessageRole.TOOL:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    call_id = ids.of_result(part.call_id)
                    yield {"type": "function_call_output", "call_id": call_id, "output": _output(part)}


def _assistant(message: Message, by: str, ids: CallIds) -> Iterable[Item]:
    metadata: Any = message.provider_metadata.get(METADATA)
    metadata = metadata if isinstance(metadata, Mapping) and metadata.get("by") == by else {}
    reasoning, fields = list(placed(metadata, by, "reasoning", "item")), fields_of_calls(metadata, by)
    items: list[Item] = []
    for n, part in enumerate(message.parts):
        items += [
            item
            for before, item in reasoning
            if before == n and (item.get("type") == "reasoning" and isinstance(item.get("encrypted_content"), str))
        ]
        match part:
            case ToolCall():
                arguments = json.dumps(encode_arguments(part), ensure_ascii=False, default=dict)
                call = {"call_id": ids.of_call(part.id), "name": valid_name(part.name), "arguments": arguments}
                items.append(with_fields({"type": "function_call", **call}, next(fields)))
            case TextPart() if part.text:
                phase = {"phase": metadata["phase"]} if isinstance(metadata.get("phase"), str) else {}
                items.append({"role": "assistant", "content": part.text, **phase})
    while items and items[-1].get("type") == "reasoning":  # rejected without the item that follows it
        items.pop()
    return items


def _output(result: ToolResult) -> str | list[Item]:
    if any(_is_file(part) for part in result.parts):
        prefix = [{"type": "input_text", "text": "Error:"}] if result.is_error else []
        return [*prefix, *(_part(part) for part in result.parts)]
    return ("Error: " if result.is_error else "") + "\n".join(in_words(part) for part in result.parts)


def _content(parts: Sequence[Part]) -> str | list[Item]:
    if any(_is_file(part) for part in parts):
        return [_part(part) for part in parts]
    return "\n".join(in_words(part) for part in parts) or "(empty message)"


def _is_file(part: Part) -> bool:
    return isinstance(part, ImagePart) or is_document(part)


def _part(part: Part) -> Item:
    match part:
        case ImagePart():
            return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
        case FilePart(mime_type="application/pdf"):
            name = single_line(part.name, _LONGEST_NAME) or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(part)}
        case _:
            return {"type": "input_text", "text": in_words(part)}


# -------------------- reply
# A reply of OpenAI's Responses, assembled from the events of its stream.
#
# Text is shown as it arrives. Everything else is read from complete items, which hold the fields to send back.
# Compatible servers may omit fields or use other types.


@dataclass(slots=True)
class _Item:
    """Draft of an item: a message, a call, reasoning, or an ignored type. `pieces` are its text or its arguments as
    JSON.
    """

    kind: str
    id: str = ""
    call_id: str = ""
    name: str = ""
    phase: str = ""
    pieces: list[str] = field(default_factory=list)
    whole: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ReplyDraft:
    """Draft of a reply, built from stream events. `by` names the writer in `provider_metadata`."""

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._items: list[_Item] = []
        self._at: dict[int, _Item] = {}
        self._status = ""
        self._cut_by = ""
        self._refused = False
        self._usage = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Add an event and yield its visible deltas. Ignores unknown events. Raises ProviderRejected for an error."""
        match text(event, "type"):
            case "response.output_text.delta" | "response.refusal.delta" as kind:
                self._refused |= kind == "response.refusal.delta"
                yield from self._add_text(event)
            case "response.function_call_arguments.delta":
                self._item(event, "function_call").pieces.append(more := text(event, "delta"))
                yield ToolCallDelta(more)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield ReasoningDelta(text(event, "delta"))
            case "response.reasoning_summary_part.added" if get_count(event, "summary_index"):
                yield ReasoningDelta("\n\n")
            case "response.output_item.added":
                yield from self._begin(event)
            case "response.output_item.done":
                yield from self._complete(event)
            case "response.completed" | "response.incomplete" as kind:
                yield from self._end(get_field(event, "response"), kind.removeprefix("response."))
            case "" if text(event, "object") == "response":  # a server that does not stream
                yield from self._end(event, "completed")
            case kind if error := _error(kind, event):
                raise ProviderRejected(ProviderError.from_response(200, error))

    @property
    def finished(self) -> bool:
        """True if the service has reported the reply as completed or incomplete."""
        return bool(self._status)

    def completion(self) -> Completion | None:
        """Return the finished reply, or None if the stream ended before the model did.

        A truncated reply has no calls, because the last one may be incomplete.
        """
        if not self._status:
            return None
        stop = _STOPS.get(self._cut_by, StopReason.LENGTH) if self._status == "incomplete" else None
        if self._refused:
            stop = StopReason.REFUSED
        calls = [item for item in self._items if item.kind == "function_call" and stop is None]
        ids = iter(distinct_ids([call.call_id for call in calls]))
        parts: list[Part] = []
        reasoning: list[dict[str, Any]] = []
        phase = ""
        for item in self._items:
            match item.kind:
                case "reasoning" if echo := _echo(item.whole):
                    reasoning.append({"before": len(parts), "item": echo})
                case "message" if item.text:
                    parts.append(TextPart(item.text))
                    phase = item.phase or phase
                case "function_call" if stop is None:
                    parts.append(parse_call(next(ids), item.name, item.text))
        stop = stop or (StopReason.TOOLS if calls else StopReason.ANSWERED)
        own_metadata: dict[str, Any] = {"phase": phase} if phase else {}
        own_metadata |= {"reasoning": reasoning} if reasoning else {}
        unknown = [unknown_fields(call.whole, *_CALL) for call in calls]
        own_metadata |= {"calls": kept} if any(unknown) and (kept := storable(unknown)) else {}
        metadata = {METADATA: {"by": self._by, **own_metadata}} if own_metadata else {}
        message = Message(MessageRole.ASSISTANT, tuple(parts), metadata)
        cut = stop is StopReason.LENGTH and any(item.kind == "function_call" for item in self._items)
        return Completion(message, stop, self._usage, cut_call=cut)

    def end(self) -> None:
        """Take a reply without its last event as finished if all its items are whole."""
        if any(item.kind in ("message", "function_call") for item in self._items) and all(
            item.whole for item in self._items
        ):
            self._status = self._status or "completed"

    def resume(self) -> None:
        """Return None: models of this protocol do not pause."""

    def _begin(self, event: Mapping[str, Any]) -> Iterator[UsageReported]:
        if not self._items:
            yield UsageReported()
        self._describe(self._new(event), get_field(event, "item"))

    def _add_text(self, event: Mapping[str, Any]) -> Iterator[TextDelta]:
        if more := text(event, "delta"):
            self._item(event, "message").pieces.append(more)
            yield TextDelta(more)

    def _item(self, event: Mapping[str, Any], kind: str) -> _Item:
        """Return the item of an event; start one if there is none."""
        item = self._find_item(event, text(event, "item_id"), kind)
        return item or self._new(event, kind)

    def _find_item(self, event: Mapping[str, Any], item_id: str, kind: str) -> _Item | None:
        """Return the item of this kind by id, by number, or the last one; None if none matches.

        Some servers give all items the same number, or a new id with every event.
        """
        index = event.get("output_index")
        numbered = self._at.get(index) if isinstance(index, int) else None
        if numbered is not None and numbered.kind == kind and numbered.id == item_id:  # as the vendor has it
            return numbered
        named = next((item for item in reversed(self._items) if item_id and item.id == item_id), None)
        last = self._items[-1] if self._items and not isinstance(index, int) else None
        return next((item for item in (named, numbered, last) if item is not None and item.kind == kind), None)

    def _new(self, event: Mapping[str, Any], kind: str = "") -> _Item:
        item = _Item(kind or text(get_field(event, "item"), "type"))
        self._items.append(item)
        if isinstance(index := event.get("output_index"), int):
            self._at[index] = item
        return item

    def _describe(self, item: _Item, described: object) -> None:
        item.id = text(described, "id") or item.id
        item.call_id = text(described, "call_id") or item.call_id
        item.name = text(described, "name") or item.name
        item.phase = text(described, "phase") or item.phase

    def _complete(self, event: Mapping[str, Any]) -> Iterator[TextDelta]:
        """Add the fields of the complete item that the deltas did not hold."""
        whole = get_field(event, "item")
        item_id = text(whole, "id")
        item = self._find_item(event, item_id, text(whole, "type"))
        if item is None or (item.whole and item.id != item_id):
            item = self._new(event)
        self._describe(item, whole)
        item.whole = whole if isinstance(whole, dict) else {}
        if item.kind == "function_call":
            item.pieces = [json_text(whole, "arguments") or item.text]
        elif item.kind == "message":
            self._refused |= any(text(part, "type") == "refusal" for part in get_list(whole, "content"))
            if not item.pieces and (
                message_text := "".join(
                    text(part, "text") or text(part, "refusal") for part in get_list(whole, "content")
                )
            ):  # a server that does not stream it
                item.pieces.append(message_text)
                yield TextDelta(message_text)

    def _end(self, response: object, status: str) -> Iterator[TextDelta]:
        status = text(response, "status") or status
        if status not in ("completed", "incomplete"):
            raise ProviderRejected(ProviderError.from_response(200, response))
        if not any(item.whole for item in self._items):  # a server that tells them in the end alone
            for whole in get_list(response, "output"):
                yield from self._complete({"item": whole})
        self._status = status
        self._cut_by = text(get_field(response, "incomplete_details"), "reason")
        self._usage = tokens_of(get_field(response, "usage"), "input", "output")


def _error(kind: str, event: Mapping[str, Any]) -> object:
    match kind:
        case "response.failed":
            return get_field(event, "response") or {"message": ""}
        case "error" if not isinstance(event.get("error"), dict):  # the event is the error, and `type` is the event's
            return {**event, "type": ""}
        case "error" | "":  # as the vendor's other protocol has it
            return event if event.get("error") else None
        case _:
            return None


def _echo(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a reasoning item as the service accepts it back, or None without encrypted content."""
    if not text(item, "encrypted_content"):
        return None
    summary = [part for part in get_list(item, "summary") if isinstance(part, dict)]
    return {
        "type": "reasoning",
        **({"id": text(item, "id")} if text(item, "id") else {}),
        "summary": [{"type": "summary_text", "text": text(part, "text")} for part in summary],
        "encrypted_content": text(item, "encrypted_content"),
    }


@dataclass(frozen=True, slots=True)
class Config(HostedConfig):
    """Settings of one model."""


def create(config: Config) -> LanguageModel:
    """Return the model without opening a connection. Raises SettingsError for a key that cannot be sent."""
    service = config.service("OpenAI", OPENAI_HOME)
    client, capabilities = openai_client(service, "/responses"), config.capabilities(service, OPENAI_WINDOW)
    paths = ModelListPaths(windows=not service.own_address)
    return listed_model(config, client, (request_body, ReplyDraft), capabilities, paths, passed_over=PASSED_OVER)

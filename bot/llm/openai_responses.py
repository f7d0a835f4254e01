"""Adapter for OpenAI's Responses, at the vendor's address and at compatible servers.

Models keep their reasoning from one round of tools to the next, which Chat Completions does not support.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Any

from bot.domain.completions import (
    Completion,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolResult
from bot.llm import reply_draft
from bot.llm.hosted_model import OPENAI_HOME, OPENAI_WINDOW, HostedConfig, openai_client
from bot.llm.model_list import ModelListPaths, listed_model
from bot.llm.provider_service import ErrorKind, ProviderError, ProviderRejected
from bot.llm.reply_draft import Delta, Event, ItemDraft
from bot.llm.tool_schemas import tool_fields
from bot.llm.wire_format import (
    CallIds,
    data_url,
    distinct_ids,
    encode_arguments,
    fit_to_read,
    get_count,
    get_field,
    get_list,
    in_words,
    is_document,
    is_system,
    json_text,
    parse_call,
    single_line,
    storable,
    text,
    tokens_of,
    unknown_fields,
    valid_name,
    write_parts,
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
    # Strict is the default here, and takes no argument that is not required.
    body |= tool_fields(request, _KEYS, lambda tool: {"type": "function", **tool, "strict": False}, "none")
    if own_address and ErrorKind.STREAM_OPTIONS not in known:  # compatible servers may not know these
        beginning = "\n".join((instructions, *(tool.name for tool in request.tools)))
        body["prompt_cache_key"] = hashlib.sha256(beginning.encode("utf-8", "replace")).hexdigest()[:32]
        body["stream_options"] = {"include_obfuscation": False}
    if not body["input"]:
        body["input"] = [{"role": "user", "content": "(empty message)"}]
    return body


def _items(message: Message, by: str, ids: CallIds) -> Iterator[Item]:
    match message.role:
        case MessageRole.SYSTEM:
            if message.text.strip():
                yield {"role": "developer", "content": message.text}
        case MessageRole.USER:
            yield {"role": "user", "content": _content(message.parts) or "(empty message)"}
        case MessageRole.ASSISTANT:
            yield from _assistant(message, by, ids)
        case MessageRole.TOOL:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    prefix = "Error: " if part.is_error else ""
                    output = _content(part.parts, prefix)
                    yield {"type": "function_call_output", "call_id": ids.of_result(part.call_id), "output": output}


def _assistant(message: Message, by: str, ids: CallIds) -> list[Item]:
    metadata: Any = message.provider_metadata.get(METADATA)
    metadata = metadata if isinstance(metadata, Mapping) and metadata.get("by") == by else {}
    phase = {"phase": metadata["phase"]} if isinstance(metadata.get("phase"), str) else {}

    def write(part: Part) -> Item | None:
        match part:
            case ToolCall():
                arguments = json.dumps(encode_arguments(part), ensure_ascii=False, default=dict)
                call = {"call_id": ids.of_call(part.id), "name": valid_name(part.name), "arguments": arguments}
                return {"type": "function_call", **call}
            case TextPart() if part.text:
                return {"role": "assistant", "content": part.text, **phase}
        return None

    def is_thought(item: Item) -> bool:
        return item.get("type") == "reasoning" and isinstance(item.get("encrypted_content"), str)

    return write_parts(message, metadata, by, ("reasoning", "item"), is_thought=is_thought, write=write)


def _content(parts: Sequence[Part], prefix: str = "") -> str | list[Item]:
    """Return the parts after the prefix: a text if there are no images and documents."""
    if any(isinstance(part, ImagePart) or is_document(part) for part in parts):
        return [*([_part(TextPart(prefix.strip()))] if prefix else []), *(_part(part) for part in parts)]
    return prefix + "\n".join(in_words(part) for part in parts)


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


class ReplyDraft(reply_draft.ReplyDraft):
    """Draft of a reply. `_stop` is its status. The fields of an item are its phase and the id of its call."""

    METADATA = METADATA

    def __init__(self, by: str = "") -> None:
        super().__init__(by)
        self._cut_by = ""
        self._refused = False

    def take(self, event: Event, /) -> Iterator[Delta]:  # noqa: D102 - the base says it
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

    def completion(self) -> Completion | None:  # noqa: D102 - the base says it
        if not self.finished:
            return None
        stop = _STOPS.get(self._cut_by, StopReason.LENGTH) if self._stop == "incomplete" else None
        if self._refused:
            stop = StopReason.REFUSED
        begun = [item for item in self._items if item.kind == "function_call"]
        calls = begun if stop is None else []
        ids = iter(distinct_ids([call.fields.get("call_id", "") for call in calls]))
        parts: list[Part] = []
        kept: dict[str, Any] = {"phase": "", "reasoning": []}
        for item in self._items:
            match item.kind:
                case "reasoning" if echo := _echo(item.whole):
                    kept["reasoning"].append({"before": len(parts), "item": echo})
                case "message" if item.text:
                    parts.append(TextPart(item.text))
                    kept["phase"] = item.fields.get("phase") or kept["phase"]
                case "function_call" if stop is None:
                    parts.append(parse_call(next(ids), item.name, item.text))
        unknown = [unknown_fields(call.whole, *_CALL) for call in calls]
        kept["calls"] = storable(unknown) if any(unknown) else []
        return self._completion(parts, stop, kept, begun_call=bool(begun))

    def end(self) -> None:
        """Take a reply without its last event as finished if all its items are whole."""
        if any(item.kind in ("message", "function_call") for item in self._items) and all(
            item.whole for item in self._items
        ):
            self._stop = self._stop or "completed"

    def _begin(self, event: Mapping[str, Any]) -> Iterator[UsageReported]:
        if not self._items:
            yield UsageReported()
        item = get_field(event, "item")
        self._describe(self._new(event.get("output_index"), text(item, "type")), item)

    def _add_text(self, event: Mapping[str, Any]) -> Iterator[TextDelta]:
        if more := text(event, "delta"):
            self._item(event, "message").pieces.append(more)
            yield TextDelta(more)

    def _item(self, event: Mapping[str, Any], kind: str) -> ItemDraft:
        """Return the item of an event; start one if there is none."""
        item = self._find_item(event, text(event, "item_id"), kind)
        return item or self._new(event.get("output_index"), kind)

    def _find_item(self, event: Mapping[str, Any], item_id: str, kind: str) -> ItemDraft | None:
        """Return the item of this kind by id, by number, or the last one; None if none matches.

        Some servers give all items the same number, or a new id with every event.
        """
        known = self._known(event.get("output_index"))
        if known is not None and known.kind == kind and known.id == item_id:  # as the vendor has it
            return known
        named = next((item for item in reversed(self._items) if item_id and item.id == item_id), None)
        return next((item for item in (named, known) if item is not None and item.kind == kind), None)

    def _describe(self, item: ItemDraft, described: object) -> None:
        item.id = text(described, "id") or item.id
        item.name = text(described, "name") or item.name
        item.fields |= {name: value for name in ("call_id", "phase") if (value := text(described, name))}

    def _complete(self, event: Mapping[str, Any]) -> Iterator[TextDelta]:
        """Add the fields of the complete item that the deltas did not hold."""
        whole = get_field(event, "item")
        item_id = text(whole, "id")
        item = self._find_item(event, item_id, text(whole, "type"))
        if item is None or (item.whole and item.id != item_id):
            item = self._new(event.get("output_index"), text(whole, "type"))
        self._describe(item, whole)
        item.whole = whole if isinstance(whole, dict) else {}
        if item.kind == "function_call":
            item.pieces = [json_text(whole, "arguments") or item.text]
        elif item.kind == "message":
            self._refused |= any(text(part, "type") == "refusal" for part in get_list(whole, "content"))
            said = "".join(text(part, "text") or text(part, "refusal") for part in get_list(whole, "content"))
            if not item.pieces and said:  # a server that does not stream it
                item.pieces.append(said)
                yield TextDelta(said)

    def _end(self, response: object, status: str) -> Iterator[TextDelta]:
        status = text(response, "status") or status
        if status not in ("completed", "incomplete"):
            raise ProviderRejected(ProviderError.from_response(200, response))
        if not any(item.whole for item in self._items):  # a server that tells them in the end alone
            for whole in get_list(response, "output"):
                yield from self._complete({"item": whole})
        self._stop = status
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


Config = HostedConfig


def create(config: HostedConfig) -> LanguageModel:
    """Return the model without opening a connection. Raises SettingsError for a key that cannot be sent."""
    service = config.service("OpenAI", OPENAI_HOME)
    client, capabilities = openai_client(service, "/responses"), config.capabilities(service, OPENAI_WINDOW)
    paths = ModelListPaths(windows=not service.own_address)
    return listed_model(config, client, (request_body, ReplyDraft), capabilities, paths, passed_over=PASSED_OVER)

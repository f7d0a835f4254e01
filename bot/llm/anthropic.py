"""Anthropic's Messages, at the vendor's address and at compatible servers.

The client's own retries are off: the engine retries and shows it. The
typed objects that it makes of each event are left out: its HTTP answer is read as it is, by aiohttp, which takes half
the time of the default.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import takewhile
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
from bot.domain.lenient_json import parse_object
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolResult
from bot.llm import reply_draft
from bot.llm.hosted_model import HostedConfig, VendorClient
from bot.llm.model_list import ModelListPaths, listed_model
from bot.llm.provider_service import ErrorKind, ProviderError, ProviderRejected
from bot.llm.reply_draft import Delta, Event, ItemDraft
from bot.llm.tool_schemas import tool_fields
from bot.llm.wire_format import (
    CallIds,
    describe_file,
    describe_image,
    distinct_ids,
    encode_arguments,
    fit_to_read,
    get_count,
    get_field,
    get_list,
    is_system,
    parse_call,
    single_line,
    storable,
    text,
    tokens,
    unknown_fields,
    valid_name,
    write_parts,
)
from bot.ports import LanguageModel

METADATA = "anthropic"
"""Key in `provider_metadata`. The value is `{"by": writer, "thinking": [{"before": part number, "block": the block as
received}]}`."""

_KEYS = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments (the service's words: "Property keys should match pattern")."""
_KEPT = {"type": "ephemeral"}
"""Cache mark: the service caches the request up to this block, for five minutes after each use."""
_NOTE_TAG = "operator_note"
_FORGED = re.compile(_NOTE_TAG, re.IGNORECASE)
_LONGEST_TITLE = 200
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PAUSED = "pause_turn"
_STOPS = {
    _PAUSED: StopReason.LENGTH,  # where it is gone on with no more
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.REFUSED,
}
_KINDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""Kind of the content block, by type of its delta."""
_BUDGETS = {"low": 1_024, "medium": 4_096, "high": 16_384}
"""Tokens of thinking for models without degrees of effort; the first is the least that the service accepts."""
_THOUGHTS = ("thinking", "redacted_thinking")
_CALL = ("type", "id", "name", "input", "text")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_HOME = "https://api.anthropic.com"
_IMAGE_BYTES = 5 * 2**20 * 3 // 4
"""Bytes of an image. The service limits the base64 text to 5 MiB, which is four bytes for three."""
_WINDOW = 200_000
"""Default window in tokens. All of the vendor's models have at least this many."""
_PASSED_OVER = frozenset({b"ping", b"content_block_stop"})

Block = dict[str, Any]


# -------------------- request
# A model request in the words of Anthropic's Messages.
#
# Plain JSON, made without the vendor's library. The service is strict about form: roles alternate beginning with the
# user, results come first in the message after their calls, and no text is blank.


def request_body(
    model: str,
    request: ModelRequest,
    known: Collection[ErrorKind] = (),
    *,
    own_address: bool,
    by: str = "",
    reasoning: str = "",
) -> dict[str, Any]:
    """Return the request body. `known` are the problems that the server has reported before. Thinking is included only
    if `by` wrote it.
    """
    request = fit_to_read(request)
    marks = ErrorKind.CACHE_MARKS not in known
    body: dict[str, Any] = {"model": model, "max_tokens": request.limits.max_tokens, "stream": True}
    body |= _effort(reasoning, known, request.limits.max_tokens)
    system = [_text_block(m.text) for m in takewhile(is_system, request.messages) if m.text.strip()]
    if system and marks:  # the tools and the instructions are the same in every conversation
        system[-1]["cache_control"] = _KEPT
    if system:
        body["system"] = system
    leading = sum(1 for _ in takewhile(is_system, request.messages))
    stable = request.stable_messages - leading if marks else 0
    body["messages"] = _transcript(request.messages[leading:], stable, by)
    body |= tool_fields(request, _KEYS, dict, {"type": "none"}, parameters="input_schema")
    if marks and own_address:  # the service keeps the transcript for the next request
        body["cache_control"] = _KEPT
    elif (
        marks and body["messages"] and body["messages"][-1]["role"] == "user"
    ):  # compatible servers know marks of blocks alone
        last = body["messages"][-1]["content"]
        last[-1] = {**last[-1], "cache_control": _KEPT}
    return body


def _effort(reasoning: str, known: Collection[ErrorKind], room: int) -> dict[str, Any]:
    """Return the setting of the thinking: as newer models have it, then with a budget for older ones, then none."""
    if not reasoning or ErrorKind.NO_EFFORT in known or ErrorKind.REASONING in known:
        return {}
    if reasoning == "off":
        return {} if ErrorKind.EFFORT in known else {"thinking": {"type": "disabled"}}
    if ErrorKind.EFFORT not in known:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": reasoning}}
    budget = min(_BUDGETS[reasoning], room // 2)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _BUDGETS["low"] else {}


def _transcript(messages: Sequence[Message], stable: int, by: str) -> list[dict[str, Any]]:
    """Return the messages, with a cache mark at the end of the first `stable` ones: later messages differ in the next
    turn.
    """
    ids = CallIds()
    merged: list[dict[str, Any]] = []
    for n, message in enumerate(messages, start=1):
        role = "assistant" if message.role is MessageRole.ASSISTANT else "user"
        blocks = _blocks(message, ids, by)
        if not blocks:
            continue
        if n == stable:
            blocks[-1] = {**blocks[-1], "cache_control": _KEPT}
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    for turn in merged:
        turn["content"].sort(key=lambda block: turn["role"] == "user" and block["type"] != "tool_result")
    if merged and merged[0]["role"] == "assistant":
        merged.insert(0, {"role": "user", "content": [_text_block("(Earlier messages are left out.)")]})
    return merged


def _blocks(message: Message, ids: CallIds, by: str) -> list[Block]:
    match message.role:
        case MessageRole.SYSTEM:
            text = message.text.strip()
            return [_text_block(f"<{_NOTE_TAG}>\n{text}\n</{_NOTE_TAG}>")] if text else []
        case MessageRole.USER:
            return _readable(message.parts) or [_text_block("(empty message)")]
        case MessageRole.ASSISTANT:
            return _assistant(message, ids, by)
        case MessageRole.TOOL:
            return [
                {
                    "type": "tool_result",
                    "tool_use_id": ids.of_result(part.call_id),
                    "content": _readable(part.parts),
                    **({"is_error": True} if part.is_error else {}),
                }
                for part in message.parts
                if isinstance(part, ToolResult)
            ]


def _assistant(message: Message, ids: CallIds, by: str) -> list[Block]:
    def write(part: Part) -> Block | None:
        match part:
            case ToolCall():
                name = valid_name(part.name)
                return {"type": "tool_use", "id": ids.of_call(part.id), "name": name, "input": encode_arguments(part)}
            case TextPart() if part.text.strip():
                return _text_block(part.text)
        return None

    def is_thought(block: Block) -> bool:
        return block.get("type") in _THOUGHTS

    metadata = message.provider_metadata.get(METADATA)
    return write_parts(message, metadata, by, ("thinking", "block"), is_thought=is_thought, write=write)


def _readable(parts: Sequence[Part]) -> list[Block]:
    """Return the blocks of parts that users and tools wrote."""
    blocks: list[Block] = []
    for part in parts:
        match part:
            case TextPart() if part.text.strip():
                blocks.append(_foreign_block(part.text))
            case ImagePart() if part.mime_type in _IMAGES:
                data = b64encode(part.data).decode()
                source = {"type": "base64", "media_type": part.mime_type, "data": data}
                blocks.append({"type": "image", "source": source})
            case ImagePart():
                blocks.append(_foreign_block(describe_image(part)))
            case FilePart(mime_type="application/pdf") if part.data:
                source = {"type": "base64", "media_type": part.mime_type, "data": b64encode(part.data).decode()}
                title = _escape_marker(single_line(part.name, _LONGEST_TITLE)) or "document"
                blocks.append({"type": "document", "source": source, "title": title})
            case FilePart():
                blocks.append(_foreign_block(describe_file(part)))
    return blocks


def _foreign_block(text: str) -> Block:
    # The operator's tag in another's text would be a forgery.
    return _text_block(_escape_marker(text))


def _escape_marker(text: str) -> str:
    return _FORGED.sub("operator note", text)


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


# -------------------- reply
# A reply of Anthropic's Messages, assembled from the events of its stream.
#
# The arguments' JSON is parsed here, because the vendor's helper turns broken JSON into a partial object. Compatible
# servers may omit fields or use other types.


class ReplyDraft(reply_draft.ReplyDraft):
    """Draft of a reply. Its items are the content blocks."""

    METADATA = METADATA

    def __init__(self, by: str = "") -> None:
        super().__init__(by)
        self._counts: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()

    def take(self, event: Event, /) -> Iterator[Delta]:  # noqa: D102 - the base says it
        match text(event, "type"):
            case "content_block_delta":
                delta = get_field(event, "delta")
                block = self._continued_block(get_field(event, "index"), _KINDS.get(text(delta, "type"), ""))
                if more := text(delta, "text") or text(delta, "partial_json") or text(delta, "thinking"):
                    yield from _add(block, more)
                else:
                    block.signature += text(delta, "signature")
            case "content_block_start":
                yield from self._begin(get_field(event, "index"), get_field(event, "content_block"))
            case "message_start":
                self._count(get_field(get_field(event, "message"), "usage"))
                yield UsageReported(self._usage)
            case "message_delta":
                yield from self._end(get_field(event, "delta"), get_field(event, "usage"))
            case "message_stop" if self._is_whole:  # a server that does not say why the model stopped
                self._stop = self._stop or "end_turn"
            case "message":  # a server that does not stream
                for block in get_list(event, "content"):
                    yield from self._begin(None, block)
                yield from self._end(event, get_field(event, "usage"))
            case kind if kind == "error" or event.get("error"):
                raise ProviderRejected(ProviderError.from_response(200, event))

    def completion(self) -> Completion | None:  # noqa: D102 - the base says it
        if not self.finished:
            return None
        stop = _STOPS.get(self._stop)
        begun = [block for block in self._items if block.kind == "tool_use"]
        calls = begun if stop is None else []
        ids = iter(distinct_ids([call.id for call in calls]))
        parts: list[Part] = []
        thinking: list[dict[str, Any]] = []
        for block in self._items:
            if echo := _echo(block):
                thinking.append({"before": len(parts), "block": echo})
            elif block.kind == "text" and block.text:
                parts.append(TextPart(block.text))
            elif block.kind == "tool_use" and stop is None:
                parts.append(parse_call(next(ids), block.name, _arguments(block)))
        unknown = storable([call.fields for call in calls]) if any(call.fields for call in calls) else []
        return self._completion(parts, stop, {"thinking": thinking, "calls": unknown}, begun_call=bool(begun))

    @property
    def _is_whole(self) -> bool:
        calls = [block for block in self._items if block.kind == "tool_use"]
        if calls:
            return all(call.name and parse_object(_arguments(call)) is not None for call in calls)
        return any(block.kind == "text" and block.pieces for block in self._items)

    def resume(self) -> Message | None:  # noqa: D102 - the base says it
        paused = self.completion() if self._stop == _PAUSED else None
        if paused is None:
            return None
        self._earlier += self._counts
        self._counts, self._stop, self._at = Counter(), "", {}
        return paused.message

    def _end(self, delta: object, usage: object) -> Iterator[Delta]:
        self._stop = text(delta, "stop_reason") or self._stop
        self._count(usage)
        yield UsageReported(self._usage)
        refusal = text(get_field(delta, "stop_details"), "explanation")
        # Why the service refuses, where the model has said nothing.
        if refusal and not any(block.kind == "text" and block.pieces for block in self._items):
            yield from _add(self._new(None, "text"), refusal)

    def _begin(self, index: object, start: object) -> Iterator[Delta]:
        block = self._new(index, text(start, "type"))
        block.id, block.name, block.signature = text(start, "id"), text(start, "name"), text(start, "signature")
        block.whole = start if isinstance(start, dict) else {}
        block.fields = unknown_fields(start, *_CALL) if block.kind == "tool_use" else {}
        if begun := text(start, "text") or text(start, "thinking"):
            yield from _add(block, begun)

    def _continued_block(self, index: object, kind: str) -> ItemDraft:
        """Return the block that a delta of this kind continues; start one if none fits.

        Some servers omit the index, give all blocks the same one, or send no start event.
        """
        block = self._known(index)
        if block is None or (kind and kind != block.kind and block.kind in _KINDS.values()):
            return self._new(index, kind)
        return block

    def _count(self, usage: object) -> None:
        """Update the token counts. Counts only grow, because some servers send 0 first or last."""
        for name in _COUNTS:
            self._counts[name] = max(self._counts[name], get_count(usage, name))
        details = get_field(usage, "output_tokens_details")
        self._counts["thinking_tokens"] = max(self._counts["thinking_tokens"], get_count(details, "thinking_tokens"))
        counts = self._earlier + self._counts
        cached, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
        read = counts["input_tokens"] + written + cached
        self._usage = tokens(read, counts["output_tokens"], cached, written, counts["thinking_tokens"])


def _add(block: ItemDraft, more: str) -> Iterator[Delta]:
    block.pieces.append(more)
    if block.kind == "text":
        yield TextDelta(more)
    elif block.kind == "thinking":
        yield ReasoningDelta(more)
    elif block.kind == "tool_use":
        yield ToolCallDelta(more)


def _arguments(block: ItemDraft) -> str:
    given = block.whole.get("input")
    return block.text or (json.dumps(given) if given else "")


def _echo(block: ItemDraft) -> dict[str, str] | None:
    """Return a thought as the service accepts it back; None for other kinds and for a missing signature or data."""
    if block.kind == "thinking" and block.signature:
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if block.kind == "redacted_thinking" and (data := text(block.whole, "data")):
        return {"type": "redacted_thinking", "data": data}
    return None


Config = partial(HostedConfig, variables="ANTHROPIC")


def create(config: HostedConfig) -> LanguageModel:
    """Return the model without opening a connection. Raises SettingsError for a key that cannot be sent."""
    service = config.service("Anthropic", _HOME)
    capabilities = config.capabilities(service, _WINDOW, image_bytes=_IMAGE_BYTES)
    paths, protocol = ModelListPaths("/v1/models"), (request_body, ReplyDraft)
    headers = None if service.own_address else {"x-api-key": service.key}
    return listed_model(
        config,
        VendorClient(service, _load_anthropic, "/v1/messages", headers),
        protocol,
        capabilities,
        paths,
        passed_over=_PASSED_OVER,
    )


def _load_anthropic() -> tuple[Any, Any]:
    import anthropic  # noqa: PLC0415 - heavy, see `VendorClient`

    return anthropic, anthropic.AsyncAnthropic

"""A reply of Anthropic's Messages, put together from the events of its stream.

Called by `anthropic`. The tools' JSON is read here and not by the vendor's helper, which makes a part of an object
out of broken JSON. Compatible servers speak this protocol too, so nothing is taken for granted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.completions import (
    Completion,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import Message, MessageRole, Part, TextPart
from bot.llm.anthropic_request import METADATA
from bot.llm.call_ids import distinct_ids
from bot.llm.error_classification import ProviderError, ProviderRejected
from bot.llm.lenient_fields import get_count, get_field, get_list, text, tokens
from bot.llm.streaming import Delta
from bot.llm.tool_arguments import parse_call

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
"""What a delta is of."""
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(slots=True)
class _Block:
    """A content block so far. `text` is what its deltas add up to: text, thinking or the JSON of arguments."""

    kind: str
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    input: Any = None
    signature: str = ""
    data: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def echo(self) -> dict[str, str] | None:
        """The block as the service wants it back, None if it does not."""
        if self.kind == "thinking" and self.signature:
            return {"type": "thinking", "thinking": self.text, "signature": self.signature}
        if self.kind == "redacted_thinking" and self.data:
            return {"type": "redacted_thinking", "data": self.data}
        return None


class ReplyDraft:
    """What has arrived of a reply. `by` says who writes it: what is meant for its service alone goes to no other."""

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}
        self._stop = ""
        self._counts: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()

    def take(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Add an event and yield what people can see of it. Unknown events are passed over. Raises ProviderRejected
        for an error.
        """
        match text(event, "type"):
            case "content_block_delta":
                yield from self._continue(event)
            case "content_block_start":
                yield from self._begin(get_field(event, "index"), get_field(event, "content_block"))
            case "message_start":
                self._count(get_field(get_field(event, "message"), "usage"))
                yield UsageReported(self._usage())
            case "message_delta":
                yield from self._end(get_field(event, "delta"), get_field(event, "usage"))
            case "message":  # a server that does not stream
                for block in get_list(event, "content"):
                    yield from self._begin(None, block)
                yield from self._end(event, get_field(event, "usage"))
            case kind if kind == "error" or event.get("error"):
                raise ProviderRejected(ProviderError.read(200, event))

    @property
    def finished(self) -> bool:
        """Whether the service has said why the model stopped."""
        return bool(self._stop)

    def completion(self) -> Completion | None:
        """The finished reply, or None if the stream ended before the model did.

        Calls of a reply that was cut short are left out: the last one may be half written.
        """
        if not self._stop:
            return None
        stop = _STOPS.get(self._stop)
        calls = [block for block in self._blocks if block.kind == "tool_use" and stop is None]
        ids = iter(distinct_ids([call.id for call in calls]))
        parts: list[Part] = []
        thinking: list[dict[str, Any]] = []
        for block in self._blocks:
            if block.echo is not None:
                thinking.append({"before": len(parts), "block": block.echo})
            elif block.kind == "text" and block.text:
                parts.append(TextPart(block.text))
            elif block.kind == "tool_use" and stop is None:
                parts.append(parse_call(next(ids), block.name, _arguments(block)))
        metadata = {METADATA: {"by": self._by, "thinking": thinking}} if thinking else {}
        stop = stop or (StopReason.TOOLS if calls else StopReason.ANSWERED)
        return Completion(Message(MessageRole.ASSISTANT, tuple(parts), metadata), stop, self._usage())

    def resume(self) -> Message | None:
        """Everything that has been said, if the service wants it back before it goes on."""
        paused = self.completion() if self._stop == _PAUSED else None
        if paused is None:
            return None
        self._earlier += self._counts
        self._counts, self._stop, self._at = Counter(), "", {}
        return paused.message

    def _end(self, delta: object, usage: object) -> Iterator[Delta]:
        self._stop = text(delta, "stop_reason") or self._stop
        self._count(usage)
        yield UsageReported(self._usage())
        refusal = text(get_field(delta, "stop_details"), "explanation")
        # Why the service refuses, where the model has said nothing.
        if refusal and not any(block.kind == "text" and block.pieces for block in self._blocks):
            yield from _add(self._new(None, "text"), refusal)

    def _begin(self, index: object, start: object) -> Iterator[Delta]:
        block = self._new(index, text(start, "type"))
        block.id, block.name, block.input = text(start, "id"), text(start, "name"), get_field(start, "input")
        block.data, block.signature = text(start, "data"), text(start, "signature")
        if begun := text(start, "text") or text(start, "thinking"):
            yield from _add(block, begun)

    def _continue(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        delta = get_field(event, "delta")
        block = self._continued(get_field(event, "index"), _KINDS.get(text(delta, "type"), ""))
        if more := text(delta, "text") or text(delta, "partial_json") or text(delta, "thinking"):
            yield from _add(block, more)
        else:
            block.signature += text(delta, "signature")

    def _continued(self, index: object, kind: str) -> _Block:
        """The block that a delta of this kind goes on with. Servers leave out the index, give all blocks the same one,
        or do not say when one begins.
        """
        last = self._blocks[-1] if self._blocks else None
        block = self._at.get(index) if isinstance(index, int) else last
        if block is None or (kind and kind != block.kind and block.kind in _KINDS.values()):
            return self._new(index, kind)
        return block

    def _new(self, index: object, kind: str) -> _Block:
        block = _Block(kind)
        self._blocks.append(block)
        if isinstance(index, int):
            self._at[index] = block
        return block

    def _count(self, usage: object) -> None:
        """The counts of a reply only grow; servers that know one late send 0 first, or at last."""
        for name in _COUNTS:
            self._counts[name] = max(self._counts[name], get_count(usage, name))
        thought = get_count(get_field(usage, "output_tokens_details"), "thinking_tokens")
        self._counts["thinking_tokens"] = max(self._counts["thinking_tokens"], thought)

    def _usage(self) -> Usage:
        counts = self._earlier + self._counts
        cached, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
        read = counts["input_tokens"] + written + cached
        return tokens(read, counts["output_tokens"], cached, written, counts["thinking_tokens"])


def _add(block: _Block, more: str) -> Iterator[Delta]:
    block.pieces.append(more)
    if block.kind == "text":
        yield TextDelta(more)
    elif block.kind == "thinking":
        yield ReasoningDelta(more)
    elif block.kind == "tool_use":
        yield ToolCallDelta(more)


def _arguments(block: _Block) -> str:
    """The JSON of the arguments; servers that do not stream them put the object where the block starts."""
    return block.text or (json.dumps(block.input) if block.input else "")

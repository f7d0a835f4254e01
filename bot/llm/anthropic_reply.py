"""A reply of Anthropic's Messages, put together from the events of its stream.

Called by `anthropic`. The tools' JSON is read here and not by the vendor's helper, which makes a part of an object
out of broken JSON. Compatible servers speak this protocol too, so nothing is taken for granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.completions import Completion, ReasoningDelta, StopReason, TextDelta, Usage
from bot.domain.messages import Message, Part, Role, TextPart
from bot.llm.anthropic_request import METADATA
from bot.llm.complaints import Complaint, ServiceComplained
from bot.llm.event_fields import part, text
from bot.llm.identifiers import distinct_ids
from bot.llm.tool_arguments import read_call

_PAUSED = "pause_turn"
_STOPS = {
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.REFUSED,
}


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
    """What has arrived of a reply."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._stop = ""
        self._counts: dict[str, int] = {}
        self._first = 0
        self._earlier = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        """Add an event and yield what people can see of it. Unknown events are passed over. Raises ServiceComplained
        for an error.
        """
        match text(event, "type"):
            case "content_block_delta":
                yield from self._continue(event)
            case "content_block_start":
                yield from self._begin(event)
            case "message_start":
                self._count(part(part(event, "message"), "usage"))
            case "message_delta":
                delta = part(event, "delta")
                self._stop = text(delta, "stop_reason") or self._stop
                self._count(part(event, "usage"))
                yield from self._explain(text(part(delta, "stop_details"), "explanation"))
            case "error":
                raise ServiceComplained(Complaint.read(200, event))

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
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = [block for block in blocks if block.kind == "tool_use" and stop is None]
        ids = iter(distinct_ids([call.id for call in calls]))
        parts: list[Part] = []
        thinking: list[dict[str, Any]] = []
        for block in blocks:
            if block.echo is not None:
                thinking.append({"before": len(parts), "block": block.echo})
            elif block.kind == "text" and block.text:
                parts.append(TextPart(block.text))
            elif block in calls:
                parts.append(read_call(next(ids), block.name, _arguments(block)))
        metadata = {METADATA: {"thinking": thinking}} if thinking else {}
        stop = stop or (StopReason.TOOLS if calls else StopReason.ANSWERED)
        return Completion(Message(Role.ASSISTANT, tuple(parts), metadata), stop, self._usage())

    def resume(self) -> Message | None:
        """What has been said, if the service wants it back before it goes on."""
        paused = self.completion() if self._stop == _PAUSED else None
        if paused is None:
            return None
        self._earlier, self._counts, self._stop = paused.usage, {}, ""
        self._first = max(self._blocks, default=-1) + 1
        return paused.message

    def _explain(self, refusal: str) -> Iterator[TextDelta | ReasoningDelta]:
        """Why the service refuses, where the model has said nothing."""
        if refusal and not any(block.kind == "text" and block.pieces for block in self._blocks.values()):
            block = self._blocks[self._next] = _Block("text")
            yield from _add(block, refusal)

    def _begin(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        start = part(event, "content_block")
        block = _Block(text(start, "type"), text(start, "id"), text(start, "name"), input=part(start, "input"))
        block.data, block.signature = text(start, "data"), text(start, "signature")
        self._blocks[self._index(event, self._next)] = block
        if begun := text(start, "text") or text(start, "thinking"):
            yield from _add(block, begun)

    def _continue(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        block = self._blocks.get(self._index(event, self._next - 1))
        delta = part(event, "delta")
        if block is None:
            return
        if more := text(delta, "text") or text(delta, "partial_json") or text(delta, "thinking"):
            yield from _add(block, more)
        else:
            block.signature += text(delta, "signature")

    @property
    def _next(self) -> int:
        return max(self._blocks, default=-1) + 1

    def _index(self, event: Mapping[str, Any], otherwise: int) -> int:
        index = event.get("index")
        return self._first + index if isinstance(index, int) else otherwise

    def _count(self, usage: object) -> None:
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            found = part(usage, name)
            if isinstance(found, int):
                self._counts[name] = found

    def _usage(self) -> Usage:
        counts = self._counts.get
        cached, written = counts("cache_read_input_tokens", 0), counts("cache_creation_input_tokens", 0)
        read = counts("input_tokens", 0) + written + cached
        before = self._earlier
        return Usage(
            before.input_tokens + read,
            before.output_tokens + counts("output_tokens", 0),
            before.cached_tokens + cached,
            before.cache_writes + written,
        )


def _add(block: _Block, more: str) -> Iterator[TextDelta | ReasoningDelta]:
    block.pieces.append(more)
    if block.kind == "text":
        yield TextDelta(more)
    elif block.kind == "thinking":
        yield ReasoningDelta(more)


def _arguments(block: _Block) -> str:
    """The JSON of the arguments; servers that do not stream them put the object where the block starts."""
    return block.text or (json.dumps(block.input) if block.input else "")

"""A reply of Anthropic's Messages, put together from the events of its stream.

Called by `anthropic`. The tools' JSON is read here and not by the vendor's helper, which makes a part of an object
out of broken JSON. Compatible servers speak this protocol too, so nothing is taken for granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bot.domain.completions import Completion, ReasoningDelta, StopReason, TextDelta, Usage
from bot.domain.messages import Message, Part, Role, TextPart
from bot.llm.anthropic_request import METADATA
from bot.llm.foreign_text import well_formed
from bot.llm.identifiers import distinct_ids
from bot.llm.tool_arguments import read_call

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
    text: str = ""
    input: Any = None
    signature: str = ""
    data: str = ""

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

    def take(self, event: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Add an event and yield what people can see of it. Unknown events are passed over."""
        match _text(event, "type"):
            case "message_start":
                self._count(_field(_field(event, "message"), "usage"))
            case "content_block_start":
                yield from self._begin(event)
            case "content_block_delta":
                yield from self._continue(event)
            case "message_delta":
                self._stop = _text(_field(event, "delta"), "stop_reason") or self._stop
                self._count(_field(event, "usage"))

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

    def _begin(self, event: object) -> Iterator[TextDelta | ReasoningDelta]:
        start = _field(event, "content_block")
        block = _Block(_text(start, "type"), _text(start, "id"), _text(start, "name"), input=_field(start, "input"))
        block.data, block.signature = _text(start, "data"), _text(start, "signature")
        self._blocks[self._index(event, len(self._blocks))] = block
        if text := _text(start, "text") or _text(start, "thinking"):
            yield from _add(block, text)

    def _continue(self, event: object) -> Iterator[TextDelta | ReasoningDelta]:
        block = self._blocks.get(self._index(event, len(self._blocks) - 1))
        delta = _field(event, "delta")
        if block is None:
            return
        block.signature += _text(delta, "signature")
        if text := _text(delta, "text") or _text(delta, "thinking") or _text(delta, "partial_json"):
            yield from _add(block, text)

    @staticmethod
    def _index(event: object, otherwise: int) -> int:
        index = _field(event, "index")
        return index if isinstance(index, int) else otherwise

    def _count(self, usage: object) -> None:
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            count = _field(usage, name)
            if isinstance(count, int):
                self._counts[name] = count

    def _usage(self) -> Usage:
        counts = self._counts.get
        cached = counts("cache_read_input_tokens", 0)
        read = counts("input_tokens", 0) + counts("cache_creation_input_tokens", 0) + cached
        return Usage(read, counts("output_tokens", 0), cached)


def _add(block: _Block, text: str) -> Iterator[TextDelta | ReasoningDelta]:
    block.text += text
    if block.kind == "text":
        yield TextDelta(text)
    elif block.kind == "thinking":
        yield ReasoningDelta(text)


def _arguments(block: _Block) -> str:
    """The JSON of the arguments; servers that do not stream them put the object where the block starts."""
    return block.text or (json.dumps(block.input) if block.input else "")


def _field(value: object, name: str) -> Any:
    return getattr(value, name, None)


def _text(value: object, name: str) -> str:
    text = _field(value, name)
    return well_formed(text) if isinstance(text, str) else ""

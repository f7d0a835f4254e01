"""A reply of OpenAI's Responses, put together from the events of its stream.

Called by `openai_responses`. Text is shown as it comes; everything else is taken from the items once they are whole,
which is where the service puts what it wants back. Compatible servers speak this protocol too, so nothing is taken
for granted.
"""

from __future__ import annotations

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
from bot.llm.call_ids import distinct_ids
from bot.llm.error_classification import ProviderError, ProviderRejected
from bot.llm.lenient_fields import get_count, get_field, get_list, json_text, text, tokens
from bot.llm.openai_responses_request import METADATA
from bot.llm.streaming import Delta
from bot.llm.tool_arguments import parse_call

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
"""Events that repeat what others say: the first ones hold the whole request, every tool of it included."""

_STOPS = {"max_output_tokens": StopReason.LENGTH, "content_filter": StopReason.REFUSED}


@dataclass(slots=True)
class _Item:
    """An item so far: a message, a call, reasoning, or something that is passed over. `pieces` are its text or the
    JSON of its arguments.
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
    """What has arrived of a reply. `by` says who writes it: what is meant for its service alone goes to no other."""

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._items: list[_Item] = []
        self._at: dict[int, _Item] = {}
        self._status = ""
        self._cut_by = ""
        self._refused = False
        self._usage = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Add an event and yield what people can see of it. Unknown events are passed over. Raises ProviderRejected
        for an error.
        """
        match text(event, "type"):
            case "response.output_text.delta" | "response.refusal.delta" as kind:
                self._refused |= kind == "response.refusal.delta"
                yield from self._said(event)
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
                raise ProviderRejected(ProviderError.read(200, error))

    @property
    def finished(self) -> bool:
        """Whether the service has said that the reply is complete, or why it is not."""
        return bool(self._status)

    def completion(self) -> Completion | None:
        """The finished reply, or None if the stream ended before the model did.

        Calls of a reply that was cut short are left out: the last one may be half written.
        """
        if not self._status:
            return None
        stop = _STOPS.get(self._cut_by, StopReason.LENGTH) if self._status == "incomplete" else None
        if self._refused:
            stop = StopReason.REFUSED
        calls = [each for each in self._items if each.kind == "function_call" and stop is None]
        ids = iter(distinct_ids([call.call_id for call in calls]))
        parts: list[Part] = []
        reasoning: list[dict[str, Any]] = []
        phase = ""
        for each in self._items:
            match each.kind:
                case "reasoning" if echo := _echo(each.whole):
                    reasoning.append({"before": len(parts), "item": echo})
                case "message" if each.text:
                    parts.append(TextPart(each.text))
                    phase = each.phase or phase
                case "function_call" if stop is None:
                    parts.append(parse_call(next(ids), each.name, each.text))
        stop = stop or (StopReason.TOOLS if calls else StopReason.ANSWERED)
        kept: dict[str, Any] = {"phase": phase} if phase else {}
        kept |= {"reasoning": reasoning} if reasoning else {}
        metadata = {METADATA: {"by": self._by, **kept}} if kept else {}
        return Completion(Message(MessageRole.ASSISTANT, tuple(parts), metadata), stop, self._usage)

    def resume(self) -> None:
        """Nothing: models of this protocol do not pause."""

    def _begin(self, event: Mapping[str, Any]) -> Iterator[UsageReported]:
        if not self._items:
            yield UsageReported()
        self._describe(self._new(event), get_field(event, "item"))

    def _said(self, event: Mapping[str, Any]) -> Iterator[TextDelta]:
        if more := text(event, "delta"):
            self._item(event, "message").pieces.append(more)
            yield TextDelta(more)

    def _item(self, event: Mapping[str, Any], kind: str) -> _Item:
        """The item an event belongs to; servers that leave out the number write one after the other."""
        found = self._known(event, text(event, "item_id"), kind)
        return found or self._new(event, kind)

    def _known(self, event: Mapping[str, Any], item_id: str, kind: str) -> _Item | None:
        """The item by its id, by its number, or the last one, if it is of this kind. Servers give all the same number,
        or another id with every event.
        """
        index = event.get("output_index")
        numbered = self._at.get(index) if isinstance(index, int) else None
        if numbered is not None and numbered.kind == kind and numbered.id == item_id:  # as the vendor has it
            return numbered
        named = next((each for each in reversed(self._items) if item_id and each.id == item_id), None)
        last = self._items[-1] if self._items and not isinstance(index, int) else None
        return next((each for each in (named, numbered, last) if each is not None and each.kind == kind), None)

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
        """Take from the whole item what the deltas have not told."""
        whole = get_field(event, "item")
        item_id = text(whole, "id")
        item = self._known(event, item_id, text(whole, "type"))
        if item is None or (item.whole and item.id != item_id):
            item = self._new(event)
        self._describe(item, whole)
        item.whole = whole if isinstance(whole, dict) else {}
        if item.kind == "function_call":
            item.pieces = [json_text(whole, "arguments") or item.text]
        elif item.kind == "message":
            self._refused |= any(text(each, "type") == "refusal" for each in get_list(whole, "content"))
            if not item.pieces and (said := _said_in(whole)):  # a server that does not stream it
                item.pieces.append(said)
                yield TextDelta(said)

    def _end(self, response: object, status: str) -> Iterator[TextDelta]:
        status = text(response, "status") or status
        if status not in ("completed", "incomplete"):
            raise ProviderRejected(ProviderError.read(200, response))
        if not any(each.whole for each in self._items):  # a server that tells them in the end alone
            for whole in get_list(response, "output"):
                yield from self._complete({"item": whole})
        self._status = status
        self._cut_by = text(get_field(response, "incomplete_details"), "reason")
        self._usage = _usage(get_field(response, "usage"))


def _error(kind: str, event: Mapping[str, Any]) -> object:
    """What an event says about an error, None if it is none."""
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
    """Reasoning as the service wants it back, None if it has not said what it is."""
    if not text(item, "encrypted_content"):
        return None
    summary = [each for each in get_list(item, "summary") if isinstance(each, dict)]
    return {
        "type": "reasoning",
        **({"id": text(item, "id")} if text(item, "id") else {}),
        "summary": [{"type": "summary_text", "text": text(each, "text")} for each in summary],
        "encrypted_content": text(item, "encrypted_content"),
    }


def _said_in(message: object) -> str:
    return "".join(text(each, "text") or text(each, "refusal") for each in get_list(message, "content"))


def _usage(usage: object) -> Usage:
    read, written = get_field(usage, "input_tokens_details"), get_field(usage, "output_tokens_details")
    return tokens(
        get_count(usage, "input_tokens"),
        get_count(usage, "output_tokens"),
        get_count(read, "cached_tokens"),
        get_count(read, "cache_write_tokens"),
        get_count(written, "reasoning_tokens"),
    )

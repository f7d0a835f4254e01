"""A reply of Chat Completions, put together from the chunks of its stream.

Called by `openai_chat`. Many servers speak this protocol and few keep to its types, so nothing is taken for granted
here: fields may be missing, null or of another kind.
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
from bot.domain.messages import Message, MessageRole, TextPart
from bot.llm.call_ids import distinct_ids
from bot.llm.error_classification import ProviderError, ProviderRejected
from bot.llm.lenient_fields import get_count, get_field, get_list, json_text, storable, text, tokens
from bot.llm.openai_chat_request import METADATA, THOUGHTS
from bot.llm.streaming import Delta
from bot.llm.tool_arguments import parse_call

_STOPS = {
    "length": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,  # Mistral's
    "max_tokens": StopReason.LENGTH,
    "content_filter": StopReason.REFUSED,
}
_BROKEN_OFF = frozenset({"error", "abort"})
"""What OpenRouter and vLLM call an end that is none."""
_OLD_NAME, _, _DETAILS = THOUGHTS
_GROWING = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Of which of OpenRouter's reasoning details what comes in pieces."""


@dataclass(slots=True)
class _CallDraft:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)


class ReplyDraft:
    """What has arrived of a reply. `by` says who writes it: what is meant for its service alone goes to no other."""

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._text: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._calls: list[_CallDraft] = []
        self._at: dict[int, _CallDraft] = {}
        self._begun = False
        self._finish = ""
        self._refused = False
        self._usage = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Add a chunk and yield what people can see of it. Raises ProviderRejected for an error in its place."""
        if event.get("error") or event.get("type") == "error":
            raise ProviderRejected(ProviderError.read(200, event))
        if counted := _usage(event.get("usage")):
            self._usage = counted
            yield UsageReported(counted)
        for choice in get_list(event, "choices"):
            if error := get_field(choice, "error"):
                raise ProviderRejected(ProviderError.read(200, {"error": error}))
            if not self._begun:
                self._begun = True
                yield UsageReported(self._usage)
            # The other name is that of a server that does not stream.
            yield from self._said(get_field(choice, "delta") or get_field(choice, "message"))
            finish = text(choice, "finish_reason")
            self._finish = finish if finish and finish not in _BROKEN_OFF else self._finish

    def _said(self, delta: object) -> Iterator[Delta]:
        for name, value in delta.items() if isinstance(delta, dict) else ():
            match name:
                case "content" | "refusal" if value:
                    yield from self._written(name, value, delta)
                case "reasoning_content" | "reasoning" if thought := text(delta, name):
                    yield from self._thought(name, thought, delta)
                case "reasoning_details":
                    for fragment in get_list(delta, name):
                        _join(self._details, fragment)
                case "tool_calls":
                    for fragment in get_list(delta, name):
                        yield ToolCallDelta(self._add(fragment))
                case _:
                    pass

    def _written(self, name: str, value: object, delta: object) -> Iterator[Delta]:
        if isinstance(value, list) and (thought := _texts(value, "thinking")):
            yield ReasoningDelta(thought)
        if more := _texts(value, "text") if isinstance(value, list) else text(delta, name):
            self._text.append(more)
            self._refused |= name == "refusal"
            yield TextDelta(more)

    def _thought(self, name: str, thought: str, delta: object) -> Iterator[ReasoningDelta]:
        self._thoughts.setdefault(name, []).append(thought)
        if name == _OLD_NAME or not text(delta, _OLD_NAME):  # some servers say it under both names
            yield ReasoningDelta(thought)

    @property
    def finished(self) -> bool:
        """Whether the service has said why the model stopped."""
        return bool(self._finish)

    def completion(self) -> Completion | None:
        """The finished reply, or None if the stream ended before the model did.

        Calls of a reply that was cut short are left out: the last one may be half written.
        """
        if not self.finished:
            return None
        stop = StopReason.REFUSED if self._refused else _STOPS.get(self._finish)
        calls = self._calls if stop is None else []
        ids = distinct_ids([call.id for call in calls])
        read = [parse_call(call_id, call.name, "".join(call.pieces)) for call_id, call in zip(ids, calls, strict=True)]
        said = [TextPart("".join(self._text))] if self._text else []
        # Some servers say "stop" though they ask for tools, so the calls decide.
        stop = stop or (StopReason.TOOLS if read else StopReason.ANSWERED)
        kept: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._thoughts.items()}
        kept |= {_DETAILS: details} if (details := storable(self._details)) else {}
        # Only what led to calls is wanted back, and only until they are answered for.
        metadata = {METADATA: {"by": self._by, **kept}} if kept and read else {}
        return Completion(Message(MessageRole.ASSISTANT, (*said, *read), metadata), stop, self._usage)

    def resume(self) -> None:
        """Nothing: models of this protocol do not pause."""

    def _add(self, fragment: object) -> str:
        """What a fragment adds to the arguments of its call."""
        function = get_field(fragment, "function")
        call_id, name = text(fragment, "id"), text(function, "name")
        call = self._call_for(get_field(fragment, "index"), call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        call.pieces.append(more := json_text(function, "arguments"))
        return more

    def _call_for(self, index: object, call_id: str, name: str) -> _CallDraft:
        """The call a fragment belongs to.

        The index says it, but servers leave it out or give all calls the same one; then a name begins a call, unless
        the id says that it is the one being written. An id alone begins nothing: some servers send another with
        every fragment.
        """
        last = self._calls[-1] if self._calls else None
        known = self._at.get(index) if isinstance(index, int) else last
        if known is not None and not (
            name and known.name and _another(known.id, call_id, indexed=isinstance(index, int))
        ):
            return known
        fresh = _CallDraft()
        self._calls.append(fresh)
        if isinstance(index, int):
            self._at[index] = fresh
        return fresh


def _another(known_id: str, call_id: str, *, indexed: bool) -> bool:
    if known_id and call_id:
        return known_id != call_id
    return not indexed


def _join(details: list[dict[str, Any]], fragment: object) -> None:
    """Add a fragment of OpenRouter's reasoning details, whose text comes in pieces like any other."""
    if not isinstance(fragment, dict):
        return
    last = details[-1] if details else {}
    name = _GROWING.get(text(fragment, "type"), "")
    if not name or any(last.get(each) != fragment.get(each) for each in ("type", "index")):
        details.append(dict(fragment))
        return
    grown = text(last, name) + text(fragment, name)
    last.update({**{each: value for each, value in fragment.items() if value is not None}, name: grown})


def _texts(content: list[Any], kind: str) -> str:
    """What the parts of a kind say: Mistral writes its content in parts, and thinking is one with parts of its own."""
    found = (each for each in content if text(each, "type") == kind)
    return "".join(text(each, kind) or _texts(get_list(each, kind), "text") for each in found)


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    read, written = get_field(usage, "prompt_tokens_details"), get_field(usage, "completion_tokens_details")
    return tokens(
        get_count(usage, "prompt_tokens"),
        get_count(usage, "completion_tokens"),
        get_count(read, "cached_tokens"),
        get_count(read, "cache_write_tokens"),
        get_count(written, "reasoning_tokens"),
    )

"""A reply of Chat Completions, put together from the chunks of its stream.

Called by `openai_chat`. Many servers speak this protocol and few keep to its types, so nothing is taken for granted
here: fields may be missing, null or of another kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.completions import Completion, ReasoningDelta, StopReason, TextDelta, Usage
from bot.domain.messages import Message, Role, TextPart
from bot.llm.complaints import Complaint, ServiceComplained
from bot.llm.event_fields import count, items, part, text
from bot.llm.identifiers import distinct_ids
from bot.llm.tool_arguments import read_call

_STOPS = {"length": StopReason.LENGTH, "content_filter": StopReason.REFUSED}


@dataclass(slots=True)
class _CallDraft:
    id: str = ""
    name: str = ""
    arguments: str = ""


class ReplyDraft:
    """What has arrived of a reply."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[_CallDraft] = []
        self._at: dict[int, _CallDraft] = {}
        self._finish = ""
        self._refused = False
        self._usage = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        """Add a chunk and yield what people can see of it. Raises ServiceComplained for an error in its place."""
        if event.get("error"):
            raise ServiceComplained(Complaint.read(200, event))
        self._usage = _usage(event.get("usage")) or self._usage
        for choice in items(event, "choices"):
            delta = part(choice, "delta")
            # Two names for one thing: OpenRouter, Ollama and vLLM say `reasoning`, DeepSeek `reasoning_content`.
            if reasoning := text(delta, "reasoning_content") or text(delta, "reasoning"):
                yield ReasoningDelta(reasoning)
            for name in ("content", "refusal"):
                if more := text(delta, name):
                    self._text.append(more)
                    self._refused |= name == "refusal"
                    yield TextDelta(more)
            for fragment in items(delta, "tool_calls"):
                self._add(fragment)
            self._finish = text(choice, "finish_reason") or self._finish

    @property
    def finished(self) -> bool:
        """Whether the service has said why the model stopped."""
        return bool(self._finish)

    def completion(self) -> Completion | None:
        """The finished reply, or None if the stream ended before the model did.

        Calls of a reply that was cut short are left out: the last one may be half written.
        """
        if not self._finish:
            return None
        stop = StopReason.REFUSED if self._refused else _STOPS.get(self._finish)
        calls = self._calls if stop is None else []
        ids = distinct_ids([call.id for call in calls])
        read = [read_call(call_id, call.name, call.arguments) for call_id, call in zip(ids, calls, strict=True)]
        said = [TextPart("".join(self._text))] if self._text else []
        # Some servers say "stop" though they ask for tools, so the calls decide.
        stop = stop or (StopReason.TOOLS if read else StopReason.ANSWERED)
        return Completion(Message(Role.ASSISTANT, (*said, *read)), stop, self._usage)

    def resume(self) -> None:
        """Nothing: models of this protocol do not pause."""

    def _add(self, fragment: object) -> None:
        function = part(fragment, "function")
        call_id, name = text(fragment, "id"), text(function, "name")
        call = self._call_for(part(fragment, "index"), call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments += text(function, "arguments")

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


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    read, written = part(usage, "prompt_tokens_details"), part(usage, "completion_tokens_details")
    return Usage(
        count(usage, "prompt_tokens"),
        count(usage, "completion_tokens"),
        count(read, "cached_tokens"),
        count(read, "cache_write_tokens"),
        count(written, "reasoning_tokens"),
    )

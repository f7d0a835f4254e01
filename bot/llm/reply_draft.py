"""Draft of a reply: what the drafts of all protocols have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bot.domain.completions import (
    Completion,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import Message, MessageRole, Part, ToolCall

Event = Mapping[str, Any]
Delta = UsageReported | TextDelta | ReasoningDelta | ToolCallDelta


@dataclass(slots=True)
class ItemDraft:
    """Draft of an item of a reply: a text, thoughts, or a call. `pieces` are its text, or its arguments as JSON.
    `fields` are further ones that the service sent, `whole` is the item as the service described it.
    """

    kind: str = ""
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    signature: str = ""

    @property
    def text(self) -> str:
        """The pieces as one text."""
        return "".join(self.pieces)


class ReplyDraft(ABC):
    """Draft of a reply, built from stream events. `by` names the writer in `provider_metadata`, under the key
    `METADATA`. `_stop` is the service's word for the end; empty until then.
    """

    METADATA: ClassVar[str]

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._items: list[ItemDraft] = []
        self._at: dict[int, ItemDraft] = {}
        self._stop = ""
        self._usage = Usage()

    @abstractmethod
    def take(self, event: Event, /) -> Iterable[Delta]:
        """Add an event and return its visible deltas; ignore an unknown one. Raises ProviderRejected for an error."""

    @property
    def finished(self) -> bool:
        """True if the service has reported the end of the reply."""
        return bool(self._stop)

    @abstractmethod
    def completion(self) -> Completion | None:
        """Return the finished reply, or None if the stream ended before the model did. A truncated reply has no calls,
        because the last one may be incomplete.
        """

    def end(self) -> None:
        """Take note that the service has announced the end of the stream."""
        return

    def resume(self) -> Message | None:
        """Return the message so far if the model has paused until it is sent back; else None. Later events are added to
        the same draft.
        """
        return None

    def _new(self, index: object, kind: str = "") -> ItemDraft:
        item = ItemDraft(kind)
        self._items.append(item)
        if isinstance(index, int):
            self._at[index] = item
        return item

    def _known(self, index: object) -> ItemDraft | None:
        """Return the item with this number, or the last one if the service sends none."""
        if isinstance(index, int):
            return self._at.get(index)
        return self._items[-1] if self._items else None

    def _completion(
        self, parts: Sequence[Part], stop: StopReason | None, kept: Mapping[str, Any], *, begun_call: bool
    ) -> Completion:
        """Return the reply. Without a `stop` that cuts it off, its calls say how it ended: some services do not.
        `kept` is private metadata; empty values are left out.
        """
        own = {name: value for name, value in kept.items() if value}
        message = Message(MessageRole.ASSISTANT, tuple(parts), {self.METADATA: {"by": self._by, **own}} if own else {})
        calls = any(isinstance(part, ToolCall) for part in parts)
        cut = begun_call and stop is StopReason.LENGTH
        stop = stop or (StopReason.TOOLS if calls else StopReason.ANSWERED)
        return Completion(message, stop, self._usage, cut_call=cut)

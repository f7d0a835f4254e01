"""Sources of the words in a prompt, kept with every reply and summary that was written from that prompt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OtherSource(StrEnum):
    """A source of words that is not a tool's result. The value is stored."""

    ATTACHMENT = "attachment"
    THREAD = "thread"
    RESULT = "result"

    @property
    def label(self) -> str:
        """Phrase for the source in a sentence for users."""
        return _LABELS[self]


_LABELS = {
    OtherSource.ATTACHMENT: "an attached file",
    OtherSource.THREAD: "earlier messages here",
    OtherSource.RESULT: "an earlier result",
}


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Tool with a result in the prompt. All fields are those at the time of the call."""

    server: str
    tool: str
    server_id: str
    definition: str
    place: str


@dataclass(frozen=True, slots=True)
class PersonSource:
    """User with a question in the prompt. `principal` is as in settings: `slack:U123`."""

    principal: str


Source = ToolSource | PersonSource | OtherSource
Sources = tuple[Source, ...]
"""Distinct sources in the order of their first occurrence."""

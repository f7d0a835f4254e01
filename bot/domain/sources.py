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
        """The source in a sentence for people."""
        return _LABELS[self]


_LABELS = {
    OtherSource.ATTACHMENT: "an attached file",
    OtherSource.THREAD: "earlier messages here",
    OtherSource.RESULT: "an earlier result",
}


@dataclass(frozen=True, slots=True)
class ToolSource:
    """A tool whose result was in the prompt, as it was when it was called. `server` is the name at that time."""

    server: str
    tool: str
    server_id: str
    definition: str
    place: str


@dataclass(frozen=True, slots=True)
class PersonSource:
    """A person whose question was in the prompt. `principal` is as settings name people: `slack:U123`."""

    principal: str


Source = ToolSource | PersonSource | OtherSource
Sources = tuple[Source, ...]
"""Each source once, in the order in which they came."""

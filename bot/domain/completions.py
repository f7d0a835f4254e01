"""Request to a language model, and the events of its reply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.messages import Message
from bot.domain.tools import Tool


class ToolChoice(StrEnum):
    """Permission for the model to request tools in this completion."""

    AUTO = "auto"
    NONE = "none"


class StopReason(StrEnum):
    """Reason for the end of a reply."""

    ANSWERED = "answered"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSED = "refused"
    STOPPED = "stopped"
    """A user stopped the turn while the model wrote."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of one reply: output tokens, seconds until the first byte, seconds between two bytes, seconds in total.
    The first byte may take long, because models think before they write.
    """

    max_tokens: int = 4096
    first_seconds: float = 120.0
    idle_seconds: float = 60.0
    total_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a model. `documents`: reads PDF. `image_bytes` is the size of
    the largest image in bytes, `context_tokens` that of the window in tokens. `searches`: searches for tools if there
    are too many to list. `model` is the configured name of the model; empty for an adapter that is not wrapped by the
    service. `output_tokens` is the usual room for a reply in tokens, `largest_output` the most that the service
    accepts, 0 if unknown.
    """

    tools: bool = True
    images: bool = False
    image_bytes: int = 5 * 2**20
    documents: bool = False
    context_tokens: int = 128_000
    output_tokens: int = 4_096
    largest_output: int = 0
    searches: bool = True
    model: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request to a model: the transcript, and the tools to choose from. Besides the first message, system messages may
    occur between rounds; an adapter places them if its provider has no such role. The first `stable_messages` messages
    also begin later requests, which makes them worth caching.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    limits: ModelLimits = ModelLimits()
    stable_messages: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as counted by the provider. `input_tokens` includes those read from its cache (`cached_tokens`) and those
    written to it (`cache_writes`). `output_tokens` includes `reasoning_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_writes: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Next part of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Next part of the model's reasoning, if the model shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """Next part of a call's arguments. Partial arguments have no meaning."""

    text: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    """The reply has begun. `usage` is the count so far; zero if the service counts at the end. Later events are not
    included. `model` is the answering model, as in the Completion.
    """

    usage: Usage = Usage()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The whole reply, last event of every stream. `model` is the configured name of the model that wrote it; empty in
    an adapter's own events. `note` tells users why it is another model than configured. `cut_call`: the reply ended
    within a call. `calls_as_text`: the service had left the calls in the text.
    """

    message: Message
    stop: StopReason
    usage: Usage = Usage()
    model: str = ""
    note: str = ""
    cut_call: bool = False
    calls_as_text: bool = False

    @property
    def lacks_room(self) -> bool:
        """True if the length limit left neither an answer nor a whole call."""
        return self.stop is StopReason.LENGTH and (self.cut_call or not self.message.text.strip())


ModelEvent = UsageReported | TextDelta | ReasoningDelta | ToolCallDelta | Completion

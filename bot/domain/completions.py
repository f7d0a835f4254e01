"""One question to a language model, and the pieces its answer arrives in."""

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
    """Why the model stopped writing."""

    ANSWERED = "answered"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Bounds for one reply: tokens it may write, seconds until its first byte, seconds without another, seconds in all.
    The first may take long: models think before they write.
    """

    max_tokens: int = 4096
    first_seconds: float = 120.0
    idle_seconds: float = 60.0
    total_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a model. `files`: it reads attached text files. `documents`: it reads PDF. `image_bytes` is the
    size of the largest image, `context_tokens` that of the window. `model` is the model's name
    for users; a provider alone leaves it empty. `searches`: it searches for tools where there are too many to list.
    """

    tools: bool = True
    images: bool = False
    image_bytes: int = 5 * 2**20
    files: bool = True
    documents: bool = False
    reasoning: bool = False
    context_tokens: int = 128_000
    searches: bool = True
    model: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The transcript and the tools the model may choose from. Besides the system message at the beginning there may be
    others between the rounds: where a provider has no place for those, its adapter finds one. The first
    `stable_messages` begin the requests of later questions too, as long as nothing changes: worth a service's cache.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    limits: ModelLimits = ModelLimits()
    stable_messages: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counted them. `input_tokens` includes those that were read from its cache
    (`cached_tokens`) and those that were written to it (`cache_writes`), `output_tokens` those of `reasoning_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_writes: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks, where it shows that."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call's arguments, which say nothing before they are whole."""

    text: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    """The service has begun to answer, and has counted so much until now: nothing at all, if it counts at the end. What
    comes after this is not in it. `model` is the one that answers, as in the Completion.
    """

    usage: Usage = Usage()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The whole reply, last in every stream. `model` is the one that wrote it, as people know it: empty as long as a
    provider has it alone, which knows no such names. `note` is for people: why it is another one than they expect.
    """

    message: Message
    stop: StopReason
    usage: Usage = Usage()
    model: str = ""
    note: str = ""


ModelEvent = UsageReported | TextDelta | ReasoningDelta | ToolCallDelta | Completion

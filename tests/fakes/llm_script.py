"""Script of a fake model service, and its record of the requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.domain.completions import StopReason

Api = Literal["openai", "responses", "anthropic"]
"""OpenAI's Chat Completions and its Responses, and Anthropic's Messages."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. Arguments given as text are sent as they are, however broken. The service makes up a missing id."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Usage that the service reports for a reply; `input` includes `cached`."""

    input: int = 25
    output: int = 7
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Say:
    """A reply: reasoning, text and calls, each cut into `pieces` deltas. `stop` None follows from the calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    stop: StopReason | None = None
    tokens: Tokens | None = Tokens()
    pieces: int = 3


class Gate:
    """Holds a reply back. `reached` is settled when the service stands before the gate; both may be used from any
    thread, and awaited through `asyncio.wrap_future`.
    """

    def __init__(self) -> None:
        self.reached: Future[None] = Future()
        self.opened: Future[None] = Future()

    def open(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)


@dataclass(frozen=True, slots=True)
class Hold:
    """The reply without its end, a pause until the gate opens, then the end."""

    reply: Say
    gate: Gate


@dataclass(frozen=True, slots=True)
class Slow:
    """A reply with a pause, in seconds, after each event."""

    reply: Say
    pause: float


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply without its ending: the connection is dropped, or closed as if all was well (`politely`), at once or
    when the gate opens.
    """

    reply: Say
    politely: bool = False
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Linger:
    """A whole reply on a connection without a proper end: it breaks (`hangs_up`) or stays open and silent."""

    reply: Say
    hangs_up: bool = False


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """A reply that ends in an error event, which comes with status 200."""

    type: str
    message: str = "Something went wrong."
    reply: Say = Say()
    code: str | int | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Exactly these events: JSON values as they are, text as the line it is."""

    events: tuple[Mapping[str, Any] | str, ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """An answer of exactly these bytes, each piece sent separately. With `ends` False, the answer stays incomplete."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True


@dataclass(frozen=True, slots=True)
class HangUp:
    """No answer: the connection is closed as soon as the request has arrived."""


@dataclass(frozen=True, slots=True)
class Status:
    """An answer that is an error. `body` replaces the service's usual error object."""

    status: int
    message: str = "Something went wrong."
    type: str = "error"
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """No byte is sent until the client closes the connection."""


Reply = Say | Hold | Slow | Cut | Linger | ErrorEvent | Raw | Bytes | HangUp | Status | Silence


@dataclass(frozen=True, slots=True)
class Frames:
    """The events of a reply as bytes. Without the ending it is a reply that was cut off."""

    body: tuple[bytes, ...]
    ending: tuple[bytes, ...]

    @property
    def whole(self) -> tuple[bytes, ...]:
        return (*self.body, *self.ending)


@dataclass(frozen=True, slots=True)
class Request:
    """A received request; header names are in lower case.

    The properties read all protocols alike, so that one rule serves each of them. `gone` is settled when the client
    closes the connection before the end of the reply.
    """

    api: Api
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    method: str = "POST"
    gone: Future[None] = field(default_factory=Future, compare=False)

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The transcript: messages, or the items of Responses."""
        return list(self.body.get("input" if self.api == "responses" else "messages", ()))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools on offer."""
        return tuple(tool.get("function", tool)["name"] for tool in self.body.get("tools", ()))

    @property
    def question(self) -> str:
        """Return the text of the last message of a user, without notes of the operator and the author line."""
        texts = [_texts(message) for message in self.messages if message.get("role") == "user"]
        return next((text for text in reversed(texts) if text), "")

    @property
    def results(self) -> tuple[str, ...]:
        """The texts of the tool results the model has to react to now: those at the transcript's end, without the
        envelopes in which they come.
        """
        if self.api != "anthropic":
            texts: list[str] = []
            for message in reversed(self.messages):
                if message.get("role") == "tool" or message.get("type") == "function_call_output":
                    texts.append(_unwrap_text(_texts(message)))
                elif message.get("role") not in ("system", "developer"):
                    break
            return tuple(reversed(texts))
        last = self.messages[-1]["content"] if self.messages else ""
        blocks = [block for block in last if isinstance(block, Mapping) and block["type"] == "tool_result"]
        return tuple(_unwrap_text(_texts(block)) for block in blocks)


_ENVELOPE = re.compile(
    r'<data from="[^"\n]*" mark="([0-9a-f]{16})" note="[^"\n]*">\n(.*?)\n</data mark="\1">', re.DOTALL
)


def _unwrap_text(text: str) -> str:
    return _ENVELOPE.sub(r"\2", text)


Rule = Callable[[Request], Reply]

_SPEAKER = re.compile(r"\AMessage from [^\n]*:(\n|\Z)")
"""The line in which the bot names the asker."""


def _texts(holder: Mapping[str, Any]) -> str:
    content = holder.get("content") or holder.get("output") or ""
    if isinstance(content, str):
        return _SPEAKER.sub("", content)
    texts = (block["text"] for block in content if block["type"] in ("text", "input_text"))
    return "\n".join(text for text in texts if not text.startswith("<operator_note>") and not _SPEAKER.match(text))


def pieces(text: str, count: int) -> list[str]:
    """Return the text in at most `count` pieces of about the same length."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]

"""Hand-written stand-ins for the ports: a scripted model, a toolbox with plain functions, a surface that remembers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason, TextDelta
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.secrets import SecretSpan
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import (
    INVALID_ARGUMENTS,
    Annotations,
    ArgumentError,
    CallNotSent,
    CallReturned,
    Tool,
    ToolKind,
    ToolOutcome,
    ToolSet,
)
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.mcp.argument_validation import group_by_argument, validate
from bot.ports import CallContext

ANA = Author("test", "ana", "Ana")
BEN = Author("test", "ben", "Ben")
NEWEST = 1_000_000
"""Any revision: newer than all there are."""
HALL = ConversationKey("test", "w", "hall", "1")


def member(author: Author) -> Member:
    return Member(author)


def message(
    text: str,
    *keys: str,
    conversation: ConversationKey = HALL,
    author: Author = ANA,
    attachments: Sequence[Attachment] = (),
) -> InboundMessage:
    return InboundMessage(keys or (text,), conversation, author, text, tuple(attachments))


def say(text: str) -> Completion:
    return Completion(assistant(text), StopReason.ANSWERED)


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def ask_for(*calls: ToolCall, text: str = "") -> Completion:
    return Completion(assistant(text, *calls), StopReason.TOOLS)


@dataclass(frozen=True)
class Unfinished:
    """A reply that the model begins and never ends, or that breaks off."""

    text: str
    error: Exception | None = None


Script = (
    Completion
    | Exception
    | Callable[[ModelRequest], Awaitable[Completion]]
    | Callable[[ModelRequest], Awaitable[Completion | Unfinished]]
    | Callable[[ModelRequest], Awaitable[Unfinished]]
)


@dataclass
class ScriptedModel:
    """Answers with the next entry of its script and records requests."""

    script: list[Script | Unfinished] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    capabilities: Capabilities = field(default_factory=Capabilities)
    others: dict[str, ScriptedModel] = field(default_factory=dict)
    """Models with a name of their own, which profiles may want."""

    async def get(self, name: str) -> ScriptedModel:
        return self.others[name] if name else self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        entry = self.script.pop(0)
        if isinstance(entry, Exception):
            raise entry
        completion = entry if isinstance(entry, Completion | Unfinished) else await entry(request)
        if isinstance(completion, Unfinished):
            yield TextDelta(completion.text)
            if completion.error is not None:
                raise completion.error
            await asyncio.Event().wait()
            return
        for word in completion.message.text.split(" "):
            yield TextDelta(word + " ")
        yield completion

    async def close(self) -> None:
        pass


def tool(
    name: str, *, read_only: bool | None = None, destructive: bool | None = None, trusted: bool = True, **more: Any
) -> Tool:
    server, _, original = name.partition("__")
    return Tool(name, server, original, annotations=Annotations(read_only, destructive), trusted=trusted, **more)


Behaviour = Callable[[ToolCall, CallContext], Awaitable[ToolOutcome]]


async def answers_ok(call: ToolCall, _context: CallContext) -> ToolOutcome:
    return text_outcome(call, "ok")


def text_outcome(call: ToolCall, text: str, *, is_error: bool = False) -> CallReturned:
    return CallReturned(ToolResult(call.id, (TextPart(text),), is_error))


@dataclass
class FakeToolbox:
    """Tools as functions; every call that reaches one is remembered."""

    tools: dict[str, tuple[Tool, Behaviour]] = field(default_factory=dict)
    guidance: tuple[Any, ...] = ()
    absent: tuple[str, ...] = ()
    unavailable: frozenset[str] = frozenset()
    calls: list[tuple[str, dict[str, Any], CallContext]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Workspaces of the requested offers."""
    secrets: dict[str, str] = field(default_factory=dict)
    confirmed: list[str] = field(default_factory=list)
    """Servers whose tools were to be confirmed."""
    unconfirmed: str = ""
    """Reason why tools cannot be confirmed; empty if they can."""

    def add(self, offered: Tool, behaviour: Behaviour = answers_ok) -> None:
        self.tools[offered.name] = (offered, behaviour)

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        self.asked.append(workspace)
        offered = [each for each, _ in self.tools.values()]
        return ToolSet(
            tuple(each for each in offered if each.kind is ToolKind.CALL),
            self.guidance,
            self.absent,
            self.unavailable,
            requests=tuple(each for each in offered if each.kind is not ToolKind.CALL),
        )

    async def confirm(self, server_id: str, context: CallContext) -> str:
        self.confirmed.append(server_id)
        return self.unconfirmed

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        if tool.name not in self.tools:
            return CallNotSent("gone")
        self.calls.append((tool.name, dict(call.arguments), context))
        return await self.tools[tool.name][1](call, context)

    def argument_error(self, tool: Tool, call: ToolCall) -> str:
        return "\n".join((INVALID_ARGUMENTS, *wrong)) if (wrong := validate(tool.input_schema, call.arguments)) else ""

    def validate(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        return group_by_argument(schema, values)

    def secret_spans(self, server_id: str, text: str) -> Sequence[SecretSpan]:
        """`secrets` are those of every server, by their labels."""
        return [
            SecretSpan(match.start(), match.end(), label)
            for label, secret in self.secrets.items()
            for match in re.finditer(re.escape(secret), text)
        ]

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@dataclass
class RecordingSurface:
    """Surface that records all views.

    `trouble` are errors to raise first, one for each delivery. `files` are uploads by id, or the errors of fetching
    them. `fetched` are the ids of fetched files.
    """

    key_prefixes: tuple[str, ...] = ("test:",)
    min_interval: float = 0.0
    views: list[TurnView] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)
    files: dict[str, bytes | Exception] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        if self.trouble:
            raise self.trouble.pop(0)
        async with self.seen:
            self.views.append(view)
            self.seen.notify_all()
        yield PostedMessage("reply", refs.get("reply", f"ref-{view.turn.id}"))

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        pass

    async def member(self, author: Author, where: ConversationKey) -> Member:
        return Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        self.fetched.append(attachment.id)
        found = self.files.get(attachment.id, b"")
        if isinstance(found, Exception):
            raise found
        return found

    async def wait_for(self, wanted: Callable[[TurnView], bool], seconds: float = 60.0) -> TurnView:
        """Wait for the first view, past or future, that satisfies the condition."""
        async with self.seen:
            async with asyncio.timeout(seconds):
                await self.seen.wait_for(lambda: any(map(wanted, self.views)))
        return next(view for view in self.views if wanted(view))

    async def wait_for_end(self, turn_id: str, seconds: float = 60.0) -> TurnView:
        return await self.wait_for(lambda view: view.turn.id == turn_id and view.turn.status.ended, seconds)


@asynccontextmanager
async def running(part: Any) -> AsyncIterator[None]:
    """Run a part's `run()` for as long as the block lasts; its failure fails the block."""
    task = asyncio.create_task(part.run())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=60)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll a condition, within a limit."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def words(request: ModelRequest) -> Sequence[str]:
    """Return every text the model was given, flat."""
    found = []
    for each in request.messages:
        for part in each.parts:
            match part:
                case TextPart(text):
                    found.append(text)
                case ToolResult():
                    found.append(part.text)
                case _:
                    pass
    return found

"""The model for use without any key: deterministic, it picks tools by the words of a message, and says so.

It knows no tool or server by name and has no state: its replies depend only on the request and the day. The reply's
`provider_metadata` carries a question of the demo, so that "3" can answer "which note?", or its last call, so that
"and on Sunday?" can follow it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelRequest,
    StopReason,
    TextDelta,
    ToolChoice,
    Usage,
)
from bot.domain.messages import Message, MessageRole, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.llm.demo import answers
from bot.llm.demo.planner import (
    Ambiguous,
    Call,
    Calls,
    Incomplete,
    NoMatch,
    Plan,
    is_how_to,
    plan_calls,
    plan_follow_up,
    resume,
)

_CALL_ID = re.compile(r"demo_(\d{1,9})")
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_MOST_ROUNDS = 3
_LONGEST_QUESTION = 20_000


def local_today() -> date:
    """Return the day where this process runs."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class Config:
    """The demo's only setting: the day from which "tomorrow" is counted."""

    today: Callable[[], date] = local_today


def create(config: Config) -> DemoModel:
    """Return the demo model, which needs no key and no network."""
    return DemoModel(config)


class DemoModel:
    """The demo as a language model: one step that plans calls, then an answer from the results of the tools."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def capabilities(self) -> Capabilities:
        """Any number of tools, no images, no files, and any length of transcript."""
        return Capabilities(tools=True, images=False, files=False, searches=False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer's text word by word, and a Completion last. Never fails."""
        message = _Transcript(request).reply(self._config.today())
        for piece in _PIECE.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        stop = StopReason.TOOLS if message.tool_calls else StopReason.ANSWERED
        yield Completion(message, stop, _usage(request, message))

    async def close(self) -> None:
        """Do nothing: there are no connections."""


class _Transcript:
    """The parts of a request that the demo uses, and its reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._tools = request.tools
        messages = request.messages
        last = max((at for at, message in enumerate(messages) if message.role is MessageRole.USER), default=-1)
        self._question = _last_text(messages[last]) if last >= 0 else ""
        answered = [message for message in messages[: max(last, 0)] if message.role is MessageRole.ASSISTANT]
        self._is_first = not answered
        self._metadata = answered[-1].provider_metadata.get("demo") if answered else None
        turn = messages[last + 1 :]
        rounds = [message.tool_calls for message in turn if message.tool_calls]
        results = {part.call_id: part for message in turn for part in message.parts if isinstance(part, ToolResult)}
        self._calls = [call for calls in rounds for call in calls]
        self._outcomes = [answers.Outcome(call, results.get(call.id)) for call in self._calls]
        is_mine = any(_CALL_ID.fullmatch(call.id) for call in self._calls)
        self._is_settled = is_mine or len(rounds) >= _MOST_ROUNDS or request.tool_choice is ToolChoice.NONE
        """True if the demo answers now: it asks for tools once for each question."""

    def reply(self, today: date) -> Message:
        """Return the message that calls tools or answers."""
        if self._is_settled:
            return self._results() or _say(answers.help_text(answers.NO_TOOLS_ALLOWED, self._tools, today))
        opening, needs_help = answers.small_talk(self._question)
        if needs_help:
            return _say(answers.help_text(opening, self._tools, today))
        plan = self._plan(today) if opening in ("", answers.YES) else None
        if opening and not isinstance(plan, Incomplete):
            return self._answer(opening)
        return self._follow(plan, today)

    def _follow(self, plan: Plan | None, today: date) -> Message:
        match plan:
            case Calls(calls):
                made = [(call.name, dict(call.arguments)) for call in self._calls]
                new = [call for call in calls if (call.tool.name, dict(call.arguments)) not in made]
                return self._calling(new) if new else self._results() or _say(answers.NO_TOOL_FITS)
            case Incomplete(tool, arguments, missing) as plan:
                names = [parameter.name for parameter in missing]
                metadata = {"demo": {"tool": tool.name, "known": dict(arguments), "missing": names}}
                return self._answer(answers.ask_for_missing(plan), metadata)
            case Ambiguous() as plan:
                return self._answer(answers.ask_which(plan))
            case NoMatch() | None:
                opening = answers.HOW_TO if is_how_to(self._question) else answers.NO_TOOL_FITS
                return self._results() or _say(answers.help_text(opening, self._tools, today))

    def _plan(self, today: date) -> Plan:
        if len(self._question) > _LONGEST_QUESTION:
            return NoMatch()
        plan = plan_calls(self._question, self._tools, today)
        if is_how_to(self._question):
            return plan
        if not isinstance(plan, Calls) and (open_call := self._call_in_question()):
            is_yes = answers.small_talk(self._question)[0] == answers.YES
            answer = "" if is_yes else self._question
            resumed = resume(open_call.tool, open_call.arguments, answer, today)
            if is_yes or isinstance(resumed, Calls):
                return resumed
        previous = self._previous_call()
        return plan_follow_up(self._question, previous, plan, today) if previous else plan

    def _call_in_question(self) -> Call | None:
        """Return the call about which the demo has just asked a question."""
        match self._metadata:
            case {"tool": str(name), "known": Mapping() as arguments}:
                tool = self._tool(name)
                return Call(tool, arguments) if tool else None
            case _:
                return None

    def _previous_call(self) -> Call | None:
        """Return the last call before the previous answer, if its tool is still offered."""
        match self._metadata:
            case {"called": str(name), "arguments": Mapping() as arguments} if tool := self._tool(name):
                return Call(tool, arguments)
            case _:
                return None

    def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools if tool.name == name), None)

    def _calling(self, calls: Sequence[Call]) -> Message:
        """Return the reply that makes these calls, under ids that the transcript does not hold yet."""
        used = [call.id for message in self._request.messages for call in message.tool_calls]
        numbers = [int(match[1]) for call_id in used if (match := _CALL_ID.fullmatch(call_id))]
        start = max(numbers, default=0) + 1
        wanted = (ToolCall(f"demo_{n}", call.tool.name, call.arguments) for n, call in enumerate(calls, start))
        return Message(MessageRole.ASSISTANT, tuple(wanted))

    def _results(self) -> Message | None:
        if not self._outcomes:
            return None
        last = self._calls[-1]
        metadata = {"demo": {"called": last.name, "arguments": dict(last.arguments)}}
        return self._answer(answers.format_results(self._outcomes, self._tools), metadata)

    def _answer(self, text: str, metadata: Mapping[str, Any] | None = None) -> Message:
        return _say(f"{text}\n\n{answers.NOTE}" if self._is_first else text, metadata)


def _last_text(message: Message) -> str:
    """Return the text of a user's message, without the author's name before it."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return texts[-1].strip() if texts else ""


def _say(text: str, metadata: Mapping[str, Any] | None = None) -> Message:
    return Message(MessageRole.ASSISTANT, (TextPart(text),), metadata or {})


def _usage(request: ModelRequest, message: Message) -> Usage:
    """Return the number of words in place of tokens."""
    parts = (part for message in request.messages for part in message.parts if isinstance(part, TextPart | ToolResult))
    written = [message.text, *(f"{call.name} {dict(call.arguments)}" for call in message.tool_calls)]
    return Usage(sum(len(part.text.split()) for part in parts), sum(len(text.split()) for text in written))

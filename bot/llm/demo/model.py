"""The demo as a language model: one planning step, then an answer from the results of the tools.

It has no state: its replies depend only on the request and the day. The reply's `provider_metadata` carries a question
of the demo, so that "3" can answer "which note?".
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
from bot.llm.demo.answers import (
    NOTE,
    Outcome,
    ask_which,
    format_results,
    help_text,
    not_understood,
    question,
    small_talk,
)
from bot.llm.demo.arguments import fill_missing
from bot.llm.demo.planner import Ambiguous, Call, Calls, Incomplete, NoMatch, Plan, plan_calls

_CALL_ID = re.compile(r"demo_(\d{1,9})")
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_MOST_ROUNDS = 3
_LONGEST_QUESTION = 20_000


def local_today() -> date:
    """The day where this process runs."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class Config:
    """The demo's only setting: the day from which "tomorrow" is counted."""

    today: Callable[[], date] = local_today


def create(config: Config) -> DemoModel:
    """The demo model; needs no key and no network."""
    return DemoModel(config)


class DemoModel:
    """A small planner in a language model's place: picks tools by words, and says so."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def capabilities(self) -> Capabilities:
        """Tools, as many as there are, no images and no files; any length of transcript."""
        return Capabilities(tools=True, images=False, files=False, searches=False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer's text word by word and a Completion last. Never fails."""
        message = self._reply(_Transcript(request))
        for piece in _PIECE.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        stop = StopReason.TOOLS if message.tool_calls else StopReason.ANSWERED
        yield Completion(message, stop, _usage(request, message))

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _reply(self, seen: _Transcript) -> Message:
        today = self._config.today()
        tools = seen.request.tools
        if seen.request.tool_choice is ToolChoice.NONE or seen.settled:
            if seen.outcomes:
                return _answer(format_results(seen.outcomes, tools), seen)
            return _say(
                help_text("No tools may be used for this answer, and without them I only know this:", tools, today)
            )
        if opening := small_talk(seen.question):
            return _say(help_text(opening, tools, today))
        return self._act(self._plan(seen, today), seen, today)

    def _plan(self, seen: _Transcript, today: date) -> Plan:
        if len(seen.question) > _LONGEST_QUESTION:
            return NoMatch()
        fresh = plan_calls(seen.question, seen.request.tools, today)
        resumed = None if isinstance(fresh, Calls) else seen.resumed(today)
        return resumed or fresh

    def _act(self, decided: Plan, seen: _Transcript, today: date) -> Message:
        match decided:
            case Calls(calls):
                new = [call for call in calls if (call.tool.name, dict(call.arguments)) not in seen.made]
                return seen.calling(new) if new else _answer(format_results(seen.outcomes, seen.request.tools), seen)
            case Incomplete(tool, known, missing):
                asked = {"tool": tool.name, "known": dict(known), "missing": [each.name for each in missing]}
                return _answer(question(decided), seen, {"demo": asked})
            case Ambiguous():
                return _answer(ask_which(decided), seen)
            case NoMatch() if seen.outcomes:
                return _answer(format_results(seen.outcomes, seen.request.tools), seen)
            case NoMatch():
                return _say(not_understood(seen.request.tools, today))


class _Transcript:
    """The parts of a request that the demo uses."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        messages = request.messages
        last = max((at for at, each in enumerate(messages) if each.role is MessageRole.USER), default=-1)
        self.question = _last_text(messages[last]) if last >= 0 else ""
        earlier = [message for message in messages[: max(last, 0)] if message.role is MessageRole.ASSISTANT]
        self.first = not earlier
        self._asked = earlier[-1].provider_metadata.get("demo") if earlier else None
        since = messages[last + 1 :]
        rounds = [each.tool_calls for each in since if each.role is MessageRole.ASSISTANT and each.tool_calls]
        results = {part.call_id: part for each in since for part in each.parts if isinstance(part, ToolResult)}
        self.outcomes = [Outcome(call, results.get(call.id)) for calls in rounds for call in calls]
        self.made = [(call.name, dict(call.arguments)) for calls in rounds for call in calls]
        mine = any(_CALL_ID.fullmatch(call.id) for calls in rounds for call in calls)
        self.settled = mine or len(rounds) >= _MOST_ROUNDS
        """True if the demo answers now: it asks for tools once for each question."""

    def calling(self, calls: Sequence[Call]) -> Message:
        """The reply that asks for these calls, under ids that the transcript does not hold yet."""
        used = [call.id for message in self.request.messages for call in message.tool_calls]
        taken = [int(match.group(1)) for each in used if (match := _CALL_ID.fullmatch(each))]
        start = max(taken, default=0) + 1
        wanted = (ToolCall(f"demo_{n}", call.tool.name, call.arguments) for n, call in enumerate(calls, start))
        return Message(MessageRole.ASSISTANT, tuple(wanted))

    def resumed(self, today: date) -> Plan | None:
        """The plan the demo has just asked a question about, if this is the answer."""
        asked = self._asked
        if not isinstance(asked, Mapping):
            return None
        tool = next((each for each in self.request.tools if each.name == asked.get("tool")), None)
        known = asked.get("known")
        if tool is None or not isinstance(known, Mapping):
            return None
        filled = fill_missing(tool.input_schema, known, self.question, today)
        if filled.missing:
            return None
        return Calls((Call(tool, filled.arguments),))


def _last_text(message: Message) -> str:
    """Return the text of a user's message, without the author's name before it."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return texts[-1].strip() if texts else ""


def _say(text: str, metadata: Mapping[str, Any] | None = None) -> Message:
    return Message(MessageRole.ASSISTANT, (TextPart(text),), metadata or {})


def _answer(text: str, seen: _Transcript, metadata: Mapping[str, Any] | None = None) -> Message:
    return _say(f"{text}\n\n{NOTE}" if seen.first else text, metadata)


def _usage(request: ModelRequest, message: Message) -> Usage:
    """Words in place of tokens: there is no tokenizer here."""
    results = (
        part.text for each in request.messages for part in each.parts if isinstance(part, (TextPart, ToolResult))
    )
    written = [message.text, *(f"{call.name} {dict(call.arguments)}" for call in message.tool_calls)]
    return Usage(sum(len(text.split()) for text in results), sum(len(text.split()) for text in written))

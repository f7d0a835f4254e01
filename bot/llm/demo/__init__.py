"""The model for use without any key: deterministic, it picks tools by the words of a message, and says so.

It knows no tool or server by name and has no state: its replies depend only on the request and the day. The reply's
`provider_metadata` carries its last call, complete or not, so that "3" can answer "which note?", and "and on Sunday?"
can follow a forecast.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

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
from bot.domain.outcome_checks import CheckedCall, parse_check_question
from bot.llm.demo import answers
from bot.llm.demo.checks import NO_WAY_TO_LOOK, find_check, find_traces
from bot.llm.demo.planner import Call, Plan, plan_calls, plan_follow_up, resume
from bot.llm.demo.vocabulary import HOW_TO

_CALL_ID = re.compile(r"demo_(\d{1,9})")
_DATE = re.compile(r"^Today is [A-Z][a-z]+, ([0-9]{4}-[0-9]{2}-[0-9]{2}) \(", re.MULTILINE)
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_MOST_ROUNDS = 3
_LONGEST_QUESTION = 20_000


def local_today() -> date:
    """Return the day where this process runs."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class Config:
    """The demo's only setting: the day from which "tomorrow" is counted if the prompt tells none."""

    today: Callable[[], date] = local_today


def create(config: Config) -> DemoModel:
    """Return the demo model, which needs no key and no network."""
    return DemoModel(config)


class DemoModel:
    """The demo as a language model: one step that plans calls, then an answer from the results of the tools."""

    capabilities = Capabilities(tools=True, images=False, files=False, searches=False)

    def __init__(self, config: Config) -> None:
        self._config = config

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer's text word by word, and a Completion last. Never fails."""
        message = _Transcript(request, _date_of(request) or self._config.today()).reply()
        for piece in _PIECE.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        stop = StopReason.TOOLS if message.tool_calls else StopReason.ANSWERED
        yield Completion(message, stop, _usage(request, message))

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def _date_of(request: ModelRequest) -> date | None:
    """Return the date that the prompt tells, which is the asker's; None if it tells none."""
    texts = (message.text for message in request.messages if message.role is MessageRole.SYSTEM)
    dates = [match[1] for text in texts for match in _DATE.finditer(text)]
    return date.fromisoformat(dates[-1]) if dates else None


class _Transcript:
    """The parts of a request that the demo uses, and its reply."""

    def __init__(self, request: ModelRequest, today: date) -> None:
        self._today = today
        self._tools = request.tools
        messages = request.messages
        last = max((at for at, message in enumerate(messages) if message.role is MessageRole.USER), default=-1)
        self._question = _last_text(messages[last]) if last >= 0 else ""
        answered = [message for message in messages[: max(last, 0)] if message.role is MessageRole.ASSISTANT]
        self._is_first = not answered
        self._metadata = answered[-1].provider_metadata.get("demo") if answered else None
        turn = messages[last + 1 :]
        rounds = [message.tool_calls for message in turn if message.tool_calls]
        self._calls = [call for calls in rounds for call in calls]
        self._results = {
            part.call_id: part for message in turn for part in message.parts if isinstance(part, ToolResult)
        }
        ids = [_CALL_ID.fullmatch(call.id) for message in messages for call in message.tool_calls]
        self._next_id = max((int(match[1]) for match in ids if match), default=0) + 1
        is_mine = any(_CALL_ID.fullmatch(call.id) for call in self._calls)
        self._is_settled = is_mine or len(rounds) >= _MOST_ROUNDS or request.tool_choice is ToolChoice.NONE
        """True if the demo answers now: it asks for tools once for each question."""

    def reply(self) -> Message:
        """Return the message that calls tools or answers."""
        if self._is_settled:
            return self._show_results() or self._help(answers.NO_TOOLS_ALLOWED)
        if (checked := parse_check_question(self._question)) is not None:
            return self._check(checked)
        opening, needs_help = answers.small_talk(self._question)
        if needs_help:
            return self._help(opening)
        is_yes = opening == answers.YES
        plan = self._plan(is_yes=is_yes) if is_yes or not opening else Plan()
        if opening and not plan.missing:
            return self._answer(opening)
        return self._follow(plan)

    def _check(self, checked: CheckedCall) -> Message:
        look = find_check(checked, self._tools)
        if look is None:
            return self._answer(str(NO_WAY_TO_LOOK))
        return Message(MessageRole.ASSISTANT, (ToolCall(f"demo_{self._next_id}", look[0].name, look[1]),))

    def _follow(self, plan: Plan) -> Message:
        if plan.missing:
            return self._answer(answers.ask_for_missing(plan), *plan.calls, asks=True)
        if plan.rivals:
            return self._answer(answers.ask_which(plan))
        made = [(call.name, dict(call.arguments)) for call in self._calls]
        new = [(tool.name, arguments) for tool, arguments in plan.calls if (tool.name, dict(arguments)) not in made]
        if new:
            calls = (ToolCall(f"demo_{n}", *call) for n, call in enumerate(new, self._next_id))
            return Message(MessageRole.ASSISTANT, tuple(calls))
        is_how_to = HOW_TO.match(self._question)
        return self._show_results() or self._help(answers.HOW_TO if is_how_to else answers.NO_TOOL_FITS)

    def _plan(self, *, is_yes: bool) -> Plan:
        if len(self._question) > _LONGEST_QUESTION:
            return Plan()
        plan = plan_calls(self._question, self._tools, self._today)
        previous, asks = self._previous_call()
        if previous is None or HOW_TO.match(self._question):
            return plan
        if not asks:
            return plan_follow_up(self._question, previous, plan, self._today)
        resumed = plan if plan.is_clear else resume(previous, "" if is_yes else self._question, self._today)
        return resumed if is_yes or resumed.is_clear else plan

    def _previous_call(self) -> tuple[Call | None, bool]:
        """Return the last call before the previous answer, and True if that answer asks for missing arguments. None if
        its tool is not offered any more.
        """
        match self._metadata:
            case {"tool": str(name), "arguments": Mapping() as arguments, "asks": bool(asks)}:
                return next(((tool, arguments) for tool in self._tools if tool.name == name), None), asks
        return None, False

    def _show_results(self) -> Message | None:
        if not self._calls:
            return None
        by_name = {tool.name: tool for tool in self._tools}
        results = ((call, self._results.get(call.id), by_name.get(call.name)) for call in self._calls)
        checked = parse_check_question(self._question)
        found = find_traces(checked, list(self._results.values())) if checked is not None else ""
        text = "\n\n".join(filter(None, (found, *(answers.format_result(*result) for result in results))))
        last = self._calls[-1]
        return self._answer(text, *((by_name[last.name], last.arguments) for _ in range(last.name in by_name)))

    def _help(self, opening: str) -> Message:
        return Message(MessageRole.ASSISTANT, (TextPart(answers.help_text(opening, self._tools, self._today)),))

    def _answer(self, text: str, *calls: Call, asks: bool = False) -> Message:
        """Return an answer that remembers the last of these calls. The first in a conversation has a note."""
        metadata = [{"tool": tool.name, "arguments": dict(arguments), "asks": asks} for tool, arguments in calls[-1:]]
        text = f"{text}\n\n{answers.NOTE}" if self._is_first else text
        return Message(MessageRole.ASSISTANT, (TextPart(text),), {"demo": metadata[0]} if metadata else {})


def _last_text(message: Message) -> str:
    """Return the text of a user's message, without the author's name before it."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return texts[-1].strip() if texts else ""


def _usage(request: ModelRequest, message: Message) -> Usage:
    """Return the number of words in place of tokens."""
    parts = (part for message in request.messages for part in message.parts if isinstance(part, TextPart | ToolResult))
    written = [message.text, *(f"{call.name} {dict(call.arguments)}" for call in message.tool_calls)]
    return Usage(sum(len(part.text.split()) for part in parts), sum(len(text.split()) for text in written))

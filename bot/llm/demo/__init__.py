"""The model for use without a key: deterministic, it matches the words of a message to tools, and says so.

`planning` plans the calls of a message, `language` parses its words, and `answers` has the texts. No tool or server is
known by name, and there is no state: replies depend only on the request and the day. The reply's `provider_metadata`
has its last call, complete or not, and the values shown, so that "3" can answer "which note?", and "and on Sunday?" can
follow a forecast.
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
from bot.domain.tools import parse_check_question
from bot.llm.demo import answers
from bot.llm.demo.language import HOW_TO
from bot.llm.demo.planning import Call, Plan, Planner, Shown, Step

_CALL_ID = re.compile(r"demo_(\d{1,9})")
_DATE = re.compile(r"^Today is [A-Z][a-z]+, ([0-9]{4}-[0-9]{2}-[0-9]{2}) \(", re.MULTILINE)
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_MOST_ROUNDS = 3
_MOST_ANSWERS = 3
"""Number of latest answers to which a follow-up may refer."""
_LONGEST_QUESTION = 20_000


@dataclass(frozen=True, slots=True)
class Config:
    """The demo's only setting: the day before "tomorrow" if the prompt has no date."""

    today: Callable[[], date] = lambda: datetime.now().astimezone().date()


def create(config: Config) -> DemoModel:
    """Return the demo model, which needs no key and no network."""
    return DemoModel(config)


class DemoModel:
    """The demo as a language model: a step that plans calls, perhaps another one, then an answer from their results."""

    capabilities = Capabilities(tools=True, images=False, files=False, searches=False)

    def __init__(self, config: Config) -> None:
        self._config = config

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer's text word by word, and a Completion last. Never fails."""
        message = _Turn(request, _date_of(request) or self._config.today()).reply()
        for piece in _PIECE.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        stop = StopReason.TOOLS if message.tool_calls else StopReason.ANSWERED
        yield Completion(message, stop, _usage(request, message))

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def _date_of(request: ModelRequest) -> date | None:
    """Return the date in the prompt, which is the asker's; None if it has none."""
    texts = (message.text for message in request.messages if message.role is MessageRole.SYSTEM)
    dates = [match[1] for text in texts for match in _DATE.finditer(text)]
    return date.fromisoformat(dates[-1]) if dates else None


class _Turn:
    """The parts of a request that the demo uses, and its reply."""

    def __init__(self, request: ModelRequest, today: date) -> None:
        self._today = today
        self._tools = {tool.name: tool for tool in request.tools if not tool.is_builtin}
        messages = request.messages
        last = max((n for n, message in enumerate(messages) if message.role is MessageRole.USER), default=len(messages))
        asked, turn = messages[last : last + 1], messages[last + 1 :]
        texts = [part.text for message in asked for part in message.parts if isinstance(part, TextPart)]
        self._question = texts[-1].strip() if texts else ""  # the author's name comes before it
        self._checked = parse_check_question(self._question)
        earlier = [message for message in messages[:last] if message.role is MessageRole.ASSISTANT]
        self._earlier = [message.provider_metadata.get("demo") for message in reversed(earlier)]
        rounds = [message.tool_calls for message in turn if message.tool_calls]
        self._calls = [call for calls in rounds for call in calls]
        results = (part for message in turn for part in message.parts if isinstance(part, ToolResult))
        self._results = {result.call_id: result for result in results}
        ids = [_CALL_ID.fullmatch(call.id) for message in messages for call in message.tool_calls]
        self._next_id = max((int(match[1]) for match in ids if match), default=0) + 1
        self._has_called = any(_CALL_ID.fullmatch(call.id) for call in self._calls)
        self._may_call = len(rounds) < _MOST_ROUNDS and request.tool_choice is not ToolChoice.NONE

    def reply(self) -> Message:  # noqa: PLR0911 - one for each kind of reply
        """Return the message that calls tools or answers."""
        opening, needs_help = answers.small_talk(self._question)
        plan = self._plan(opening)
        if new := self._next_calls(plan) if plan.is_clear and self._may_call else []:
            calls = (ToolCall(f"demo_{n}", tool.name, call) for n, (tool, call) in enumerate(new, self._next_id))
            return Message(MessageRole.ASSISTANT, tuple(calls))
        if self._has_called or (self._calls and not opening):
            return self._show_results(plan)
        if not self._may_call:
            return self._help(answers.NO_TOOLS_ALLOWED)
        if incomplete := [step for step in plan.steps if step.missing]:
            return self._answer(answers.ask_for_missing(incomplete[0]), incomplete[0], asks=True)
        if opening:
            return self._help(opening) if needs_help else self._answer(opening)
        if plan.rivals or self._checked:
            return self._answer(answers.ask_which(plan.rivals) if plan.rivals else answers.NO_WAY_TO_LOOK)
        return self._help(answers.HOW_TO if HOW_TO.search(self._question) else answers.NO_TOOL_FITS)

    def _plan(self, opening: str) -> Plan:
        is_yes = opening == answers.YES
        if len(self._question) > _LONGEST_QUESTION or (opening and not is_yes):
            return Plan()
        previous, asks, shown = self._remembered()
        planner = Planner(list(self._tools.values()), self._today, shown)
        plan = planner.check(self._checked) if self._checked else planner.plan(self._question)
        if previous is None or self._checked or HOW_TO.search(self._question):
            return plan
        if not asks:
            is_last = bool(self._earlier[0])
            return Plan() if is_yes else planner.follow_up(self._question, previous, plan, is_last=is_last)
        if plan.is_clear and not plan.is_lookup:
            return plan
        resumed = planner.resume(previous, "" if is_yes else self._question)
        return resumed if is_yes or resumed.is_clear else plan

    def _remembered(self) -> tuple[Call | None, bool, Shown]:
        """Return the last call of the previous answers, True if the last one asks for its missing arguments, and the
        values that were shown. The call is None if its tool is not offered any more.
        """
        for n, metadata in enumerate(self._earlier[:_MOST_ANSWERS]):
            match metadata:
                case {"tool": str(name), "arguments": Mapping() as arguments, "asks": bool(asks), **rest}:
                    shown = rest.get("shown")
                    call = (self._tools[name], arguments) if name in self._tools and not (asks and n) else None
                    return call, asks, shown if isinstance(shown, Mapping) else {}
        return None, False, {}

    def _next_calls(self, plan: Plan) -> list[Call]:
        """Return the calls of the next round. A call that reads waits for earlier changes of its server. After the
        first round, only calls that waited are made: for a change, or for the search for an argument.
        """
        calls: list[Call] = []
        changed: set[str] = set()
        for n, step in enumerate(plan.steps):
            call = self._completed_call(step) or step.finder or (step.tool, step.arguments)
            is_begun = step.finder or any(
                self._matching_calls((other.tool, other.arguments)) for other in plan.steps[:n]
            )
            if step.tool.server in changed and not step.changes:
                break
            if call not in calls and not self._matching_calls(call) and (is_begun or not self._has_called):
                calls.append(call)
                changed |= {step.tool.server} if step.changes else set()
        return calls

    def _matching_calls(self, call: Call) -> list[ToolCall]:
        wanted = (call[0].name, dict(call[1]))
        return [made for made in self._calls if (made.name, dict(made.arguments)) == wanted]

    def _completed_call(self, step: Step) -> Call | None:
        """Return the call of a step whose search found exactly one value for the missing argument."""
        made = self._matching_calls(step.finder) if step.finder else []
        result = self._results.get(made[-1].id) if made else None
        values = answers.shown_values(result).get(step.missing[0].name, []) if result else []
        is_fit = len(values) == 1 and step.missing[0].accepts(values[0])
        return (step.tool, {**step.arguments, step.missing[0].name: values[0]}) if is_fit else None

    def _show_results(self, plan: Plan) -> Message:
        searches = {made.id: step for step in plan.steps if step.finder for made in self._matching_calls(step.finder)}
        for call_id, search in searches.items():
            if self._completed_call(search) is None and (result := self._results.get(call_id)):
                return self._answer(answers.ask_which_result(search, result), search, result, asks=True)
        calls = [call for call in self._calls if call.id not in searches]
        texts = [answers.trace_text(self._checked, list(self._results.values()))] if self._checked else []
        for call in calls:
            result = self._results.get(call.id)
            if plan.is_lookup and result and not result.is_error and call.id.startswith("demo_"):
                return self._answer(answers.passage(self._question, result) or str(answers.NOT_KNOWN))
            texts.append(answers.format_result(call, result, self._tools.get(call.name), alone=len(calls) == 1))
        last = calls[-1]
        step = Step(self._tools[last.name], last.arguments) if last.name in self._tools else None
        return self._answer("\n\n".join(filter(None, texts)), step, self._results.get(last.id))

    def _help(self, opening: str) -> Message:
        text = answers.help_text(opening, list(self._tools.values()), self._today)
        return Message(MessageRole.ASSISTANT, (TextPart(text),))

    def _answer(
        self, text: str, step: Step | None = None, result: ToolResult | None = None, *, asks: bool = False
    ) -> Message:
        """Return an answer with a call and the shown values in its metadata. The first of a conversation has a note."""
        text = f"{text}\n\n{answers.NOTE}" if not self._earlier else str(text)
        if step is None:
            return Message(MessageRole.ASSISTANT, (TextPart(text),))
        shown = answers.shown_values(result) if result else {}
        metadata = {"tool": step.tool.name, "arguments": dict(step.arguments), "asks": asks, "shown": shown}
        return Message(MessageRole.ASSISTANT, (TextPart(text),), {"demo": metadata})


def _usage(request: ModelRequest, message: Message) -> Usage:
    """Return the number of words in place of tokens."""
    parts = (part for message in request.messages for part in message.parts if isinstance(part, TextPart | ToolResult))
    written = [message.text, *(f"{call.name} {dict(call.arguments)}" for call in message.tool_calls)]
    return Usage(sum(len(part.text.split()) for part in parts), sum(len(text.split()) for text in written))

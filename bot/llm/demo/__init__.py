"""The model for use without a key: deterministic, it matches the words of a message to tools, and says so.

`planning` plans the calls of a message, and `language` parses its words. No tool or server is known by name, and there
is no state: replies depend only on the request and the day. The reply's `provider_metadata` has its last call, complete
or not, and the values shown, so that "3" can answer "which note?", and "and on Sunday?" can follow a forecast.

The demo never pretends to be an AI. Its first answer in a conversation names the way to a real model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
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
from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool, parse_check_question
from bot.i18n import _, format_date, gettext_lazy, ngettext
from bot.llm.demo.language import HOW_TO, PHRASES, VERBS, plain_name, terms
from bot.llm.demo.planning import Call, Parameter, Plan, Planner, Shown, Step, parameters, sought_text
from bot.llm.wire_format import single_line

_CALL_ID = re.compile(r"demo_(\d{1,9})")
_DATE = re.compile(r"^Today is [A-Z][a-z]+, ([0-9]{4}-[0-9]{2}-[0-9]{2}) \(", re.MULTILINE)
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_CLOCK = re.compile(r"(?i)(?<![a-z])(?:time|date|day|clock|today|now)(?![a-z])")
_MOST_ROUNDS = 3
_MOST_ANSWERS = 3
"""Number of latest answers to which a follow-up may refer."""
_LONGEST_QUESTION = 20_000


_KEYS = gettext_lazy(
    "set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY` in the environment or in `.env`, "
    "or name a model with `BOT_MODEL=openai:NAME`"
)
_NOTE = gettext_lazy(
    "*This was the demo model: no AI, it only matches words to tools. For a real model {keys}.*", keys=_KEYS
)
_HELLO = gettext_lazy("I am the demo model of this assistant: no AI, I match the words of your message to tools.")
_NOT_AN_AI = gettext_lazy(
    "I am the demo model of this assistant. I am not an AI: I match the words of your message to tools."
)
_EXPLAINS_NOTHING = gettext_lazy(
    "I am only the demo model and cannot explain that. README.md and the guides in `docs/` tell how this assistant is "
    "set up and used."
)
_YES = gettext_lazy("Gladly. Tell me in a few words what to do.")
_NO_TOOL_FITS = gettext_lazy("I am only the demo model, and no tool's words fit your message.")
_NO_TOOLS_ALLOWED = gettext_lazy("No tools may be used for this answer, and without them I only know this:")
_NO_WAY_TO_LOOK = gettext_lazy("I have no tool that could tell whether this call has run.")
_NOT_KNOWN = gettext_lazy(
    "I am only the demo model and know nothing of my own, and the documents that I can search do not answer this. "
    "A real model might: {keys}.",
    keys=_KEYS,
)
_ANSWERS = {
    "about": (_NOT_AN_AI, True),
    "ok": (gettext_lazy("All right."), False),
    "yes": (_YES, False),
    "day": (gettext_lazy("Today is {day}."), False),
    "time": (gettext_lazy("I only know the day, not the time. Today is {day}."), False),
    "undo": (gettext_lazy("I cannot take back what has been done. Say what to change instead."), False),
    "why": (gettext_lazy("No call failed or was denied just before."), False),
    "thanks": (gettext_lazy("You are welcome."), False),
    "bye": (gettext_lazy("Goodbye!"), False),
    "well": (gettext_lazy("I am well, thank you. {hello}", hello=_HELLO), True),
    "hello": (gettext_lazy("Hello! {hello}", hello=_HELLO), True),
    "abilities": (_HELLO, True),
    "model": (gettext_lazy("For a real model, {keys}.", keys=_KEYS), False),
}
"""Answers to small talk, and True if the help follows."""
_SMALL_TALK = [
    (lazy_pattern("|".join(talk["patterns"]), re.IGNORECASE), talk["answer"]) for talk in PHRASES["small_talk"]
]

_MOST_CHARACTERS, _MOST_LINES = 1800, 40
_LONGEST_LEFT_OUT = 200
"""Characters of a line that is left out whole, rather than cut."""
_MOST_ROWS, _MOST_FIELDS, _LONGEST_CELL = 10, 6, 60
_MOST_SERVERS, _MOST_TOOLS, _MOST_EXAMPLES, _MOST_TRIES = 12, 8, 3, 50
_MOST_SHOWN = 20
_SHORT_STEM = 4
_TABLE_HEADER = re.compile(r"(?m)^\|.*\n(?=\|[-|: ]+$)")
_NEW_BLOCK = re.compile(r"\s*(?:[-*+] |\d{1,9}[.)] |[>|#]|$)|    ")
"""Start of a line that does not go on with a paragraph."""
_WIDE = re.compile("[\u3000-\u9fff\uff00-\uffef]")
"""Characters of scripts without spaces."""
_FILE = re.compile(r"Attached file (?P<name>[^\n]{1,200}):\n<data[^\n]*>\n(?P<text>.*)\n</data[^\n]*>", re.DOTALL)
_MOST_FILES, _MOST_FILE_LINES = 3, 5
_ENOUGH = 0.5
"""Share of a question's words; an answering passage has more."""


@dataclass(frozen=True, slots=True)
class Config:
    """The demo's only setting: the day before "tomorrow" if the prompt has no date."""

    today: Callable[[], date] = lambda: datetime.now().astimezone().date()


def create(config: Config) -> DemoModel:
    """Return the demo model, which needs no key and no network."""
    return DemoModel(config)


class DemoModel:
    """The demo as a language model: a step that plans calls, perhaps another one, then an answer from their results."""

    capabilities = Capabilities(tools=True, images=False, searches=False)

    def __init__(self, config: Config) -> None:
        self._config = config

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer's text word by word, and a Completion last. Never fails."""
        texts = (message.text for message in request.messages if message.role is MessageRole.SYSTEM)
        dates = [match[1] for text in texts for match in _DATE.finditer(text)]
        message = _Turn(request, (date.fromisoformat(dates[-1]) if dates else None) or self._config.today()).reply()
        for piece in _PIECE.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        stop = StopReason.TOOLS if message.tool_calls else StopReason.ANSWERED
        parts = (part for asked in request.messages for part in asked.parts if isinstance(part, TextPart | ToolResult))
        written = [message.text, *(f"{call.name} {dict(call.arguments)}" for call in message.tool_calls)]
        words = (sum(len(text.split()) for text in texts) for texts in ((part.text for part in parts), written))
        yield Completion(message, stop, Usage(*words))

    async def close(self) -> None:
        """Do nothing: there are no connections."""


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
        self._files = [match for message in messages[:last][-_MOST_FILES:] if (match := _FILE.match(message.text))]
        self._checked = parse_check_question(self._question)
        earlier = [message for message in messages[:last] if message.role is MessageRole.ASSISTANT]
        self._earlier = [message.provider_metadata.get("demo") for message in reversed(earlier)]
        rounds = [message.tool_calls for message in turn if message.tool_calls]
        self._calls = [call for calls in rounds for call in calls]
        self._failed = next(
            (str(last["failed"]) for last in self._earlier[:1] if isinstance(last, Mapping) and "failed" in last), ""
        )
        results = (part for message in turn for part in message.parts if isinstance(part, ToolResult))
        self._results = {result.call_id: result for result in results}
        ids = [_CALL_ID.fullmatch(call.id) for message in messages for call in message.tool_calls]
        self._next_id = max((int(match[1]) for match in ids if match), default=0) + 1
        self._has_called = any(_CALL_ID.fullmatch(call.id) for call in self._calls)
        self._may_call = len(rounds) < _MOST_ROUNDS and request.tool_choice is not ToolChoice.NONE

    def reply(self) -> Message:  # noqa: PLR0911 - one for each kind of reply
        """Return the message that calls tools or answers."""
        opening, needs_help = _small_talk(self._question)
        plan = self._plan(opening)
        if self._files and not opening and (plan.is_lookup or not plan.is_clear):
            return self._answer("\n\n".join(map(_beginning, self._files)))
        if new := self._next_calls(plan) if plan.is_clear and self._may_call else []:
            calls = (ToolCall(f"demo_{n}", tool.name, call) for n, (tool, call) in enumerate(new, self._next_id))
            return Message(MessageRole.ASSISTANT, tuple(calls))
        if self._has_called or (self._calls and not opening):
            return self._show_results(plan)
        if not self._may_call:
            return self._help(_NO_TOOLS_ALLOWED)
        if incomplete := [step for step in plan.steps if step.missing]:
            return self._answer(_ask_for_missing(incomplete[0]), incomplete[0], asks=True)
        if opening == _ANSWERS["why"][0] and self._failed:
            return self._answer(_truncate(self._failed))
        if opening:
            if "{day}" in opening:
                opening = opening.replace("{day}", format_date(self._today, "full"))
            return self._help(opening) if needs_help else self._answer(opening)
        if plan.rivals or self._checked:
            return self._answer(_ask_which(plan.rivals) if plan.rivals else _NO_WAY_TO_LOOK)
        return self._help(_EXPLAINS_NOTHING if HOW_TO.search(self._question) else _NO_TOOL_FITS)

    def _plan(self, opening: str) -> Plan:
        is_yes = opening == _YES
        is_clock = "{day}" in opening
        if len(self._question) > _LONGEST_QUESTION or (opening and not (is_yes or is_clock)):
            return Plan()
        if opening and not is_yes:  # the day or the time
            clocks = [tool for tool in self._tools.values() if _CLOCK.search(f"{tool.original_name} {tool.title}")]
            return Planner(clocks, self._today).plan(self._question)
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
            is_begun = step.finder or any(
                self._matching_calls((other.tool, other.arguments)) for other in plan.steps[:n]
            )
            if step.tool.server in changed and not step.changes:
                break
            for call in self._completed_calls(step) or [step.finder or (step.tool, step.arguments)]:
                if call not in calls and not self._matching_calls(call) and (is_begun or not self._has_called):
                    calls.append(call)
                    changed |= {step.tool.server} if step.changes else set()
        return calls

    def _matching_calls(self, call: Call) -> list[ToolCall]:
        wanted = (call[0].name, dict(call[1]))
        return [made for made in self._calls if (made.name, dict(made.arguments)) == wanted]

    def _completed_calls(self, step: Step) -> list[Call]:
        """Return the calls of a step whose search found the missing argument: exactly one value, or all of them."""
        made = self._matching_calls(step.finder) if step.finder else []
        result = self._results.get(made[-1].id) if made else None
        missing = step.missing[0] if result else None
        values = _shown_values(result).get(missing.name, []) if result and missing else []
        if missing is None or not (step.takes_all or len(values) == 1):
            return []
        return [(step.tool, {**step.arguments, missing.name: value}) for value in values if missing.accepts(value)]

    def _show_results(self, plan: Plan) -> Message:
        searches = {made.id: step for step in plan.steps if step.finder for made in self._matching_calls(step.finder)}
        for call_id, search in searches.items():
            if not self._completed_calls(search) and (result := self._results.get(call_id)):
                return self._answer(_ask_which_result(search, result), search, result, asks=True)
        calls = [call for call in self._calls if call.id not in searches]
        texts = [_trace_text(self._checked, list(self._results.values()))] if self._checked else []
        for call in calls:
            result = self._results.get(call.id)
            if plan.is_lookup and result and not result.is_error and call.id.startswith("demo_"):
                return self._answer(passage(self._question, result) or str(_NOT_KNOWN))
            texts.append(_format_result(call, result, self._tools.get(call.name), alone=len(calls) == 1))
        last = calls[-1]
        step = Step(self._tools[last.name], last.arguments) if last.name in self._tools else None
        return self._answer("\n\n".join(filter(None, texts)), step, self._results.get(last.id))

    def _help(self, opening: str) -> Message:
        text = _help_text(opening, list(self._tools.values()), self._today)
        return Message(MessageRole.ASSISTANT, (TextPart(text),))

    def _answer(
        self, text: str, step: Step | None = None, result: ToolResult | None = None, *, asks: bool = False
    ) -> Message:
        """Return an answer with a call and the shown values in its metadata. The first of a conversation has a note."""
        text = f"{text}\n\n{_NOTE}" if not self._earlier else str(text)
        if step is None:
            return Message(MessageRole.ASSISTANT, (TextPart(text),))
        shown = _shown_values(result) if result else {}
        metadata = {"tool": step.tool.name, "arguments": dict(step.arguments), "asks": asks, "shown": shown}
        metadata |= {"failed": result.text.strip()} if result and result.is_error else {}
        return Message(MessageRole.ASSISTANT, (TextPart(text),), {"demo": metadata})


def _beginning(file: re.Match[str]) -> str:
    lines = file["text"].strip().splitlines()
    first = "\n".join(_line(line, 200) for line in lines[:_MOST_FILE_LINES])
    return _(
        "I cannot summarize, but I have read {file} (lines: {n}). It begins:\n\n```\n{text}\n```",
        file=file["name"],
        n=len(lines),
        text=first.replace("```", "'''"),
    )


# -------------------- texts


def _small_talk(text: str) -> tuple[str, bool]:
    """Return the answer to a greeting, thanks, `never mind` or a question about the demo, with `{day}` for today, and
    True if the help follows to it. The answer is empty for any other text.
    """
    fitting = (answer for talk, answer in _SMALL_TALK if len(text) < 200 and talk.search(text))
    answer, needs_help = _ANSWERS.get(next(fitting, ""), ("", False))
    return str(answer), needs_help


def _help_text(opening: str, tools: Sequence[Tool], today: date) -> str:
    """Return an opening, a line for each server with the abilities of its tools, and the way to a real model."""
    real = _("For a real model, {keys}.", keys=_KEYS)
    if not tools:
        nothing = _("No tools are offered to me right now, so there is nothing I can do for you.")
        return f"{opening}\n\n{nothing}\n\n{real}"
    servers: dict[str, list[str]] = {}
    for tool in tools:
        servers.setdefault(_line(tool.server, 40) or "tools", []).append(_title(tool))
    lines = [f"- **{server}**: {' · '.join(_first(titles, _MOST_TOOLS))}" for server, titles in servers.items()]
    more = len(servers) - _MOST_SERVERS
    lines[_MOST_SERVERS:] = (
        ["- " + ngettext("… and {n} more server", "… and {n} more servers", more)] if more > 0 else []
    )
    phrases = " · ".join(f"`{example}`" for example in examples(tools, today))
    reach = _("What I can reach:") + "\n\n" + "\n".join(lines)
    parts = [str(opening), reach, _("For example: {examples}", examples=phrases) if phrases else "", real]
    return "\n\n".join(filter(None, parts))


def examples(tools: Sequence[Tool], today: date) -> list[str]:
    """Return a few messages that are sure to work, at most one for each server: each has been tried."""
    endings = {"place": " in Tokyo", "text": ": hello"}
    planner = Planner(tools, today)
    by_server: dict[str, str] = {}
    tries = 0
    for tool in tools:
        title = _title(tool).lower()
        is_search = any("search" in VERBS.get(term, ()) for term in terms(title)[:1])  # `Find an area`
        if is_search or tool.server in by_server or len(by_server) == _MOST_EXAMPLES or tries == _MOST_TRIES:
            continue
        tries += 1
        required = [other for other in parameters(tool.input_schema) if other.required]
        example = title + "".join(endings.get(parameter.kind, "") for parameter in required[:1])
        if [(step.tool, step.missing) for step in planner.plan(example).steps] == [(tool, ())]:
            by_server[tool.server] = example
    return list(by_server.values())


# -------------------- questions


def _ask_for_missing(step: Step) -> str:
    """Return the question for the missing arguments, in the words of the schema."""
    tool, first = _named(step.tool), step.missing[0]
    if len(step.missing) == 1:
        return _("To use {tool} I still need {argument}. What should it be?", tool=tool, argument=_describe(first))
    lines = [f"- {_describe(parameter)}" for parameter in step.missing[:_MOST_TOOLS]]
    advice = _("Name each of them in your answer, such as `{name}: …`.", name=first.name)
    return "\n\n".join([_("To use {tool} I still need:", tool=tool), "\n".join(lines), advice])


def _ask_which(rivals: Sequence[Tool]) -> str:
    lines = [_("Several tools fit your message equally well:"), "", *(f"- {_named(tool)}" for tool in rivals), ""]
    return "\n".join([*lines, _("Please say it again with more of its words.")])


def _ask_which_result(step: Step, result: ToolResult) -> str:
    """Return the question which of the search's results is meant, or that there are none."""
    assert step.finder is not None
    words = _line(", ".join(map(str, step.finder[1].values()))) or _title(step.finder[0])
    name, tool = _line(step.missing[0].name), _named(step.tool)
    if result.is_error or step.missing[0].name not in _shown_values(result):
        return _("I found nothing for “{words}”, so there is nothing to do for {tool}.", words=words, tool=tool)
    lead = _("Several things fit “{words}”. Which one do you mean? Answer with its **{name}**.", words=words, name=name)
    return f"{lead}\n\n{_result_text(result)}"


def _describe(parameter: Parameter) -> str:
    description = _line(parameter.description, 160).rstrip(".")
    choices = ", ".join(_line(str(choice), 40) for choice in parameter.schema.get("enum", ())[:_MOST_TOOLS])
    described = f"**{_line(parameter.name)}**" + (f" ({description})" if description else "")
    return _("{argument}, one of {choices}", argument=described, choices=choices) if choices else described


# -------------------- results


def _format_result(call: ToolCall, result: ToolResult | None, tool: Tool | None, *, alone: bool) -> str:
    """Return a call's result for people: a text that is `alone` as it is, else under a heading. `tool` is None if it is
    not offered any more.
    """
    name = _named(tool) if tool else f"**{_line(plain_name(call.name), 80).capitalize()}**"
    if result is None:
        return _("{tool} has given no result.", tool=name)
    if result.is_error:
        reason = _truncate(re.sub(r"^Error executing tool \S{1,200}: ", "", result.text.strip()))
        return _("{tool} brought no result: {reason}", tool=name, reason=reason or _("it did not say why."))
    text = _result_text(result)
    if not text:
        return _("{tool} is done; it returned nothing to show.", tool=name)
    if alone and len(text.split()) > 2 and not text.startswith(("- ", "```")):
        return text
    items = call.arguments.items()
    values = [_line(value) for _name, value in items if isinstance(value, str)]
    values += [f"{_line(plain_name(key))} {value}" for key, value in items if isinstance(value, int | float)]
    listed = ", ".join(values)
    is_short = 0 < len(listed) <= _LONGEST_CELL
    heading = _("{tool} for {values}:", tool=name, values=listed) if is_short else _("{tool}:", tool=name)
    return f"{heading}\n\n{text}"


def passage(question: str, result: ToolResult) -> str:
    """Return the passage of a search's results that answers a question, with its headings and its source; empty if none
    has enough of the question's words. Words of headings count more, verbs less, and the search's order a little.
    """
    weights = {term: 0.5 if term in VERBS else 1.0 for term in terms(question, content=True)}
    # After a short stem an ending may follow, not a word (`meanwhile`).
    ends = {term: "" if len(term) > _SHORT_STEM else "[a-z]{0,4}(?![a-z])" for term in weights}
    searches = {term: re.compile(rf"(?i)(?<![a-z]){re.escape(term)}{end}").search for term, end in ends.items()}
    # Documents may be in English or in the language of the question.
    languages = [{term for term in weights if term.isascii() is is_english} for is_english in (True, False)]
    passages: list[tuple[float, str]] = []
    for n, row in enumerate(_rows(result)):
        *short, text = sorted((value for value in row.values() if isinstance(value, str)), key=len) or [""]
        headings = next((list(map(str, value)) for value in row.values() if isinstance(value, list)), [])
        above = " ".join([*headings, *short])
        body = _TABLE_HEADER.sub("", text)
        worth = {term: weights[term] * (1.0 if has(above) else 0.8 * bool(has(body))) for term, has in searches.items()}
        shares = [sum(map(worth.__getitem__, some)) / sum(map(weights.__getitem__, some)) for some in languages if some]
        if (share := max(shares, default=0.0)) > _ENOUGH:
            heading = " > ".join(_line(heading, 80) for heading in headings)
            source = next((value for value in reversed(short) if not re.search(r"\s", value)), "")
            shown = _truncate(_join_lines(_without_links(text)))
            passages.append((0.05 * n - share, f"**{heading}** (`{source}`)\n\n{shown}"))
    return min(passages, default=(0.0, ""))[1]


def _without_links(text: str) -> str:
    """Return a text of a document without its images, and with the words of links to other documents alone."""
    text = re.sub(r"!\[[^\]\n]*\]\([^)\n]*\)", "", text)
    text = re.sub(r"\[([^\]\n]*)\]\((?!https?:)[^)\n]*\)", r"\1", text)
    return re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", text).strip("\n")


def _join_lines(text: str) -> str:
    """Return Markdown with each paragraph and each item on one line; code, tables and headings keep their lines."""
    lines: list[str] = []
    is_code = is_open = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        if is_open and not (is_code or is_fence or _NEW_BLOCK.match(line)):
            gap = "" if _WIDE.match(lines[-1][-1:]) and _WIDE.match(line.lstrip()) else " "
            lines[-1] += gap + line.strip()
        else:
            lines.append(line.rstrip() if not is_code else line)
        is_code ^= is_fence
        is_open = not (is_code or is_fence or re.match(r"\s*(?:[|#]|$)", line))
    return "\n".join(lines)


def _shown_values(result: ToolResult) -> dict[str, list[Any]]:
    """Return the short values in the rows of a result, by their fields and in their order."""
    columns: dict[str, list[Any]] = {}
    for row in _rows(result)[:_MOST_SHOWN]:
        for name, value in islice(row.items(), _MOST_FIELDS):
            if isinstance(value, int | str) and len(str(value)) <= _LONGEST_CELL:
                columns.setdefault(str(name), []).append(value)
    return columns


def _trace_text(checked: ToolCall, results: Sequence[ToolResult]) -> str:
    """Return a sentence that says if the results have the texts of the checked call; empty if that is unknown."""
    read = [" ".join(result.text.split()).casefold() for result in results if not result.is_error]
    text = sought_text(checked)
    if not read or not text:
        return ""
    if any(re.search(rf"(?<!\w){re.escape(text.casefold())}(?!\w)", result) for result in read):
        return _("I looked: {texts} is there.", texts=f"“{text}”")
    return _("I looked: {texts} is not there.", texts=f"“{text}”")


def _rows(result: ToolResult) -> list[Mapping[str, Any]]:
    data = result.structured
    if isinstance(data, Mapping):
        data = next((value for value in data.values() if isinstance(value, list)), [data])
    return [row for row in data if isinstance(row, Mapping)] if isinstance(data, list) else []


def _result_text(result: ToolResult) -> str:
    """Return a result's text, or its data as a list; empty if the tool returned nothing."""
    texts = [part.text for part in result.parts if isinstance(part, TextPart)]
    if result.structured is not None:  # the same data as text is for models
        texts = [text for text in texts if _parse(text) is None]
    text = "\n".join(texts).strip()
    data = _parse(text) if text else result.structured
    if isinstance(data, Mapping) and list(data) == ["result"]:
        data = data["result"]
    is_data = data is not None or (not text and result.structured is not None)
    files = [part for part in result.parts if isinstance(part, ImagePart | FilePart)][:_MOST_ROWS]
    names = [_line(part.name, 80) if isinstance(part, FilePart) else "image" for part in files]
    about = [
        f"({name}, {_line(part.mime_type)}, {len(part.data):,} bytes)" for name, part in zip(names, files, strict=True)
    ]
    return "\n\n".join(filter(None, [_truncate(_data_text(data) if is_data else text), *about]))


def _data_text(data: Any) -> str:
    """Return data as a list with a line for each field or row; as JSON if it is nested deeper."""
    rows = [{name: value} for name, value in data.items()] if isinstance(data, Mapping) else data
    if not isinstance(rows, list) or not rows:
        return _("(an empty list)") if isinstance(rows, list) else _scalar(data)
    fields = [list(row.items()) if isinstance(row, Mapping) else [("", row)] for row in rows]
    if any(isinstance(value, Mapping | list) for row in fields for _name, value in row):
        with suppress(RecursionError):
            return f"```json\n{json.dumps(data, ensure_ascii=False, indent=2)}\n```"
        return "…"
    lines = [
        ", ".join(f"**{_line(name)}**: {_scalar(value)}" if name else _scalar(value) for name, value in row)
        for row in fields
    ]
    return "\n".join(f"- {line}" for line in _first(lines, _MOST_ROWS))


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "-" if value is None else _("yes") if value else _("no")
    return single_line(str(value), 300)


def _truncate(text: str) -> str:
    """Return the beginning of a text with open code fences closed: whole lines, unless the next one is long."""
    short = "\n".join(text.split("\n")[:_MOST_LINES])
    if len(short) > _MOST_CHARACTERS:
        short = short[: _MOST_CHARACTERS + 1]
        line_end = short.rfind("\n")
        is_long = line_end < _MOST_CHARACTERS - _LONGEST_LEFT_OUT
        short = re.sub(r"\s\S{0,200}\Z", "", short[:_MOST_CHARACTERS]) if is_long else short[:line_end]
    if short == text:
        return text
    fence = "\n```" if len(re.findall(r"(?m)^\s*```", short)) % 2 else ""
    rest = text[len(short) :]
    more = len([line for line in rest.split("\n") if line.strip(" `")])
    # `shortened` where the first of the lines is cut within.
    left = ngettext("… {n} more line", "… {n} more lines", more) if rest.startswith("\n") and more else ""
    return f"{short.rstrip()}{fence}\n\n{left or _('… (shortened)')}"


def _parse(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text) if text.lstrip()[:1] in ("[", "{") else None
    return None


def _first(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([_("… and {n} more", n=len(lines) - most)] if len(lines) > most else [])]


def _line(text: str, longest: int = _LONGEST_CELL) -> str:
    """Return the text on one line, bounded, without Markdown's marks."""
    return single_line(re.sub(r"[*_`|<>\[\]~#]+", " ", text), longest)


def _title(tool: Tool) -> str:
    return _line(tool.title) or _line(plain_name(tool.original_name or tool.name)).capitalize() or "…"


def _named(tool: Tool) -> str:
    server = _line(tool.server, 40)
    return f"**{_title(tool)}**" + (f" ({server})" if server else "")

"""Texts of the demo, in full sentences: greetings, help, questions, and the results of tools.

It never pretends to be a language model. Its first answer in a conversation names the way to a real one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from bot.domain.messages import FilePart, ImagePart, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.llm.demo.planner import Ambiguous, Calls, Incomplete, plan_calls
from bot.llm.demo.schemas import ParameterType, ToolParameter, parameters
from bot.llm.demo.tokenizer import VERBS, listed, plain_name, terms, words

# -------------------- results
# Results of tools as readable, bounded Markdown.
#
# What a tool says is untrusted and of any size; it is shown as it stands, but never all of it.

_LONGEST = 1500
_MOST_LINES = 40
_MOST_ROWS = 10
_MOST_COLUMNS = 6
_LONGEST_CELL = 60
_LONGEST_VALUE = 300
_DEEPEST = 3


def describe(result: ToolResult) -> str:
    """A result's text, or its data as a table or a list; empty if the tool returned nothing."""
    text = _text(result).strip()
    data = _parse(text) if text else None
    if result.structured is not None and (not text or data is not None or text[:1] in "[{"):
        data = result.structured
    shown = truncate(text if data is None else _data(_unwrap(data)))
    files = [_attachment(part) for part in result.parts if isinstance(part, (ImagePart, FilePart))]
    return "\n\n".join(part for part in (shown, *files[:_MOST_ROWS]) if part)


def _text(result: ToolResult) -> str:
    """Return the texts of a result, without JSON text that repeats the others for models."""
    texts = [part.text for part in result.parts if isinstance(part, TextPart)]
    if result.structured is not None:
        texts = [text for text in texts if _parse(text.strip()) != result.structured] or texts
    return "\n".join(texts)


def truncate(text: str, longest: int = _LONGEST) -> str:
    """The beginning of a text, cut at a line or a word, with open code fences closed."""
    short = "\n".join(text.split("\n")[:_MOST_LINES])
    if len(short) > longest:
        short = short[:longest]
        cut = max(short.rfind("\n"), short.rfind(" "))
        short = short[:cut] if cut > longest // 2 else short
    if short == text:
        return text
    fence = "\n```" if len(re.findall(r"(?m)^\s*```", short)) % 2 else ""
    return f"{short.rstrip()}{fence}\n\n… (shortened)"


def single_line(text: str, longest: int) -> str:
    """The text on one line, bounded, without Markdown's marks."""
    line = " ".join(re.sub(r"[*_`|<>\[\]~#]+", " ", text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def _parse(text: str) -> Any:
    if text[:1] not in "[{":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unwrap(data: Any) -> Any:
    if isinstance(data, Mapping) and len(data) == 1:
        key, inner = next(iter(data.items()))
        if isinstance(inner, (Mapping, list)) or key == "result":
            return inner
    return data


def _data(data: Any, depth: int = 0) -> str:
    if isinstance(data, Mapping):
        return _fields(data, depth)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rows(data, depth)
    return _scalar(data)


def _fields(data: Mapping[Any, Any], depth: int) -> str:
    lines = [
        f"{'  ' * depth}- **{single_line(_label(key), _LONGEST_CELL)}**: {_inline(value, depth)}"
        for key, value in list(data.items())[: 2 * _MOST_ROWS]
    ]
    return "\n".join([*lines, *_more(len(data) - 2 * _MOST_ROWS, depth)]) or "(nothing)"


def _rows(data: Sequence[Any], depth: int) -> str:
    if not data:
        return "(an empty list)"
    if depth == 0 and (table := _table(data)):
        return table
    lines = [f"{'  ' * depth}- {_item(each, depth)}" for each in data[:_MOST_ROWS]]
    return "\n".join([*lines, *_more(len(data) - _MOST_ROWS, depth)])


def _item(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{single_line(_label(key), 40)}: {_short(each)}" for key, each in list(value.items())[:_MOST_COLUMNS]]
        return ", ".join(pairs) or "(nothing)"
    return _inline(value, depth)


def _inline(value: Any, depth: int) -> str:
    if isinstance(value, (Mapping, list)) and value:
        return "\n" + _data(value, depth + 1) if depth < _DEEPEST else "…"
    return _short(value)


def _table(data: Sequence[Any]) -> str:
    columns = list(data[0]) if isinstance(data[0], Mapping) else []
    if not 1 < len(columns) <= _MOST_COLUMNS or len(data) < 2:
        return ""
    for row in data:
        if not isinstance(row, Mapping) or list(row) != columns:
            return ""
        if any(isinstance(cell, (Mapping, list)) or len(str(cell)) > _LONGEST_CELL for cell in row.values()):
            return ""
    lines = ["| " + " | ".join(single_line(_label(column), _LONGEST_CELL) or " " for column in columns) + " |"]
    lines.append("|" + " --- |" * len(columns))
    lines += [
        "| " + " | ".join(_short(cell).replace("|", "\\|") for cell in row.values()) + " |" for row in data[:_MOST_ROWS]
    ]
    more = _more(len(data) - _MOST_ROWS, 0)
    return "\n".join([*lines, "", more[0].removeprefix("- ")] if more else lines)


def _more(count: int, depth: int) -> list[str]:
    return [f"{'  ' * depth}- … and {count} more"] if count > 0 else []


def _label(key: Any) -> str:
    return re.sub(r"[_\s]+", " ", str(key)).strip()


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def _short(value: Any) -> str:
    text = " ".join(_scalar(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _attachment(part: ImagePart | FilePart) -> str:
    name = part.name if isinstance(part, FilePart) else "image"
    return f"({single_line(name, 80)}, {single_line(part.mime_type, 60)}, {len(part.data):,} bytes)"


KEYS = (
    "set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY` in the environment or in `.env`, "
    "or name a model with `BOT_MODEL=openai:NAME`"
)
NOTE = f"*This was the demo model: no AI, it only matches words to tools. For a real model {KEYS}.*"

_MOST_SERVERS = 12
_MOST_TOOLS = 8
_MOST_EXAMPLES = 3
_GREETINGS = listed("hi hello hey hallo hola bonjour greetings howdy moin ciao こんにちは こんばんは 안녕하세요 你好")
_THANKS = listed("thanks thank thx cheers merci danke gracias arigato ありがとう 謝謝 谢谢")
_FAREWELLS = listed("bye goodbye farewell")
_IDENTITY = re.compile(
    r"\b(?:who|what) are you\b|\bare you (?:an? )?(?:ai|bot|human|real|llm|gpt|chatgpt|claude|robot|person)\b"
    r"|\b(?:which|what) (?:language )?(?:model|llm|ai)\b|あなたは(?:誰|だれ)",
    re.IGNORECASE,
)
_ABILITY = re.compile(
    r"^\W*help\b|\bwhat can you\b|\bhow (?:do|does|can) (?:i|you|this)\b.*\b(?:use|work)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A call of this turn and its result; None without a result."""

    call: ToolCall
    result: ToolResult | None


def small_talk(text: str) -> str:
    """The opening of an answer to a greeting, to thanks, or to a question about the bot itself; empty for all else."""
    said = [word.text.lower() for word in words(text)]
    if _IDENTITY.search(text):
        return "I am the demo model of this assistant. I am not an AI: I match the words of your message to tools."
    if len(said) <= 4 and any(word in _THANKS for word in said):
        return "You are welcome."
    if len(said) <= 3 and any(word in _FAREWELLS for word in said):
        return "Goodbye!"
    if said and len(said) <= 4 and said[0] in _GREETINGS:
        return "Hello! I am the demo model of this assistant: no AI, I match the words of your message to tools."
    if _ABILITY.search(text):
        return "I am the demo model of this assistant: no AI, I match the words of your message to tools."
    return ""


def help_text(opening: str, tools: Sequence[Tool], today: date) -> str:
    """Return an opening, a line for each server with the abilities of its tools, and the way to a real model."""
    real = f"For a real model, {KEYS}."
    if not tools:
        return f"{opening}\n\nNo tools are offered to me right now, so there is nothing I can do for you.\n\n{real}"
    servers: dict[str, list[str]] = {}
    for tool in tools:
        servers.setdefault(single_line(tool.server, 40) or "tools", []).append(_title(tool))
    lines = [
        f"- **{server}**: {' · '.join(titles[:_MOST_TOOLS])}{_and_more(len(titles) - _MOST_TOOLS)}"
        for server, titles in list(servers.items())[:_MOST_SERVERS]
    ]
    if len(servers) > _MOST_SERVERS:
        lines.append(f"- … and {len(servers) - _MOST_SERVERS} more servers")
    parts = [opening, "What I can reach:\n\n" + "\n".join(lines)]
    if examples := _examples(tools, today):
        parts.append("For example: " + " · ".join(f"`{example}`" for example in examples))
    return "\n\n".join([*parts, real])


def not_understood(tools: Sequence[Tool], today: date) -> str:
    """Return the answer if no tool fits, with examples that would fit."""
    opening = (
        "I am only the demo model, and no tool's words fit your message." if tools else "I am only the demo model."
    )
    return help_text(opening, tools, today)


def question(plan: Incomplete) -> str:
    """Ask for the missing arguments, in the words of the schema."""
    lead = f"To use {_named(plan.tool)} I still need"
    if len(plan.missing) == 1:
        return f"{lead} {_parameter(plan.missing[0])}. What should it be?"
    lines = "\n".join(f"- {_parameter(each)}" for each in plan.missing[:_MOST_TOOLS])
    first = plan.missing[0].name
    return f"{lead}:\n\n{lines}\n\nName each of them in your answer, such as `{first}: …`."


def ask_which(plan: Ambiguous) -> str:
    """Ask which of several tools is meant."""
    lines = "\n".join(f"- {_named(tool)}" for tool in plan.tools)
    return f"Several tools fit your message equally well:\n\n{lines}\n\nPlease say it again with more of its words."


def format_results(outcomes: Sequence[Outcome], tools: Iterable[Tool]) -> str:
    """Return the answer from the results of the tools, in the order of the calls."""
    known = {tool.name: tool for tool in tools}
    return "\n\n".join(_outcome(outcome, known.get(outcome.call.name)) for outcome in outcomes)


def _outcome(outcome: Outcome, tool: Tool | None) -> str:
    name = _named(tool) if tool else f"**{single_line(plain_name(outcome.call.name), 80).capitalize()}**"
    result = outcome.result
    if result is None:
        return f"{name} has given no result."
    if result.is_error:
        reason = truncate(result.text.strip()) or "it did not say why."
        return f"{name} brought no result: {reason}"
    shown = describe(result)
    if not shown:
        return f"{name} is done; it returned nothing to show."
    return f"{name}{_with(outcome.call)}:\n\n{shown}"


def _with(call: ToolCall) -> str:
    """The arguments, where they are few and short enough to be read in passing."""
    values = [single_line(str(value), 60) for value in call.arguments.values() if isinstance(value, (str, int, float))]
    return f" for {', '.join(values)}" if 0 < len(values) <= 2 and sum(map(len, values)) <= 40 else ""


def _title(tool: Tool) -> str:
    return (
        single_line(tool.title, 60) or single_line(plain_name(tool.original_name or tool.name), 60).capitalize() or "…"
    )


def _named(tool: Tool) -> str:
    server = single_line(tool.server, 40)
    return f"**{_title(tool)}**" + (f" ({server})" if server else "")


def _parameter(parameter: ToolParameter) -> str:
    explained = f" ({single_line(parameter.explanation, 160).rstrip('.')})" if parameter.explanation else ""
    choices = ", ".join(single_line(str(choice), 40) for choice in parameter.choices[:_MOST_TOOLS])
    return f"**{single_line(parameter.name, 60)}**{explained}{f', one of {choices}' if choices else ''}"


def _and_more(count: int) -> str:
    return f" · and {count} more" if count > 0 else ""


def _examples(tools: Sequence[Tool], today: date) -> list[str]:
    """A few messages that are sure to work, at most one for each server: each has been tried."""
    candidates = [(*sentence, tool) for tool in tools if (sentence := _example(tool))]
    candidates.sort(key=lambda candidate: candidate[0])
    found: dict[str, str] = {}
    for _, example, tool in candidates[: 2 * _MOST_EXAMPLES]:
        match plan_calls(example, tools, today):
            case Calls((call,)) if call.tool == tool and len(found) < _MOST_EXAMPLES:
                found.setdefault(tool.server, example)
    return list(found.values())


def _example(tool: Tool) -> tuple[int, str] | None:
    """Return a message that should work, and how well it shows the demo's abilities (0 is best). None if the tool needs
    arguments that cannot be invented.
    """
    said = _title(tool).lower()
    adds = any("add" in VERBS.get(term, ()) for term in terms(said)[:1])
    match [parameter.kind for parameter in parameters(tool.input_schema) if parameter.required]:
        case [ParameterType.PLACE]:
            return 0, f"{said} in Tokyo"
        case [ParameterType.TEXT] if adds:
            return 1, f"{said}: hello"
        case []:
            return 2, said
        case _:
            return None

"""Texts of the demo model, in full sentences: small talk, help, questions, and the results of tools.

The demo never pretends to be an AI. Its first answer in a conversation names the way to a real model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import islice
from typing import Any

from bot.domain.messages import FilePart, ImagePart, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.i18n import _, gettext_lazy, ngettext
from bot.llm.demo.arguments import Parameter, parameters
from bot.llm.demo.planner import Plan, plan_calls
from bot.llm.demo.request import plain_name, request_terms
from bot.llm.demo.vocabulary import VERBS

KEYS = gettext_lazy(
    "set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY` in the environment or in `.env`, "
    "or name a model with `BOT_MODEL=openai:NAME`"
)
NOTE = gettext_lazy(
    "*This was the demo model: no AI, it only matches words to tools. For a real model {keys}.*", keys=KEYS
)
_HELLO = gettext_lazy("I am the demo model of this assistant: no AI, I match the words of your message to tools.")
_NOT_AN_AI = gettext_lazy(
    "I am the demo model of this assistant. I am not an AI: I match the words of your message to tools."
)
HOW_TO = gettext_lazy(
    "I am only the demo model and cannot explain that. README.md and the guides in `docs/` tell how this assistant is "
    "set up and used."
)
YES = gettext_lazy("Gladly. Tell me in a few words what to do.")
NO_TOOL_FITS = gettext_lazy("I am only the demo model, and no tool's words fit your message.")
NO_TOOLS_ALLOWED = gettext_lazy("No tools may be used for this answer, and without them I only know this:")

_IDENTITY = (
    r"\b(?:who|what) are you\b|\b(?:are you|is (?:this|it)) (?:an? )?(?:ai|bot|human|real|llm|gpt|chatgpt|claude)\b"
    r"|\b(?:which|what) (?:language )?(?:model|llm|ai)\b|\bwhat(?:'s| is) (?:your name\b|(?:this|countersign)\W*$)"
    r"|\bwho (?:made|built|wrote|created|am i talking) (?:you|this|to)\b|how do you work|(?:あなた|君)は(?:誰|だれ|何)"
)
_NO_OR_OK = (
    r"^\W*(?:(?:oh|ok|okay|sorry|actually|please)\W+)*(?:never ?mind|forget (?:it|that)|no(?:pe)?(?:,? thank.*)?|nah"
    r"|cancel|stop|i changed my mind|okay|ok|cool|great|nice|perfect|good|fine|got it|i see|いいえ|やめ)\W*$"
)
_THANKS = (
    r"^\W*(?:\S+\W+){0,2}(?:thanks|thank|thx|cheers|merci|danke|gracias|arigato)\b(?:\W+\S+){0,3}$"
    r"|^\W*(?:ありがとう|謝謝|谢谢)"
)
_GREETING = (
    r"^\W*(?:hi|hello|hey|hallo|hola|bonjour|greetings|howdy|moin|ciao|good (?:morning|afternoon|evening))\b"
    r"(?:\W+\w+){0,3}\W*$|^\W*(?:こんにちは|こんばんは|おはよう|안녕하세요|你好)\W*"
)
_ABILITY = (
    r"^\W*help\b|\bcan you help\b|\bwhat (?:else )?(?:can|do) (?:you|i) (?:do|know|ask|say)\b|何ができ|使い方"
    r"|\bhow (?:do|does|can) (?:i|you|this)\b.*\b(?:use|work)|^\W*what (?:tools|servers) (?:do you|are|can)\b"
)
_SMALL_TALK = [
    (re.compile(pattern, re.IGNORECASE), opening, needs_help)
    for pattern, opening, needs_help in (
        (_IDENTITY, _NOT_AN_AI, True),
        (_NO_OR_OK, gettext_lazy("All right."), False),
        (r"^\W*(?:yes|yeah|yep|sure|はい)(?:,? please)?\W*$", YES, False),
        (_THANKS, gettext_lazy("You are welcome."), False),
        (r"^\W*(?:\S+\W+){0,2}(?:bye|goodbye|farewell|see you)\W*$|^\W*さようなら", gettext_lazy("Goodbye!"), False),
        (
            r"^\W*(?:how are you|how(?:'s| is) it going|what's up)\b",
            gettext_lazy("I am well, thank you. {hello}", hello=_HELLO),
            True,
        ),
        (_GREETING, gettext_lazy("Hello! {hello}", hello=_HELLO), True),
        (_ABILITY, _HELLO, True),
    )
]

_MOST_CHARACTERS = 1500
_MOST_LINES = 40
_MOST_ROWS = 10
_MOST_PAIRS = 20
_MOST_COLUMNS = 6
_LONGEST_CELL = 60
_DEEPEST = 3
_MOST_SERVERS = 12
_MOST_TOOLS = 8
_MOST_EXAMPLES = 3


def small_talk(text: str) -> tuple[str, bool]:
    """Return the answer to a greeting, thanks, `never mind` or a question about the demo, and True if the help belongs
    to it. The answer is empty for any other text.
    """
    matches = ((opening, needs_help) for pattern, opening, needs_help in _SMALL_TALK if pattern.search(text))
    return next(matches, ("", False)) if len(text) < 200 else ("", False)


def help_text(opening: str, tools: Sequence[Tool], today: date) -> str:
    """Return an opening, a line for each server with the abilities of its tools, and the way to a real model."""
    real = _("For a real model, {keys}.", keys=KEYS)
    if not tools:
        nothing = _("No tools are offered to me right now, so there is nothing I can do for you.")
        return f"{opening}\n\n{nothing}\n\n{real}"
    servers: dict[str, list[str]] = {}
    for tool in tools:
        servers.setdefault(_line(tool.server, 40) or "tools", []).append(_title(tool))
    lines = [
        f"- **{server}**: {' · '.join([*titles[:_MOST_TOOLS], *_more(titles, _MOST_TOOLS)])}"
        for server, titles in islice(servers.items(), _MOST_SERVERS)
    ]
    more = len(servers) - _MOST_SERVERS
    lines += ["- " + ngettext("… and {n} more server", "… and {n} more servers", more)] if more > 0 else []
    examples = " · ".join(f"`{example}`" for example in _examples(tools, today))
    reach = _("What I can reach:") + "\n\n" + "\n".join(lines)
    parts = [str(opening), reach, _("For example: {examples}", examples=examples) if examples else "", real]
    return "\n\n".join(filter(None, parts))


def ask_for_missing(plan: Plan) -> str:
    """Return the question for the missing arguments, in the words of the schema."""
    tool = _named(plan.calls[0][0])
    if len(plan.missing) == 1:
        argument = _described(plan.missing[0])
        return _("To use {tool} I still need {argument}. What should it be?", tool=tool, argument=argument)
    lead = _("To use {tool} I still need:", tool=tool)
    lines = "\n".join(f"- {_described(parameter)}" for parameter in plan.missing[:_MOST_TOOLS])
    advice = _("Name each of them in your answer, such as `{name}: …`.", name=plan.missing[0].name)
    return f"{lead}\n\n{lines}\n\n{advice}"


def ask_which(plan: Plan) -> str:
    """Return the question which of several tools is meant."""
    lines = "\n".join(f"- {_named(tool)}" for tool in plan.rivals)
    lead, advice = _("Several tools fit your message equally well:"), _("Please say it again with more of its words.")
    return f"{lead}\n\n{lines}\n\n{advice}"


def format_result(call: ToolCall, result: ToolResult | None, tool: Tool | None) -> str:
    """Return a call's result for people. `tool` is None if it is not offered any more."""
    name = _named(tool) if tool else f"**{_line(plain_name(call.name), 80).capitalize()}**"
    if result is None:
        return _("{tool} has given no result.", tool=name)
    if result.is_error:
        reason = _truncate(result.text.strip()) or _("it did not say why.")
        return _("{tool} brought no result: {reason}", tool=name, reason=reason)
    text = _result_text(result)
    if not text:
        return _("{tool} is done; it returned nothing to show.", tool=name)
    values = [_line(str(value)) for value in call.arguments.values() if isinstance(value, str | int | float)]
    is_short = 0 < len(values) <= 2 and sum(map(len, values)) <= 40
    heading = _("{tool} for {values}:", tool=name, values=", ".join(values)) if is_short else _("{tool}:", tool=name)
    return f"{heading}\n\n{text}"


def _result_text(result: ToolResult) -> str:
    """Return a result's text, or its data as a table or a list; empty if the tool returned nothing."""
    texts = [part.text for part in result.parts if isinstance(part, TextPart)]
    if result.structured is not None:  # the same data as text is for models
        texts = [text for text in texts if _parse(text.strip()) != result.structured] or texts
    text = "\n".join(texts).strip()
    data = _parse(text)
    if result.structured is not None and (not text or data is not None or text[:1] in "[{"):
        data = result.structured
    if isinstance(data, Mapping) and len(data) == 1:
        (key, inner), *_ = data.items()
        data = inner if isinstance(inner, Mapping | list) or key == "result" else data
    files = [
        f"({_line(part.name if isinstance(part, FilePart) else 'image', 80)}, {_line(part.mime_type)}, "
        f"{len(part.data):,} bytes)"
        for part in result.parts
        if isinstance(part, ImagePart | FilePart)
    ]
    shown = text if data is None and result.structured is None else _data(data) if data is not None else text
    return "\n\n".join(filter(None, [_truncate(shown), *files[:_MOST_ROWS]]))


def _truncate(text: str) -> str:
    """Return the beginning of a text, cut at a line or a word, with open code fences closed."""
    short = "\n".join(text.split("\n")[:_MOST_LINES])
    if len(short) > _MOST_CHARACTERS:
        short = re.sub(r"\s\S{0,200}\Z", "", short[:_MOST_CHARACTERS])
    if short == text:
        return text
    shortened = _("… (shortened)")
    fence = "\n```" if len(re.findall(r"(?m)^\s*```", short)) % 2 else ""
    return f"{short.rstrip()}{fence}\n\n{shortened}"


def _parse(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text) if text[:1] in ("[", "{") else None
    return None


def _data(data: Any, depth: int = 0) -> str:
    """Return data as Markdown: a table, or a list with nested lists."""
    if not isinstance(data, Mapping | list) or (depth and not data):
        return _scalar(data)
    if depth > _DEEPEST:
        return "…"
    if isinstance(data, Mapping):
        lines = [
            f"**{_line(str(key))}**: {_data(value, depth + 1)}" for key, value in islice(data.items(), _MOST_PAIRS)
        ]
        lines += _more(data, _MOST_PAIRS)
    elif not depth and (table := _table(data)):
        return table
    else:
        lines = [_pairs(item) if isinstance(item, Mapping) else _data(item, depth + 1) for item in data[:_MOST_ROWS]]
        lines += _more(data, _MOST_ROWS)
    text = "\n".join(f"{'  ' * depth}- {line}" for line in lines) or _("(an empty list)")
    return f"\n{text}" if depth else text


def _pairs(row: Mapping[str, Any]) -> str:
    pairs = (f"{_line(str(key))}: {_scalar(value)}" for key, value in islice(row.items(), _MOST_COLUMNS))
    return ", ".join(pairs) or _("(nothing)")


def _table(rows: Sequence[Any]) -> str:
    """Return rows of the same few, short columns as a table; empty for any others."""
    columns = list(rows[0]) if len(rows) > 1 and isinstance(rows[0], Mapping) else []
    if not (1 < len(columns) <= _MOST_COLUMNS and all(isinstance(row, Mapping) and [*row] == columns for row in rows)):
        return ""
    if any(isinstance(cell, Mapping | list) or len(str(cell)) > _LONGEST_CELL for row in rows for cell in row.values()):
        return ""
    cells = [[_line(str(column)) or " " for column in columns], ["---"] * len(columns)]
    cells += [[_scalar(cell).replace("|", "\\|") for cell in row.values()] for row in rows[:_MOST_ROWS]]
    return "\n".join(["| " + " | ".join(line) + " |" for line in cells] + ["", *_more(rows, _MOST_ROWS)]).rstrip()


def _more(items: Sequence[Any] | Mapping[Any, Any], most: int) -> list[str]:
    return [_("… and {n} more", n=len(items) - most)] if len(items) > most else []


def _scalar(value: Any) -> str:
    text = (
        {None: "-", True: _("yes"), False: _("no")}[value] if value is None or isinstance(value, bool) else str(value)
    )
    return _cut(" ".join(text.split()), 300)


def _line(text: str, longest: int = _LONGEST_CELL) -> str:
    """Return the text on one line, bounded, without Markdown's marks."""
    return _cut(" ".join(re.sub(r"[*_`|<>\[\]~#]+", " ", text).split()), longest)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _title(tool: Tool) -> str:
    return _line(tool.title) or _line(plain_name(tool.original_name or tool.name)).capitalize() or "…"


def _named(tool: Tool) -> str:
    server = _line(tool.server, 40)
    return f"**{_title(tool)}**" + (f" ({server})" if server else "")


def _described(parameter: Parameter) -> str:
    description = _line(parameter.description, 160).rstrip(".")
    choices = ", ".join(_line(str(choice), 40) for choice in parameter.schema.get("enum", ())[:_MOST_TOOLS])
    explained = f" ({description})" if description else ""
    described = f"**{_line(parameter.name)}**{explained}"
    return _("{argument}, one of {choices}", argument=described, choices=choices) if choices else described


def _examples(tools: Sequence[Tool], today: date) -> list[str]:
    """Return a few messages that are sure to work, at most one for each server: each has been tried."""
    candidates: list[tuple[int, int, str]] = []
    for n, tool in enumerate(tools):
        title = _title(tool).lower()
        is_adding = any("add" in VERBS.get(term, ()) for term in request_terms(title)[:1])
        match [parameter.kind for parameter in parameters(tool.input_schema) if parameter.required]:
            case ["place"]:
                candidates.append((0, n, f"{title} in Tokyo"))
            case ["text"] if is_adding:
                candidates.append((1, n, f"{title}: hello"))
            case []:
                candidates.append((2, n, title))
    examples: dict[str, str] = {}
    for _rank, n, example in sorted(candidates)[: 2 * _MOST_EXAMPLES]:
        if [tool for tool, _arguments in plan_calls(example, tools, today).calls] == [tools[n]]:
            examples.setdefault(tools[n].server, example)
    return list(examples.values())[:_MOST_EXAMPLES]

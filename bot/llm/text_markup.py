"""Markup that a service left in a model's text: its thoughts, and tool calls that the service did not parse.

A text is a call only if it is nothing but a known markup that names offered tools. So a text about calls stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bot.domain.completions import Completion, StopReason, TextDelta
from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.messages import Part, TextPart, ToolCall
from bot.domain.tools import Tool
from bot.llm.call_syntax import WORDS, read_value
from bot.llm.wire_format import parse_call

_TAG = r"(?:\w+[:_])?(?:think(?:ing)?|thought|reasoning)>"
_PROSE = r"(?:(?-i: [a-z])| ?[:;,.=)?!\"'\u2013\u2014])"
"""Text behind a tag that a sentence is about."""
_BEGIN = rf"(?:<{_TAG}|\[THINK\]|\u25c1think\u25b7|<(?:\|channel|unused94)>thought\b|<\|(?:begin_of_|START_|inner_pre)"
_BEGIN += r"(?:thought|THINKING|fix)\|>)"
_END = rf"(?<!`)(?:</{_TAG}|\[/THINK\]|\u25c1/think\u25b7|<channel\|>|<unused95>|<\|(?:end_of_|END_|inner_suf)"
_END += r"(?:thought|THINKING|fix)\|>)"
_OPEN = rf"(?<!`){_BEGIN}(?!{_PROSE})"
_BODY = rf"(?>[^<\[\u25c1]+|(?!{_OPEN}|{_END}).)*+"
_LINE = r"(?:\A|(?<=\n)|(?<=\n )|(?<=\n  )|(?<=\n   ))"
_BREAK = rf"(?:{_LINE}|(?<=[.!?>\]\u25b7\u2026\u3002\uff01\uff1f])|(?<=\D[.!?\u2026] )|(?<=\S> )|(?=<\|))"
_ANALYSIS = r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
_FIRST = lazy_pattern(rf"\s*(?:{_BEGIN}|{_ANALYSIS})", re.IGNORECASE)
_PIECE = lazy_pattern(
    rf"(?si)(?=[`~<\[\u25c1])(?:{_LINE}(?P<code>`{{3,}}|~{{3,}}).*?(?:\n[ \t]*(?P=code)|\Z)|`[^`\n]*(?:`|\n|\Z)"
    rf"|(?P<thought>{_BREAK}{_OPEN}{_BODY}(?:{_OPEN}{_BODY}{_END}{_BODY})*+{_END}\s*"
    rf"|\A{_BEGIN}(?={_PROSE})(?:(?!{_END}).)*+{_END}(?!{_PROSE})\s*|{_ANALYSIS}.*?(?:<\|end\|>|(?=<\|start\|>)))"
    rf"|(?P<uneven>{_BREAK}{_OPEN}.*?{_END})|(?P<cut>(?:\A{_OPEN}|{_ANALYSIS}).*)"
    rf"|(?P<open>{_BREAK}{_OPEN}.*|\A{_BEGIN}(?={_PROSE})(?:(?!{_END}).)*+\Z)"
    rf"|(?:\A|(?<=[\w.!?\u2026\u3002\uff01\uff1f)\n])|(?<=[.!?\u2026] ))(?P<close>{_END}\s*)"
    r"|(?P<gone>(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|(?:START_RESPONSE|begin_of_solution)\|>\s*"
    r"|(?<![ `])(?:(?:<\|(?:return|\w*end\w*|eo[smt]\w*)\|>|</s>|<end_of_turn>|<\uff5cend\u2581\w+\uff5c>)\s*)+\Z))"
)
"""Code, which is left as it is, and outside of it thoughts, which are whole or not, and the marks of an answer."""
_ANYTHING, _BEGINNINGS, _ENDINGS, _NEVER = map(re.compile, ("", r"[<\[\u25c1]", r"[>\]\u25b7]", "(?!)"))
"""Characters that have to come before a text is looked at again."""
_UNFINISHED = lazy_pattern(r"(?:<\|[\w|<>]{0,60}|[<\[\u25c1]/?[\w:\u2581\uff5c]{0,30})\Z")
_SPACE = r"(?:\w+[:_]|\uff5cDSML\uff5c)?"
"""Prefix of the tags of some models."""
_TOKEN = lazy_pattern(
    r"(?i)<\|/?[\w:]+\|>|<\uff5c[\w\u2581]+\uff5c>|<\|tool_\w+>|<tool_\w+\|>|</s>|<(?:start|end)_function_\w+>"
    rf"|</?{_SPACE}(?:tools?|tool_?calls?|function_calls?)>|\[/?TOOL_CALLS\]|\[ARGS\]|\[CALL_ID\]\w*"
    r"|functools(?=\[)|\bto=|call:|action\b:?|input:|\u273f(?:function|args)\u273f:"
)
_FILLER = lazy_pattern(
    r"[\s;,]+|\{(?=\{)|\}|```(?:json|tool_c(?:ode|all))?|assistant(?=commentary)|</?(?:answer|response)>|print\(|\)"
    r"|(?:assistant|commentary|analysis|function|json|code|call)\b(?![.:_(-])"
)
_NAME = re.compile(r"[A-Za-z_][\w./-]*(?::\d+)?")
_ELEMENT = lazy_pattern(
    rf"(?s)<{_SPACE}(?:function|invoke)(?:=|\s+name=)[\"']?([\w.-]+)[\"']?(?:>|(?={{))(.*?)</?{_SPACE}(?:function|invoke)>"
    r"|([\w.-]+)\s*((?:<arg_key>.*?</arg_value>\s*)+)"
)
_PARAMETER = lazy_pattern(
    rf"(?s)<(?:{_SPACE}parameter(?:=|\s+name=)[\"']?|arg_key>\s*)([\w.-]+)(?:\s*</arg_key>\s*<arg_value>|[\"']?[^>]*>)"
    rf"\n?(.*?)\n?</(?:{_SPACE}parameter|arg_value)>"
)
_UNFINISHED_CALL = lazy_pattern(
    rf"[<\[`\u273f][^\s<>\]]{{0,60}}\Z|[\w.:/-]{{1,60}}\Z|<arg_key>|<{_SPACE}(?:function|invoke)\b", re.ASCII
)
_NAMES = ("name", "tool", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_FIELDS = frozenset({*_NAMES, *_ARGUMENTS, "type", "id", "tool_call_id"})
_AROUND = frozenset({"tool_calls", "thought", "role", "content"})
_LONGEST_OPENING = 200


def without_thoughts(text: str) -> str:
    """Return the text without the model's thoughts."""
    visible, rest = _split(text[_end_alone(text) :])
    return visible + (rest or "")


def thinks_first(completion: Completion) -> bool:
    """Return True if the text of a reply begins with a thought whose beginning is in the model's prompt."""
    return _end_alone(completion.message.text) > 0


def _end_alone(text: str) -> int:
    """Return the end of a thought whose beginning is in the model's prompt, 0 if there is none."""
    end = next((piece for piece in _PIECE.finditer(text) if piece.lastgroup not in ("code", "gone", None)), None)
    return end.end() if end and end["close"] and not re.search(_BEGIN, text[: end.start()], re.IGNORECASE) else 0


def _split(text: str) -> tuple[str, str | None]:
    """Return the text without thoughts up to the first place that a continuation could change, and what follows there
    if the text ends here; None if no continuation changes the text.
    """
    text = text.lstrip() if _FIRST.match(text) else text
    visible, at = "", 0
    for piece in _PIECE.finditer(text):
        match piece.lastgroup:
            case "thought" | "gone":
                visible, at = visible + text[at : piece.start()], piece.end()
            case "uneven":
                return visible + text[at : piece.start()], without_thoughts(text[piece.end() :].lstrip())
            case "open" | "cut" as kind:
                return visible + text[at : piece.start()], piece[0] if kind == "open" else ""
    return visible + text[at:], "" if 0 < at == len(text) else None


class VisibleText:
    """Text of a reply as it may be shown while it is written. With `thinks_first`, the text begins as a thought."""

    def __init__(self, tools: Sequence[Tool], *, thinks_first: bool) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.thinks_first = thinks_first
        self._pieces: list[str] = []
        self._shown = ""
        self._awaited = _ANYTHING

    def feed(self, more: str) -> Iterator[TextDelta]:
        """Yield the part that may be shown now."""
        self._pieces.append(more)
        if not self._awaited.search(more):
            if self._awaited is _BEGINNINGS:
                self._shown += more
                yield TextDelta(more)
            return
        text = "".join(self._pieces)
        visible, rest = _split(f"<think>\n{text}" if self.thinks_first and not _FIRST.match(text) else text)
        tail = _UNFINISHED.search(visible)
        self._awaited = _BEGINNINGS if tail is None and rest is None else _ANYTHING
        if rest is not None and not _ENDINGS.search(text.rstrip()[-1:]):
            self._awaited = _ENDINGS
        visible = visible[: tail.start() if tail else None]
        head = visible[:_LONGEST_OPENING]
        if not head.strip() or (self._tools and _calls(head, self._tools) is not None):
            if rest is None:
                self._awaited = _NEVER if len(visible) > len(head) else _ANYTHING
            visible = ""
        yield from self.show(visible)

    def show(self, visible: str) -> Iterator[TextDelta]:
        """Yield what was not shown of this text."""
        if not self._shown.startswith(visible):
            yield TextDelta(visible.removeprefix(self._shown))
            self._shown = visible


def read_markup(completion: Completion, tools: Sequence[Tool]) -> Completion:
    """Return the reply without thoughts and with its calls."""
    by_name = {tool.name: tool for tool in tools}
    parts: list[Part] = []
    for part in completion.message.parts:
        match part:
            case TextPart(text) if answer := without_thoughts(text):
                parts.append(part if answer == text else TextPart(answer))
            case ToolCall():
                parts.append(_fit(part, by_name))
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    whole = tools and completion.stop is StopReason.ANSWERED and not completion.message.tool_calls
    calls = _calls(text, by_name) if whole else None
    stop = StopReason.TOOLS if calls else completion.stop
    message = replace(completion.message, parts=tuple(calls or parts))
    cut = completion.cut_call or (completion.stop is StopReason.LENGTH and _TOKEN.match(text.lstrip()) is not None)
    return replace(completion, message=message, stop=stop, cut_call=cut, calls_as_text=bool(calls))


def _calls(text: str, tools: Mapping[str, Tool]) -> list[ToolCall] | None:
    """Return the calls of a text that is nothing but calls of these tools; None if no continuation makes it so."""
    found: list[tuple[str, Any]] = []
    pending, at, marked = "", 0, False
    while at < len(text):
        word = _NAME.match(text, at)
        if (element := _ELEMENT.match(text, at)) and (name := _offered(element[1] or element[3], tools)):
            found.append((name, _parameters(element[2] if element[1] else element[4], tools[name])))
            at, marked = element.end(), True
        elif token := _TOKEN.match(text, at):
            at, marked = token.end(), True
        elif filler := _FILLER.match(text, at):
            at = filler.end()
        elif text[at] in "{[" or (word and not pending and text.startswith("(", word.end())):
            try:
                value, at = read_value(text, at)
            except EOFError:
                opening = re.split(r"[^\w./-]", text[at:].lstrip("[{\"' \n"))[0].rpartition(".")[2]
                known = any(field.startswith(opening) for field in (*_FIELDS, *_AROUND, *tools))
                return [] if marked or pending or known else None
            except (ValueError, RecursionError):
                return None
            found += [(pending, value)] if pending else _named(value, tools, marked=marked)
            pending = ""
        elif not pending and word and (pending := _offered(word[0], tools)):
            at = word.end()
        else:
            return [] if _UNFINISHED_CALL.match(text, at) else None
    found += [(pending, {})] if pending and marked else []
    if not all(name and isinstance(arguments, dict | str) for name, arguments in found):
        return None
    calls = (
        parse_call(f"call_{n}", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for n, (name, arguments) in enumerate(found, start=1)
    )
    return [_fit(call, tools) for call in calls]


def _named(value: Any, tools: Mapping[str, Tool], *, marked: bool) -> list[tuple[str, Any]]:
    """Return the calls of a value that names its tools; one without a name if it is something else."""
    value = value.get("tool_calls") if isinstance(value, dict) and value.keys() <= _AROUND else value
    calls: list[tuple[str, Any]] = []
    for entry in value if isinstance(value, list) else [value]:
        inner = entry.get("function") if isinstance(entry, dict) else {}
        fields = inner if isinstance(inner, dict) else entry
        names = [fields[key] for key in _NAMES if key in fields]
        arguments = [fields[key] for key in _ARGUMENTS if key in fields] or [{}]
        if marked and not names and len(fields) == 1:  # Apertus names the tool by the key
            names, arguments, fields = [*fields], [*fields.values()], {}
        is_call = len(names) == len(arguments) == 1 and fields.keys() <= _FIELDS
        calls.append((_offered(str(names[0]), tools) if is_call else "", arguments[0]))
    return calls or [("", {})]


def _offered(name: str, tools: Mapping[str, Tool]) -> str:
    """Return the offered tool that a model means by a name with remains of its markup; empty if there is none."""
    bare = re.sub(r"\A(?:functions?|tools?|default_api)[./]|<\|.*|:\d+\Z", "", name.strip())
    return next((candidate for candidate in (name, bare) if candidate in tools), "")


def _parameters(body: str, tool: Tool) -> Any:
    if body.lstrip().startswith("{"):
        return body
    if _PARAMETER.sub("", body).strip():
        return None
    properties = tool.input_schema.get("properties")
    arguments: dict[str, Any] = {}
    for name, value in _PARAMETER.findall(body):
        if name in arguments:
            return None
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        arguments[name] = value
        if not isinstance(schema, Mapping) or schema.get("type") != "string":
            with suppress(ValueError, RecursionError):
                arguments[name] = json.loads(WORDS.get(value, value))
    return arguments


def _fit(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """Return the call with the offered name, and without null for optional arguments that cannot be null."""
    name = _offered(call.name, tools)
    arguments = _without_nulls(call.arguments, tools[name].input_schema) if name else call.arguments
    return replace(call, name=name or call.name, arguments=arguments)


def _without_nulls(values: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required")
    kept = dict(values)
    for name, inner in (properties if isinstance(properties, Mapping) else {}).items():
        if name not in values or not isinstance(inner, Mapping):
            continue
        if isinstance(values[name], Mapping):
            kept[name] = _without_nulls(values[name], inner)
        elif values[name] is None and name not in (required or ()) and not _allows_null(inner):
            del kept[name]
    return kept


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or schema.get("nullable") is True:
        return True
    if "type" in schema:
        return "null" in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])
    if "enum" in schema or "const" in schema:
        return None in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    branches = schema.get("anyOf") or schema.get("oneOf")
    return any(map(_allows_null, branches)) if isinstance(branches, list) else True

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
from bot.domain.lenient_json import unique_names
from bot.domain.messages import Part, TextPart, ToolCall
from bot.domain.tools import Tool
from bot.llm.wire_format import parse_call

_TAG = r"(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>"
_CLOSING = rf"(?:</{_TAG}|\[/THINK\]|\u25c1/think\u25b7|<channel\|>)"
_THOUGHTS = re.compile(
    rf"(?:\A|(?<=\n))\s*(?:<{_TAG}|\[THINK\]|\u25c1think\u25b7|<\|channel>thought\b).*?(?:{_CLOSING}\s*|\Z)"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
    r".*?(?:<\|end\|>|(?=<\|start\|>)|\Z)"
    r"|(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|(?:return|im_end|eot_id|endoftext)\|>\Z",
    re.DOTALL | re.IGNORECASE,
)
_END_ALONE = re.compile(rf"\A(?:(?!<{_TAG}).)*?(?<!`){_CLOSING}\s*", re.DOTALL | re.IGNORECASE)
"""Thoughts whose beginning is in the model's prompt."""
_TAGS = ("<think>", "<thinking>", "<thought>", "<reasoning>", "</think>", "</thinking>", "</thought>", "</reasoning>")
_TOKEN = re.compile(
    r"<\|/?\w+\|>|<\uff5c[\w\u2581]+\uff5c>|</s>|</?(?:\w+:)?(?:tools?|tool_?calls?|function_calls)>"
    r"|\[/?TOOL_CALLS\]|\[ARGS\]|\[CALL_ID\]\w+|functools(?=\[)|\bto=",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"[\s;,]+|\{(?=\{)|\}|```(?:json|tool_call)?|assistant(?=commentary to=)"
    r"|(?:assistant|commentary|analysis|function|json|code)\b(?![.:_-])"
)
_NAME = re.compile(r"[A-Za-z_][\w./-]*(?::\d+)?")
_ELEMENT = re.compile(
    r"<(?:function|invoke)(?:=|\s+name=)[\"']?([\w.-]+)[\"']?(?:>|(?={))(.*?)</?(?:function|invoke)>"
    r"|([\w.-]+)\s*((?:<arg_key>.*?</arg_value>\s*)+)",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"<parameter(?:=|\s+name=)[\"']?([\w.-]+)[\"']?[^>]*>\n?(.*?)\n?</parameter>"
    r"|<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>",
    re.DOTALL,
)
_NAMES = ("name", "tool", "tool_name", "function")
_OBJECTS = (*(f'{{"{key}":' for key in (*_NAMES, "arguments", "parameters")), '{"type":"function"', '{"tool_call')
_HELD = ("<|", "[think]", "\u25c1think\u25b7")
_OPENERS = (
    *_HELD,
    *("<tool", "<function", "<invoke", "<minimax:", "<seed:", "<\uff5c", "[tool_calls]", "functools[", "commentaryto="),
    *("assistant<|", "assistantcommentaryto=", "functions.", "to=functions", "```tool_call", *_OBJECTS),
    *(f"{before}{opening}" for before in ("[", "{", "```", "```json", "```json[") for opening in _OBJECTS),
)
_LONGEST_OPENING = 200


def without_thoughts(text: str) -> str:
    """Return the text without the model's thoughts."""
    return _THOUGHTS.sub("", _END_ALONE.sub("", text))


def thinks_first(completion: Completion) -> bool:
    """Return True if the text of a reply begins with a thought whose beginning is in the model's prompt."""
    return _END_ALONE.match(completion.message.text) is not None


class VisibleText:
    """Text of a reply as it may be shown while it is written. With `thinks_first`, the text begins as a thought."""

    def __init__(self, tools: Sequence[Tool], *, thinks_first: bool) -> None:
        self._openers = (*_OPENERS, *(f"{tool.name}<|".lower() for tool in tools)) if tools else _HELD
        self.thinks_first = thinks_first
        self._pieces: list[str] = []
        self._shown = ""
        self._holds = True

    def feed(self, more: str) -> Iterator[TextDelta]:
        """Yield the part that may be shown now."""
        self._pieces.append(more)
        if not self._holds and "<" not in more:
            self._shown += more
            yield TextDelta(more)
            return
        text = "".join(self._pieces)
        visible = "" if self.thinks_first and not _END_ALONE.match(text) else without_thoughts(text)
        head = re.sub(r"\s+", "", visible[:_LONGEST_OPENING]).lower()
        tail = visible[visible.rfind("<") :] if "<" in visible else "\0"
        self._holds = not head or any(head.startswith(mark) or mark.startswith(head) for mark in self._openers)
        if not self._holds and any(
            tag.startswith(tail.lower()) for tag in (*_TAGS, "<|channel|>", "<|return|>", "<|im_end|>")
        ):
            visible, self._holds = visible[: -len(tail)], True
        elif self._holds:
            visible = ""
        self._holds = self._holds or not without_thoughts(f"{text}\0").endswith("\0")  # within a thought
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
            case _:
                pass
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls = [] if completion.message.tool_calls or completion.stop is not StopReason.ANSWERED else _calls(text, by_name)
    stop = StopReason.TOOLS if calls else completion.stop
    message = replace(completion.message, parts=tuple(calls or parts))
    cut = completion.cut_call or (completion.stop is StopReason.LENGTH and _TOKEN.match(text.lstrip()) is not None)
    return replace(completion, message=message, stop=stop, cut_call=cut, calls_as_text=bool(calls))


def _calls(text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
    """Return the calls of a text that is nothing but calls of these tools; else none."""
    found: list[tuple[str, Any]] = []
    pending, at, marked = "", 0, False
    text = text.replace("\uff5cDSML\uff5c", "")  # DeepSeek's tags
    decoder = json.JSONDecoder(object_pairs_hook=unique_names)
    while tools and at < len(text):
        if (element := _ELEMENT.match(text, at)) and (name := _offered(element[1] or element[3], tools)):
            found.append((name, _parameters(element[2] or element[4], tools[name])))
            at, marked = element.end(), True
        elif token := _TOKEN.match(text, at):
            at, marked = token.end(), True
        elif filler := _FILLER.match(text, at):
            at = filler.end()
        elif text[at] in "{[":
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                return []
            found += [(pending, value)] if pending else _named(value, tools)
            if not found:
                return []
            pending = ""
        elif not pending and (word := _NAME.match(text, at)) and (pending := _offered(word[0], tools)):
            at = word.end()
        else:
            return []
    found += [(pending, {})] if pending and marked else []
    if not all(name and isinstance(arguments, dict | str) for name, arguments in found):
        return []
    calls = (
        parse_call(f"call_{n}", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for n, (name, arguments) in enumerate(found, start=1)
    )
    return [_fit(call, tools) for call in calls]


def _named(value: Any, tools: Mapping[str, Tool]) -> list[tuple[str, Any]]:
    """Return the calls of a JSON value that names its tools; one without a name if it is something else."""
    value = value.get("tool_calls", value) if isinstance(value, dict) and len(value) == 1 else value
    calls: list[tuple[str, Any]] = []
    for entry in value if isinstance(value, list) else [value]:
        inner = entry.get("function") if isinstance(entry, dict) else {}
        fields = inner if isinstance(inner, dict) else entry
        names = [str(fields[key]) for key in _NAMES if key in fields]
        name = _offered(names[0], tools) if len(names) == 1 else ""
        is_call = name and fields.keys() <= {*_NAMES, "arguments", "parameters", "type", "id", "tool_call_id"}
        calls.append((name if is_call else "", fields.get("arguments", fields.get("parameters", {}))))
    return calls or [("", {})]


def _offered(name: str, tools: Mapping[str, Tool]) -> str:
    """Return the offered tool that a model means by a name with remains of its markup; empty if there is none."""
    bare = re.sub(r"\A(?:functions?|tools?)[./]|<\|.*|:\d+\Z", "", name.strip())
    return next((candidate for candidate in (name, bare) if candidate in tools), "")


def _parameters(body: str, tool: Tool) -> Any:
    if body.lstrip().startswith("{"):
        return body
    if _PARAMETER.sub("", body).strip():
        return None
    properties = tool.input_schema.get("properties")
    arguments: dict[str, Any] = {}
    for match in _PARAMETER.finditer(body):
        name, value = (match[1] or match[3]).strip(), match[2] if match[1] else match[4]
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        arguments[name] = value
        if not isinstance(schema, Mapping) or schema.get("type") != "string":
            with suppress(ValueError, RecursionError):
                arguments[name] = json.loads(value)
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

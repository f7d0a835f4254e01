"""Results of tools as readable, bounded Markdown.

What a tool says is untrusted and of any size; it is shown as it stands, but never all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.messages import FilePart, ImagePart, TextPart, ToolResult

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
    """The texts, without the one that only repeats in JSON what others say in words: it is there for real models."""
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

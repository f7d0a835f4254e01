"""Tables in letters of one width, and structured results of tools as tables, lists of keys, or one line.

Servers send JSON as text, often beside the same value as structured content. Only people get this form: models and
programs get the JSON. Every name and value is put on one line without hidden characters, so that no value forges a row.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from bot.domain.lenient_json import exceeds_json_depth
from bot.domain.messages import TextPart, ToolResult
from bot.i18n import _, ngettext
from bot.rendering.text_safety import ELLIPSIS, single_line

GAP = "  "
MOST_ROWS = 30
MOST_COLUMNS = 8
MOST_KEYS = 40
DEEPEST = 3
"""Levels of nesting below the value that have lines of their own. Deeper ones are JSON on one line."""
WIDEST = 80
"""Columns of a table."""
_NARROWEST = 8
_LONGEST_KEY = 40
_LONGEST_VALUE = 200
_LONGEST_JSON = 60_000
_INDENT = "  "
_NO_VALUE = object()


def columns(rows: Sequence[Sequence[str]], aligned: Sequence[str] = ()) -> str:
    """Return rows as aligned columns, the first row being the headings. Cells are put on one line. `aligned` is `right`
    or `center` by column; other columns are left-aligned.
    """
    cells = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    count = max((len(row) for row in cells), default=0)
    widths = [max((width(row[index]) for row in cells if index < len(row)), default=0) for index in range(count)]
    lines = [_line(row, widths, aligned) for row in cells]
    if len(lines) > 1:
        lines.insert(1, GAP.join("─" * room for room in widths))
    return "\n".join(lines)


def width(text: str) -> int:
    """Return the width of a line in columns: some characters take two, some none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def widest(text: str) -> int:
    """Return the width of the widest line in columns."""
    return max((width(line) for line in text.split("\n")), default=0)


def _line(row: Sequence[str], widths: Sequence[int], aligned: Sequence[str]) -> str:
    sides = (*aligned, *("left" for _ in widths[len(aligned) :]))
    return GAP.join(_pad(*cell) for cell in zip(row, widths, sides, strict=False)).rstrip()


def _pad(cell: str, room: int, side: str) -> str:
    spare = room - width(cell)
    before = {"right": spare, "center": spare // 2}.get(side, 0)
    return " " * before + cell + " " * (spare - before)


def format_for_people(result: ToolResult) -> str:
    """Return the texts of a result, with tables and lists in place of JSON."""
    if result.for_people:
        return result.for_people
    blocks: list[str] = []
    texts = (part.text for part in result.parts if isinstance(part, TextPart))
    for is_object, group in groupby(texts, key=lambda text: isinstance(_parse(text), dict)):
        same_kind = list(group)
        if is_object and len(same_kind) > 1:
            # Servers without structured content send a text for each item of a list.
            blocks.append(_format_value([_parse(text) for text in same_kind]))
        else:
            blocks += map(_format_text, same_kind)
    return "\n".join(block for block in blocks if block.strip()).strip()


def summarize(result: ToolResult, limit: int) -> str:
    """Return JSON on one line: `3 items: sku, name`, `sku A-1 · stock 12`; empty for any other text."""
    values = [_parse(part.text) for part in result.parts if isinstance(part, TextPart) and part.text.strip()]
    value = _unwrap(values[0]) if len(values) == 1 else values
    if not value or (len(values) > 1 and not all(isinstance(item, dict) for item in values)):
        return ""
    match value:
        case list() if value and all(isinstance(item, dict) for item in value):
            names = ", ".join(_names(value))
            return single_line(ngettext("{n} item: {names}", "{n} items: {names}", len(value), names=names), limit)
        case list():
            return single_line(", ".join(map(_cell, value[:MOST_ROWS])), limit)
        case dict():
            pairs = (f"{_key(key)} {_cell(item)}" for key, item in list(value.items())[:MOST_KEYS])
            return single_line(" · ".join(pairs), limit)
        case _:
            return ""


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> Any:
    """Return the object or the list that a text is as JSON, else `_NO_VALUE`. Views of one turn are drawn often."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _LONGEST_JSON:
        return _NO_VALUE
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _NO_VALUE
    return _NO_VALUE if exceeds_json_depth(value) else value


def _format_text(text: str) -> str:
    value = _parse(text)
    return text if value is _NO_VALUE else _format_value(value)


def _format_value(value: Any) -> str:
    return "\n".join(_lines(_unwrap(value), DEEPEST)) or _("nothing")


def _unwrap(value: Any) -> Any:
    """Return the list of `{"result": [...]}`, in which libraries wrap what is no object."""
    match value:
        case {"result": list() as items} if len(value) == 1:
            return items
        case _:
            return value


def _lines(value: Any, depth: int) -> Iterator[str]:
    match value:
        case dict() if depth:
            yield from _pairs(value, depth)
        case list() if bool(value) and all(
            isinstance(row, dict) and row and not any(map(_is_nested, row.values())) for row in value
        ):
            yield from _table(value)
        case list() if depth:
            yield from _items(value, depth)
        case _:
            yield _cell(value)


def _pairs(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    shown = dict(list(value.items())[:MOST_KEYS])
    widest = max((width(_key(key)) for key, item in shown.items() if not _is_nested(item)), default=0)
    for key, item in shown.items():
        name = _key(key)
        if _is_nested(item):
            yield name
            yield from (f"{_INDENT}{line}" for line in _lines(item, depth - 1))
        else:
            yield f"{name}{' ' * (widest - width(name))}{_INDENT}{_cell(item)}".rstrip()
    if (more := len(value) - len(shown)) > 0:
        yield ngettext("… {n} more key", "… {n} more keys", more)


def _items(value: Sequence[Any], depth: int) -> Iterator[str]:
    for item in value[:MOST_ROWS]:
        first, *others = list(_lines(item, depth - 1)) or [""]
        yield f"- {first}".rstrip()
        yield from (f"{_INDENT}{line}" for line in others)
    if (more := len(value) - MOST_ROWS) > 0:
        yield ngettext("… {n} more item", "… {n} more items", more)


def _table(value: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = _names(value)
    shown = names[:MOST_COLUMNS]
    room = max(_NARROWEST, (WIDEST - len(_INDENT) * (len(shown) - 1)) // len(shown))
    rows = [[_cell(row.get(name)) for name in shown] for row in value[:MOST_ROWS]]
    natural = [
        max(width(cell) for cell in column) for column in zip([_key(name) for name in shown], *rows, strict=True)
    ]
    if sum(natural) + len(_INDENT) * (len(shown) - 1) > WIDEST:
        rows = [[_fit(cell, room) for cell in row] for row in rows]
    yield from columns([[_fit(_key(name), room) for name in shown], *rows]).split("\n")
    if (more := len(value) - MOST_ROWS) > 0:
        yield ngettext("… {n} more row", "… {n} more rows", more)
    if len(names) > MOST_COLUMNS:
        others = ", ".join(map(_key, names[MOST_COLUMNS:]))
        yield single_line(_("… also: {names}", names=others), _LONGEST_VALUE)


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _is_nested(value: Any) -> bool:
    """Return True for an object or a list that needs lines of its own."""
    match value:
        case dict():
            return bool(value)
        case list():
            return any(isinstance(item, dict | list) for item in value)
        case _:
            return False


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return single_line(value, _LONGEST_VALUE)
        case list() if value and not _is_nested(value):
            return single_line(", ".join(map(_cell, value[:MOST_ROWS])), _LONGEST_VALUE)
        case _:
            return single_line(json.dumps(value, ensure_ascii=False), _LONGEST_VALUE)


def _key(name: str) -> str:
    return single_line(name, _LONGEST_KEY) or '""'


def _fit(cell: str, room: int) -> str:
    """Return a cell of at most `room` columns: some characters take two."""
    if width(cell) <= room:
        return cell
    while width(cell) > room - 1:
        cell = cell[:-1]
    return cell.rstrip() + ELLIPSIS

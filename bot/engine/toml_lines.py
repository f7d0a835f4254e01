"""Line numbers of a TOML document's entries, which `tomllib` does not report. The text must be valid TOML."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any

EntryLocation = tuple[str | int, ...]
"""Path of a table or value: names, and after the name of an array of tables its index, from 0."""
_HEADER = re.compile(r"\s*(\[{1,2})([^\[\]]*(?:\"[^\"]*\"[^\[\]]*)*)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def line_numbers(text: str) -> Mapping[EntryLocation, int]:
    """Return the line, from 1, of every table and key. Unusual notations may be missing."""
    lines: dict[EntryLocation, int] = {}
    counts: Counter[EntryLocation] = Counter()
    table: EntryLocation = ()
    open_text = ""
    for number, line in enumerate(text.splitlines(), 1):
        if open_text:
            open_text = "" if open_text in line else open_text
        elif header := _HEADER.fullmatch(line):
            table = _names(header[2])
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        elif key := _KEY.match(line):
            for length in range(1, len(names := _names(key[1])) + 1):
                lines.setdefault((*table, *names[:length]), number)
            open_text = _open_quotes(line[key.end() :])
    return lines


def _names(key: str) -> EntryLocation:
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return (key,)
    names: list[str] = []
    while isinstance(parsed, dict):
        ((name, parsed),) = parsed.items()
        names.append(name)
    return tuple(names)


def _open_quotes(value: str) -> str:
    """Return the quotes of a multi-line text that begins on this line; empty if there is none."""
    for quotes in ('"""', "'''"):
        if value.count(quotes) % 2:
            return quotes
    return ""

"""Where in a TOML file something stands: parsers forget it, and people who have to correct a line want to know.

Called by `bot.engine.policy_file` with text that has been parsed already. Knows headers and keys and nothing of values,
apart from where they span lines.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any

EntryLocation = tuple[str | int, ...]
"""The way to a table or a value: names, and behind the name of an array of tables the number in it, from 0."""
_HEADER = re.compile(r"\s*(\[{1,2})([^\[\]]*(?:\"[^\"]*\"[^\[\]]*)*)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def line_numbers(text: str) -> Mapping[EntryLocation, int]:
    """The line, from 1, of every table and key. What is written in an unusual way may be missing."""
    found: dict[EntryLocation, int] = {}
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
                found.setdefault(table[:length], number)
        elif key := _KEY.match(line):
            for length in range(1, len(names := _names(key[1])) + 1):
                found.setdefault((*table, *names[:length]), number)
            open_text = _left_open(line[key.end() :])
    return found


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


def _left_open(value: str) -> str:
    """The quotes of a text that begins on this line and goes on below."""
    for quotes in ('"""', "'''"):
        if value.count(quotes) % 2:
            return quotes
    return ""

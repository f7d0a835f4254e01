"""TOML entries of a file, with errors that name the line. The first match applies, so hidden entries are errors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bot.domain.usage import matches_pattern
from bot.engine.toml_lines import EntryLocation, line_numbers
from bot.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Entries:
    """Parsed table of a file, with its line numbers."""

    table: Mapping[str, Any]
    source: str
    lines: Mapping[EntryLocation, int]

    def list(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the entries of `[[name]]`. Raises SettingsError."""
        entries = self.table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self.error((name,), "must be a list of tables", f"write [[{name}]] and what it says below it")
        return entries

    def number(self, value: Any, place: EntryLocation, most: int, wanted: str) -> Decimal:
        """Return a number from 0 to `most`. Raises SettingsError."""
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not is_number or not (number := Decimal(value)).is_finite() or not 0 <= number <= most:
            raise self.error(place, "is not a valid number", f"write {wanted}")
        return number

    def reject_hidden(self, patterns: Sequence[str], place: EntryLocation, known_as: str) -> None:
        """Raise SettingsError if an earlier pattern matches everything that the last one matches."""
        *previous, last = patterns
        if earlier := next((pattern for pattern in previous if matches_pattern(last, pattern)), None):
            raise self.error((*place, known_as), f'never applies, because "{earlier}" precedes it', "write it first")

    def reject_unknown(self, table: Mapping[str, Any], known: set[str], place: EntryLocation) -> None:
        """Raise SettingsError for an unknown key."""
        for key in table:
            if key not in known:
                raise self.error((*place, key), "is not a known key", f"use one of {', '.join(sorted(known))}")

    def error(self, place: EntryLocation, problem: str, fix: str) -> SettingsError:
        """Return an error with the entry's line."""
        lines = (self.lines.get(place[:length]) for length in range(len(place), 0, -1))
        line = next((f", line {number}" for number in lines if number is not None), "")
        path = ".".join(str(part) for part in place if not isinstance(part, int))
        return SettingsError(f"{self.source}{line}: {path} {problem}.", fix)


def read_entries(text: str, source: str, setting: str) -> Entries:
    """Parse a file; numbers with a point become Decimal. Raises SettingsError."""
    try:
        return Entries(tomllib.loads(text, parse_float=Decimal), source, line_numbers(text))
    except (tomllib.TOMLDecodeError, ArithmeticError) as error:
        raise SettingsError(f"{source} cannot be read: {error}.", f"correct the file or {setting}") from error

"""A TOML file whose entries are checked one by one, and refused with their line.

Called by the readers of the operator's prices and limits. Knows of what they mean that the first counts that fits.
"""

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
    """What a file says, and where."""

    table: Mapping[str, Any]
    source: str
    lines: Mapping[EntryLocation, int]

    def list(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The entries below `[[name]]`. Raises SettingsError."""
        entries = self.table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self.wrong((name,), "must be entries of their own", f"write [[{name}]] and what it says below it")
        return entries

    def number(self, value: Any, place: EntryLocation, most: int, wanted: str) -> Decimal:
        """A number from 0 to `most`. Raises SettingsError."""
        usable = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not usable or not (number := Decimal(value)).is_finite() or not 0 <= number <= most:
            raise self.wrong(place, "is no number that can be used", f"write {wanted}")
        return number

    def refuse_hidden(self, patterns: Sequence[str], place: EntryLocation, known_as: str) -> None:
        """Raises SettingsError for the last of the patterns if one before it fits everything that it fits."""
        *before, last = patterns
        if earlier := next((pattern for pattern in before if matches_pattern(last, pattern)), None):
            raise self.wrong((*place, known_as), f'never counts, since "{earlier}" stands before it', "write it first")

    def refuse_unknown(self, table: Mapping[str, Any], known: set[str], place: EntryLocation) -> None:
        """Raises SettingsError for a key that means nothing."""
        for key in table:
            if key not in known:
                raise self.wrong((*place, key), "means nothing here", f"use one of {', '.join(sorted(known))}")

    def wrong(self, place: EntryLocation, problem: str, fix: str) -> SettingsError:
        """What is wrong with an entry, with its line."""
        lines = (self.lines.get(place[:length]) for length in range(len(place), 0, -1))
        line = next((f", line {each}" for each in lines if each is not None), "")
        said = ".".join(str(part) for part in place if not isinstance(part, int))
        return SettingsError(f"{self.source}{line}: {said} {problem}.", fix)


def read_entries(text: str, source: str, setting: str) -> Entries:
    """Parse a file; numbers with a point stay as they are written. Raises SettingsError."""
    try:
        return Entries(tomllib.loads(text, parse_float=Decimal), source, line_numbers(text))
    except (tomllib.TOMLDecodeError, ArithmeticError) as error:
        raise SettingsError(f"{source} cannot be read: {error}.", f"correct the file or {setting}") from error

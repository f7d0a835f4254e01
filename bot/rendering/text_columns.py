"""Tables in letters of one width, for places that draw no table or too small a one.

Cells are plain text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = "  "


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

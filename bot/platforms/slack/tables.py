"""Tables: Slack's own where it takes them, columns of text otherwise.

Called by the drawings. A message may have one `table` block (docs.slack.dev, table block), so every further table of a
message is drawn as text; so is what is too large for one. No row and no letter is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.platforms.slack import limits
from bot.platforms.slack.blocks import Element, rich_text
from bot.platforms.slack.outgoing import Block


def fits_a_table(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a `table` block takes these cells."""
    return (
        0 < len(rows) <= limits.TABLE_ROWS
        and all(0 < len(row) <= limits.TABLE_COLUMNS for row in rows)
        and sum(len(cell) for row in rows for cell in row) <= limits.TABLE_CHARACTERS
    )


def table(rows: Sequence[Sequence[Sequence[Element]]], aligned: Sequence[str] = ()) -> Block:
    """A `table` block of cells that are runs of text; the first row are the headings."""
    block: Block = {"type": "table", "rows": [[rich_text(_cell(cell)) for cell in row] for row in rows]}
    block["column_settings"] = [
        {"align": side if side in ("center", "right") else "left", "is_wrapped": True}
        for side in (aligned or ["left"] * len(rows[0]))
    ]
    return block


def _cell(elements: Sequence[Element]) -> Element:
    return {"type": "rich_text_section", "elements": list(elements) or [{"type": "text", "text": " "}]}

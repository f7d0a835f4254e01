"""Tables: Slack's `table` block within its limits, text columns otherwise.

A message may have one `table` block (docs.slack.dev, table block). Further and larger tables are text; no row is
omitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.platforms.slack import limits
from bot.platforms.slack.blocks import Element, rich_text
from bot.platforms.slack.outgoing import Block


def fits_a_table(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if a `table` block takes these cells."""
    return (
        0 < len(rows) <= limits.TABLE_ROWS
        and all(0 < len(row) <= limits.TABLE_COLUMNS for row in rows)
        and sum(len(cell) for row in rows for cell in row) <= limits.TABLE_CHARACTERS
    )


def table(rows: Sequence[Sequence[Sequence[Element]]], aligned: Sequence[str] = ()) -> Block:
    """Return a `table` block; the first row contains the headings."""
    block: Block = {"type": "table", "rows": [[rich_text(_cell(cell)) for cell in row] for row in rows]}
    block["column_settings"] = [
        {"align": side if side in ("center", "right") else "left", "is_wrapped": True}
        for side in (aligned or ["left"] * len(rows[0]))
    ]
    return block


def _cell(elements: Sequence[Element]) -> Element:
    return {"type": "rich_text_section", "elements": list(elements) or [{"type": "text", "text": " "}]}

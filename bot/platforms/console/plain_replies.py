"""Command replies as plain text, for pipes and files."""

from __future__ import annotations

from bot.domain.commands import Form, Reply, Table
from bot.platforms.console.lines import cells, safe_lines
from bot.platforms.console.next_steps import instead_of, next_steps
from bot.rendering.text_safety import single_line


def reply_text(reply: Reply | Form) -> str:
    """Return a reply as lines: its text, table, details (`name: value`), next steps and document; for a form, the
    command line that replaces it.
    """
    if isinstance(reply, Form):
        return instead_of(reply)
    if reply.document is not None:
        # Alone, so that it can be sent to a file.
        return safe_lines(reply.document.text).rstrip()
    parts = [safe_lines(reply.text).rstrip()]
    if reply.table is not None:
        parts.append(_columns(reply.table))
    parts.append("\n".join(f"{single_line(name, 60)}: {safe_lines(value)}" for name, value in reply.details))
    parts.append("\n".join(f"{mark} {line}   {does}" for mark, line, does in next_steps(reply)))
    return "\n\n".join(part for part in parts if part)


def _columns(table: Table) -> str:
    rows = [[single_line(cell, 200) for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )

"""Replies to commands as JSON, for administrative programs. The shape is stable: fields are added, never renamed.

A reply has `text`, `failed`, `rows` (one object a row, by the table's headings; null without a table), `details` (an
object), `actions` (label and command line), `page` (number, of; null if it is the only one) and `data` (null, or the
content as values for programs, while rows and details are worded for users). A form has `form`, `fields` (name, label,
error) and `instead`. Text is not sanitized: JSON's escapes make it harmless.
"""

from __future__ import annotations

from typing import Any

from bot.domain.commands import Form, Reply


def reply_json(reply: Reply | Form) -> dict[str, Any]:
    """One answer as plain JSON values."""
    match reply:
        case Form():
            return {
                "form": reply.title,
                "failed": True,
                "fields": [{"name": field.name, "label": field.label, "error": field.error} for field in reply.fields],
                "instead": reply.instead,
            }
        case Reply():
            table = reply.table
            return {
                "text": reply.text,
                "failed": reply.failed,
                "rows": None
                if table is None
                else [dict(zip(_names(table.headings), row, strict=True)) for row in table.rows],
                "details": dict(reply.details),
                "actions": [{"label": action.label, "command": " ".join(action.words)} for action in reply.actions],
                "page": None if reply.page is None else {"number": reply.page.number, "of": reply.page.of},
                "data": None if reply.data is None else dict(reply.data),
            }


def _names(headings: tuple[str, ...]) -> list[str]:
    """The headings as keys; one without a word is called by its number."""
    return [heading or f"column{number}" for number, heading in enumerate(headings, start=1)]

"""Rows of the audit as lines for other programs: JSON Lines, which can be checked again, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

from bot.domain.audit import AuditEntry

CSV_HEADINGS = (
    "number", "time", "kind", "actor", "conversation", "turn", "subject", "facts", "previous", "hash", "mac",
)  # fmt: skip
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets take the wide ones for the others


def json_line(entry: AuditEntry) -> str:
    """One JSON object. Its fields hold all that the row's hash is made of: see `docs/audit.md`."""
    facts = {**entry.facts, "subject": entry.subject} if entry.subject else dict(entry.facts)
    return json.dumps(
        {
            "seq": entry.seq,
            "at": entry.at,
            "time": _time(entry),
            "kind": entry.kind,
            "conversation": entry.conversation,
            "turn_id": entry.turn_id,
            "actor": entry.actor,
            "facts": facts,
            "previous": entry.previous,
            "hash": entry.hash,
            "mac": entry.mac,
        }
    )


def csv_line(entry: AuditEntry) -> str:
    """One line of CSV without its end. What a spreadsheet would run as a formula has an apostrophe before it."""
    cells = (
        _time(entry),
        entry.kind,
        entry.actor,
        entry.conversation,
        entry.turn_id,
        entry.subject,
        json.dumps(dict(entry.facts), sort_keys=True),
        entry.previous,
        entry.hash,
        entry.mac,
    )
    return _written((entry.seq, *(_inert(str(cell)) for cell in cells)))


def csv_head() -> str:
    """The line of headings."""
    return _written(CSV_HEADINGS)


def _written(cells: tuple[object, ...]) -> str:
    line = io.StringIO(newline="")
    # The writer quotes what could end a line only as far as it ends lines so itself.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def _inert(text: str) -> str:
    """OWASP's advice against CSV injection, also for what stands behind blanks."""
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _time(entry: AuditEntry) -> str:
    try:
        return datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""

"""Audit entries as text: JSON Lines, which can be verified again, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

from bot.domain.audit import AuditEntry

CSV_HEADINGS = (
    "number", "time", "kind", "actor", "conversation", "turn", "subject", "facts", "previous", "hash", "mac",
)  # fmt: skip
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets treat the full-width signs alike


def json_line(entry: AuditEntry) -> str:
    """Format an entry as one JSON object with all fields of its hash: see `docs/audit.md`."""
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
    """Format an entry as one CSV line without its end. A formula is defused by a leading apostrophe."""
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
    """Return the CSV header."""
    return _written(CSV_HEADINGS)


def _written(cells: tuple[object, ...]) -> str:
    line = io.StringIO(newline="")
    # The csv writer quotes only the line ends that it writes itself.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def _inert(text: str) -> str:
    """Defuse a formula (OWASP, CSV injection), also after blanks."""
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _time(entry: AuditEntry) -> str:
    try:
        return datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""

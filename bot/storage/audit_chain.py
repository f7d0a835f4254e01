"""How the rows of the audit hang together: each has its number, and a hash over itself and the row before it.

Used by whoever writes rows (`audit`) and whoever checks them (`audit_trail`). Whatever may stand in a row that somebody
has changed by hand, of whichever type, is a misfit and no error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bot.domain.audit import AuditHead, Misfit


class Chain:
    """Takes rows in their order and compares each with the one before. `known` is a row that somebody remembers."""

    def __init__(self, known: AuditHead | None = None) -> None:
        self._known = known
        self.head = AuditHead()

    def add(self, row: Mapping[str, Any]) -> Misfit | None:
        """Go on by one row. After a misfit the chain is of no use."""
        seq = row["seq"]
        misplaced = _misplaced(seq, self.head.seq + 1)
        if misplaced is not None:
            return misplaced
        if row["hash"] != row_hash(row) or not _names_its_subject(row):
            return Misfit(seq, f"row {seq} was changed")
        if row["previous"] != self.head.hash:
            before = f"row {seq - 1}" if seq > 1 else "the beginning"
            return Misfit(seq, f"row {seq} does not follow {before}: one of them was put in or written anew")
        self.head = AuditHead(seq, row["hash"])
        if self._known is not None and seq == self._known.seq and self.head != self._known:
            return Misfit(seq, f"row {seq} is another than the one that was known: the audit was written anew")
        return None

    def end(self) -> Misfit | None:
        """There are no more rows."""
        if self._known is None or self._known.seq <= self.head.seq:
            return None
        last = self.head.seq
        return Misfit(last + 1, f"row {last + 1} is missing: row {self._known.seq} was known, and {last} is the last")


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256 of the row's fields and the hash of the row before; empty if there is something in it that no row has."""
    try:
        told = [
            row["seq"],
            repr(float(row["at"])),
            row["kind"],
            row["conversation"],
            row["turn_id"],
            row["actor"],
            row["body"],
            row["previous"],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()
    except (TypeError, ValueError):
        return ""


def _misplaced(seq: Any, due: int) -> Misfit | None:
    if not isinstance(seq, int):
        return Misfit(due, f"where row {due} should be, there is one without a number")
    if seq > due:
        return Misfit(due, f"row {due} is missing: the next one is row {seq}")
    return Misfit(seq, f"row {seq} was put in: it has no place there") if seq < due else None


def _names_its_subject(row: Mapping[str, Any]) -> bool:
    """The column is there to find rows by; the truth is in the body."""
    try:
        return bool(row["subject"] == json.loads(row["body"]).get("subject", ""))
    except (TypeError, ValueError, AttributeError):
        return False

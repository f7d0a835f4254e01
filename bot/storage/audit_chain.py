"""The chain of the audit: each row has its number, a hash over itself and the row before it, and a MAC over that hash.

`row_hash` is the hash that writers store. `ChainCheck` compares rows in their order. A row that was changed by hand may
hold values of any type: they are findings, never errors.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.domain.audit import SEALED, AuditFinding, AuditHead, AuditSeal, Fault, KeyUse, MacCheck
from bot.storage.audit_keys import AuditKeys

LARGEST_REPORT = 1_000
"""Largest number of findings in one verification's report. Further findings are only counted."""

_MEANS = {
    Fault.CHANGED: "somebody changed it by hand",
    Fault.MISSING: "somebody deleted rows",
    Fault.ADDED: "somebody inserted a row",
    Fault.REWRITTEN: "somebody without the key rewrote rows and calculated their hashes",
    Fault.UNSIGNED: "they were written without a key, or somebody without the key rewrote them",
    Fault.UNKNOWN_KEY: "the key was replaced or lost, or somebody rewrote the rows with a key of their own",
}


class Findings:
    """Findings of one verification, in order. Neighboring rows with the same fault are one finding."""

    def __init__(self) -> None:
        self.listed: list[AuditFinding] = []
        self.more = 0

    def add(self, finding: AuditFinding) -> None:
        """Keep a finding, or count it."""
        if len(self.listed) < LARGEST_REPORT:
            self.listed.append(finding)
        else:
            self.more += 1

    def add_row(self, fault: Fault, seq: int, what: str, whats: str) -> None:
        """Add a fault of one row. `what` and `whats` end the sentences "Row 5 …" and "Rows 5 to 7 …"."""
        last = self.listed[-1] if self.listed else None
        if last is not None and last.fault is fault and last.last == seq - 1:
            text = f"Rows {last.first} to {seq} {whats}."
            self.listed[-1] = replace(last, last=seq, what=text)
        else:
            self.add(AuditFinding(fault, f"Row {seq} {what}.", _MEANS[fault], seq, seq))

    def drop_before(self, seq: int, faults: Sequence[Fault]) -> None:
        """Remove the findings of these faults about rows before `seq`."""
        self.listed = [finding for finding in self.listed if finding.fault not in faults or finding.last >= seq]


class ChainCheck:
    """Verification of rows in their order; it continues after each finding. `after` is the row before the first one."""

    def __init__(self, keys: AuditKeys, findings: Findings, after: AuditHead | None = None) -> None:
        self.head = after or AuditHead()
        self.rows = 0
        self.unsigned = 0
        self.seal: AuditSeal | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self._keys = keys
        self._ids = keys.ids
        self._findings = findings
        self._uses: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """Compare the next row."""
        self.rows += 1
        seq, due = row["seq"], self.head.seq + 1
        if not isinstance(seq, int):
            text = f"Where row {due} should be, there is one without a number."
            self._findings.add(AuditFinding(Fault.CHANGED, text, _MEANS[Fault.CHANGED], due, due))
            return
        if seq < due:
            self._findings.add_row(Fault.ADDED, seq, "was put in: it has no place there", "were put in")
            return
        gap = seq > due
        if gap:
            text = f"Row {due} is missing." if seq == due + 1 else f"Rows {due} to {seq - 1} are missing."
            self._findings.add(AuditFinding(Fault.MISSING, text, _MEANS[Fault.MISSING], due, seq - 1))
        self._compare(row, seq, gap=gap)
        self.head = AuditHead(seq, str(row["hash"]))

    def key_uses(self) -> tuple[KeyUse, ...]:
        """Return the keys named by rows, most rows first."""
        return tuple(KeyUse(key, rows, key in self._ids) for key, rows in self._uses.most_common())

    def _compare(self, row: Mapping[str, Any], seq: int, *, gap: bool) -> None:
        is_intact = row["hash"] == row_hash(row) and _names_its_subject(row)
        if not is_intact:
            self._findings.add_row(Fault.CHANGED, seq, "was changed", "were changed")
        elif row["previous"] != self.head.hash and not gap:
            before = f"row {seq - 1}" if seq > 1 else "the beginning"
            text = f"does not follow {before}: one of them was inserted or rewritten"
            self._findings.add_row(Fault.CHANGED, seq, text, "do not follow each other")
        mac = self._keys.check_row(str(row["hash"]), row["mac"])
        self._count(row["mac"], mac)
        match mac:
            case MacCheck.WRONG:
                text = "a MAC that is not of their key"
                self._findings.add_row(Fault.REWRITTEN, seq, "has a MAC that is not of its key", f"have {text}")
            case MacCheck.MISSING if self._ids:
                self._findings.add_row(Fault.UNSIGNED, seq, "has no MAC", "have no MAC")
            case MacCheck.UNKNOWN_KEY:
                text = f"a MAC by the key {_key_of(row['mac'])}, which is not here"
                self._findings.add_row(Fault.UNKNOWN_KEY, seq, f"has {text}", f"have {text}")
            case MacCheck.GOOD if is_intact:
                self._check_seal(row, seq)
            case _:
                pass
        if isinstance(at := row["at"], float):
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at

    def _count(self, mac: object, check: MacCheck) -> None:
        if check is MacCheck.MISSING:
            self.unsigned += 1
        else:
            self._uses[_key_of(mac)] += 1

    def _check_seal(self, row: Mapping[str, Any], seq: int) -> None:
        if row["kind"] != SEALED:
            return
        facts = json.loads(row["body"])
        self.seal = AuditSeal(seq, row["at"], row["actor"], str(facts.get("reason", "")))
        # The chain leads from this row, whose MAC is good, to every row before it: none was changed since.
        self._findings.drop_before(seq, (Fault.UNSIGNED, Fault.UNKNOWN_KEY))


def row_hash(row: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the row's fields and the previous row's hash; empty if a field has an impossible type."""
    try:
        fields = [
            row["seq"],
            repr(float(row["at"])),
            row["kind"],
            row["conversation"],
            row["turn_id"],
            row["actor"],
            row["body"],
            row["previous"],
        ]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    except (TypeError, ValueError):
        return ""


def _key_of(mac: object) -> str:
    key = mac.partition(":")[0] if isinstance(mac, str) else "?"
    return key if len(key) == _ID_LENGTH and key.isalnum() and key.isascii() else "?"


_ID_LENGTH = 16


def _names_its_subject(row: Mapping[str, Any]) -> bool:
    """Return True if the `subject` column, an index on the row, equals the subject in the body."""
    try:
        return bool(row["subject"] == json.loads(row["body"]).get("subject", ""))
    except (TypeError, ValueError, AttributeError):
        return False

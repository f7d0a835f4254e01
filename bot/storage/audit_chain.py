"""The chain of the audit: each row has its number, a hash over itself and the row before it, and a MAC over that hash
with a key outside the database.

`row_hash` is the hash that writers store. `ChainCheck` compares rows in their order. A row that was changed by hand may
hold values of any type: they are findings, never errors.

An `AuditKeys` is one process's key ring. The first key signs, all keys verify. Row MACs and checkpoint MACs have
different subkeys (HKDF, RFC 5869), so that neither can replace the other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.audit import SEALED, AuditFinding, AuditHead, AuditSeal, Checkpoint, Fault, KeyUse, MacCheck

CONNECTION_KEY = "audit keys"
"""The entry of a connection's `info` that holds the `AuditKeys` of its database."""

_LABEL = b"countersign audit v1 "
_ROUNDS = 600_000
"""OWASP's advice for PBKDF2-HMAC-SHA256."""
_ID_BYTES = 8
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
_ID_LENGTH = 16


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    id: str
    rows: bytes
    checkpoints: bytes


class AuditKeys:
    """One process's key ring. `load` returns secrets of 32 bytes, the signing one first. It runs at the first use, in
    the database's thread, and may raise SettingsError. `make` does the same and creates a secret if `load` finds none.
    """

    def __init__(
        self, load: Callable[[], Sequence[bytes]] = tuple, make: Callable[[], Sequence[bytes]] | None = None
    ) -> None:
        self._load = load
        self._make = make or load
        self._known: Mapping[str, _Key] = {}
        self._loading = threading.Lock()
        self.used = False
        """True once a row was signed, in a transaction that may have been rolled back."""

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all available keys; empty without a key."""
        return frozenset(self._keys(self._load))

    def prepare(self) -> bool:
        """Create the key if it is missing. Return False if it cannot be stored. Raises SettingsError."""
        return self._signing() is not None

    def sign_row(self, row_hash: str) -> str:
        """Return the MAC of a row as `key id:hex`; empty without a key."""
        self.used = True
        key = self._signing()
        return "" if key is None else f"{key.id}:{_mac(key.rows, row_hash)}"

    def check_row(self, row_hash: str, mac: object) -> MacCheck:
        """Compare the MAC of a row."""
        key_id, _, expected_mac = mac.partition(":") if isinstance(mac, str) else ("?", "", "")
        return self._check(key_id, lambda key: _mac(key.rows, row_hash), expected_mac)

    def sign_checkpoint(self, seq: int, row_hash: str, at: float) -> Checkpoint:
        """Return a checkpoint with a MAC; without one if there is no key."""
        key = self._signing()
        unsigned = Checkpoint(seq, row_hash, at)
        if key is None:
            return unsigned
        return Checkpoint(seq, row_hash, at, key.id, _mac(key.checkpoints, unsigned.signed_text))

    def check_checkpoint(self, checkpoint: Checkpoint) -> MacCheck:
        """Compare the MAC of a checkpoint."""
        return self._check(checkpoint.key, lambda key: _mac(key.checkpoints, checkpoint.signed_text), checkpoint.mac)

    def _check(self, key_id: str, calculate: Callable[[_Key], str], expected_mac: str) -> MacCheck:
        if not key_id:
            return MacCheck.MISSING
        key = self._keys(self._load).get(key_id)
        if key is None:
            return MacCheck.UNKNOWN_KEY
        return MacCheck.GOOD if hmac.compare_digest(calculate(key).encode(), expected_mac.encode()) else MacCheck.WRONG

    def _signing(self) -> _Key | None:
        return next(iter(self._keys(self._make).values()), None)

    def _keys(self, load: Callable[[], Sequence[bytes]]) -> Mapping[str, _Key]:
        with self._loading:
            if not self._known:
                self._known = {key.id: key for key in map(_derive, load())}
            return self._known


def stretch_password(password: str) -> bytes:
    """Return the secret of a master password. Takes a good part of a second."""
    return hashlib.pbkdf2_hmac("sha256", password.encode("utf-8", "surrogatepass"), _LABEL + b"password", _ROUNDS, 32)


def expand_key(secret: bytes, label: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256 without a salt (RFC 5869): extract, then one block of expand."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, label + b"\x01", "sha256")


def _derive(secret: bytes) -> _Key:
    return _Key(
        expand_key(secret, _LABEL + b"id")[:_ID_BYTES].hex(),
        expand_key(secret, _LABEL + b"rows"),
        expand_key(secret, _LABEL + b"checkpoints"),
    )


def _mac(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


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
        if mac is MacCheck.MISSING:
            self.unsigned += 1
        else:
            self._uses[_key_of(row["mac"])] += 1
        match mac:
            case MacCheck.WRONG:
                text = "a MAC that is not of their key"
                self._findings.add_row(Fault.REWRITTEN, seq, "has a MAC that is not of its key", f"have {text}")
            case MacCheck.MISSING if self._ids:
                self._findings.add_row(Fault.UNSIGNED, seq, "has no MAC", "have no MAC")
            case MacCheck.UNKNOWN_KEY:
                text = f"a MAC by the key {_key_of(row['mac'])}, which is not here"
                self._findings.add_row(Fault.UNKNOWN_KEY, seq, f"has {text}", f"have {text}")
            case MacCheck.GOOD if is_intact and row["kind"] == SEALED:
                reason = json.loads(row["body"]).get("reason", "")
                self.seal = AuditSeal(seq, row["at"], row["actor"], str(reason))
                # The chain leads from this row, whose MAC is good, to every row before it: none was changed since.
                self._findings.drop_before(seq, (Fault.UNSIGNED, Fault.UNKNOWN_KEY))
            case _:
                pass
        if isinstance(at := row["at"], float):
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at


def row_hash(row: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the row's fields and the previous row's hash; empty if a field has an impossible type."""
    try:
        others = (row[name] for name in ("kind", "conversation", "turn_id", "actor", "body", "previous"))
        fields = [row["seq"], repr(float(row["at"])), *others]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    except (TypeError, ValueError):
        return ""


def _key_of(mac: object) -> str:
    key = mac.partition(":")[0] if isinstance(mac, str) else "?"
    return key if len(key) == _ID_LENGTH and key.isalnum() and key.isascii() else "?"


def _names_its_subject(row: Mapping[str, Any]) -> bool:
    """Return True if the `subject` column, an index on the row, equals the subject in the body."""
    try:
        return bool(row["subject"] == json.loads(row["body"]).get("subject", ""))
    except (TypeError, ValueError, AttributeError):
        return False

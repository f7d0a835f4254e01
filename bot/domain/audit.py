"""Audit as values: rows, queries, checkpoints, and the result of a verification.

Only `bot.storage.audit` writes the audit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


def format_utc(at: float) -> str:
    """Return epoch seconds as `2026-08-31 14:30:00`, in UTC; the number itself if it is out of range."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return repr(at)


NO_HASH = "0" * 64
"""Previous hash of the first row."""

SEALED = "sealed audit"
"""Kind of a row by which the operator vouches for all earlier rows."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "requests": ("asked", "revised", "expired", "not shown", "asked back", "answered"),
    "decisions": ("opened", "decided", "signed"),
    "executions": ("ran", "not run", "came late", "stopped"),
    "refusals": ("refused", "forbidden"),
    "grants": ("granted", "revoked grant"),
    "policies": ("set policy", "cleared policy"),
    "files": ("changed files",),
    "servers": (
        "added server",
        "changed server",
        "switched server on",
        "switched server off",
        "disconnected server",
        "removed server",
        "pinned tools",
        "refused tools",
        "signed in",
        "signed out",
        "sign-in ended",
        "re-encrypted secrets",
    ),
    "profiles": (
        "added profile",
        "changed profile",
        "deleted profile",
        "bound profile",
        "unbound profile",
        "bound agent",
        "unbound agent",
    ),
    "tokens": ("made token", "revoked token"),
    "sessions": ("began session", "ended session"),
    "installations": ("installed app", "uninstalled app"),
    "deletions": ("deleted conversation", "deleted old turns", "deleted content", "forgot person"),
    "seals": (SEALED,),
}
"""Names for filtering the audit by kind, and the stored kinds of each."""

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Row of the audit. `at` is epoch seconds, `actor` a principal, `facts` plain JSON values. `subject` is the id of
    the affected server or profile. `hash` is over all of it and `previous`, the hash of the preceding row. `mac`, as
    `key id:hex`, is over `hash`.
    """

    seq: int
    at: float
    kind: str
    actor: str
    facts: Mapping[str, object]
    conversation: str = ""
    turn_id: str = ""
    subject: str = ""
    previous: str = ""
    hash: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Part of the audit that an admin of one workspace may see: events in its conversations (`home` is
    `platform:workspace`), and events of these servers and profiles, by id.
    """

    home: str
    subjects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Filter of audit rows; all conditions have to match. `subject` is an id, `person` a principal, `kinds` are stored
    kinds. `since` (inclusive) and `until` (exclusive) are epoch seconds. `scope` is None for a reader of the whole
    audit. `tool` is the server's own name for it, `outcome` the status of an ended call. `turn_id` and `step` name one
    call.
    """

    subject: str = ""
    person: str = ""
    kinds: tuple[str, ...] = ()
    tool: str = ""
    outcome: str = ""
    turn_id: str = ""
    step: int | None = None
    since: float | None = None
    until: float | None = None
    scope: AuditScope | None = None


@dataclass(frozen=True, slots=True)
class AuditHead:
    """Number and hash of the last row, for the operator to record elsewhere."""

    seq: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> AuditHead:
        """Parse the text form. Raises ValueError for any other text."""
        match = _HEAD.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f"not the head of an audit: {text!r:.100}")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Record of an audit row outside the database: its number and hash, and the time of the record (`at`, epoch seconds
    by the database's clock). Rows are numbered from 1 without gaps, so `seq` is also their count. `key` and `mac` are
    empty without a key.
    """

    seq: int
    hash: str
    at: float
    key: str = ""
    mac: str = ""

    @property
    def signed_text(self) -> str:
        """Text that the MAC is computed over."""
        return f"{self.seq}:{self.hash} at {self.at!r}"

    def __str__(self) -> str:
        return f"{_MARK} {self.signed_text} key {self.key or NO_KEY} mac {self.mac or NO_KEY}"

    @classmethod
    def find(cls, line: str) -> Checkpoint | None:
        """Return the checkpoint in a line of a file or a log, None without one. Raises ValueError for an incomplete
        one.
        """
        begins = line.find(_MARK)
        if begins < 0:
            return None
        match = _CHECKPOINT.match(line, begins)
        if match is None:
            raise ValueError("not a whole checkpoint")
        seq, row_hash, at, key, mac = match.groups()
        return cls(int(seq), row_hash, float(at), *("" if value == NO_KEY else value for value in (key, mac)))


NO_KEY = "none"
"""Placeholder for the key and the MAC of a checkpoint without them."""
_MARK = "audit checkpoint v1"
_CHECKPOINT = re.compile(
    rf"{_MARK} (\d{{1,18}}):([0-9a-f]{{64}}) at (\d{{1,12}}\.\d{{1,9}})"
    rf" key ([0-9a-f]{{16}}|{NO_KEY}) mac ([0-9a-f]{{64}}|{NO_KEY})(?![0-9a-f])"
)


class MacCheck(StrEnum):
    """Result of checking a MAC against the available keys."""

    GOOD = "good"
    WRONG = "wrong"
    MISSING = "missing"
    UNKNOWN_KEY = "unknown key"


class Fault(StrEnum):
    """The kinds of findings of a verification."""

    CHANGED = "changed"
    MISSING = "missing"
    ADDED = "added"
    REWRITTEN = "rewritten"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown key"
    TRIGGERS = "triggers"
    CHECKPOINT = "checkpoint"
    NOT_COVERED = "not covered"
    TURN = "turn"
    DELETED_TURNS = "deleted turns"
    GRANT = "grant"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Finding of a verification. `what` is the mismatch, `means` its possible cause, each in a sentence. `first` and
    `last` are the affected rows, 0 without any. `certain` is False for a mere limit of the verification.
    """

    fault: Fault
    what: str
    means: str
    first: int = 0
    last: int = 0
    certain: bool = True


@dataclass(frozen=True, slots=True)
class KeyUse:
    """Number of rows with a MAC by a key. `known` is True if that key is available."""

    id: str
    rows: int
    known: bool


@dataclass(frozen=True, slots=True)
class AuditSeal:
    """Row by which the operator has vouched for all earlier rows and checkpoints."""

    seq: int
    at: float
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """File that was searched for checkpoints: the number found, the number that match the rows, and the last match.
    `set_aside` counts mismatches that are older than a seal.
    """

    path: str
    found: int
    fitting: int
    set_aside: int
    last: Checkpoint | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of a verification. `rows` is the number of compared rows; `whole` is False if only the latest ones were
    compared. `unsigned` counts rows without a MAC, `turns` the compared turns. `findings` are the first ones, `more`
    counts the omitted ones.
    """

    head: AuditHead
    rows: int
    whole: bool
    first_at: float | None
    last_at: float | None
    keys: tuple[KeyUse, ...]
    unsigned: int
    seal: AuditSeal | None
    places: tuple[CheckpointPlace, ...]
    turns: int
    findings: tuple[AuditFinding, ...]
    more: int = 0

    @property
    def fits(self) -> bool:
        """True if no finding is a certain mismatch."""
        return not any(finding.certain for finding in self.findings)

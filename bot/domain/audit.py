"""The audit as values: its rows, what is looked for in them, its last row as others may remember it.

Read by commands and by the command line; written in `bot.storage.audit` alone. Knows no database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NO_HASH = "0" * 64
"""What the first row follows."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "requests": ("asked", "revised", "expired", "not shown", "asked back", "answered"),
    "decisions": ("opened", "decided", "signed"),
    "executions": ("ran", "not run", "came late", "stopped"),
    "refusals": ("refused", "forbidden"),
    "grants": ("granted", "revoked grant"),
    "policies": ("set policy", "cleared policy"),
    "servers": (
        "added server",
        "changed server",
        "switched server on",
        "switched server off",
        "disconnected server",
        "removed server",
        "pinned tools",
        "signed in",
        "signed out",
        "sign-in ended",
        "encrypted secrets anew",
    ),
    "profiles": ("added profile", "changed profile", "deleted profile", "bound profile", "unbound profile"),
    "tokens": ("made token", "revoked token"),
    "deletions": ("deleted conversation", "deleted old turns"),
}
"""What people may narrow the audit to, and the rows' own words for it."""

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the audit. `at` is epoch seconds, `actor` a principal, `facts` plain JSON values; `subject` is the id
    of the server or profile it is about. `hash` is over all of it and `previous`, the hash of the row before.
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


@dataclass(frozen=True, slots=True)
class Horizon:
    """What an admin of one workspace may see: what happened in its conversations (`home` is `platform:workspace`), and
    what was done to these servers and profiles, by id.
    """

    home: str
    subjects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which rows: all that fit everything that is said here. `subject` is an id, `person` a principal, `kinds` are the
    rows' own words, `since` and `until` epoch seconds, the first inclusive; `horizon` is None for whoever may see all.
    """

    subject: str = ""
    person: str = ""
    kinds: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    horizon: Horizon | None = None


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The number and hash of the last row: with it, and only with it, rows that were cut off at the end show."""

    seq: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> AuditHead:
        """Read the text form back. Raises ValueError for anything else."""
        found = _HEAD.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError(f"not the head of an audit: {text!r:.100}")
        return cls(int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class Whole:
    """Every row fits; `head` is the last one."""

    head: AuditHead


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first row that does not fit, and why, in a sentence. `seq` is the number of a row that is missing, too."""

    seq: int
    reason: str


Finding = Whole | Misfit
"""What verifying comes to."""

"""Faults of the running program, reported to operators: cause and fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Kind of a fault."""

    SERVER_FAILED = "server_failed"
    SIGN_IN = "sign_in"
    REVIEW = "review"
    CONFIGURATION = "configuration"
    """An entry of the operator's files is ignored."""
    MODEL = "model"
    PLATFORM = "platform"
    AUDIT = "audit"
    USAGE_LIMIT = "usage_limit"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `key` identifies it in all processes. `title` names the fault, `over` is the title once it is over.
    `command` is typed in a chat or a shell to see more, `guide` is the page of the manual. No text is a vendor's or a
    server's, and none contains a secret.
    """

    key: str
    kind: FaultKind
    title: str
    over: str
    cause: str = ""
    fix: str = ""
    command: str = ""
    guide: str = ""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A stored fault and the message about it. Times are epoch seconds; `closed_at` is None while it lasts.

    `message` numbers the messages about this fault. `occurrences` are those that this message is about, since
    `first_at`. `ref` is the message's reference, empty before the first successful post; `is_attempted` is True if a
    post was begun. `revision` grows with every change.
    """

    fault: Fault
    opened_at: float
    closed_at: float | None = None
    first_at: float = 0.0
    occurrences: int = 1
    message: int = 1
    ref: str = ""
    is_attempted: bool = False
    revision: int = 1

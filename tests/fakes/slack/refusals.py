"""Errors of Slack: `{"ok": false, "error": code}` and, for some, more."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A call is refused with one of Slack's error codes. `more`: further fields of the answer."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.more = more


def invalid_arguments(*messages: str) -> Refused:
    """Return the error `invalid_arguments` with a line for each problem."""
    return Refused("invalid_arguments", response_metadata={"messages": [f"[ERROR] {line}" for line in messages]})


def missing_argument(name: str) -> Refused:
    """`invalid_arguments` for an argument that must be there."""
    return invalid_arguments(f"missing required field: {name}")

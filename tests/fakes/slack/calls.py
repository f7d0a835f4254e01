"""The log of every call of the Web API, for assertions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """One call: method, arguments without the token, the token ('' without one), time, and outcome.

    `outcome` is 'ok', Slack's error code, 'http 500', 'cut', 'hung' or 'lost' (done, but the answer is not sent).
    """

    method: str
    args: dict[str, Any]
    token: str
    at: float
    team: str = ""
    verb: str = "POST"
    outcome: str = ""
    answer: dict[str, Any] = field(default_factory=dict)


class CallLog(list[Call]):
    """Calls in the order of their arrival."""

    def of(self, *methods: str) -> list[Call]:
        """Return the calls of these methods."""
        return [call for call in self if call.method in methods]

    def methods(self) -> list[str]:
        """Return the methods called, in order."""
        return [call.method for call in self]

    def failed_calls(self) -> list[Call]:
        """Return the failed calls."""
        return [call for call in self if call.outcome not in {"ok", "lost"}]

"""The log of every call of the REST API, for assertions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """One call. `route`: as 'POST /channels/{channel}/messages'; `path`: as it was asked; `by_bot`: with its token.

    `outcome`: 'ok', Discord's error code as text, 'limited', 'http 500', 'cut', 'hung' or 'lost' (done, but the answer
    never arrived).
    """

    route: str
    path: str
    at: float
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    by_bot: bool = False
    status: int = 0
    outcome: str = ""
    answer: Any = None


class CallLog(list[Call]):
    """Calls in the order of their arrival."""

    def of(self, *routes: str) -> list[Call]:
        """Return the calls of these routes."""
        return [call for call in self if call.route in routes]

    def routes(self) -> list[str]:
        """Return the routes called, in order."""
        return [call.route for call in self]

    def failed_calls(self) -> list[Call]:
        """Return the failed calls."""
        return [call for call in self if call.outcome not in {"ok", "lost"}]

    def invalid(self) -> list[Call]:
        """Return the calls that count to the limit of 10,000 in ten minutes. Above it, Discord bans the address."""
        return [call for call in self if call.status in {401, 403, 429}]

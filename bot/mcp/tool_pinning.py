"""Which of one server's tools may be offered: those whose definition is the one that is pinned.

Belongs to the server's `server_status`. What is pinned comes from the stores; until they have said anything of a
server, its first listing counts, as it does for them. Knows one server and no connection.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bot.domain.pins import Pinned, ReviewPolicy, ReviewStatus, first_pins, review_status
from bot.domain.tools import Tool

log = logging.getLogger(__name__)

_NAMED = 5


class ToolPinning:
    """The pins of one server, `name`, and how its tools stand beside them. `pinned` is None as long as nobody has
    looked at it.
    """

    def __init__(self, name: str, policy: ReviewPolicy, pinned: Pinned | None) -> None:
        self._name = name
        self._policy = policy
        self._pinned = pinned
        self._tools: tuple[Tool, ...] = ()
        self._unpinned: tuple[Tool, ...] = ()
        self._withheld: frozenset[str] = frozenset()
        self._told: set[str] = set()

    def know(self, tools: Sequence[Tool]) -> None:
        """The server has offered these before: whoever was to be told was told then."""
        self._compare(tools)
        self._told.update(self._withheld)

    def compare(self, tools: Sequence[Tool]) -> None:
        """The server offers these now. What is withheld of it for the first time is logged."""
        self._compare(tools)
        self._tell()

    def learn(self, pinned: Pinned | None) -> bool:
        """What is pinned now; whether tools that were offered are not any more: whoever has pinned another definition
        has seen a newer one.
        """
        if pinned is None or pinned == self._pinned:
            return False
        before = self._withheld
        self._pinned = pinned
        self._compare(self._tools)
        # What has been looked at is told of again if it changes once more.
        self._told &= self._withheld
        self._tell()
        return bool(self._withheld - before)

    @property
    def unpinned_tools(self) -> tuple[Tool, ...]:
        """The tools whose definition is not the one that is pinned, in the server's own order."""
        return self._unpinned

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that nothing speaks against."""
        return tuple(tool for tool in self._tools if tool.name not in self._withheld)

    @property
    def withheld(self) -> frozenset[str]:
        """The names of those that wait for an admin."""
        return self._withheld

    def pins(self, tool: Tool) -> bool:
        """Whether this very definition is the one that is pinned."""
        return self._pinned is not None and review_status(tool, self._pinned) is ReviewStatus.PINNED

    def _compare(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)
        if self._pinned is None and tools:
            self._pinned = first_pins(tools)
        pinned = self._pinned or {}
        self._unpinned = tuple(tool for tool in self._tools if review_status(tool, pinned) is not ReviewStatus.PINNED)
        if self._policy is ReviewPolicy.CHANGED:
            self._withheld = frozenset(tool.name for tool in self._unpinned)

    def _tell(self) -> None:
        news = [tool for tool in self._unpinned if tool.name in self._withheld - self._told]
        self._told.update(self._withheld)
        if news:
            pinned = self._pinned or {}
            named = ", ".join(f"{tool.original_name[:64]!r} ({review_status(tool, pinned)})" for tool in news[:_NAMED])
            more = f" and {len(news) - _NAMED} more" if len(news) > _NAMED else ""
            log.warning(
                "MCP server %s: withheld until an admin has looked at them (/mcp review %s): %s%s",
                self._name,
                self._name,
                named,
                more,
            )

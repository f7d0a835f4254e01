"""Pins of one server: a tool is offered if its definition equals its pin.

Pins come from the stores. Until they are loaded, the server's first listing is taken as pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bot.domain.pins import Pinned, ReviewPolicy, ReviewStatus, first_pins, review_status
from bot.domain.tools import Tool

log = logging.getLogger(__name__)

_NAMED = 5


class ToolPinning:
    """Pins of the server `name`. `pinned` is None until they are loaded."""

    def __init__(self, name: str, policy: ReviewPolicy, pinned: Pinned | None) -> None:
        self._name = name
        self._policy = policy
        self._pinned = pinned
        self._tools: tuple[Tool, ...] = ()
        self._unpinned: tuple[Tool, ...] = ()
        self._withheld: frozenset[str] = frozenset()
        self._told: set[str] = set()

    def know(self, tools: Sequence[Tool]) -> None:
        """Set tools that the server offered before, without logging."""
        self._compare(tools)
        self._told.update(self._withheld)

    def compare(self, tools: Sequence[Tool]) -> None:
        """Set the current tools. Newly withheld ones are logged."""
        self._compare(tools)
        self._tell()

    def learn(self, pinned: Pinned | None) -> bool:
        """Set the pins. Return True if offered tools are withheld now, because a newer definition was pinned."""
        if pinned is None or pinned == self._pinned:
            return False
        before = self._withheld
        self._pinned = pinned
        self._compare(self._tools)
        # Log a reviewed tool again if it changes once more.
        self._told &= self._withheld
        self._tell()
        return bool(self._withheld - before)

    @property
    def unpinned_tools(self) -> tuple[Tool, ...]:
        """Tools whose definition differs from the pin, in the server's order."""
        return self._unpinned

    @property
    def offered(self) -> tuple[Tool, ...]:
        """Tools that may be offered."""
        return tuple(tool for tool in self._tools if tool.name not in self._withheld)

    @property
    def withheld(self) -> frozenset[str]:
        """Names of tools that wait for an admin's review."""
        return self._withheld

    def pins(self, tool: Tool) -> bool:
        """Return True if this definition is pinned."""
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
                "MCP server %s: tools withheld until an admin reviews them (/mcp review %s): %s%s",
                self._name,
                self._name,
                named,
                more,
            )

"""Review of tools, shared by `/mcp review` and other verbs.

An approval names the digest of the shown definitions, because a server may change a tool during the review.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.commands.dependencies import CommandDependencies
from bot.commands.rejections import ForbiddenRejection
from bot.commands.server_directory import VisibleServer
from bot.commands.text_format import server_label
from bot.domain.conversations import Member
from bot.domain.pins import (
    DefinitionChange,
    Pin,
    ReviewPolicy,
    ReviewStatus,
    combined_digest,
    definition_changes,
    review_status,
)
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.ports import ServerAdmin


@dataclass(frozen=True, slots=True)
class UnreviewedTool:
    """A tool without a pin on its definition, with its differences from the last pin. All parts differ if the pin is
    unreadable.
    """

    tool: Tool
    review: ReviewStatus
    alterations: tuple[DefinitionChange, ...]
    pin: Pin | None = None


class ToolReview:
    """Lists unreviewed tools, and pins them."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    async def waiting(self, server_id: str) -> tuple[UnreviewedTool, ...]:
        """Return the tools of a server without a pin on their definition."""
        pins = {pin.tool: pin for pin in await self._parts.pins.pins_of(server_id)}
        pinned = {tool: pin.definition for tool, pin in pins.items()}
        # Another process may have pinned it a moment ago.
        return tuple(
            _waiting(tool, pins.get(tool.original_name))
            for tool in unpinned(self._parts.servers, server_id)
            if review_status(tool, pinned) is not ReviewStatus.PINNED
        )

    async def approve(
        self, seen: VisibleServer, tool: str, definition: str, member: Member
    ) -> tuple[UnreviewedTool, ...]:
        """Pin a tool as shown, or all unreviewed tools if `tool` is empty; no tool if `definition` is no longer their
        digest. Return the pinned tools. Raises NotFound without the server; ForbiddenRejection if the pin would apply
        beyond a token's workspace.
        """
        if seen.config.workspace == EVERYWHERE and self._parts.rights.is_confined(member):
            raise ForbiddenRejection(
                f"{server_label(seen.config)} belongs to every workspace. Approving its tools takes a token for all "
                "of them."
            )
        waiting = await self.waiting(seen.id)
        chosen = tuple(each for each in waiting if tool in ("", each.tool.original_name))
        shown = (
            combined_digest(each.tool for each in chosen)
            if not tool
            else next((each.tool.definition for each in chosen), "")
        )
        if not chosen or shown != definition:
            return ()
        await self._parts.pins.pin(seen.id, [each.tool for each in chosen], member.author)
        await self._parts.administration.refresh()
        return chosen


def unpinned(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Return the tools of a server without a pin on their definition; empty if the server is not loaded."""
    try:
        return servers.unpinned_tools(server_id)
    except NotFound:
        return ()


def withheld(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Return the tools that are not offered because they have no pin."""
    return unpinned(servers, server_id) if servers.review is ReviewPolicy.CHANGED else ()


def _waiting(tool: Tool, pin: Pin | None) -> UnreviewedTool:
    pinned = {pin.tool: pin.definition} if pin is not None else {}
    return UnreviewedTool(
        tool, review_status(tool, pinned), definition_changes(pin.seen if pin is not None else None, tool), pin
    )

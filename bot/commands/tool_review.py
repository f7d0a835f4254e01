"""Tools that wait for a review, and what becomes of them. Values in, values out.

`/mcp review` says it in replies; other verbs ask which tools wait. What is approved is what was shown, by its digest:
a server may change a tool while somebody reads.
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
    """One tool whose definition is not pinned: how it stands, what is different from its pin, if it has one. All of it
    is different where what was pinned cannot be read any more.
    """

    tool: Tool
    review: ReviewStatus
    alterations: tuple[DefinitionChange, ...]
    pin: Pin | None = None


class ToolReview:
    """Shows what waits, and pins it."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    async def waiting(self, server_id: str) -> tuple[UnreviewedTool, ...]:
        """The tools of a server whose definition is not pinned."""
        pins = {pin.tool: pin for pin in await self._parts.pins.pins_of(server_id)}
        pinned = {tool: pin.definition for tool, pin in pins.items()}
        # What another process has pinned a moment ago waits no more.
        return tuple(
            _waiting(tool, pins.get(tool.original_name))
            for tool in unpinned(self._parts.servers, server_id)
            if review_status(tool, pinned) is not ReviewStatus.PINNED
        )

    async def approve(
        self, seen: VisibleServer, tool: str, definition: str, member: Member
    ) -> tuple[UnreviewedTool, ...]:
        """Pin a tool as it was shown, or everything that waits where `tool` is empty; nothing if `definition` is not
        the digest of that any more. What was pinned. Raises NotFound if the server is gone; ForbiddenRejection if what
        is pinned would hold beyond the one workspace that this program may touch.
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
    """The tools of a server whose definition is not pinned; none if it is not followed yet, or not any more."""
    try:
        return servers.unpinned_tools(server_id)
    except NotFound:
        return ()


def withheld(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Those that are not offered because of that."""
    return unpinned(servers, server_id) if servers.review is ReviewPolicy.CHANGED else ()


def _waiting(tool: Tool, pin: Pin | None) -> UnreviewedTool:
    pinned = {pin.tool: pin.definition} if pin is not None else {}
    return UnreviewedTool(
        tool, review_status(tool, pinned), definition_changes(pin.seen if pin is not None else None, tool), pin
    )

"""Tools that wait for a review, and what becomes of them. Values in, values out.

`/mcp review` says it in replies; other verbs ask which tools wait. What is approved is what was shown, by its digest:
a server may change a tool while somebody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.commands.directory import Seen
from bot.commands.parts import CommandParts
from bot.commands.phrases import named
from bot.commands.refusals import NotTheirs
from bot.domain.conversations import Member
from bot.domain.pins import Alteration, Pin, Review, ReviewPolicy, all_of, alterations, review
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.ports import ServerAdmin


@dataclass(frozen=True, slots=True)
class Waiting:
    """One tool whose definition is not pinned: how it stands, what is different from its pin, if it has one. All of it
    is different where what was pinned cannot be read any more.
    """

    tool: Tool
    review: Review
    alterations: tuple[Alteration, ...]
    pin: Pin | None = None


class ToolReviewing:
    """Shows what waits, and pins it."""

    def __init__(self, parts: CommandParts) -> None:
        self._parts = parts

    async def waiting(self, server_id: str) -> tuple[Waiting, ...]:
        """The tools of a server whose definition is not pinned."""
        pins = {pin.tool: pin for pin in await self._parts.pins.of(server_id)}
        pinned = {tool: pin.definition for tool, pin in pins.items()}
        # What another process has pinned a moment ago waits no more.
        return tuple(
            _waiting(tool, pins.get(tool.original_name))
            for tool in unpinned(self._parts.servers, server_id)
            if review(tool, pinned) is not Review.PINNED
        )

    async def approve(self, seen: Seen, tool: str, definition: str, member: Member) -> tuple[Waiting, ...]:
        """Pin a tool as it was shown, or everything that waits where `tool` is empty; nothing if `definition` is not
        the digest of that any more. What was pinned. Raises NotFound if the server is gone; NotTheirs if what is
        pinned would hold beyond the one workspace that this program may touch.
        """
        if seen.config.workspace == EVERYWHERE and self._parts.rights.confined(member):
            raise NotTheirs(
                f"{named(seen.config)} belongs to every workspace. Approving its tools takes a token for all of them."
            )
        waiting = await self.waiting(seen.id)
        chosen = tuple(each for each in waiting if tool in ("", each.tool.original_name))
        shown = (
            all_of(each.tool for each in chosen) if not tool else next((each.tool.definition for each in chosen), "")
        )
        if not chosen or shown != definition:
            return ()
        await self._parts.pins.pin(seen.id, [each.tool for each in chosen], member.author)
        await self._parts.administration.refresh()
        return chosen


def unpinned(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """The tools of a server whose definition is not pinned; none if it is not followed yet, or not any more."""
    try:
        return servers.unpinned(server_id)
    except NotFound:
        return ()


def withheld(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Those that are not offered because of that."""
    return unpinned(servers, server_id) if servers.review is ReviewPolicy.CHANGED else ()


def _waiting(tool: Tool, pin: Pin | None) -> Waiting:
    pinned = {pin.tool: pin.definition} if pin is not None else {}
    return Waiting(tool, review(tool, pinned), alterations(pin.seen if pin is not None else None, tool), pin)

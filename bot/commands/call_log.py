"""`/mcp log`: what was called, by whom, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.paging import ROWS, offset, page_of
from bot.commands.parameters import A_SERVER
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import format_duration, format_moment
from bot.domain.commands import Reply, Table, Verb


class CallLog:
    """Looks things up."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory

    @property
    def deed(self) -> VerbHandler:
        """The verb."""
        log = Verb("log", "the last calls: what, by whom, how it ended", (A_SERVER,), aliases=("calls", "history"))
        return VerbHandler(log, self._log)

    async def _log(self, request: CommandContext) -> AsyncIterator[Reply]:
        name, number = request.arguments.one("server"), request.arguments.page
        slug = (await self._directory.find(name, request.conversation)).name if name else ""
        calls, count = await self._parts.archive.calls(slug, request.conversation.workspace_key, ROWS, offset(number))
        if not count:
            yield Reply("Nothing has been called yet.")
            return
        rows = tuple(
            (
                format_moment(call.at),
                call.name,
                call.status,
                call.asked_by,
                call.decided_by,
                format_duration(call.seconds),
                call.turn_id[:8],
            )
            for call in calls
        )
        yield Reply(
            f"Calls · {count} · times in UTC",
            Table(("when", "tool", "ended", "asked by", "signed by", "took", "turn"), rows),
            page=page_of(number, count, ("mcp", "log", *((slug,) if slug else ()))),
        )

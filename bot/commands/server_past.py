"""`/mcp log` and `/mcp audit`: what was called, and what was done to the servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from bot.commands.command import Deed, Request
from bot.commands.directory import Directory
from bot.commands.paging import ROWS, offset, page_of
from bot.commands.parameters import A_SERVER
from bot.commands.parts import CommandParts
from bot.commands.phrases import lasted, moment, named, shortened
from bot.commands.refusals import Refusal
from bot.domain.commands import Reply, Table, Verb


class ServerPast:
    """Looks things up."""

    def __init__(self, parts: CommandParts, directory: Directory) -> None:
        self._parts = parts
        self._directory = directory

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """The verbs."""
        log = Verb("log", "the last calls: what, by whom, how it ended", (A_SERVER,), aliases=("calls", "history"))
        audit = Verb("audit", "who changed what of a server, and when", (A_SERVER,), aliases=("changes",))
        return Deed(log, self._log), Deed(audit, self._audit)

    async def _log(self, request: Request) -> AsyncIterator[Reply]:
        name, number = request.arguments.one("server"), request.arguments.page
        slug = (await self._directory.find(name, request.conversation)).name if name else ""
        calls, count = await self._parts.archive.calls(slug, request.conversation.home, ROWS, offset(number))
        if not count:
            yield Reply("Nothing has been called yet.")
            return
        rows = tuple(
            (
                moment(call.at),
                call.name,
                call.status,
                call.asked_by,
                call.decided_by,
                lasted(call.seconds),
                call.turn_id[:8],
            )
            for call in calls
        )
        yield Reply(
            f"Calls · {count} · times in UTC",
            Table(("when", "tool", "ended", "asked by", "signed by", "took", "turn"), rows),
            page=page_of(number, count, ("mcp", "log", *((slug,) if slug else ()))),
        )

    async def _audit(self, request: Request) -> AsyncIterator[Reply]:
        name, number = request.arguments.one("server"), request.arguments.page
        if not name and not self._parts.rights.operates(request.member):
            raise Refusal("Of which server? `/mcp audit NAME`. Only the operator sees everything at once.")
        seen = await self._directory.find(name, request.conversation) if name else None
        entries, count = await self._parts.archive.audit(seen.id if seen else "", ROWS, offset(number))
        about = f" of {named(seen.config)}" if seen else ""
        if not count:
            yield Reply(f"Nothing has been done{about} yet.")
            return
        rows = tuple(
            (str(entry.seq), moment(entry.at), entry.kind, entry.actor, _facts(entry.facts)) for entry in entries
        )
        yield Reply(
            f"Audit{about} · {count} · times in UTC",
            Table(("no.", "when", "what", "by", "facts"), rows),
            page=page_of(number, count, ("mcp", "audit", *((seen.name,) if seen else ()))),
        )


def _facts(facts: Mapping[str, object]) -> str:
    told = (f"{name}: {_value(value)}" for name, value in facts.items() if value not in (None, "", {}, []))
    return shortened(", ".join(told), 300)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
    return str(value)

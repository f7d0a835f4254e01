"""`/mcp grants list`, `revoke`: what runs without asking because somebody allowed it beforehand.

Everybody sees what they have granted and what was granted to them; admins see all of their workspace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.paging import cut, page_of
from bot.commands.rejections import CommandRejected
from bot.commands.text_format import code, format_ago, format_expiry
from bot.domain.commands import ActionStyle, Parameter, Reply, ReplyAction, RequiredRole, Table, Verb
from bot.domain.grants import Grant

_WHICH = Parameter("grant", "its id as the list shows it", required=True, metavar="ID")
_SCOPES = {
    "thread": "all calls in the thread",
    "arguments": "this very call in the thread",
    "hours": "all calls, for some hours",
    "always": "all calls",
}
_ACTIONS = 5
"""More buttons would be more than a person reads."""


class Grants:
    """Lists and revokes."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    @property
    def deeds(self) -> tuple[VerbHandler, ...]:
        """The verbs."""
        shown = Verb("grants list", "what runs without asking, and who said so", (), RequiredRole.EVERYONE, ("grants",))
        ended = Verb("grants revoke", "let it ask again", (_WHICH,), RequiredRole.EVERYONE, ("grants remove", "revoke"))
        return VerbHandler(shown, self._list), VerbHandler(ended, self._revoke)

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._seen(request)
        if not seen:
            yield Reply("Nothing was granted that still holds: every call that needs a signature asks for one.")
            return
        page = cut(seen, request.arguments.page)
        yield Reply(
            f"Grants · {len(seen)}",
            Table(
                ("id", "tool", "what runs", "where", "for", "granted by", "ends"),
                tuple(self._row(grant) for grant in page),
            ),
            actions=tuple(_revoking(grant) for grant in page[:_ACTIONS]),
            page=page_of(request.arguments.page, len(seen), ("mcp", "grants", "list")),
        )

    async def _revoke(self, request: CommandContext) -> AsyncIterator[Reply]:
        wanted = request.arguments.one("grant").lower()
        grant = next((each for each in await self._seen(request) if each.id == wanted), None)
        if grant is None or not await self._parts.grants.revoke(grant.id, request.author):
            raise CommandRejected("There is no such grant that still holds. `/mcp grants list` lists them.")
        name = f"{code(grant.server_name, 'the server')}, {code(grant.tool, 'the tool')}"
        yield Reply(f"{name}: calls ask for a signature again. One that runs already goes on.")

    async def _seen(self, request: CommandContext) -> Sequence[Grant]:
        """The grants this person may see; all others do not exist."""
        grants = await self._parts.grants.active_grants(request.conversation.workspace_key)
        if self._parts.rights.administers(request.member):
            return grants
        own = request.author.principal
        return [grant for grant in grants if own in (grant.granted_by, grant.person)]

    def _row(self, grant: Grant) -> tuple[str, ...]:
        now = self._parts.clock()
        what = _SCOPES.get(grant.scope, grant.scope)
        return (
            grant.id,
            f"{grant.server_name}.{grant.tool}",
            f"{what}, destructive ones too" if grant.destructive else what,
            ":".join(grant.place.split(":")[2:]) or "this workspace",
            grant.person or "everyone",
            f"{grant.granted_name or grant.granted_by}, {format_ago(grant.created_at, now)}",
            _end(grant, now),
        )


def _revoking(grant: Grant) -> ReplyAction:
    return ReplyAction(f"Revoke {grant.id}", ("mcp", "grants", "revoke", grant.id), ActionStyle.DANGER)


def _end(grant: Grant, now: float) -> str:
    if grant.expires_at is None:
        return "when somebody revokes it"
    left = format_expiry(grant.expires_at, now)
    return f"{left}, unless it is used" if grant.idle else left

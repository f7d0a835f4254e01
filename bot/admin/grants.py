"""`/mcp grants`: permissions for later calls. Users see those by and for them; admins see all of their workspace."""

from __future__ import annotations

from collections.abc import Sequence

from bot.admin.command import CommandContext, CommandRejected, Verbs, verb
from bot.admin.text_format import (
    code,
    format_ago,
    format_expiry,
    page_of,
    page_rows,
)
from bot.domain.commands import ActionStyle, Parameter, Reply, ReplyAction, RequiredRole, Table
from bot.domain.conversations import CONSOLE
from bot.domain.grants import Grant
from bot.i18n import _, format_enumeration, gettext_lazy

_GRANT = Parameter("grant", "its id as the list shows it", required=True, metavar="ID")
_SCOPES = {
    "thread": gettext_lazy("all calls in the thread"),
    "arguments": gettext_lazy("this very call in the thread"),
    "hours": gettext_lazy("all calls, for some hours"),
    "always": gettext_lazy("all calls"),
}
_TERMINAL_SCOPES = {
    **_SCOPES,
    "thread": gettext_lazy("all calls in the conversation"),
    "arguments": gettext_lazy("this very call in the conversation"),
}
"""A terminal has no threads."""
_ACTIONS = 5
"""Buttons per reply."""


class Grants(Verbs):
    """Verbs of grants."""

    @verb(
        "grants list",
        "permissions for later calls: tools that run without asking, and who allowed them",
        who=RequiredRole.EVERYONE,
        aliases=("grants",),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        grants = await self._visible_grants(request)
        if not grants:
            return Reply(_("No grant is active: every call that needs an approval asks for one."))
        page, revoke = page_rows(grants, request.arguments.page), ("mcp", "grants", "revoke")
        return Reply(
            _("Grants · {count}", count=len(grants)),
            Table(
                ("id", "tool", "what runs", "where", "for", "granted by", "ends"),
                tuple(self._row(grant) for grant in page),
            ),
            actions=tuple(
                ReplyAction(_("Revoke {grant}", grant=grant.id), (*revoke, grant.id), ActionStyle.DANGER)
                for grant in page[:_ACTIONS]
            ),
            page=page_of(request.arguments.page, len(grants), ("mcp", "grants", "list")),
        )

    @verb(
        "grants revoke", "let it ask again", (_GRANT,), who=RequiredRole.EVERYONE, aliases=("grants remove", "revoke")
    )
    async def _revoke(self, request: CommandContext) -> Reply:
        wanted = request.arguments.get("grant").lower()
        grant = next((candidate for candidate in await self._visible_grants(request) if candidate.id == wanted), None)
        if grant is None or not await self._dependencies.stores.grants.revoke(grant.id, request.author):
            raise CommandRejected(_("There is no such grant that still holds. `/mcp grants list` lists them."))
        name = format_enumeration((code(grant.server_name, _("the server")), code(grant.tool, _("the tool"))))
        return Reply(_("{tool}: calls ask for an approval again. A call that runs already goes on.", tool=name))

    async def _visible_grants(self, request: CommandContext) -> Sequence[Grant]:
        """Return the grants that the user may see."""
        grants = await self._dependencies.stores.grants.active_grants(request.conversation.workspace_key)
        if self._dependencies.rights.administers(request.member):
            return grants
        own = request.author.principal
        return [grant for grant in grants if own in (grant.granted_by, grant.person)]

    def _row(self, grant: Grant) -> tuple[str, ...]:
        now = self._dependencies.clock()
        scopes = _TERMINAL_SCOPES if grant.place.startswith(f"{CONSOLE}:") else _SCOPES
        what = str(scopes.get(grant.scope, grant.scope))
        return (
            grant.id,
            f"{grant.server_name}.{grant.tool}",
            _("{calls}, destructive ones too", calls=what) if grant.destructive else what,
            ":".join(grant.place.split(":")[2:]) or _("this workspace"),
            grant.person or _("everyone"),
            f"{grant.granted_name or grant.granted_by}, {format_ago(grant.created_at, now)}",
            _end(grant, now),
        )


def _end(grant: Grant, now: float) -> str:
    if grant.expires_at is None:
        return _("when it is revoked")
    remaining = format_expiry(grant.expires_at, now)
    return _("{time}, unless it is used", time=remaining) if grant.idle else remaining

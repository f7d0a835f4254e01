"""`/approvals delegate`, `delegations` and `undelegate`: approvers hand their right to decide to another user.

Which calls the delegate may decide is checked at each decision (`bot.engine.delegations`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from bot.admin.command import CommandContext, CommandRejected, Verbs, verb
from bot.admin.text_format import parse_end, parse_user
from bot.domain.commands import ActionStyle, Parameter, Reply, ReplyAction, RequiredRole, Table
from bot.domain.conversations import CONSOLE, HTTP
from bot.domain.grants import DELEGATION, Grant
from bot.i18n import _, format_datetime, gettext_lazy, ngettext

LONGEST_DAYS = 90
_DAY = 86400.0
_WHO = Parameter("who", "the user who decides for you", required=True, metavar="@USER")
_END = Parameter("end", "until Friday, until 2026-12-04 or for 3 days", required=True, repeated=True, metavar="END")


class DelegationVerbs(Verbs):
    """Verbs of `/approvals` about delegations."""

    @verb("delegate", "hand your right to decide to another user", (_WHO, _END), who=RequiredRole.EVERYONE)
    async def _delegate(self, request: CommandContext) -> Reply:
        person, end = self._delegate_in(request), self._end(request)
        place, author = request.conversation.workspace_key, request.author
        if request.member.guest or request.member.external:
            raise CommandRejected(_("Guests and users of other workspaces approve nothing, so they cannot delegate."))
        for earlier in await self._visible(request):
            if (earlier.granted_by, earlier.person) == (author.principal, person):
                await self._dependencies.stores.grants.revoke(earlier.id, author)
        await self._dependencies.stores.grants.delegate(
            Grant(
                id=secrets.token_hex(6),
                scope=DELEGATION,
                server="",
                server_name="",
                tool="",
                definition="",
                place=place,
                person=person,
                granted_by=author.principal,
                granted_name=author.name,
                approval_id="",
                lasts=end - self._dependencies.clock(),
            )
        )
        return Reply(
            _(
                "{who} may decide the calls that you may decide, until {end}. Calls that {who} asks for are left out.",
                who=person,
                end=format_datetime(end),
            ),
            actions=(ReplyAction(_("End it"), ("approvals", "undelegate", person), ActionStyle.DANGER),),
        )

    @verb("delegations", "who decides for whom, and until when", who=RequiredRole.EVERYONE, reads=True)
    async def _list(self, request: CommandContext) -> Reply:
        found = await self._visible(request)
        headings = (gettext_lazy("approver"), gettext_lazy("delegate"), gettext_lazy("until"))
        rows = tuple((grant.granted_by, grant.person, format_datetime(grant.expires_at or 0.0)) for grant in found)
        return Reply(
            ngettext("{n} delegation", "{n} delegations", len(found))
            if found
            else _("No one decides for anybody else. `/approvals delegate @USER until DAY` changes that."),
            Table(headings, rows) if rows else None,
        )

    @verb(
        "undelegate",
        "end what you have handed to a user, or what was handed to you",
        (_WHO,),
        who=RequiredRole.EVERYONE,
        aliases=("delegate end", "delegations end"),
    )
    async def _undelegate(self, request: CommandContext) -> Reply:
        person = parse_user(request.arguments.get("who"), request.conversation)
        ended = [grant for grant in await self._visible(request) if person in (grant.granted_by, grant.person)]
        if not ended:
            raise CommandRejected(_("There is no such delegation. `/approvals delegations` lists them."))
        for grant in ended:
            await self._dependencies.stores.grants.revoke(grant.id, request.author)
        return Reply(_("Ended. Decisions of before still count."))

    async def _visible(self, request: CommandContext) -> Sequence[Grant]:
        """Return the delegations that the user may see and end: the own ones, and for admins all."""
        found = await self._dependencies.stores.grants.delegations(request.conversation.workspace_key)
        own = request.author.principal
        administers = self._dependencies.rights.administers(request.member)
        return [grant for grant in found if administers or own in (grant.granted_by, grant.person)]

    def _delegate_in(self, request: CommandContext) -> str:
        written = request.arguments.get("who")
        person = parse_user(written, request.conversation)
        named_by_id = person == written or written.startswith("<@")
        if person.partition(":")[0] != request.author.platform or not (
            named_by_id or request.author.platform in (CONSOLE, HTTP)
        ):
            raise CommandRejected(_("Mention the user, so that it is clear who is meant: choose the name after `@`."))
        if person == request.author.principal:
            raise CommandRejected(_("You decide for yourself already."))
        return person

    def _end(self, request: CommandContext) -> float:
        now = self._dependencies.clock()
        try:
            end = parse_end(" ".join(request.arguments.get_all("end")), now)
        except ValueError:
            raise CommandRejected(_("Say the end as {examples}.", examples=_END.hint)) from None
        if not now < end <= now + LONGEST_DAYS * _DAY:
            raise CommandRejected(_("The end must be ahead, by at most {days} days.", days=LONGEST_DAYS))
        return end

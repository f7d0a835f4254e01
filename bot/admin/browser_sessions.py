"""`/console`: a one-time link to the console in a browser, and the sessions there."""

from __future__ import annotations

from collections.abc import Sequence

from bot.admin.command import CommandContext, CommandRejected, Verbs, verb
from bot.admin.text_format import format_ago, format_moment, page_of, page_rows, sentences
from bot.domain.browser_sessions import CONSOLE_SLOT, BrowserSession
from bot.domain.commands import Parameter, Reply, ReplyAction, RequiredRole, Table
from bot.domain.conversations import ConversationKey, Member
from bot.domain.secrets import LINK_SECONDS
from bot.i18n import _, gettext_lazy

SESSION_COOKIE = "countersign-session"
"""End of the name of the cookie of a session."""
CONSOLE_PATH = "/console"
"""Path of the console's first page."""
ENTER_PATH = f"{CONSOLE_PATH}/enter/"
"""Path of the page of a one-time link; the token follows it."""
_SESSION = Parameter("session", "its id as the list shows it", required=True, metavar="ID")
_NO_ADDRESS = gettext_lazy("There is no console here: the operator sets its address with `PUBLIC_URL`.")


class ConsoleVerbs(Verbs):
    """Verbs of `/console`."""

    @verb("open", "a link that opens the console as you", who=RequiredRole.EVERYONE, aliases=("link",))
    async def _open(self, request: CommandContext) -> Reply:
        links = self._dependencies.console
        if links is None or not links.address:
            raise CommandRejected(_NO_ADDRESS)
        _link, token = await links.store.create_link("", CONSOLE_SLOT, request.author, request.conversation)
        address = f"{links.address}{ENTER_PATH}{token}"
        minutes = int(LINK_SECONDS // 60)
        return Reply(
            sentences(
                _("[Open the console]({address}).", address=address),
                _("The link works once, for {minutes} minutes, for you: keep it to yourself.", minutes=minutes),
            ),
            actions=(ReplyAction(_("Your sessions"), ("console", "sessions")),),
            link=address,
        )

    @verb("sessions", "open sessions in browsers", who=RequiredRole.EVERYONE, reads=True)
    async def _sessions(self, request: CommandContext) -> Reply:
        sessions = await self._visible(request.member, request.conversation)
        if not sessions:
            return Reply(_("No session is open. `/console` opens one."))
        now, page = self._dependencies.clock(), page_rows(sessions, request.arguments.page)
        rows = tuple(
            (each.id, each.author.principal, format_ago(each.used_at, now), format_moment(each.expires_at))
            for each in page
        )
        return Reply(
            _("Sessions in browsers · {count}", count=len(sessions)),
            Table(("session", "user", "last used", "ends"), rows),
            actions=tuple(
                ReplyAction(_("End {session}", session=each.id), ("console", "end", each.id)) for each in page
            ),
            page=page_of(request.arguments.page, len(sessions), ("console", "sessions")),
        )

    @verb("end", "end a session", (_SESSION,), who=RequiredRole.EVERYONE)
    async def _end(self, request: CommandContext) -> Reply:
        wanted = request.arguments.get("session")
        visible = await self._visible(request.member, request.conversation)
        if not any(each.id == wanted for each in visible):
            raise CommandRejected(_("No open session has this id. `/console sessions` lists them."))
        await self._dependencies.stores.sessions.end(wanted, request.author)
        return Reply(_("The session is ended."))

    async def _visible(self, member: Member, conversation: ConversationKey) -> Sequence[BrowserSession]:
        """Return the sessions that a member may list and end: their own, and as an admin those of the workspace."""
        rights, store = self._dependencies.rights, self._dependencies.stores.sessions
        if not rights.administers(member):
            return await store.sessions(member.author.principal)
        sessions, place = await store.sessions(), conversation.workspace_key
        if rights.administers_everywhere(member) or not rights.is_of_one_workspace(member):
            return sessions
        own = member.author.principal
        return [each for each in sessions if own == each.author.principal or place == each.conversation.workspace_key]

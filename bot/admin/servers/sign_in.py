"""OAuth sign-in to servers: rights, the link in a private reply, the status, the sign-out, and the callback.

The callback completes the sign-in in the name of the user of the link. Rights are checked again, because the
browser does not identify the user. The user gets a message about the result in the chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from bot.admin.command import CommandContext, CommandRejected, ForbiddenRejection
from bot.admin.dependencies import MEMBER_SECONDS, CommandDependencies, UserMessenger, notify_user
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.text_format import code, error_reply, format_ago, known_facts, sentences, server_label, status_word
from bot.domain.commands import ActionStyle, Reply, ReplyAction
from bot.domain.conversations import CONSOLE, Author, ConversationKey, Member
from bot.domain.locales import use_locale
from bot.domain.servers import AuthenticationKind, OAuthTerms, ServerConfig, ServerStatus
from bot.domain.sign_ins import SIGN_IN_SECONDS
from bot.errors import CountersignError, DatabaseError, DeliveryFailed, NotFound
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext
from bot.ports import AuthorizationResponse, SignedIn, SignIns

SIGN_IN = "sign-in"
"""Name of the sign-in among the slots of secrets."""
SWITCH_ON = gettext_lazy(
    "Signing in with a browser needs an address to return to: the operator sets `PUBLIC_URL` to an https "
    "address or to this machine, and runs `countersign run` with its part `web`. `countersign chat` "
    "has no such address: beside a running bot `countersign servers connect NAME` gives the link in a shell."
)
_CHECK_SECONDS = 2.0
"""Seconds to find out if a server takes a sign-in, before a reply without the button."""
_MAY_WAIT = (ServerStatus.AUTH_REQUIRED, ServerStatus.PENDING, ServerStatus.IDLE, ServerStatus.CONNECTING)
"""Statuses of a server that may wait for a sign-in. A failed one has another problem."""
_UNESCAPED = "%/?#:@!$&*+,;=-._~"
"""Characters that need no escaping in a Markdown link besides letters and digits."""


class SignInSteps:
    """Steps of signing in and out."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._sign_ins = dependencies.sign_ins
        self._directory = directory

    async def is_needed(self, config: ServerConfig) -> bool:
        """Return True if the server needs a sign-in in a browser, and one is possible."""
        try:
            status = self._dependencies.servers.snapshot(config.id).status
        except NotFound:
            status = ServerStatus.PENDING
        if self._sign_ins is None or status not in _MAY_WAIT or not await self._is_offered(config):
            return False
        return status is ServerStatus.AUTH_REQUIRED or await self._sign_ins.get(config.id) is None

    async def steps(self, config: ServerConfig) -> tuple[ReplyAction, ...]:
        """Return the action to get the link if the server waits for a sign-in."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_SECONDS):
                if await self.is_needed(config):
                    words, label = ("mcp", "connect", config.name), _("Sign in to {server}", server=config.name)
                    return (ReplyAction(label, words, ActionStyle.PRIMARY),)
        return ()

    def hint(self, server: VisibleServer) -> str:
        """Return a hint if sign-ins are disabled but needed; else empty."""
        refused = server.status is ServerStatus.AUTH_REQUIRED
        by_browser = kind_of_sign_in(server) in (AuthenticationKind.NONE, AuthenticationKind.OAUTH)
        return str(SWITCH_ON).replace("`", "") if refused and by_browser and self._sign_ins is None else ""

    def check_access(self, server: VisibleServer, member: Member) -> None:
        """Check that the member may sign the bot in and out: it affects all users of the server. Raises
        ForbiddenRejection.
        """
        if server.record is not None:
            self._directory.record_of(server, member)
        elif not self._dependencies.rights.administers_everywhere(member):
            raise ForbiddenRejection(
                _(
                    "{server} is managed in the operator's file. Only the operator can sign in to it: `{command}` on "
                    "the machine that runs the bot.",
                    server=server_label(server.config),
                    command=f"countersign servers connect {server.name}",
                )
            )

    async def address(self, server: VisibleServer, member: Member, conversation: ConversationKey) -> str | None:
        """Return the member's private sign-in address, None if there is none or the member has no right. Raises
        ServerTrouble.
        """
        if self._sign_ins is None or not await self.is_needed(server.config):
            return None
        try:
            self.check_access(server, member)
        except ForbiddenRejection:
            return None
        return await self._sign_ins.begin(server.id, member.author, conversation)

    async def link(self, server: VisibleServer, request: CommandContext, text: str) -> Reply:
        """Return a private reply with the link after `text`, which is Markdown of this project. Raises
        ForbiddenRejection, CommandRejected, ServerTrouble.
        """
        if self._sign_ins is None:
            raise CommandRejected(SWITCH_ON)
        self.check_access(server, request.member)
        address = await self._sign_ins.begin(server.id, request.author, request.conversation, on_page=request.on_page)
        host, label = urlsplit(address).hostname or "", code(server.name, _("the server")).strip("`")
        minutes = int(SIGN_IN_SECONDS // 60)
        shown_host = code(host, _("the address below"))
        looks_deceptive = not host.isascii() or any(part.startswith("xn--") for part in host.split("."))
        careful = _("This domain is written in letters that can look like others.") if looks_deceptive else ""
        return Reply(
            sentences(
                text,
                _(
                    "[Sign in to {server}]({address}) leads to {host}.",
                    server=label,
                    address=quote(address, safe=_UNESCAPED),
                    host=shown_host,
                ),
                _(
                    "The bot is let in as the account that you sign in with there, and everybody's calls run as that "
                    "account, under this server's policies."
                ),
                _("The link is for you alone, for {minutes} minutes: keep it to yourself.", minutes=minutes),
            ),
            details=(
                (gettext_lazy("leads to"), urlsplit(address).netloc),
                *known_facts((gettext_lazy("careful"), careful)),
                (gettext_lazy("whole address"), address),
                (gettext_lazy("comes back to"), self._sign_ins.redirect_uri(server.id)),
            ),
            actions=(ReplyAction(_("Another link"), ("mcp", "secret", "rotate", server.name, SIGN_IN)),),
        )

    async def details(self, server: VisibleServer) -> tuple[tuple[str, str], ...]:
        """Return the sign-in's state and the redirect address, for admins."""
        if self._sign_ins is None:
            return ()
        current = await self._sign_ins.get(server.id)
        facts: list[tuple[str, str]] = []
        if current is not None:
            user, since = current.by or _("the bot itself"), format_ago(current.since, self._dependencies.clock())
            text = _("{when} by {who}, at {host}", when=since, who=user, host=urlsplit(current.issuer).netloc)
            facts.append((gettext_lazy("signed in"), text))
        if kind_of_sign_in(server) is AuthenticationKind.OAUTH:
            facts.append((gettext_lazy("redirect address"), self._sign_ins.redirect_uri(server.id)))
        return tuple(facts)

    async def sign_in_again(self, request: CommandContext) -> AsyncIterator[Reply]:
        """Sign in, or replace the current sign-in."""
        server = await self._find(request)
        if self._sign_ins is not None and not await self._is_offered(server.config):
            raise CommandRejected(
                _(
                    "{server} is not known to take a sign-in in a browser. `{connect}` asks it; `{edit}` says so.",
                    server=server_label(server.config),
                    connect=f"/mcp connect {server.name}",
                    edit=f"/mcp edit {server.name} --auth oauth",
                )
            )
        yield Reply(_("Asking where to sign in to {server}…", server=server_label(server.config)))
        text = _("A new sign-in to {server}.", server=server_label(server.config))
        yield await self.link(server, request, text)

    async def sign_out(self, request: CommandContext) -> Reply:
        """Sign out."""
        server = await self._find(request)
        label = server_label(server.config)
        if self._sign_ins is None or not await self._sign_ins.sign_out(server.id, request.author):
            return error_reply(_("Nobody is signed in to {server}. Nothing was changed.", server=label))
        await self._dependencies.administration.refresh()
        return Reply(
            _(
                "The bot is signed out of {server}: its tokens are deleted, and no call runs as that account any more.",
                server=label,
            ),
            actions=(ReplyAction(_("Sign in again"), ("mcp", "connect", server.name)),),
        )

    async def _is_offered(self, config: ServerConfig) -> bool:
        try:
            return self._sign_ins is not None and await self._sign_ins.is_available(config.id)
        except NotFound:
            return False  # this process has not loaded it yet

    async def _find(self, request: CommandContext) -> VisibleServer:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        self.check_access(server, request.member)
        return server


def kind_of_sign_in(server: VisibleServer) -> AuthenticationKind:
    """Return the authentication type of the definition."""
    if server.record is not None:
        return server.record.authentication.kind
    return server.config.sign_in.kind if server.config.sign_in is not None else AuthenticationKind.NONE


def oauth_text(terms: OAuthTerms) -> str:
    """Return a summary of the OAuth settings."""
    way = _("OAuth, in a browser") if terms.kind is AuthenticationKind.OAUTH else _("OAuth, by the bot itself")
    client = _("as client {client}", client=terms.client_id) if terms.client_id else ""
    scopes = _("for {scopes}", scopes=terms.scope) if terms.scope else ""
    issuer = _("at {issuer}", issuer=terms.issuer) if terms.issuer else ""
    return format_enumeration(filter(None, (way, client, issuer, scopes)))


# -------------------- callback


@dataclass(frozen=True, slots=True)
class SignInCompleted:
    """A completed sign-in. `server` is the slug and `title` the display name; `problem` is the reason for a failed
    connection. `on_page` is True if it began on a page of the console. Plain text.
    """

    server: str
    title: str
    person: Author
    tools: int
    problem: str = ""
    on_page: bool = False


@dataclass(frozen=True, slots=True)
class SignInRejected:
    """A rejected sign-in: cause and fix, as plain text."""

    cause: str
    fix: str = ""


Outcome = SignInCompleted | SignInRejected | None
"""None: the sign-in is unknown, finished or expired."""


class OAuthCallback:
    """Handler of OAuth callbacks."""

    def __init__(self, dependencies: CommandDependencies, sign_ins: SignIns, people: UserMessenger) -> None:
        self._dependencies = dependencies
        self._sign_ins = sign_ins
        self._messenger = people
        self._directory = ServerDirectory(dependencies)
        self._steps = SignInSteps(dependencies, self._directory)

    async def handle(self, response: AuthorizationResponse) -> Outcome:
        """Handle a code or an error from the authorization server. Raises DatabaseError."""
        try:
            sign_in = await self._sign_ins.complete(response, self._check_access)
        except NotFound:
            return None
        except DatabaseError:
            raise
        except CountersignError as error:
            return SignInRejected(error.cause, error.fix)
        completed = await self._result_of(sign_in)
        await self._tell(sign_in, completed)
        return completed

    async def _check_access(self, sign_in: SignedIn) -> None:
        """Check that the user still has the right. Raises _NotAllowed."""
        server = await self._find(sign_in)
        if server is None:
            raise _NotAllowed(_("The server is not there any more, or not for you."))
        if sign_in.by.platform == CONSOLE:
            return
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                member = await self._messenger.member(sign_in.by, sign_in.conversation)
        except DeliveryFailed as failure:
            raise _NotAllowed(
                sentences(_("It could not be found out whether you may still do this."), failure.cause)
            ) from failure
        except TimeoutError:
            raise _NotAllowed(_("Your platform did not say in time whether you may still do this.")) from None
        if not self._dependencies.rights.administers(member):
            raise _NotAllowed(_("Only {who} can do this, and you cannot any more.", who=self._dependencies.rights.who))
        try:
            self._steps.check_access(server, member)
        except CommandRejected as refusal:
            raise _NotAllowed(str(refusal).replace("`", "")) from refusal

    async def _find(self, sign_in: SignedIn) -> VisibleServer | None:
        servers = await self._directory.all(sign_in.conversation)
        return next((server for server in servers if server.id == sign_in.server), None)

    async def _result_of(self, sign_in: SignedIn) -> SignInCompleted:
        server = await self._find(sign_in)
        if server is None:
            return SignInCompleted("", _("the server"), sign_in.by, 0, _("It was removed at this very moment."))
        problem = server.problem or _("It is {status}.", status=status_word(server.status))
        problem = "" if server.status is ServerStatus.CONNECTED else problem
        tools = len(self._directory.capabilities(server).tools)
        title = server.config.title or server.name
        return SignInCompleted(server.name, title, sign_in.by, tools, problem, sign_in.on_page)

    async def _tell(self, sign_in: SignedIn, completed: SignInCompleted) -> None:
        """Send a message to the user of the link, if possible."""
        with use_locale(await self._messenger.locale(sign_in.by, sign_in.conversation)):
            text = _(
                "The bot is signed in to {server}: {tools}.",
                server=completed.title,
                tools=ngettext("{n} tool", "{n} tools", completed.tools),
            )
            if completed.problem:
                text = sentences(
                    _("The bot is signed in to {server}, and cannot use it yet.", server=completed.title),
                    completed.problem,
                )
        await notify_user(self._messenger, sign_in.by, sign_in.conversation, text)


class _NotAllowed(CountersignError):
    """The user may no longer finish the sign-in."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, _("ask an admin of this server"))

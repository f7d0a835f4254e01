"""OAuth sign-in to servers: rights, the link in a private reply, the status, the sign-out, and the callback.

The callback completes the sign-in in the name of the user who requested the link. Rights are checked again, because the
browser does not identify the user. The user gets a message about the result in the chat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from bot.commands.argument_parser import CommandRejected, ForbiddenRejection
from bot.commands.command import CommandContext
from bot.commands.dependencies import CommandDependencies, UserMessenger
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.text_format import code, format_ago, pluralize, server_label
from bot.domain.commands import ActionStyle, Reply, ReplyAction
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.servers import AuthenticationKind, OAuthTerms, ServerConfig, ServerStatus
from bot.domain.sign_ins import SIGN_IN_SECONDS
from bot.errors import CountersignError, DatabaseError, DeliveryFailed, NotFound
from bot.ports import AuthorizationResponse, SignedIn, SignIns

log = logging.getLogger(__name__)

SIGN_IN = "sign-in"
"""Name of the sign-in among the slots of secrets."""
SWITCH_ON = (
    "Signing in with a browser needs an address to return to: the operator sets `PUBLIC_URL` to an https "
    "address or to this machine, and runs `countersign run` with its part `web`. `countersign chat` "
    "has no such address: beside a running bot `countersign servers connect NAME` gives the link in a shell."
)
_LOOKING_SECONDS = 2.0
"""Seconds to find out if a server takes a sign-in, before a reply without the button."""
_WAITING = (ServerStatus.AUTH_REQUIRED, ServerStatus.PENDING, ServerStatus.IDLE, ServerStatus.CONNECTING)
"""Statuses of a server that may wait for a sign-in. A failed one has another problem."""
_AS_IT_IS = "%/?#:@!$&*+,;=-._~"
"""Characters that need no escaping in a Markdown link besides letters and digits."""
_ASKING_SECONDS = 10.0
_TELLING_SECONDS = 3.0
"""Seconds that the page waits for the message to be sent."""
_SHELL = "console"
"""The operator's shell: no platform to ask for rights, and no other users."""


class SignInSteps:
    """Steps of signing in and out."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._sign_ins = parts.sign_ins
        self._directory = directory

    async def waits(self, config: ServerConfig) -> bool:
        """Return True if the server needs a sign-in in a browser, and one is possible."""
        status = self._status(config)
        if self._sign_ins is None or status not in _WAITING or not await self._offered(config):
            return False
        return status is ServerStatus.AUTH_REQUIRED or await self._sign_ins.get(config.id) is None

    async def steps(self, config: ServerConfig) -> tuple[ReplyAction, ...]:
        """Return the action to get the link if the server waits for a sign-in."""
        try:
            async with asyncio.timeout(_LOOKING_SECONDS):
                waits = await self.waits(config)
        except TimeoutError:
            waits = False
        if not waits:
            return ()
        return (ReplyAction(f"Sign in to {config.name}", ("mcp", "connect", config.name), ActionStyle.PRIMARY),)

    def hint(self, server: VisibleServer) -> str:
        """Return a hint if sign-ins are disabled but needed; else empty."""
        refused = server.status is ServerStatus.AUTH_REQUIRED
        by_browser = kind_of_sign_in(server) in (AuthenticationKind.NONE, AuthenticationKind.OAUTH)
        return SWITCH_ON.replace("`", "") if refused and by_browser and self._sign_ins is None else ""

    def allow(self, server: VisibleServer, member: Member) -> None:
        """Check that the member may sign the bot in and out: it affects all users of the server. Raises
        ForbiddenRejection.
        """
        if server.record is not None:
            self._directory.record_of(server, member)
        elif not self._parts.rights.everywhere(member):
            raise ForbiddenRejection(
                f"{server_label(server.config)} is managed in the operator's file. Only the operator can sign in to "
                f"it: `countersign servers connect {server.name}` on the machine that runs the bot."
            )

    async def address(self, server: VisibleServer, member: Member, conversation: ConversationKey) -> str | None:
        """Return the member's private sign-in address, None if there is none or the member has no right. Raises
        ServerTrouble.
        """
        if self._sign_ins is None or not await self.waits(server.config):
            return None
        try:
            self.allow(server, member)
        except ForbiddenRejection:
            return None
        return await self._sign_ins.begin(server.id, member.author, conversation)

    async def link(self, server: VisibleServer, member: Member, conversation: ConversationKey, said: str) -> Reply:
        """Return a private reply with the link after `said`, which is Markdown of this project. Raises
        ForbiddenRejection, CommandRejected, ServerTrouble.
        """
        if self._sign_ins is None:
            raise CommandRejected(SWITCH_ON)
        self.allow(server, member)
        address = await self._sign_ins.begin(server.id, member.author, conversation)
        host, label = urlsplit(address).hostname or "", code(server.name, "the server").strip("`")
        minutes = int(SIGN_IN_SECONDS // 60)
        careful = not host.isascii() or any(part.startswith("xn--") for part in host.split("."))
        return Reply(
            f"{said} [Sign in to {label}]({_in_markdown(address)}) leads to {code(host, 'the address below')}. The bot "
            "is let in as the account that you sign in with there, and everybody's calls run as that account, "
            f"under this server's policies. The link is for you alone, for {minutes} minutes: keep it to yourself.",
            details=(
                ("leads to", urlsplit(address).netloc),
                *((("careful", "This domain is written in letters that can look like others."),) if careful else ()),
                ("whole address", address),
                ("comes back to", self._sign_ins.redirect_uri(server.id)),
            ),
            actions=(ReplyAction("Another link", ("mcp", "secret", "rotate", server.name, SIGN_IN)),),
        )

    async def details(self, server: VisibleServer) -> tuple[tuple[str, str], ...]:
        """Return the sign-in's state and the redirect address, for admins."""
        if self._sign_ins is None:
            return ()
        kept = await self._sign_ins.get(server.id)
        facts = []
        if kept is not None:
            by, since = kept.by or "the bot itself", format_ago(kept.since, self._parts.clock())
            facts.append(("signed in", f"{since} by {by}, at {urlsplit(kept.issuer).netloc}"))
        if kind_of_sign_in(server) is AuthenticationKind.OAUTH:
            facts.append(("redirect address", self._sign_ins.redirect_uri(server.id)))
        return tuple(facts)

    async def again(self, request: CommandContext) -> AsyncIterator[Reply]:
        """Sign in, or replace the current sign-in."""
        seen = await self._found(request)
        if self._sign_ins is not None and not await self._offered(seen.config):
            raise CommandRejected(
                f"{server_label(seen.config)} is not known to take a sign-in in a browser. `/mcp connect {seen.name}` "
                f"asks it; `/mcp edit {seen.name} --auth oauth` says so."
            )
        yield Reply(f"Asking where to sign in to {server_label(seen.config)}…")
        yield await self.link(
            seen, request.member, request.conversation, f"A new sign-in to {server_label(seen.config)}."
        )

    async def end(self, request: CommandContext) -> AsyncIterator[Reply]:
        """Sign out."""
        seen = await self._found(request)
        forgotten = self._sign_ins is not None and await self._sign_ins.sign_out(seen.id, request.author)
        if not forgotten:
            yield Reply(f"Nobody is signed in to {server_label(seen.config)}. Nothing was changed.", failed=True)
            return
        await self._parts.administration.refresh()
        yield Reply(
            f"The bot is signed out of {server_label(seen.config)}: its tokens are deleted, and no call "
            "runs as that account any more.",
            actions=(ReplyAction("Sign in again", ("mcp", "connect", seen.name)),),
        )

    async def _offered(self, config: ServerConfig) -> bool:
        """Return True if the server takes a sign-in."""
        try:
            return self._sign_ins is not None and await self._sign_ins.is_available(config.id)
        except NotFound:
            return False  # this process has not loaded it yet

    async def _found(self, request: CommandContext) -> VisibleServer:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        self.allow(seen, request.member)
        return seen

    def _status(self, config: ServerConfig) -> ServerStatus:
        states = self._parts.servers.servers()
        return next((state.status for state in states if state.config.id == config.id), ServerStatus.PENDING)


def kind_of_sign_in(server: VisibleServer) -> AuthenticationKind:
    """Return the authentication type of the definition."""
    if server.record is not None:
        return server.record.authentication.kind
    return server.config.sign_in.kind if server.config.sign_in is not None else AuthenticationKind.NONE


def oauth_words(terms: OAuthTerms) -> str:
    """Return a summary of the OAuth settings."""
    way = "OAuth, in a browser" if terms.kind is AuthenticationKind.OAUTH else "OAuth, by the bot itself"
    client = f", as client {terms.client_id}" if terms.client_id else ""
    return f"{way}{client}{f', for {terms.scope}' if terms.scope else ''}"


def _in_markdown(address: str) -> str:
    """Escape an address for a Markdown link."""
    return quote(address, safe=_AS_IT_IS)


# -------------------- callback


@dataclass(frozen=True, slots=True)
class SignInCompleted:
    """A completed sign-in. `server` is the slug and `title` the display name; `problem` is the reason for a failed
    connection. Plain text.
    """

    server: str
    title: str
    person: Author
    tools: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SignInRejected:
    """A rejected sign-in: cause and fix, as plain text."""

    cause: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class UnknownLink:
    """A sign-in that is unknown, finished or expired."""


Outcome = SignInCompleted | SignInRejected | UnknownLink


class OAuthCallback:
    """Handler of OAuth callbacks."""

    def __init__(self, parts: CommandDependencies, sign_ins: SignIns, people: UserMessenger) -> None:
        self._parts = parts
        self._sign_ins = sign_ins
        self._people = people
        self._directory = ServerDirectory(parts)
        self._signing_in = SignInSteps(parts, self._directory)

    async def back(self, response: AuthorizationResponse) -> Outcome:
        """Handle a code or an error from the authorization server. Raises DatabaseError."""
        try:
            begun = await self._sign_ins.complete(response, self._allow)
        except NotFound:
            return UnknownLink()
        except _NotAllowed as refused:
            return SignInRejected(refused.cause, refused.fix)
        except DatabaseError:
            raise
        except CountersignError as trouble:
            return SignInRejected(trouble.cause, trouble.fix)
        arrived = await self._arrived(begun)
        await self._tell(begun, arrived)
        return arrived

    async def _allow(self, begun: SignedIn) -> None:
        """Check that the user still has the right. Raises _NotAllowed."""
        seen = await self._find(begun)
        if seen is None:
            raise _NotAllowed("The server is not there any more, or not for you.")
        if begun.by.platform == _SHELL:
            return
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                member = await self._people.member(begun.by, begun.conversation)
        except DeliveryFailed as failure:
            raise _NotAllowed(f"It could not be found out whether you may still do this. {failure.cause}") from failure
        except TimeoutError:
            raise _NotAllowed("Your platform did not say in time whether you may still do this.") from None
        self._judge(seen, member)

    def _judge(self, server: VisibleServer, member: Member) -> None:
        if not self._parts.rights.administers(member):
            raise _NotAllowed(f"Only {self._parts.rights.who} can do this, and you cannot any more.")
        try:
            self._signing_in.allow(server, member)
        except CommandRejected as refusal:
            raise _NotAllowed(str(refusal).replace("`", "")) from refusal

    async def _find(self, begun: SignedIn) -> VisibleServer | None:
        servers = await self._directory.all(begun.conversation)
        return next((server for server in servers if server.id == begun.server), None)

    async def _arrived(self, begun: SignedIn) -> SignInCompleted:
        seen = await self._find(begun)
        if seen is None:
            return SignInCompleted("", "the server", begun.by, 0, "It was removed at this very moment.")
        problem = "" if seen.status is ServerStatus.CONNECTED else seen.problem or f"It is {seen.status.value}."
        tools = len(self._directory.capabilities(seen).tools)
        return SignInCompleted(seen.name, seen.config.title or seen.name, begun.by, tools, problem)

    async def _tell(self, begun: SignedIn, arrived: SignInCompleted) -> None:
        """Send a message to the user who requested the link, if possible."""
        said = f"The bot is signed in to {arrived.title}: {pluralize(arrived.tools, 'tool')}."
        if arrived.problem:
            said = f"The bot is signed in to {arrived.title}, and cannot use it yet. {arrived.problem}"
        try:
            async with asyncio.timeout(_TELLING_SECONDS):
                await self._people.tell(begun.by, begun.conversation, said)
        except (DeliveryFailed, TimeoutError) as failure:
            log.info("message about a sign-in was not sent: %s", failure or "no answer in time")


class _NotAllowed(CountersignError):
    """The user may no longer finish the sign-in."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, "ask an admin of this server")

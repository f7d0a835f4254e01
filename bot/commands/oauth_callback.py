"""Callback of an OAuth sign-in to a server, in the name of the user who requested the link.

Rights are checked again, because the browser does not identify the user. The user gets a message about the result in
the chat.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from bot.commands.argument_parser import CommandRejected
from bot.commands.dependencies import CommandDependencies, UserMessenger
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import pluralize
from bot.domain.conversations import Author, Member
from bot.domain.servers import ServerStatus
from bot.errors import CountersignError, DatabaseError, DeliveryFailed, NotFound
from bot.ports import AuthorizationResponse, SignedIn, SignIns

log = logging.getLogger(__name__)

_ASKING_SECONDS = 10.0
_TELLING_SECONDS = 3.0
"""Seconds that the page waits for the message to be sent."""
_SHELL = "console"
"""The operator's shell: no platform to ask for rights, and no other users."""


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

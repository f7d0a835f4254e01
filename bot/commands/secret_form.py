"""What happens on the page behind a one-time link: a secret is entered there in the name of whoever asked for the link.

Called by the web. A link is used up by the secret that is kept, by nothing else: looking at the page, a secret that
cannot be used and a question that nobody could answer leave it as it is. Rights are asked for anew when something is
entered, since the person is not there to show who they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.commands.dependencies import CommandDependencies, UserMessenger
from bot.commands.rejections import CommandRejected
from bot.commands.server_definition import command_line, entered_values, enters_pair
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_secrets import check_use
from bot.commands.server_validation import ServerValidator
from bot.domain.conversations import Author, Member
from bot.domain.links import TOKEN, SecretLink
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    OAUTH_KINDS,
    USER_SLOT,
    AuthenticationKind,
    HttpTransport,
    ServerRecord,
    StdioTransport,
)
from bot.errors import Conflict, CountersignError, DatabaseError, DeliveryFailed, NotFound
from bot.ports import LinkStore

log = logging.getLogger(__name__)

_ASKING_SECONDS = 10.0
_TELLING_SECONDS = 3.0
"""Whoever has entered a secret waits for that."""
_STORED = SecretReference(SecretSource.STORED)
_WANTED_PAIR = "User name and password, as USER:PASSWORD,"


@dataclass(frozen=True, slots=True)
class SecretPrompt:
    """What a page asks for, as plain text. `server` is the slug and `title` what people call it; `wanted` says what is
    to be entered, and `goes_to` where the bot will use it. `version` is the server's.
    """

    link: SecretLink
    server: str
    title: str
    wanted: str
    goes_to: str
    version: int


@dataclass(frozen=True, slots=True)
class SecretSaved:
    """The secret is kept, and the link is used up."""

    entry: SecretPrompt


@dataclass(frozen=True, slots=True)
class SecretRejected:
    """What was entered cannot be a secret; the link is good still. `why` does not repeat it."""

    entry: SecretPrompt
    why: str


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """The server is not what the person was shown. Nothing was kept; the link is good still."""

    entry: SecretPrompt


@dataclass(frozen=True, slots=True)
class Denied:
    """It is not this person's to do any more, or it could not be done. `why` is Markdown of our own, or an error's own
    words.
    """

    why: str


@dataclass(frozen=True, slots=True)
class AccessCheckFailed:
    """It could not be found out now whether they may; the link is good still. `why` is plain text."""

    why: str


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """There is no such link, it was used, its time is over, or there is nothing left that it is for."""


Outcome = SecretSaved | SecretRejected | ServerChanged | Denied | AccessCheckFailed | LinkExpired


class SecretEntry:
    """Shows what a link is for, and takes what is entered."""

    def __init__(self, parts: CommandDependencies, links: LinkStore, people: UserMessenger) -> None:
        self._parts = parts
        self._links = links
        self._people = people
        self._directory = ServerDirectory(parts)
        self._drafting = ServerValidator(parts, self._directory)

    async def look(self, token: str) -> SecretPrompt | None:
        """What the link is for; None if it is good for nothing. Uses nothing up. Raises DatabaseError."""
        found = await self._find(token)
        return None if found is None else _entry(*found)

    async def enter(self, token: str, version: str, value: str) -> Outcome:
        """Keep a secret. `version` is the server's as the person was shown it. Raises DatabaseError."""
        found = await self._find(token)
        if found is None:
            return LinkExpired()
        link, record = found
        entry, value = _entry(link, record), value.strip()
        values, why = entered_values(record, link.slot, value)
        if why:
            return SecretRejected(entry, why)
        if str(record.version) != version:
            # It may have another address now, for which nobody has meant this secret.
            return ServerChanged(entry)
        member = await self._allowed(link, record)
        if not isinstance(member, Member):
            return member
        if await self._links.take(token) is None:
            return LinkExpired()
        return await self._keep(entry, record, values, member.author)

    async def tell(self, entry: SecretPrompt) -> None:
        """Say to whoever asked for the link that it has been used, if they can be told."""
        link = entry.link
        said = f"The secret {link.slot} of {entry.server} is set. /mcp verify {entry.server} says whether it works."
        try:
            async with asyncio.timeout(_TELLING_SECONDS):
                await self._people.tell(link.person, link.conversation, said)
        except (DeliveryFailed, TimeoutError) as failure:
            log.info("message about a saved secret was not sent: %s", failure or "no answer in time")

    async def _find(self, token: str) -> tuple[SecretLink, ServerRecord] | None:
        """The link, and the server as it is now. One that its people cannot see any more is none."""
        link = await self._links.find(token) if TOKEN.fullmatch(token) else None
        if link is None:
            return None
        servers = await self._directory.all(link.conversation)
        record = next((each.record for each in servers if each.record is not None and each.id == link.server_id), None)
        return None if record is None else (link, record)

    async def _allowed(self, link: SecretLink, record: ServerRecord) -> Member | Denied | AccessCheckFailed:
        """Whoever asked for the link, if they may still do what it is for."""
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                member = await self._people.member(link.person, link.conversation)
        except DeliveryFailed as failure:
            return AccessCheckFailed(failure.cause)
        except TimeoutError:
            return AccessCheckFailed("Your platform did not answer in time.")
        if not self._parts.rights.administers(member):
            return Denied(f"Only {self._parts.rights.who} can do this, and you cannot any more.")
        try:
            self._directory.record_of(VisibleServer(record.config, record), member)
            self._drafting.may_define(record.config, member)
            check_use(record, link.slot)
            await self._drafting.check_allowed(record.config)
        except CommandRejected as refusal:
            return Denied(str(refusal))
        return member

    async def _keep(self, entry: SecretPrompt, record: ServerRecord, values: Mapping[str, str], by: Author) -> Outcome:
        slot = entry.link.slot
        changed = replace(record, secrets={**record.secrets, **dict.fromkeys(values, _STORED)})
        changes = {f"secret {slot}": f"{record.secrets.get(slot) or 'nothing'} → {_STORED}, by a one-time link"}
        try:
            await self._parts.server_store.change(changed, values, by, changes=changes)
        except Conflict:
            return Denied("The server was changed at this very moment. Ask for another link.")
        except NotFound:
            return LinkExpired()
        except DatabaseError:
            # It may be kept: only the answer to the COMMIT may have been lost.
            return Denied(
                f"The database went away just now. `/mcp show {entry.server}` says whether the secret is set."
            )
        except CountersignError as error:
            return Denied(str(error))
        with suppress(DatabaseError):
            # It is kept: if this process cannot follow now, it does at its next look.
            await self._parts.administration.refresh()
        return SecretSaved(entry)


def _entry(link: SecretLink, record: ServerRecord) -> SecretPrompt:
    config = record.config
    match config.transport:
        case HttpTransport(url):
            to_another = link.slot == AUTH_SECRET and record.authentication.kind in OAUTH_KINDS
            goes_to = f"the authorization server of {url}" if to_another else url
        case StdioTransport():
            goes_to = command_line(config)
    return SecretPrompt(
        link, config.name, config.title or config.name, _wanted(link.slot, record), goes_to, record.version
    )


def _wanted(slot: str, record: ServerRecord) -> str:
    """What a slot holds, in the words of the service that has given it out."""
    signing_in = record.authentication
    kind, _, name = slot.partition(":")
    match kind, signing_in.kind:
        case "header", _:
            return f"Value of the header {name}"
        case "env", _:
            return f"Value of the variable {name}"
        case _, AuthenticationKind.BASIC:
            pair = _WANTED_PAIR if enters_pair(record) else "Password"
            return "User name" if slot == USER_SLOT else pair
        case _, AuthenticationKind.API_KEY:
            return "API key"
        case _, AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS:
            return f"Secret of the OAuth client {signing_in.client_id}".rstrip()
        case _, AuthenticationKind.HEADER | AuthenticationKind.NONE:
            return f"Value of the header {signing_in.header}"

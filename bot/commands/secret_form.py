"""Form of a one-time link: a secret is entered in the name of the user who requested the link.

Only a saved secret uses up the link; views, invalid values and failed access checks do not. Rights are checked again on
submission, because the browser does not identify the user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.commands.argument_parser import CommandRejected
from bot.commands.dependencies import CommandDependencies, UserMessenger
from bot.commands.server_checks import ServerValidator
from bot.commands.server_definition import command_line, entered_values, enters_pair
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_secrets import check_use
from bot.domain.conversations import Author, Member
from bot.domain.secrets import TOKEN, SecretLink, SecretReference, SecretSource
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
"""Seconds that the page waits for the message to be sent."""
_STORED = SecretReference(SecretSource.STORED)
_WANTED_PAIR = "User name and password, as USER:PASSWORD,"


@dataclass(frozen=True, slots=True)
class SecretPrompt:
    """Texts of the form, plain. `server` is the slug and `title` the display name; `wanted` describes the secret,
    `goes_to` its use. `version` is the server's.
    """

    link: SecretLink
    server: str
    title: str
    wanted: str
    goes_to: str
    version: int


@dataclass(frozen=True, slots=True)
class SecretSaved:
    """The secret is saved, and the link is used up."""

    entry: SecretPrompt


@dataclass(frozen=True, slots=True)
class SecretRejected:
    """The value cannot be a secret; the link stays valid. `why` does not repeat it."""

    entry: SecretPrompt
    why: str


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """The server was changed since the form was shown. No secret was saved; the link stays valid."""

    entry: SecretPrompt


@dataclass(frozen=True, slots=True)
class Denied:
    """The user has lost the right, or saving failed. `why` is Markdown of this project, or an error's own text."""

    why: str


@dataclass(frozen=True, slots=True)
class AccessCheckFailed:
    """The rights could not be checked now; the link stays valid. `why` is plain text."""

    why: str


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """The link is unknown, used or expired, or its server is gone."""


Outcome = SecretSaved | SecretRejected | ServerChanged | Denied | AccessCheckFailed | LinkExpired


class SecretEntry:
    """Shows the form of a link, and saves the secret."""

    def __init__(self, parts: CommandDependencies, links: LinkStore, people: UserMessenger) -> None:
        self._parts = parts
        self._links = links
        self._people = people
        self._directory = ServerDirectory(parts)
        self._drafting = ServerValidator(parts, self._directory)

    async def look(self, token: str) -> SecretPrompt | None:
        """Return the form of a link, None if the link is invalid. The link stays valid. Raises DatabaseError."""
        found = await self._find(token)
        return None if found is None else _entry(*found)

    async def enter(self, token: str, version: str, value: str) -> Outcome:
        """Save a secret. `version` is the server's version in the form. Raises DatabaseError."""
        found = await self._find(token)
        if found is None:
            return LinkExpired()
        link, record = found
        entry, value = _entry(link, record), value.strip()
        values, why = entered_values(record, link.slot, value)
        if why:
            return SecretRejected(entry, why)
        if str(record.version) != version:
            # The server may have a new address, for which the secret was not meant.
            return ServerChanged(entry)
        member = await self._allowed(link, record)
        if not isinstance(member, Member):
            return member
        if await self._links.take(token) is None:
            return LinkExpired()
        return await self._keep(entry, record, values, member.author)

    async def tell(self, entry: SecretPrompt) -> None:
        """Send a message to the user who requested the link, if possible."""
        link = entry.link
        said = f"The secret {link.slot} of {entry.server} is set. /mcp verify {entry.server} says whether it works."
        try:
            async with asyncio.timeout(_TELLING_SECONDS):
                await self._people.tell(link.person, link.conversation, said)
        except (DeliveryFailed, TimeoutError) as failure:
            log.info("message about a saved secret was not sent: %s", failure or "no answer in time")

    async def _find(self, token: str) -> tuple[SecretLink, ServerRecord] | None:
        """Return the link and its current server; None if the server is no longer visible in its workspace."""
        link = await self._links.find(token) if TOKEN.fullmatch(token) else None
        if link is None:
            return None
        servers = await self._directory.all(link.conversation)
        record = next(
            (server.record for server in servers if server.record is not None and server.id == link.server_id), None
        )
        return None if record is None else (link, record)

    async def _allowed(self, link: SecretLink, record: ServerRecord) -> Member | Denied | AccessCheckFailed:
        """Return the user who requested the link if the rights still suffice."""
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
            # It may be saved: only the response to the COMMIT may have been lost.
            return Denied(
                f"The database went away just now. `/mcp show {entry.server}` says whether the secret is set."
            )
        except CountersignError as error:
            return Denied(str(error))
        with suppress(DatabaseError):
            # It is saved: if this process cannot refresh now, its next poll does.
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
    """Return the description of a slot in the provider's words."""
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

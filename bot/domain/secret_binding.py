"""Place of a server's secret: the only place where the secret is used. The operator's file of grants permits others.

The place is text. It is stored with the secret and compared at every use. Two places are the same if their texts are
equal. A grant permits servers of a workspace to refer to secrets of the operator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    EVERYWHERE,
    OAUTH_KINDS,
    HttpTransport,
    ServerConfig,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
)
from bot.i18n import _, gettext_lazy

_PORTS = {"http": 80, "https": 443}


def binding_of(record: ServerRecord, slot: str) -> str:
    """Return the place of the server that the secret of a slot belongs to.

    The secret of an OAuth client goes to the authorization server that the server's address names, so it belongs to the
    client and the whole address. Every other secret belongs to the server's origin or program.
    """
    place = place_text(record.config.transport)
    if slot == AUTH_SECRET and record.authentication.kind in OAUTH_KINDS:
        transport = record.config.transport
        address = transport.url if isinstance(transport, HttpTransport) else place
        return f"client {record.authentication.client_id} of {address}"
    return place


def place_text(transport: Transport) -> str:
    """Return the destination of a server's secrets: `https://host:443`, or the program with its arguments as JSON.

    A program's environment variables are not part of it, because they hold the secrets.
    """
    match transport:
        case HttpTransport(url):
            return origin_of(url)
        case StdioTransport(launch=TemplateLaunch(template, values)):
            return f"launch template {template} {json.dumps(dict(values), sort_keys=True)}"
        case StdioTransport(command, args, _, cwd):
            folder = f" in {cwd}" if cwd else ""
            return f"program {json.dumps([command, *args])}{folder}"


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address. An address that cannot be parsed is its own origin."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return url
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def cleared_slots(before: ServerRecord, after: ServerRecord, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the stored secrets that a change clears, with the place that each was entered for.

    A stored secret is cleared if its place changes and `given` has no new value for it.
    """
    return {
        slot: binding_of(before, slot)
        for slot, reference in after.secrets.items()
        if reference.source is SecretSource.STORED
        and before.secrets.get(slot) == reference
        and slot not in before.missing
        and slot not in given
        and binding_of(before, slot) != binding_of(after, slot)
    }


@dataclass(frozen=True, slots=True)
class SecretGrant:
    """One grant: a reference, and the workspaces and places in which servers may use it. `templates` are names of
    launch templates, `hosts` are origins such as `https://host:443`. `line` is the line of the file, from 1.
    """

    reference: SecretReference
    workspaces: frozenset[str]
    hosts: frozenset[str]
    templates: frozenset[str]
    line: int

    def covers(self, reference: SecretReference, config: ServerConfig) -> bool:
        """Return True if this server may use this reference. Everything is compared exactly."""
        if not reference.same_place(self.reference) or config.workspace not in self.workspaces:
            return False
        match config.transport:
            case HttpTransport(url):
                return origin_of(url) in self.hosts
            case StdioTransport(launch=TemplateLaunch(template)):
                return template in self.templates
            case StdioTransport():
                return False


@dataclass(frozen=True, slots=True)
class GrantProblem:
    """An entry of the file that grants nothing. `line` is 0 if the file as a whole cannot be read."""

    line: int
    cause: str
    fix: str

    @property
    def sentence(self) -> str:
        """Line, cause and fix."""
        if not self.line:
            return _("{cause} It grants nothing. Fix: {fix}.", cause=self.cause, fix=self.fix)
        return _("Line {line}: {cause} It grants nothing. Fix: {fix}.", line=self.line, cause=self.cause, fix=self.fix)


@dataclass(frozen=True, slots=True)
class SecretGrants:
    """Content of the file. An entry with an error grants nothing. `source` is the file's name for users."""

    grants: tuple[SecretGrant, ...] = ()
    problems: tuple[GrantProblem, ...] = ()
    source: str = "config/secret_grants.toml"

    def objection(self, reference: SecretReference, config: ServerConfig) -> tuple[str, str]:
        """Return cause and fix if this server may not use this reference; two empty strings if it may."""
        if any(grant.covers(reference, config) for grant in self.grants):
            return "", ""
        where = config.workspace or gettext_lazy("every workspace")
        match config.transport:
            case HttpTransport(url):
                origin = format_origin(origin_of(url))
                servers = gettext_lazy("servers of {workspace} at {origin}", workspace=where, origin=origin)
                place = f'hosts = ["{origin}"]'
            case StdioTransport(launch=TemplateLaunch(template)):
                servers = gettext_lazy(
                    "servers of {workspace} that the launch template {template} starts",
                    workspace=where,
                    template=template,
                )
                place = f'templates = ["{template}"]'
            case StdioTransport():
                servers, place = gettext_lazy("programs of {workspace}", workspace=where), ""
        if config.workspace == EVERYWHERE or not place:
            fix = gettext_lazy("have the operator define it (`countersign servers` or ADMIN_API_TOKEN)")
        else:
            entry = f'secret = "{reference}", workspaces = ["{config.workspace}"], {place}'
            fix = gettext_lazy("ask the operator for a [[grant]] in {file} with {entry}", file=self.source, entry=entry)
        cause = gettext_lazy(
            "The reference {reference} is the operator's, and is not granted to {servers}.",
            reference=reference,
            servers=servers,
        )
        return cause, gettext_lazy("{entry}, or enter the secret itself", entry=fix)


FindGrants = Callable[[], SecretGrants]
"""Return the current grants of the file."""


def format_origin(origin: str) -> str:
    """Return an origin as the file spells it: https and its port are left out."""
    return origin.removeprefix("https://").removesuffix(":443") if origin.startswith("https://") else origin

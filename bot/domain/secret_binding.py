"""Place of a server's secret: the only place where the secret is used.

The place is text. It is stored with the secret and compared at every use. Two places are the same if their texts are
equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from bot.domain.secrets import SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    OAUTH_KINDS,
    HttpTransport,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
)

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

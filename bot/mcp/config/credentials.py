"""Injection of stored secrets into a server's definition, before each connection.

The result must never be shown: `redaction.secrets_of` finds each secret in it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace

from bot.domain.servers import (
    AUTH_SECRET,
    USER_SLOT,
    Authentication,
    AuthenticationKind,
    HttpTransport,
    OAuthTerms,
    ServerConfig,
    ServerRecord,
    StdioTransport,
    is_reserved_header,
)
from bot.i18n import gettext_lazy
from bot.mcp.errors import InvalidDefinition, header_fits

_ENV, _HEADER = "env:", "header:"
_WITHOUT_HEADER = (AuthenticationKind.NONE, AuthenticationKind.OAUTH, AuthenticationKind.CLIENT_CREDENTIALS)


def inject_secrets(record: ServerRecord, values: Mapping[str, str]) -> ServerConfig:
    """Return the server with its secrets. `values` are by slot. Raises InvalidDefinition, without secrets in it."""
    config = record.config
    missing = sorted(record.secrets.keys() - values.keys())
    if missing:
        raise InvalidDefinition(
            "Server {server}: the secret {secret} has no value.", "set it again", server=config.name, secret=missing[0]
        )
    match config.transport:
        case StdioTransport() as process:
            if record.authentication.kind is not AuthenticationKind.NONE:
                raise InvalidDefinition(
                    "Server {server} is a process, which has no sign-in.", "give it env secrets", server=config.name
                )
            variables = _slots(values, _ENV)
            for name, value in variables.items():
                if not name or "=" in name or "\0" in name + value:
                    raise InvalidDefinition(
                        "Server {server}: a secret does not fit the environment.", "set it again", server=config.name
                    )
            return replace(config, transport=replace(process, env={**process.env, **variables}))
        case HttpTransport() as endpoint:
            secret = values.get(AUTH_SECRET, "")
            signing_in = _signing_in(config.name, record.authentication, secret, values.get(USER_SLOT, ""))
            several = (endpoint.headers, _slots(values, _HEADER), signing_in)
            # Names are without case, and the last value is used.
            by_name = {name.lower(): (name, value) for headers in several for name, value in headers.items()}
            headers = dict(by_name.values())
            for name, value in headers.items():
                _check_header(config.name, name, value)
            terms = _terms(config.name, record.authentication, secret)
            if terms is not None and any(name.lower() == "authorization" for name in headers):
                raise InvalidDefinition(
                    "Server {server} is signed in to, and has a header Authorization of its own.",
                    "take that header out, or sign in by it alone",
                    server=config.name,
                )
            return replace(config, transport=replace(endpoint, headers=headers), sign_in=terms)


def _terms(server: str, authentication: Authentication, secret: str) -> OAuthTerms | None:
    match authentication.kind:
        case AuthenticationKind.CLIENT_CREDENTIALS if not (authentication.client_id and secret):
            raise InvalidDefinition(
                gettext_lazy("Server {server} has no client id and secret to get a token with.", server=server),
                gettext_lazy("set its client id and its secret"),
            )
        case AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS as kind:
            return OAuthTerms(kind, authentication.client_id, secret, authentication.scope, authentication.issuer)
        case _:
            return None


def _slots(values: Mapping[str, str], kind: str) -> dict[str, str]:
    return {slot.removeprefix(kind): value for slot, value in values.items() if slot.startswith(kind)}


def _signing_in(server: str, authentication: Authentication, secret: str, user: str) -> dict[str, str]:
    """Return the static header that authenticates the bot: RFC 7617 (basic), RFC 6750 (bearer)."""
    kind = authentication.kind
    if not secret and kind not in _WITHOUT_HEADER:
        raise InvalidDefinition("Server {server} has no secret to sign in with.", "set its secret", server=server)
    match kind:
        case AuthenticationKind.HEADER:
            return {authentication.header: secret}
        case AuthenticationKind.API_KEY:
            bearer = authentication.header.lower() == "authorization"
            return {authentication.header: f"Bearer {secret}" if bearer else secret}
        case AuthenticationKind.BASIC:
            if not user:
                raise InvalidDefinition(
                    gettext_lazy("Server {server} has no user name to sign in with.", server=server),
                    gettext_lazy("set it: /mcp secret set {server} {slot}", server=server, slot=USER_SLOT),
                )
            if ":" in user:
                raise InvalidDefinition(
                    "Server {server}: a user name for basic must be without a colon.", "correct it", server=server
                )
            try:
                pair = f"{user}:{secret}".encode()
            except UnicodeEncodeError:
                raise InvalidDefinition(
                    "Server {server}: its secret is not text.", "set it again, as plain text", server=server
                ) from None
            return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}
        case AuthenticationKind.NONE | AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS:
            return {}


def _check_header(server: str, name: str, value: str) -> None:
    # A name may be a mistyped secret, so it is shown only if it is a valid header name.
    if not header_fits(name, ""):
        raise InvalidDefinition(
            "Server {server}: the name of a header is not valid.", "use letters, digits and hyphens", server=server
        )
    if not header_fits(name, value):
        raise InvalidDefinition(
            "Server {server}: the value of the header {name} has a line break or other characters in it that no "
            "header can carry.",
            "set the secret again, as plain ASCII text in one line",
            server=server,
            name=name,
        )
    if is_reserved_header(name):
        raise InvalidDefinition(
            "Server {server}: the header {name} names a host, or is set by the connection itself.",
            "use another header",
            server=server,
            name=name,
        )

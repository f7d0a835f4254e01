"""Parsers of single fields of a server's definition. Each raises ValueError with a sentence for the user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from bot.admin.servers.token_detection import known_token, looks_like_token, plain_warning
from bot.domain.secrets import SecretReference
from bot.domain.server_files import transport_kind
from bot.domain.server_settings import choose, parse_text
from bot.domain.servers import AuthenticationKind, is_address, is_reserved_header
from bot.i18n import _, gettext_lazy

TRANSPORTS = ("streamable_http", "stdio", "auto", "sse", "jsonrpc_http")
KINDS = tuple(kind.value for kind in AuthenticationKind)
LONGEST = {"title": 255, "description": 500, "url": 2048, "command": 2000, "client_id": 512, "scope": 1000}
NO_ADDRESS = gettext_lazy("That is no http or https address. Write https://host/path.")
REFERENCE = gettext_lazy("Write env:NAME or file:/absolute/path: where the secret is, never the secret itself.")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""Characters of a scope (RFC 6749, 3.3)."""
_SECRET_QUERY = re.compile(r"(?i)key|token|secret|password|passwd|auth|sig(nature)?$|credential")


def slug_of(title: str) -> str:
    """Return a slug from a title; empty if the title has no usable characters."""
    return re.sub(r"[^a-z0-9]+", "-", title.strip().lower()).strip("-")[:64].strip("-")


def is_slug(text: str) -> bool:
    """Return True for at most 64 lower-case letters, digits and dashes."""
    return bool(_SLUG.fullmatch(text))


def read_slug(text: str) -> str:
    """Parse a slug."""
    if not is_slug(text):
        raise ValueError(_("Lower-case letters, digits and dashes, at most 64 of them."))
    return text


def read_transport(text: str) -> str:
    """Parse one of TRANSPORTS, by any of its names."""
    return choose(transport_kind(text), TRANSPORTS)


def read_sign_in(text: str) -> AuthenticationKind:
    """Parse a type of authentication."""
    return AuthenticationKind(choose(text.lower().replace("-", "_") or "none", KINDS))


def read_header(text: str) -> str:
    """Parse the name of a header; it may be empty."""
    if text and not HEADER_NAME.fullmatch(text):
        raise ValueError(_("That is no name of a header."))
    check_header(text)
    return text


def check_header(name: str) -> None:
    """Raise ValueError if a server cannot have this header."""
    if is_reserved_header(name):
        raise ValueError(_("This header names a host or is set by the connection itself. Use another one."))


def read_client_id(text: str) -> str:
    """Parse an OAuth client id; it may be empty."""
    if len(text) > LONGEST["client_id"] or not (text.isascii() and text.isprintable()):
        raise ValueError(_("That is no client id. Copy it from where the bot was registered."))
    if known_token(text):
        raise ValueError(plain_warning())
    return text


def read_scope(text: str) -> str:
    """Parse scopes separated by blanks; the text may be empty."""
    names = parse_text(LONGEST["scope"], text).split()
    if not all(map(_SCOPE.fullmatch, names)):
        raise ValueError(_("Names of scopes with blanks between, such as: read write."))
    return " ".join(dict.fromkeys(names))


def read_reference(text: str) -> SecretReference:
    """Parse a reference to a secret; a secret in clear text is rejected."""
    if looks_like_token(text):
        raise ValueError(plain_warning())
    try:
        return SecretReference.parse(text)
    except ValueError:
        raise ValueError(REFERENCE) from None


def read_folder(text: str) -> str:
    """Parse an absolute path; it may be empty."""
    if text and not (text.startswith("/") and text.isprintable()):
        raise ValueError(_("An absolute path, such as /srv/files."))
    return text


def read_command_line(text: str) -> tuple[str, ...]:
    """Parse a command line into a program and its arguments."""
    try:
        return tuple(shlex.split(parse_text(LONGEST["command"], text)))
    except ValueError as error:
        if "quotation" in str(error) or "escaped" in str(error):
            raise ValueError(_("A quotation mark has no partner.")) from None
        raise


def read_address(text: str) -> str:
    """Parse an http or https address without credentials."""
    parse_text(LONGEST["url"], text)
    if not text:
        return ""
    if not is_address(text):
        raise ValueError(NO_ADDRESS)
    address = urlsplit(text)
    if address.username or address.password:
        raise ValueError(_("A user name or password in an address would be kept readable. Use sign-in basic instead."))
    if any(_SECRET_QUERY.search(name) and value for name, value in parse_qsl(address.query)):
        raise ValueError(_("A key in an address would be kept readable. Use sign-in header or api_key instead."))
    if looks_like_token(text):
        raise ValueError(plain_warning())
    return text


NAME_READERS: Mapping[str, Callable[[str], str]] = {
    "name": read_slug,
    "title": partial(parse_text, LONGEST["title"]),
    "description": partial(parse_text, LONGEST["description"]),
}
"""Parsers of the names of a server, which are fields of `ServerConfig`."""

"""The hosts that a text addresses: URLs, hosts alone, mail addresses, and lists of them. The one home of `ada_url`.

Clients disagree on what a URL's host is. A text is read as browsers do it (WHATWG URL) and as RFC 3986 has it, and
where the two see different hosts it has both: a rule that forbids one of them is then about the call, and a rule that
allows is not unless it allows both.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from email.utils import getaddresses
from functools import reduce
from operator import or_
from urllib.parse import unquote, urlsplit

from bot.domain.hosts import UNREADABLE, Hosts

_LONGEST = 20_000
"""Characters of one text that are read."""
_MOST_PIECES = 500
_SEPARATORS = re.compile(r"[\s,;|]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_WITH_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2}")
_SPECIAL = frozenset({"http", "https", "ws", "wss", "ftp"})
"""Schemes that browsers take without slashes, too (WHATWG URL, "special scheme")."""
_PROSE = re.compile(r"[^\s,;|]\s+[^\s,;|]")
"""Words with blanks alone between them, which are no list of addresses."""
_REMOVED = str.maketrans(dict.fromkeys("\t\n\r"))
_AT = re.compile(r"@([^\s,;<>()\"'@/\\?#|]+)")
_RELATIVE = re.compile(r"[/\\](?![/\\])|[.?#]")


def read_hosts(text: str) -> Hosts:
    """Return the hosts that a text addresses. An empty text has none, for certain."""
    if len(text) > _LONGEST:
        return UNREADABLE
    address = text.translate(_REMOVED).strip()
    scheme = _SCHEME.match(address)
    if not address:
        found = Hosts()
    elif _WITH_AUTHORITY.match(address) or (scheme and scheme[1].lower() in _SPECIAL):
        found = _url(address) | _further_urls(text)
    elif scheme and scheme[1].lower() == "mailto":
        found = _mail(unquote(address[len("mailto:") :]))
    elif "@" in text:
        found = _mail(text)
    elif len(pieces := [each for each in _SEPARATORS.split(text) if each]) > 1:
        found = _list(pieces) if not _PROSE.search(text) else _list(pieces) | UNREADABLE
    else:
        found = _alone(address)
    return found


def _list(pieces: Sequence[str]) -> Hosts:
    """The hosts of several addresses."""
    if len(pieces) > _MOST_PIECES:
        return UNREADABLE
    return reduce(or_, map(read_hosts, pieces), Hosts())


def _url(address: str) -> Hosts:
    """The hosts of what begins like a URL, by either reading."""
    try:
        split = urlsplit(address).hostname or ""
    except ValueError:
        split = ""
    return _host(_browsed(address)) | _host(split)


def _further_urls(text: str) -> Hosts:
    """The hosts of a list of URLs in one text."""
    pieces = [each for each in _SEPARATORS.split(text) if _WITH_AUTHORITY.match(each)]
    if len(pieces) > _MOST_PIECES:
        return UNREADABLE
    return reduce(or_, map(_url, pieces if len(pieces) > 1 else ()), Hosts())


def _alone(address: str) -> Hosts:
    """The host of an address without a scheme: `example.com`, `example.com:80/x`, `//example.com`, `::1`."""
    if _RELATIVE.match(address):
        return UNREADABLE
    try:
        return _host(f"[{ipaddress.IPv6Address(address)}]")
    except ValueError:
        pass
    found = _url(f"http:{address}" if address.startswith(("/", "\\")) else f"http://{address}")
    # `example.com:80` may also be read as a scheme that ends in a colon.
    return found if found.names else UNREADABLE


def _mail(text: str) -> Hosts:
    """The hosts of mail addresses, and of what else has an `@` in it."""
    names = Hosts()
    for host in _AT.findall(text)[:_MOST_PIECES]:
        names |= _host(host)
    parsed = Hosts()
    for _, address in getaddresses([text]):
        parsed |= _host(address.rpartition("@")[2]) if "@" in address else UNREADABLE
    alike = parsed.certain and parsed.names == names.names
    return Hosts(names.names | parsed.names, certain=alike and names.certain and bool(names.names))


def _host(host: str) -> Hosts:
    """One host in its canonical form."""
    name = _browsed(f"http://{_in_brackets(host)}/").rstrip(".") if host else ""
    if name.startswith("["):
        address = ipaddress.IPv6Address(name.strip("[]"))
        name = str(address.ipv4_mapped or address)
    return Hosts(frozenset({name})) if name else UNREADABLE


def _browsed(address: str) -> str:
    """The host of a URL as browsers read it, empty if they refuse it."""
    import ada_url  # noqa: PLC0415 - few rules look at hosts

    try:
        return ada_url.URL(address).hostname
    except ValueError:
        return ""


def _in_brackets(host: str) -> str:
    """`urlsplit` gives IPv6 without brackets; a port or credentials must not be read out of it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host

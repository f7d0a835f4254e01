"""Hosts in a text: URLs, bare hosts, mail addresses and lists of them.

Clients disagree on the host of some URLs. A text is parsed by both WHATWG URL and RFC 3986. If the results differ, both
hosts are returned: a rule that forbids one of them applies, and a rule that allows must allow both. Only this module
imports `ada_url`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from email.utils import getaddresses
from functools import reduce
from operator import or_
from urllib.parse import unquote, urlsplit

from bot.domain.policies import UNREADABLE, Hosts

_LONGEST = 20_000
"""Maximum number of characters of a text that are parsed."""
_MOST_PIECES = 500
_SEPARATORS = re.compile(r"[\s,;|]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_WITH_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2}")
_SPECIAL = frozenset({"http", "https", "ws", "wss", "ftp"})
"""Schemes that browsers accept without slashes (WHATWG URL, "special scheme")."""
_PROSE = re.compile(r"[^\s,;|]\s+[^\s,;|]")
"""Words separated by blanks only, so not a list of addresses."""
_REMOVED = str.maketrans(dict.fromkeys("\t\n\r"))
_AT = re.compile(r"@([^\s,;<>()\"'@/\\?#|]+)")
_RELATIVE = re.compile(r"[/\\](?![/\\])|[.?#]")


def read_hosts(text: str) -> Hosts:
    """Return the hosts of a text. An empty text certainly has none."""
    if len(text) > _LONGEST:
        return UNREADABLE
    address = text.translate(_REMOVED).strip()
    scheme = _SCHEME.match(address)
    if not address:
        hosts = Hosts()
    elif _WITH_AUTHORITY.match(address) or (scheme and scheme[1].lower() in _SPECIAL):
        hosts = _url(address) | _further_urls(text)
    elif scheme and scheme[1].lower() == "mailto":
        hosts = _mail_hosts(unquote(address[len("mailto:") :]))
    elif "@" in text:
        hosts = _mail_hosts(text)
    elif len(pieces := [piece for piece in _SEPARATORS.split(text) if piece]) > 1:
        hosts = _list(pieces) if not _PROSE.search(text) else _list(pieces) | UNREADABLE
    else:
        hosts = _bare_address(address)
    return hosts


def _list(pieces: Sequence[str]) -> Hosts:
    if len(pieces) > _MOST_PIECES:
        return UNREADABLE
    return reduce(or_, map(read_hosts, pieces), Hosts())


def _url(address: str) -> Hosts:
    """Return the hosts of a URL by both parsers."""
    try:
        split = urlsplit(address).hostname or ""
    except ValueError:
        split = ""
    return _host(_whatwg_host(address)) | _host(split)


def _further_urls(text: str) -> Hosts:
    pieces = [piece for piece in _SEPARATORS.split(text) if _WITH_AUTHORITY.match(piece)]
    if len(pieces) > _MOST_PIECES:
        return UNREADABLE
    return reduce(or_, map(_url, pieces if len(pieces) > 1 else ()), Hosts())


def _bare_address(address: str) -> Hosts:
    """Return the host of an address without a scheme: `example.com`, `example.com:80/x`, `//example.com`, `::1`."""
    if _RELATIVE.match(address):
        return UNREADABLE
    try:
        return _host(f"[{ipaddress.IPv6Address(address)}]")
    except ValueError:
        pass
    url = _url(f"http:{address}" if address.startswith(("/", "\\")) else f"http://{address}")
    # `example.com:80` also parses as a scheme that ends in a colon.
    return url if url.names else UNREADABLE


def _mail_hosts(text: str) -> Hosts:
    """Return the hosts of mail addresses and other texts with an `@`."""
    names = Hosts()
    for host in _AT.findall(text)[:_MOST_PIECES]:
        names |= _host(host)
    parsed = Hosts()
    for _, address in getaddresses([text]):
        parsed |= _host(address.rpartition("@")[2]) if "@" in address else UNREADABLE
    alike = parsed.certain and parsed.names == names.names
    return Hosts(names.names | parsed.names, certain=alike and names.certain and bool(names.names))


def _host(host: str) -> Hosts:
    """Return one host in its canonical form."""
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"  # `urlsplit` removes the brackets of an IPv6 address.
    name = _whatwg_host(f"http://{host}/").rstrip(".") if host else ""
    if name.startswith("["):
        address = ipaddress.IPv6Address(name.strip("[]"))
        name = str(address.ipv4_mapped or address)
    return Hosts(frozenset({name})) if name else UNREADABLE


def _whatwg_host(address: str) -> str:
    """Return the host of a URL by WHATWG; empty if it is rejected."""
    import ada_url  # noqa: PLC0415 - few rules look at hosts

    try:
        return ada_url.URL(address).hostname
    except ValueError:
        return ""

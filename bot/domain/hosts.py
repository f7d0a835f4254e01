"""Hosts of addresses, without a look at the network."""

from __future__ import annotations

import ipaddress
import re
import unicodedata

_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
"""A last label that makes browsers take a host for an address (WHATWG URL, "ends in a number checker")."""
_LONGEST_LABEL, _LONGEST_NAME = 63, 253


def is_host(host: str) -> bool:
    """Return True for a name of letters, digits and hyphens in any script, or an IP address in its usual form."""
    labels = host.removesuffix(".").split(".")
    if ":" in host or _NUMBER.fullmatch(labels[-1]):
        return _address(host) is not None
    return len(host) <= _LONGEST_NAME and all(
        0 < len(label) <= _LONGEST_LABEL
        and all(character in "-_" or unicodedata.category(character)[0] in "LMN" for character in label)
        for label in labels
    )


def is_this_machine(host: str) -> bool:
    """Return True for a loopback address, and for a name of this machine."""
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

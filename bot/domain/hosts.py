"""Hosts that a text addresses, as rules compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of one text. `names` are canonical: lower case, Punycode, no port, no trailing dot, IPv6 without
    brackets. Two readers of addresses may see different hosts in one text: then both are there. `certain` is False if
    the text, or a part of it, cannot be read as an address: any host may be meant.
    """

    names: frozenset[str] = frozenset()
    certain: bool = True

    def __or__(self, other: Hosts) -> Hosts:
        return Hosts(self.names | other.names, self.certain and other.certain)


UNREADABLE = Hosts(certain=False)

ReadHosts = Callable[[str], Hosts]
"""Return the hosts that a text addresses."""


def no_hosts_read(text: str) -> Hosts:  # noqa: ARG001 - a ReadHosts
    """Read nothing: each rule on a host may be about each call."""
    return UNREADABLE
